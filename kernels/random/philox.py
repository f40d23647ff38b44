"""The counter-based generator Philox4x32-10 on the host, vectorised.

A draw is a pure function of a 128-bit counter and a 64-bit key, so it depends on what is drawn and never on
who draws it, in which order or on how many threads.  include/philox.cuh computes the same on the device.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Words: TypeAlias = NDArray[np.uint32]

ROUNDS = 10
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = 0x9E3779B9, 0xBB67AE85  # what each round adds to the key
LOW, HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)


def _multiply(word: NDArray[np.uint64], multiplier: np.uint64) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """High and low half of a 32 x 32 bit product."""
    product = word * multiplier
    return product >> HIGH, product & LOW


def philox4x32(
    counter: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], key: tuple[int, int]
) -> tuple[Words, Words, Words, Words]:
    """Four words of 32 random bits for each counter.

    counter: four arrays of integers in [0, 2^32) that broadcast together; results have the broadcast shape.
    key: two integers in [0, 2^32).
    """
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c).astype(np.uint64) for c in counter))
    for r in range(ROUNDS):
        k0, k1 = (np.uint64((k + r * w) & 0xFFFFFFFF) for k, w in zip(key, WEYL, strict=True))
        high0, low0 = _multiply(c0, MULTIPLIERS[0])
        high1, low1 = _multiply(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    return c0.astype(np.uint32), c1.astype(np.uint32), c2.astype(np.uint32), c3.astype(np.uint32)
