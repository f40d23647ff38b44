"""Convolution (cross-correlation) in NumPy, row by row through BLAS; also the CPU backend.

The columns of one output row are a matrix [rows * channels * cols, out_w * batch].  They are gathered an image row at a
time, each [channels * cols, out_w * batch], into a buffer of consecutive image rows: the columns of an output row are
then `rows` neighbouring pieces of the buffer, a plain view, and an image row is gathered once and not `rows` times.
The input gradient is the mirror image: the products for one image row are one matrix [channels * cols, out_w * batch],
which is added to the row `cols` times, shifted.
"""

from collections.abc import Iterator

import numpy as np

from kernels.conv.geometry import Conv
from kernels.layout import Array, Map

BUFFER = 1 << 22


def forward(g: Conv, x: Map, w: Array, b: Array | None, y: Map) -> None:
    """y[f, p, q, n] = b[f] + sum of w[f, c, r, s] x[c, p stride_h - pad_top + r, q stride_w - pad_left + s, n]."""
    w_gfk = _grouped(g, w).swapaxes(2, 3).reshape(g.groups, g.group_filters, g.depth)
    y_gfpj = y.reshape(g.groups, g.group_filters, g.out_h, g.out_w * g.batch)  # a view: W and N are neighbours
    b_gfj = None if b is None else b.reshape(g.groups, g.group_filters, 1)
    for p, columns in _columns(g, x):
        row = y_gfpj[:, :, p]
        np.matmul(w_gfk, columns, out=row)
        if b_gfj is not None:
            row += b_gfj


def dgrad(g: Conv, dy: Map, w: Array, dx: Map, beta: float) -> None:
    """dx = beta dx + sum of w[f, c, r, s] dy[f, p, q, n] over the f, r, s, p, q that the pixel took part in."""
    dy_gpfj = dy.reshape(g.groups, g.group_filters, g.out_h, g.out_w * g.batch).swapaxes(1, 2)
    dy_gpfj = np.ascontiguousarray(dy_gpfj)  # as it is when groups is 1 and the layout H, C, W, N
    w_gcsrf = _grouped(g, w).transpose(0, 2, 4, 3, 1)
    # Image rows of one remainder modulo stride_h meet every stride_h-th filter row only, the last one first.
    phases = [np.ascontiguousarray(w_gcsrf[:, :, :, r :: g.stride_h][:, :, :, ::-1]) for r in range(g.stride_h)]
    for h in range(g.height):
        p, r = divmod(h + g.pad_top, g.stride_h)
        taps = phases[r]
        row = dx[:, h]
        if beta == 0:
            row[...] = 0
        elif beta != 1:
            row *= beta
        first = p + 1 - taps.shape[3]  # the output row under taps[:, :, :, 0]
        begin, end = max(first, 0), min(p + 1, g.out_h)
        if begin < end:
            w_gkj = taps[:, :, :, begin - first : end - first].reshape(g.groups, g.group_channels * g.cols, -1)
            _scatter(g, np.matmul(w_gkj, dy_gpfj[:, begin:end].reshape(g.groups, -1, g.out_w * g.batch)), row)


def wgrad(g: Conv, x: Map, dy: Map, dw: Array, beta: float) -> None:
    """dw[f, c, r, s] = beta dw + sum over p, q, n of dy[f, p, q, n] x[c, p stride_h - pad_top + r, ..., n]."""
    dy_gpjf = dy.reshape(g.groups, g.group_filters, g.out_h, g.out_w * g.batch).transpose(0, 2, 3, 1)
    sums = np.zeros((g.groups, g.depth, g.group_filters), dw.dtype)
    for p, columns in _columns(g, x):
        sums += np.matmul(columns, dy_gpjf[:, p])
    sums_grcsf = sums.reshape(g.groups, g.rows, g.group_channels, g.cols, g.group_filters)
    dw_fcrs = sums_grcsf.transpose(0, 4, 2, 1, 3).reshape(dw.shape)
    dw[...] = dw_fcrs if beta == 0 else beta * dw + dw_fcrs


def bgrad(g: Conv, dy: Map, db: Array, beta: float) -> None:
    """db[f] = beta db[f] + sum over p, q, n of dy[f, p, q, n]."""
    sums = dy.sum((2, 3)).sum(1)
    db[...] = sums if beta == 0 else beta * db + sums


def _grouped(g: Conv, w: Array) -> Array:
    return w.reshape(g.groups, g.group_filters, g.group_channels, g.rows, g.cols)


def _shifts(g: Conv) -> Iterator[tuple[slice, slice]]:
    """For each filter column s: the output columns whose tap s is inside the image, and the image columns they meet."""
    for s in range(g.cols):
        left = s - g.pad_left  # the image column under output column 0
        begin = min(max(0, -(left // g.stride_w)), g.out_w)
        end = max(begin, min(g.out_w, (g.width - 1 - left) // g.stride_w + 1))
        first = begin * g.stride_w + left
        yield slice(begin, end), slice(first, first + (end - begin) * g.stride_w, g.stride_w)


def _columns(g: Conv, x: Map) -> Iterator[tuple[int, Array]]:
    """For each output row p: its columns [groups, rows * channels/groups * cols, out_w * batch], until the next."""
    x_ghcwn = x.reshape(g.groups, g.group_channels, *x.shape[1:]).swapaxes(1, 2)
    row = g.groups, g.group_channels, g.cols, g.out_w, g.batch
    spare = BUFFER // (x.itemsize * int(np.prod(row))) - g.rows  # image rows besides those of one window
    block = min(g.out_h, 1 + max(0, spare) // g.stride_h)  # output rows a fill
    buffer = np.zeros((g.groups, (block - 1) * g.stride_h + g.rows, *row[1:]), x.dtype)
    for first in range(0, g.out_h, block):
        _gather(g, x_ghcwn, first * g.stride_h - g.pad_top, buffer)
        for p in range(first, min(first + block, g.out_h)):
            top = (p - first) * g.stride_h
            yield p, buffer[:, top : top + g.rows].reshape(g.groups, g.depth, g.out_w * g.batch)


def _gather(g: Conv, x_ghcwn: Array, top: int, buffer: Array) -> None:
    """buffer[g, h, c, s, q, n] = x[g, top + h, c, q * stride_w - pad_left + s, n], 0 outside the image.

    Entries left or right of the image are the same ones in each call, and no entry above it was ever below its top:
    they stay the 0 that they were.
    """
    begin, end = (min(max(edge - top, 0), buffer.shape[1]) for edge in (0, g.height))
    buffer[:, end:] = 0
    for s, (out_columns, columns) in enumerate(_shifts(g)):
        if begin < end and out_columns.start < out_columns.stop:
            buffer[:, begin:end, :, s, out_columns] = x_ghcwn[:, top + begin : top + end, :, columns]


def _scatter(g: Conv, products: Array, row: Array) -> None:
    """row[c, q * stride_w - pad_left + s, n] += products[c, s, q, n], inside the image."""
    products_csqn = products.reshape(g.channels, g.cols, g.out_w, g.batch)
    for s, (out_columns, columns) in enumerate(_shifts(g)):
        if out_columns.start < out_columns.stop:
            row[:, columns] += products_csqn[:, s, out_columns]
