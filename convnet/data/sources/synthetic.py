"""Made-up images that a network can learn: for trying things out, and for timing without a dataset."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError
from convnet.data.sources.base import PixelSource
from kernels.random import philox4x32

PATTERN, NOISE = 0xDA7A0010, 0xDA7A0011  # streams of random numbers
CELLS = 4  # a class's pattern has this many cells along each side


class SyntheticSource(PixelSource):
    """Sample i is of class i modulo `classes`: that class's pattern of 4 x 4 cells, mixed with noise.

    shape: height, width, channels.  noise: its part, 0 to 1.  seed: of the noise; the patterns are always the same.
    names: of the classes; None: "0", "1", ...
    """

    def __init__(
        self,
        samples: int,
        classes: int,
        shape: tuple[int, int, int],
        *,
        noise: float = 0.5,
        seed: int = 0,
        names: Sequence[str] | None = None,
    ):
        words = tuple(names) if names is not None else tuple(map(str, range(classes)))
        if len(words) != classes:
            raise DataError(f"expected {len(words)} classes, as the model has, found {classes}")
        height, width, channels = shape
        patterns = _bytes(PATTERN, 0, classes, CELLS * CELLS * channels).reshape(classes, CELLS, CELLS, channels)
        rows, columns = (np.arange(extent) * CELLS // extent for extent in (height, width))
        labels = (np.arange(samples) % classes).astype(np.int32)
        images = np.empty((samples, *shape), np.uint8)
        for i, label in enumerate(labels):
            pattern = patterns[label][rows][:, columns].astype(np.float32)
            grain = _bytes(NOISE, seed, 1, images[i].size, first=i).reshape(shape)
            images[i] = np.rint((1 - noise) * pattern + noise * grain)
        super().__init__(images, labels, words, "synthetic data")


def _bytes(stream: int, seed: int, count: int, length: int, first: int = 0) -> NDArray[np.uint8]:
    """Random bytes [count, length], rows `first` and following of a stream."""
    rows, steps = np.arange(first, first + count)[:, None], np.arange(-(-length // 16))
    key = seed & 0xFFFFFFFF, seed >> 32
    words = np.stack(philox4x32((steps, rows, 0, stream), key), axis=-1).astype("<u4")
    return words.reshape(count, -1).view(np.uint8)[:, :length]
