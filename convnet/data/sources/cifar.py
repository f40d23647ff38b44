"""CIFAR-10 and CIFAR-100 from the pickles of their authors, without running what a pickle may ask for."""

import io
import os
import pickle
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError
from convnet.data.sources.base import PixelSource
from convnet.data.sources.classes import indexed

SIDE, CHANNELS = 32, 3
MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
TRAIN = [f"data_batch_{number}" for number in range(1, 6)]
FAULTS = (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, AttributeError, IndexError, MemoryError)


class _Unpickler(pickle.Unpickler):
    """Builds arrays, numbers, texts and containers of them, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return lambda code, *unused: np.dtype(code)
        if module in MODULES and name == "_reconstruct":
            return lambda *unused: np.empty(0, np.uint8)
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in an old protocol
            return lambda text, coding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it names {module}.{name}, which images have no need of")


class CifarSource(PixelSource):
    """Images [n, 32, 32, 3] of CIFAR-10, CIFAR-100 or cuda-convnet's CIFAR-10, all in memory.

    path: folder that holds the batches, or the .tar.gz file.  part: "train" or "test".
    batches: numbers of CIFAR-10's training batches, 1 to 5; none: all.  cuda-convnet counts its test batch as 6.
    labels: "fine" or, of CIFAR-100, "coarse".  classes: of a model; must be the same.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        part: str = "train",
        batches: Sequence[int] = (),
        labels: str = "fine",
        classes: Sequence[str] | None = None,
    ):
        where = os.fspath(path)
        opened = _Folder(where) if os.path.isdir(where) else _Archive(where)
        kind = "100" if "meta" in opened.names else "10"
        meta = opened.load("meta" if kind == "100" else "batches.meta")
        names = _batches(where, opened.names, kind, part, batches)
        key = f"{labels}_labels" if kind == "100" else "labels"
        if kind == "10" and labels != "fine":
            raise DataError(f"'{where}' is CIFAR-10, which has no {labels} labels")
        loaded = [_batch(where, name, opened.load(name), key) for name in names]
        images = np.concatenate([pixels for pixels, _ in loaded])
        found = np.concatenate([numbers for _, numbers in loaded])
        words = _texts(meta, f"{labels}_label_names" if kind == "100" else "label_names", where)
        if found.min(initial=0) < 0 or found.max(initial=0) >= len(words):
            raise DataError(f"'{where}': labels from {found.min()} to {found.max()} of {len(words)} classes")
        super().__init__(images, *indexed(where, found, words, classes=classes, allow_empty=True), f"{where}, {part}")


class _Folder:
    def __init__(self, path: str):
        self.path, self.names = path, set(os.listdir(path))

    def load(self, name: str) -> dict[str, Any]:
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                return _unpickled(file, os.path.join(self.path, name))
        except OSError as error:
            raise DataError(f"cannot read '{os.path.join(self.path, name)}': {error.strerror}") from error


class _Archive:
    def __init__(self, path: str):
        try:
            with tarfile.open(path) as tar:
                files = {os.path.basename(info.name): tar.extractfile(info) for info in tar if info.isreg()}
                self._data = {name: file.read() for name, file in files.items() if file}
        except (OSError, EOFError, tarfile.TarError) as error:
            expected = "expected a folder of CIFAR batches, or the .tar.gz file"
            raise DataError(f"cannot read '{path}': {error}; {expected}") from error
        self.path, self.names = path, set(self._data)

    def load(self, name: str) -> dict[str, Any]:
        if name not in self._data:
            raise DataError(f"'{self.path}' has no {name}")
        return _unpickled(io.BytesIO(self._data[name]), f"{self.path}: {name}")


def _unpickled(file: BinaryIO, where: str) -> dict[str, Any]:
    try:
        found = _Unpickler(file, encoding="latin1").load()
    except FAULTS as error:
        raise DataError(f"'{where}' is not a CIFAR batch: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"'{where}' is not a CIFAR batch: expected a dict, found {type(found).__name__}")
    return found


def _batches(where: str, names: set[str], kind: str, part: str, batches: Sequence[int]) -> list[str]:
    """Which files the part consists of."""
    if kind == "100":
        if batches:
            raise DataError(f"'{where}' is CIFAR-100, which has one training batch; expected batches: []")
        return [part]
    if part == "train":
        wanted = [f"data_batch_{number}" for number in batches] if batches else TRAIN
    else:
        wanted = ["test_batch" if "test_batch" in names else "data_batch_6"]
    if missing := [name for name in wanted if name not in names]:
        raise DataError(f"'{where}' has no {', '.join(missing)}")
    return wanted


def _batch(where: str, name: str, batch: dict[str, Any], key: str) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    data, labels = batch.get("data"), batch.get(key)
    size = SIDE * SIDE * CHANNELS
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or size not in data.shape:
        raise DataError(f"'{where}': {name}: expected pixels uint8 [n, {size}] or [{size}, n]")
    rows = data if data.shape[1] == size else data.T  # cuda-convnet's has an image a column
    if not isinstance(labels, list) or len(labels) != len(rows):
        raise DataError(f"'{where}': {name}: expected a list of {len(rows)} {key}")
    images = rows.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.array(labels, np.int32)


def _texts(meta: dict[str, Any], key: str, where: str) -> list[str]:
    words = meta.get(key)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError(f"'{where}': its meta file has no {key}")
    return words
