"""Speed of the kernels that bring images to the network: `python scripts/bench_image.py [-o OUT.json]`.

One line a shape, batch and kind of work: microseconds (median by device events, over buffers that together exceed the
L2 cache), images a second, and GB/s of the bytes that a crop has and becomes. Contrast reads each image twice, mixing
reads two images for each. Resampling is of random resized crops of photos of 500 x 375 pixels, in cells.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from convnet.data.augment import Augment, Erasing
from convnet.data.jitter import Jitter
from convnet.data.transform import resized_crop
from kernels import image
from kernels.backend import Cuda
from kernels.bench import CACHE, median_us
from kernels.layout import view

SHAPES = {"imagenet": (256, 224), "imagenet.cut": (224, 224), "cifar": (32, 24)}  # sides of the source, of the crop
PCA = ((5.0, 10.0, 30.0), (0.0, 5.0, 60.0), (2.0, 0.0, 70.0))
KINDS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "mean image": None,
    "noise": {"noise": 0.1, "pca": PCA},
    "contrast": {"jitter": Jitter(0.4, 0.4, 0.4)},
    "erased": {"erasing": Erasing(0.5)},
    "mixed": {"mixup": 0.2, "cutmix": 1.0},
    "all": {
        "jitter": Jitter(0.4, 0.4, 0.4), "noise": 0.1, "pca": PCA, "erasing": Erasing(0.5), "mixup": 0.2, "cutmix": 1.0,
    },
}  # fmt: skip


def operands(backend: Cuda, kind: str, source: int, side: int, batch: int) -> tuple[Any, Any, dict[str, Any]]:
    """The operation, its geometry and random arguments on the device."""
    rng, options = np.random.default_rng(0), KINDS[kind]
    arrays: dict[str, np.ndarray] = {
        "pixels": rng.integers(0, 256, (batch, source, source, 3), np.uint8),
        "corner": rng.integers(0, source - side + 1, (batch, 2), np.int32),
        "mirror": rng.integers(0, 2, batch, np.uint8),
        "mean": rng.uniform(90, 130, (3, side, side) if kind == "mean image" else 3).astype(np.float32),
        "std": rng.uniform(40, 70, 3).astype(np.float32),
    }
    sizes = (3, side, side, batch, source, source, kind == "mean image")
    drawn = Augment((3, side, side), **options).draw(0, 0, np.arange(batch)) if options else {}
    op: Any = image.AUGMENT if options else image.PREPARE
    g = image.Augment(*sizes, contrast="pull" in drawn) if options else image.Prepare(*sizes)
    for name, values in drawn.items():
        arrays[name] = values.astype(np.int32 if name in ("erased", "partner", "patch") else np.float32)
    y = view(backend.zeros(3 * side * side * batch, np.float32), (3, side, side, batch), "hcwn")
    return op, g, {name: _upload(backend, arrays[name]) if name in arrays else None for name in op.arguments} | {"y": y}


def resampled(backend: Cuda, side: int, batch: int) -> tuple[Any, Any, dict[str, Any]]:
    """The same of image.resample."""
    height, width, cell = 375, 500, image.HEAD + 3 * 3 * side * side
    rng, cells = np.random.default_rng(0), np.zeros((batch, cell), np.uint8)
    for one in cells:
        tall, wide, room = 375, 500, cell - image.HEAD
        while 3 * tall * wide > room:
            _, _, tall, wide = resized_crop(height, width, rng.integers(0, 2**32, (10, 4), np.uint32))
        one[:8].view(np.int32)[:] = tall, wide
        one[image.HEAD :] = rng.integers(0, 256, room, np.uint8)
    pixels = backend.zeros(3 * side * side * batch, np.uint8).reshape(batch, side, side, 3)
    g = image.Resample(3, side, side, batch, cell)
    return image.RESAMPLE, g, {"cells": _upload(backend, cells), "pixels": pixels}


def _upload(backend: Cuda, array: np.ndarray) -> Any:
    target = backend.zeros(array.size, array.dtype).reshape(array.shape)
    backend.upload(target, array)
    return target


def measure(backend: Cuda, kind: str, shape: str, batch: int) -> dict[str, Any]:
    """One line."""
    source, side = SHAPES[shape]
    moved = batch * side * side * 3 * (1 + 4)
    starts = []
    for _ in range(min(8, 1 + CACHE // moved)):
        if kind == "resampled":
            op, g, arguments = resampled(backend, side, batch)
        else:
            op, g, arguments = operands(backend, kind, source, side, batch)
        chosen = backend.choose(op, g)
        starts.append(backend.bind(op, g, arguments, backend.zeros(max(1, chosen[1].workspace)), chosen))
    us = median_us(backend, starts)
    return {
        "shape": shape, "batch": batch, "kind": kind, "us": round(us, 1), "images_per_s": round(batch / us * 1e6),
        "gb_per_s": round(moved / us / 1e3),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[128, 256])
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    backend, found = Cuda(), []
    for shape, batch, kind in [*product(SHAPES, args.batch, KINDS), *product(["imagenet"], args.batch, ["resampled"])]:
        found.append(measure(backend, kind, shape, batch))
        print(json.dumps(found[-1]), flush=True)
    if args.output:
        args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
