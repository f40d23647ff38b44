"""Write scikit-learn's handwritten digits as class folders of JPEGs: FOLDER/{train,val}/{0..9}/digit_NNNN.jpg.

1,797 scans of 8x8 pixels, enlarged to 24x24; every fifth scan of each class is for validation.
The files are the same on every run. Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

SIDE = 24


def split(labels: np.ndarray) -> Iterator[tuple[str, int]]:
    """("train" | "val", index) of each sample: the samples sorted by class, every fifth one for validation."""
    for rank, index in enumerate(np.argsort(labels, kind="stable")):
        yield ("train" if rank % 5 else "val"), int(index)


def enlarge(scan: np.ndarray) -> Image.Image:
    """An 8x8 scan of values 0..16 as a grayscale image."""
    pixels = np.round(scan * (255 / 16)).astype(np.uint8)
    return Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def write(folder: Path) -> int:
    """Write all files, the number of which is returned; those that are there already are replaced."""
    digits = load_digits()
    for part, index in split(digits.target):
        target = folder / part / str(digits.target[index]) / f"digit_{index:04}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        enlarge(digits.images[index]).save(target, quality=95)
    return len(digits.target)


def main() -> None:
    """Command line: the folder to write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data/digits"))
    folder = parser.parse_args().folder
    print(f"{write(folder)} images in {folder}")


if __name__ == "__main__":
    main()
