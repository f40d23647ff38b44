"""Random numbers for data: pure functions of (seed, purpose, epoch, sample), the same on every machine.

No thread, rank, batch size or resume point can change them; no state has to be saved.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.random import philox4x32


class Purpose(IntEnum):
    """The last word of the counter: streams with different purposes are independent."""

    ORDER = 0xDA7A0000
    AUGMENT = 0xDA7A0001


def words(purpose: Purpose, seed: int, epoch: int, sample: ArrayLike, number: ArrayLike = 0) -> NDArray[np.uint32]:
    """Random words [..., 4] for each sample (below 2^32) and draw number, which broadcast together."""
    key = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    return np.stack(philox4x32((sample, number, epoch, purpose), key), axis=-1)


def permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """The order in which an epoch visits `count` samples.

    Sorting random 64-bit keys, rather than numpy's shuffle, whose algorithm a new version may change.
    """
    keys = words(Purpose.ORDER, seed, epoch, np.arange(count)).astype(np.uint64)
    return np.argsort(keys[:, 0] << np.uint64(32) | keys[:, 1], kind="stable")


def below(word: int, count: int) -> int:
    """The integer in [0, count) that a random word stands for."""
    return word * count >> 32
