"""Random numbers for data: pure functions of (seed, purpose, epoch, sample), the same on every machine.

No thread, rank, batch size or resume point can change them; no state has to be saved.
"""

from enum import IntEnum
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.random import philox4x32


class Purpose(IntEnum):
    """The last word of the counter: streams with different purposes are independent."""

    ORDER = 0xDA7A0000
    AUGMENT = 0xDA7A0001
    JITTER = 0xDA7A0002
    NOISE = 0xDA7A0003
    ERASE = 0xDA7A0004
    MIX = 0xDA7A0005
    POLICY = 0xDA7A0006


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


Words = TypeVar("Words", int, NDArray[np.int64])


def below(word: Words, count: int) -> Words:
    """The integer in [0, count) that a random word stands for; of words as int64, count may be up to 2^31."""
    return word * count >> 32


def uniform(word: NDArray[np.uint32], low: ArrayLike = 0.0, high: ArrayLike = 1.0) -> NDArray[np.float64]:
    """The numbers in [low, high) that random words stand for."""
    return np.asarray(low) + np.subtract(high, low) * (word / 2.0**32)


def normal(word: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Standard normal numbers [..., 4] from words [..., 4] (Box and Muller 1958)."""
    radius = np.sqrt(-2 * np.log((word[..., :2] + 1.0) / 2.0**32))
    angle = 2 * np.pi * (word[..., 2:] / 2.0**32)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


def beta(word: NDArray[np.uint32], side: NDArray[np.uint32], alpha: float) -> NDArray[np.float64]:
    """The numbers of Beta(alpha, alpha) that random words stand for; `side` chooses the half."""
    low = np.interp(uniform(word), *_beta_quantiles(alpha)) ** (1 / alpha)
    return np.where(side >> 31, 1 - low, low)


@cache
def _beta_quantiles(alpha: float, steps: int = 4096) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of the half of Beta(alpha, alpha) below 1/2: cumulated probabilities, and x^alpha.

    In t = x^alpha the density is (1 - x)^(alpha - 1) but for a factor, which has no pole at 0; Simpson's rule.
    """
    t = np.linspace(0, 0.5**alpha, 2 * steps + 1)
    density = (1 - t ** (1 / alpha)) ** (alpha - 1)
    pieces = density[:-2:2] + 4 * density[1::2] + density[2::2]
    cumulated = np.concatenate([[0], np.cumsum(pieces)])
    return cumulated / cumulated[-1], t[::2]
