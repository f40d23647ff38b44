"""What every source of samples offers: labels, class names, and either the bytes of encoded images or their pixels.

A source is a fixed list of samples.  Its order never depends on the machine: two sources of the same samples are
visited in the same order by the same seed.  All methods may be called from any thread.
"""

import copy
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convnet.data.errors import DataError, DecodeError

UNLABELLED = -1
WORK = ".prepare"  # in a folder that `convnet prepare` has begun
Self = TypeVar("Self", bound="Source")


class Source:
    """A list of samples; each is an `EncodedSource` or a `PixelSource`.

    labels: int32 [n], class indices, or -1 without a label.  classes: names in index order.
    """

    def __init__(self, labels: NDArray[np.int32], classes: Sequence[str] = ()):
        self.labels, self.classes = labels, tuple(classes)

    def __len__(self) -> int:
        return len(self.labels)

    def where(self, index: int) -> str:
        """Which sample this is, for messages: the path of a file, or of an archive and what is in it."""
        raise NotImplementedError

    def take(self: Self, indices: ArrayLike) -> Self:
        """The samples at `indices`, in that order, as a source of the same classes."""
        part = copy.copy(self)
        part.labels = self.labels[np.asarray(indices)]
        return part


@dataclass(frozen=True)
class Place:
    """Where an encoded image lies.

    path: of the file.  name: of the image inside an archive.  offset, size: bytes; size -1: all of the file.
    """

    path: str
    name: str = ""
    offset: int = 0
    size: int = -1

    def __str__(self) -> str:
        return f"{self.path}: {self.name}" if self.name else self.path

    def read(self) -> bytes:
        """The encoded image; raises DecodeError."""
        if self.size < 0:
            return read_file(self.path)
        try:
            with open(self.path, "rb", buffering=0) as file:
                return self.read_from(file.fileno())
        except OSError as error:
            raise DecodeError(str(self), error.strerror or str(error)) from error

    def read_from(self, descriptor: int) -> bytes:
        """The same from the open file."""
        data = os.pread(descriptor, self.size, self.offset)
        if len(data) != self.size:
            raise DecodeError(str(self), f"expected {self.size} bytes at {self.offset}, found {len(data)}")
        return data


def read_file(path: str) -> bytes:
    """All of a file, by few calls of the system: after each, a thread waits for Python's lock.  Raises DecodeError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            data = os.read(descriptor, size)
            while len(data) < size and (more := os.read(descriptor, size - len(data))):
                data += more
            return data
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DecodeError(path, error.strerror or str(error)) from error


class EncodedSource(Source):
    """Encoded images (JPEG, PNG, ...), each a file or a part of one."""

    def place(self, index: int) -> Place:
        """Where the image lies."""
        raise NotImplementedError

    def where(self, index: int) -> str:
        return str(self.place(index))

    def read(self, index: int) -> bytes:
        """The encoded image; raises DecodeError."""
        return self.place(index).read()


class PixelSource(Source):
    """Images as pixels, all of one size.

    images: uint8 [n, H, W, C], in memory or memory-mapped.
    """

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int32], classes: Sequence[str], name: str):
        super().__init__(labels, classes)
        self.images, self.name = images, name
        self._numbers = np.arange(len(labels))

    def where(self, index: int) -> str:
        return f"{self.name}: image {self._numbers[index]}"

    def take(self: "PixelSource", indices: ArrayLike) -> "PixelSource":
        part = super().take(indices)
        part.images, part._numbers = self.images[np.asarray(indices)], self._numbers[np.asarray(indices)]
        return part


class Handles:
    """Files that stay open for reads by offset; at most `most`, so that others can still be opened."""

    def __init__(self, most: int = 512):
        self.most = most
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    def read(self, place: Place) -> bytes:
        """The bytes at a place; raises DecodeError."""
        try:
            descriptor = self._open.get(place.path) or self._opened(place.path)
            return place.read() if descriptor is None else place.read_from(descriptor)
        except OSError as error:
            raise DecodeError(str(place), error.strerror or str(error)) from error

    def _opened(self, path: str) -> int | None:
        with self._lock:
            if path not in self._open and len(self._open) < self.most:
                self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return self._open.get(path)

    def __del__(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def __getstate__(self) -> dict[str, int]:
        return {"most": self.most}  # another process opens its own

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def check_folder(path: str | os.PathLike[str], expected: str) -> None:
    """Raise DataError where there is no folder, or an unfinished one; expected: what should be in it."""
    if not os.path.isdir(path):
        kind = "is not a folder" if os.path.exists(path) else "does not exist"
        raise DataError(f"'{os.fspath(path)}' {kind}; expected {expected}")
    if os.path.isdir(os.path.join(path, WORK)):
        raise DataError(f"'{os.fspath(path)}' holds a part of the images: `convnet prepare` was stopped; give it again")


def some(names: Sequence[str], most: int = 5) -> str:
    """The names, or the first few and how many more there are."""
    listed = ", ".join(f"'{name}'" for name in names[:most])
    return listed + (f" and {len(names) - most} more" if len(names) > most else "")
