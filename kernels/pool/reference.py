"""Pooling in NumPy: loops over the offsets within a window, vectorised over everything else."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.layout import Map, scale
from kernels.pool.geometry import Pool


def _along(size: int, count: int, stride: int, first: int) -> tuple[slice, slice]:
    """Windows o of `count` whose position first + o * stride is one of the `size` pixels; and those pixels."""
    begin = max(0, -(first // stride))
    end = max(begin, min(count, (size - 1 - first) // stride + 1))
    pixel = first + begin * stride
    return slice(begin, end), slice(pixel, pixel + (end - begin) * stride, stride)


def _taps(g: Pool) -> Iterator[tuple[tuple, tuple]]:
    """For each offset within a window, in row-major order: the windows with a pixel there, and these pixels."""
    for r in range(g.size_h):
        window_h, pixel_h = _along(g.height, g.out_h, g.stride_h, g.start_h + r)
        for s in range(g.size_w):
            window_w, pixel_w = _along(g.width, g.out_w, g.stride_w, g.start_w + s)
            yield (slice(None), window_h, window_w), (slice(None), pixel_h, pixel_w)


def _extent(size: int, count: int, length: int, stride: int, start: int, count_pad: bool) -> Any:
    """Pixels along one axis that each of `count` windows is divided by."""
    pad = max(0, -start) if count_pad else 0
    begin = start + stride * np.arange(count)
    return np.clip(begin + length, -pad, size + pad) - np.clip(begin, -pad, size + pad)


def _area(g: Pool, dtype: Any) -> np.ndarray:
    """The divisor of each mean, [1, out_h, out_w, 1]; of sums 1."""
    if not g.divide:
        return np.ones((1, 1, 1, 1), dtype)
    rows = _extent(g.height, g.out_h, g.size_h, g.stride_h, g.start_h, g.count_pad)
    columns = _extent(g.width, g.out_w, g.size_w, g.stride_w, g.start_w, g.count_pad)
    return np.maximum(np.outer(rows, columns), 1).astype(dtype)[None, :, :, None]


def max_forward(g: Pool, x: Map, y: Map) -> None:
    """y = the maximum of each window, or its first element of the largest absolute value; NaN if it holds one."""
    y[...] = 0 if g.absolute else -np.inf
    seen = np.zeros((1, g.out_h, g.out_w, 1), bool)
    for windows, pixels in _taps(g):
        if g.absolute:
            larger = (np.abs(x[pixels]) > np.abs(y[windows])) | np.isnan(x[pixels])
            np.copyto(y[windows], x[pixels], where=larger)
        else:
            np.maximum(y[windows], x[pixels], out=y[windows])
        seen[windows] = True
    np.copyto(y, 0, where=~seen)


def max_backward(g: Pool, x: Map, y: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + dy of every window whose maximum the pixel is.

    Of equal maxima the first in row-major order gets all, as in PyTorch. A window whose maximum is NaN passes nothing.
    """
    scale(dx, beta)
    rank = np.abs if g.absolute else np.asarray
    free, equal, share = np.ones_like(y, bool), np.empty_like(y, bool), np.empty_like(y)
    for windows, pixels in _taps(g):
        chosen = np.equal(rank(x[pixels]), rank(y[windows]), out=equal[windows])
        chosen &= free[windows]
        free[windows] ^= chosen
        dx[pixels] += np.multiply(dy[windows], chosen, out=share[windows])


def avg_forward(g: Pool, x: Map, y: Map) -> None:
    """y = the sum of each window's pixels / its area (see `Pool.count_pad`; 1 where `divide` is false)."""
    y[...] = 0
    for windows, pixels in _taps(g):
        y[windows] += x[pixels]
    y /= _area(g, y.dtype)


def avg_backward(g: Pool, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + the sum, over the windows that hold the pixel, of dy / area."""
    scale(dx, beta)
    share = dy / _area(g, dy.dtype)
    for windows, pixels in _taps(g):
        dx[pixels] += share[windows]
