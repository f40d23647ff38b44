"""Fully connected layers in NumPy: matrix products by BLAS.

Maps that they read and write are laid out C, H, W, N, so that each is a plain matrix [features, N] or [outputs, N].
"""

import numpy as np

from kernels.fc.geometry import Fc
from kernels.layout import Array, Map


def forward(g: Fc, x: Map, w: Array, b: Array | None, y: Map) -> None:
    """y[o, n] = b[o] + sum over k of w[o, k] x[k, n]."""
    y_on = y.reshape(g.outputs, g.batch)
    np.matmul(w, x.reshape(g.features, g.batch), out=y_on)
    if b is not None:
        y_on += b[:, None]


def dgrad(g: Fc, dy: Map, w: Array, dx: Map, beta: float) -> None:
    """dx[k, n] = beta * dx[k, n] + sum over o of w[o, k] dy[o, n]."""
    _multiply(w.T, dy.reshape(g.outputs, g.batch), dx.reshape(g.features, g.batch), beta)


def wgrad(g: Fc, x: Map, dy: Map, dw: Array, beta: float) -> None:
    """dw[o, k] = beta * dw[o, k] + sum over n of dy[o, n] x[k, n]."""
    _multiply(dy.reshape(g.outputs, g.batch), x.reshape(g.features, g.batch).T, dw, beta)


def bgrad(g: Fc, dy: Map, db: Array, beta: float) -> None:
    """db[o] = beta * db[o] + sum over n of dy[o, n]."""
    sums = dy.reshape(g.outputs, g.batch).sum(axis=1)
    db[...] = sums if beta == 0 else beta * db + sums


def _multiply(a: Array, b: Array, out: Array, beta: float) -> None:
    """out = beta out + a b."""
    if beta == 0:
        np.matmul(a, b, out=out)
    else:
        out *= beta
        out += a @ b
