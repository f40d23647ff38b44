"""Small photographs, in a manner of speaking: smooth colours, edges and grain, each its own."""

import io
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed, width=48, height=36, mode="RGB"):
    """An image whose JPEG is of a natural size."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)).resize((width, height))
    grain = rng.integers(-8, 9, (height, width, 1))
    return Image.fromarray(np.clip(np.asarray(coarse) + grain, 0, 255).astype(np.uint8)).convert(mode)


def encoded(seed, format="JPEG", **options):
    """Its bytes."""
    buffer = io.BytesIO()
    picture(seed, **options).save(buffer, format)
    return buffer.getvalue()


def write_classes(root, images=4, classes=("cat", "dog"), **options):
    """ROOT/<class>/<number>.jpg."""
    for i, name in enumerate(classes):
        (Path(root) / name).mkdir(parents=True, exist_ok=True)
        for k in range(images):
            (Path(root) / name / f"{k}.jpg").write_bytes(encoded(1000 * i + k, **options))
    return root
