"""Sums and copies of maps in NumPy."""

import numpy as np

from kernels.eltwise.geometry import Copy, Sum
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
