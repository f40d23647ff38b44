"""Decoded images of one size in a memory-mapped array: for machines where decoding is the limit."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError
from convnet.data.sources.base import PixelSource, check_folder
from convnet.data.sources.classes import indexed
from convnet.data.sources.index import NAME, Index

IMAGES, LABELS = "images.npy", "labels.npy"


class RawSource(PixelSource):
    """PATH/images.npy, uint8 [n, height, width, channels], with the labels in PATH/index.npz, as `convnet prepare`
    writes it, or in PATH/labels.npy, integers [n].

    classes, class_list, allow_empty: as of FolderSource; either names the numbers of labels.npy.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        classes: Sequence[str] | None = None,
        class_list: str | Path | None = None,
        allow_empty: bool = False,
    ):
        root = Path(path)
        check_folder(root, f"a folder with {IMAGES}")
        if not (root / IMAGES).exists():
            hint = "; tar files are data of `type: shards`" if any(root.glob("*.tar")) else ""
            raise DataError(f"'{root}' has no {IMAGES}, which `convnet prepare --format raw` makes{hint}")
        images = _mapped(root / IMAGES)
        names: Sequence[str] = ()
        if (root / NAME).exists():
            index = Index.load(root / NAME)
            labels, names = index["label"], index.meta["classes"] or ()
        else:
            labels = _labels(root / LABELS)
        if len(labels) != len(images):
            raise DataError(f"'{root}': {len(images)} images and {len(labels)} labels")
        given: dict[str, Any] = {"classes": classes, "class_list": class_list, "allow_empty": allow_empty}
        super().__init__(images, *indexed(os.fspath(path), labels, names, **given), str(root / IMAGES))

    def __getstate__(self) -> dict[str, Any]:
        """For another process: it maps the file itself."""
        return self.__dict__ | ({"images": None} if isinstance(self.images, np.memmap) else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["images"] is None:
            self.images = _mapped(Path(self.name))


def _mapped(path: Path) -> NDArray[np.uint8]:
    try:
        images: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        short = "mmap length" in str(error)
        told = f"it has {path.stat().st_size:,} bytes, fewer than its header says" if short else str(error)
        raise DataError(f"cannot read '{path}': {told}") from error
    if images.dtype != np.uint8 or images.ndim != 4 or not images.flags.c_contiguous or images.shape[3] not in (1, 3):
        shape = f"{images.dtype} {list(images.shape)}"
        raise DataError(f"'{path}': expected uint8 [n, height, width, 1 or 3] in C order, found {shape}")
    return images


def _labels(path: Path) -> NDArray[np.int32]:
    try:
        labels = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read '{path}': {error}") from error
    fits = labels.ndim == 1 and labels.dtype.kind in "iu"
    if not fits or labels.min(initial=0) < 0 or labels.max(initial=0) >= 2**31:
        raise DataError(f"'{path}': expected class numbers [n], found {labels.dtype} {list(labels.shape)}")
    return labels.astype(np.int32)
