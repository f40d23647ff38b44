"""What goes before and after an exchange, in NumPy."""

from kernels import bfloat16
from kernels.layout import Array, Memory
from kernels.wire.geometry import Clear, Halve, Scale


def narrow(g: Halve, x: Array, y: Array) -> None:
    """y = the bfloat16 nearest to x, the even one of two. x: [1024 * blocks]; y: uint16, as long."""
    y[...] = bfloat16.narrow(x)


def widen(g: Halve, x: Array, y: Array) -> None:
    """y = x, of bfloat16. x: uint16 [1024 * blocks]; y as long."""
    y[...] = bfloat16.widen(x)


def scale(g: Scale, x: Array) -> None:
    """x = factor * x. x: [1024 * blocks]."""
    x *= g.factor


def clear(g: Clear, x: Memory) -> None:
    """x = 0. x: [size], in any shape, of any type."""
    x[...] = 0
