"""Decoded images in memory, so that a small dataset is decoded once and not in every epoch."""

import threading
from math import prod

import numpy as np
from numpy.typing import NDArray

from convnet.data.pixels import Pixels, copy

MIB = 1 << 20
AUTO_MIB = 1024  # "auto" keeps a dataset that fits this
SURE = 64  # images after which their mean size is trusted


class Cache:
    """Keeps images until the limit is reached, then takes no more: each epoch reads every image once, so that to
    replace one by another gains nothing.  What is kept changes speed only.

    size: the limit in MiB; "off": 0; "auto": 1024 if all `count` images will fit, judged by the first, otherwise 0.
    stacked: all images [count, H, W, C] once they are kept, if they are of one size: batches are then made without
    a line of Python for each image.
    """

    def __init__(self, size: int | str, count: int):
        self.automatic, self.count = size == "auto", count
        self.limit = ({"auto": AUTO_MIB, "off": 0}[size] if isinstance(size, str) else size) * MIB
        self.images: dict[int, Pixels] = {}
        self.stacked: NDArray[np.uint8] | None = None
        self.used = 0
        self._shape: tuple[int, ...] | None = None  # of the first image
        self._block: NDArray[np.uint8] | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["Cache"], tuple[str, int]]:
        """Another process keeps nothing: it would have to keep all that each of them does."""
        return Cache, ("off", self.count)

    def get(self, index: int) -> Pixels | None:
        return self.images.get(index)

    def put(self, index: int, image: Pixels) -> None:
        """Keep a copy of an image, where there is room."""
        if self.used + image.size > self.limit:
            return
        kept = self._room(index, image.shape)
        copy(image, kept)
        with self._lock:
            if index in self.images or self.used + kept.size > self.limit:
                return
            self.images[index] = kept
            self.used += kept.size
            seen = len(self.images)
            if self.automatic and seen >= SURE and self.used / seen * self.count > self.limit:
                self.limit = self.used = 0
                self.images.clear()
                self._block = None
            elif seen == self.count:
                self.stacked = self._block

    def _room(self, index: int, shape: tuple[int, ...]) -> Pixels:
        """Memory for an image: its place in one block for all of them, until one has another size than the first.

        Pages of a block that are never written to take no memory.
        """
        with self._lock:
            if self._shape is None:
                self._shape = shape
                fits = self.count * prod(shape) <= self.limit
                self._block = np.empty((self.count, *shape), np.uint8) if fits else None
            elif shape != self._shape:
                self._block = None
            return np.empty(shape, np.uint8) if self._block is None else self._block[index]
