"""Fully connected layers in NumPy: matrix products by BLAS.

Maps that they read and write are laid out C, H, W, N, so that each is a plain matrix [features, N] or [outputs, N].
"""

import numpy as np

from kernels.fc.geometry import Fc
from kernels.layout import Array, Map


def forward(g: Fc, x: Map, w: Array, b: Array | None, y: Map) -> None:
    """y[o, n] = b[o] + sum over k of w[o, k] x[k, n], k counting the features of o's part."""
    y_ion = _parts(g, y)
    np.matmul(_parts(g, w), _parts(g, x), out=y_ion)
    if b is not None:
        y_ion += b.reshape(g.parts, -1, 1)


def dgrad(g: Fc, dy: Map, w: Array, dx: Map, beta: float) -> None:
    """dx[k, n] = beta * dx[k, n] + sum over the outputs o of k's part of w[o, k] dy[o, n]."""
    _multiply(_parts(g, w).swapaxes(1, 2), _parts(g, dy), _parts(g, dx), beta)


def wgrad(g: Fc, x: Map, dy: Map, dw: Array, beta: float) -> None:
    """dw[o, k] = beta * dw[o, k] + sum over n of dy[o, n] x[k, n], k counting the features of o's part."""
    _multiply(_parts(g, dy), _parts(g, x).swapaxes(1, 2), _parts(g, dw), beta)


def bgrad(g: Fc, dy: Map, db: Array, beta: float) -> None:
    """db[o] = beta * db[o] + sum over n of dy[o, n]."""
    sums = dy.reshape(g.outputs, g.batch).sum(axis=1)
    db[...] = sums if beta == 0 else beta * db + sums


def _parts(g: Fc, matrix: Array) -> Array:
    """A map, or the weights, as [parts, rows of a part, columns]: a view."""
    return matrix.reshape(g.parts, -1, matrix.shape[-1])


def _multiply(a: Array, b: Array, out: Array, beta: float) -> None:
    """out = beta out + a b."""
    if beta == 0:
        np.matmul(a, b, out=out)
    else:
        out *= beta
        out += a @ b
