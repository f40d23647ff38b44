"""Local convolution in NumPy: one product of matrices for each output position, a row of positions at a time."""

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kernels.layout import Array, Map
from kernels.local.geometry import Local, Units


def forward(g: Local, x: Map, w: Array, b: Array | None, y: Map) -> None:
    """y[f, p, q, n] = b[f, p, q] + sum of w[p, q, f, c, r, s] x[c, p stride_h - pad_top + r, q ... + s, n]."""
    w_pqgfk = w.reshape(g.out_h, g.out_w, g.groups, g.group_filters, g.depth)
    for p, columns in _columns(g, x):
        y[:, p] = np.matmul(w_pqgfk[p], columns).reshape(g.out_w, g.filters, g.batch).swapaxes(0, 1)
    if b is not None:
        y += b[..., None]


def dgrad(g: Local, dy: Map, w: Array, dx: Map, beta: float) -> None:
    """dx = beta dx + sum of w[p, q, f, c, r, s] dy[f, p, q, n] over the p, q, f, r, s that the pixel took part in."""
    w_pqgkf = w.reshape(g.out_h, g.out_w, g.groups, g.group_filters, g.depth).swapaxes(3, 4)
    sums = np.zeros(_padded_shape(g), dx.dtype)
    for p in range(g.out_h):
        products = np.matmul(w_pqgkf[p], _grouped(g, dy[:, p]))
        products_crqsn = products.reshape(g.out_w, g.channels, g.rows, g.cols, g.batch).transpose(1, 2, 0, 3, 4)
        rows = sums[:, p * g.stride_h : p * g.stride_h + g.rows]
        for s in range(g.cols):
            rows[:, :, s : s + g.out_w * g.stride_w : g.stride_w] += products_crqsn[:, :, :, s]
    image = sums[_inner(g)]
    dx[...] = image if beta == 0 else beta * dx + image


def wgrad(g: Local, x: Map, dy: Map, dw: Array, beta: float) -> None:
    """dw[p, q, f, c, r, s] = beta dw + sum over n of dy[f, p, q, n] x[c, p stride_h - pad_top + r, q ... + s, n]."""
    for p, columns in _columns(g, x):
        sums = np.matmul(_grouped(g, dy[:, p]), columns.swapaxes(2, 3)).reshape(dw[p].shape)
        dw[p] = sums if beta == 0 else beta * dw[p] + sums


def bias(g: Units, b: Array, y: Map, beta: float) -> None:
    """y[c, h, w, n] = beta y + b[c, h, w]."""
    y[...] = b[..., None] if beta == 0 else beta * y + b[..., None]


def bgrad(g: Units, dy: Map, db: Array, beta: float) -> None:
    """db[c, h, w] = beta db + sum over n of dy[c, h, w, n]."""
    sums = dy.sum(3)
    db[...] = sums if beta == 0 else beta * db + sums


def _grouped(g: Local, row: Array) -> Array:
    """One row of outputs [filters, out_w, batch] as [out_w, groups, filters/groups, batch]."""
    return row.swapaxes(0, 1).reshape(g.out_w, g.groups, g.group_filters, g.batch)


def _padded_shape(g: Local) -> tuple[int, int, int, int]:
    """The image with its padding, as far as filters reach, and some more so that each tap is a plain slice."""
    height = max((g.out_h - 1) * g.stride_h + g.rows, g.pad_top + g.height)
    width = max(g.out_w * g.stride_w + g.cols, g.pad_left + g.width)
    return g.channels, height, width, g.batch


def _inner(g: Local) -> tuple[slice, slice, slice]:
    """Where the image stands in the padded one."""
    return slice(None), slice(g.pad_top, g.pad_top + g.height), slice(g.pad_left, g.pad_left + g.width)


def _columns(g: Local, x: Map) -> Iterator[tuple[int, Array]]:
    """For each output row p: what each position sees, [out_w, groups, channels/groups * rows * cols, batch]."""
    padded = np.zeros(_padded_shape(g), x.dtype)
    padded[_inner(g)] = x
    for p in range(g.out_h):
        rows = padded[:, p * g.stride_h : p * g.stride_h + g.rows]
        windows_crqns = sliding_window_view(rows, g.cols, axis=2)[:, :, : g.out_w * g.stride_w : g.stride_w]
        yield p, windows_crqns.transpose(2, 0, 1, 4, 3).reshape(g.out_w, g.groups, g.depth, g.batch)
