"""Sums, copies and maxima of maps in NumPy."""

import numpy as np

from kernels.eltwise.geometry import Copy, Maximum, Sum
from kernels.layout import Map


def sum(g: Sum, x: Map, y: Map, beta: float) -> None:
    """y = beta * y + coeff * x."""
    if beta == 0:
        np.multiply(x, g.coeff, out=y)
    else:
        y *= beta
        y += x if g.coeff == 1 else g.coeff * x


def copy(g: Copy, x: Map, y: Map, beta: float) -> None:
    """y[y_offset + c] = beta * y[y_offset + c] + x[x_offset + c] for c < channels; other channels of y stay."""
    source, target = x[g.x_offset : g.x_offset + g.channels], y[g.y_offset : g.y_offset + g.channels]
    target[...] = source if beta == 0 else beta * target + source


def maximum(g: Maximum, x: Map, y: Map, winner: Map) -> None:
    """The maximum of several maps, one call for each: y = max(y, x), and winner = index where x is greater.

    The call of index 0 reads neither, and begins both. A NaN stays. winner: uint8, shaped as y.
    """
    if g.index == 0:
        y[...], winner[...] = x, 0
        return
    greater = (x > y) | np.isnan(x)
    np.copyto(y, x, where=greater)
    np.copyto(winner, np.uint8(g.index), where=greater)


def maximum_backward(g: Maximum, dy: Map, winner: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + dy where the maximum was taken of this map: of equal ones, of the first."""
    own = np.where(winner == g.index, dy, 0)
    dx[...] = own if beta == 0 else beta * dx + own
