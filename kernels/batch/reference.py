"""Shares of batches in NumPy."""

import numpy as np

from kernels.batch.geometry import Labels, Shares
from kernels.layout import Array, Map


def _pieces(g: Shares) -> list[tuple[slice, slice, int]]:
    """Of each share: its channels, its samples in the map, and how many there are."""
    pieces = []
    for part in range(g.parts):
        begin = g.first + part * g.share
        end = max(begin, min(begin + g.share, g.batch))
        channels = slice(part * g.channels, (part + 1) * g.channels)
        pieces.append((channels, slice(begin, end), end - begin))
    return pieces


def split(g: Shares, x: Map, y: Map) -> None:
    """y[p C + c, h, w, i] = x[c, h, w, first + p share + i], and 0 where x has no such sample.

    x: [C, H, W, batch]. y: [parts C, H, W, share].
    """
    for channels, samples, count in _pieces(g):
        y[channels, :, :, :count] = x[..., samples]
        y[channels, :, :, count:] = 0


def join(g: Shares, x: Map, y: Map, beta: float) -> None:
    """y[c, h, w, first + p share + i] = beta * itself + x[p C + c, h, w, offset + i]; other samples of y stay.

    x: [parts C, H, W, length]. y: [C, H, W, batch].
    """
    for channels, samples, count in _pieces(g):
        source = x[channels, :, :, g.offset : g.offset + count]
        y[..., samples] = source if beta == 0 else beta * y[..., samples] + source


def labels(g: Labels, x: Array, y: Array) -> None:
    """y[n] = x[first + n // run * stride + n % run], and -1, no label, behind the end of x.

    x: int32 [batch]. y: int32 [count].
    """
    _pick(g, x, y, -1)


def amounts(g: Labels, x: Array, y: Array) -> None:
    """y[n] = x[first + n // run * stride + n % run], and 0 behind the end of x. x: real [batch]. y: [count]."""
    _pick(g, x, y, 0)


def _pick(g: Labels, x: Array, y: Array, behind: int) -> None:
    n, run = np.arange(g.count), g.run or g.count
    place = g.first + n // run * g.stride + n % run
    y[...] = np.where(place < g.batch, x[np.minimum(place, g.batch - 1)], behind)
