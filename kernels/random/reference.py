"""Dropout in NumPy."""

import numpy as np

from kernels.layout import Array, Map
from kernels.random.geometry import Dropout
from kernels.random.philox import philox4x32


def keep_mask(g: Dropout, clock: Array) -> np.ndarray:
    """Which elements are kept: bool [C, H, W, N].

    An element is kept when its 32 random bits are below keep * 2^32, keep rounded to float32. They are word
    (sample % 4) of Philox with the key (seed low, seed high) and the counter (c*H*W + h*W + w, sample // 4, step, key),
    where c counts from `channel` on and sample = offset + place of n (see `Dropout`): the positions in the whole map of
    the global batch, so that the mask is the same however it is divided.
    """
    seed_low, seed_high, step, offset = (int(word) for word in clock)
    size, n = g.height * g.width, np.arange(g.batch)
    features = (g.channel * size + np.arange(g.channels * size)[:, None]) & 0xFFFFFFFF
    run = g.run or g.batch
    samples = (offset + g.first + n // run * g.stride + n % run) & 0xFFFFFFFF
    quads = np.unique(samples // 4)
    words = np.stack(philox4x32((features, quads, step, g.key), (seed_low, seed_high)), axis=-1)
    bits = words[:, np.searchsorted(quads, samples // 4), samples % 4]
    return (bits < float(np.float32(g.keep)) * 2.0**32).reshape(g.channels, g.height, g.width, g.batch)


def dropout(g: Dropout, x: Map, clock: Array, y: Map) -> None:
    """y = x / keep where kept, or x itself if not `scaled`, else 0 (Srivastava et al. 2014).

    clock: uint32 [4], (seed low, seed high, step, sample offset).
    """
    np.multiply(x, keep_mask(g, clock), out=y)
    if g.scaled:
        y *= 1 / g.keep


def dropout_backward(g: Dropout, dy: Map, clock: Array, dx: Map, beta: float) -> None:
    """dx = beta * dx + dy / keep, or dy if not `scaled`, where kept; the mask is drawn again, as in dropout."""
    local = dy * keep_mask(g, clock)
    if g.scaled:
        local *= 1 / g.keep
    dx[...] = local if beta == 0 else beta * dx + local
