"""Pooling: the maximum or the mean of each window of each map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import pool
from layers.base import Emit, Layer, Shape, axes
from layers.options import ConfigError, Size, layer, option
from layers.window import ROUNDING, ROUNDING_DOC, positions, text


@layer("pool")
@dataclass(frozen=True)
class Pool(Layer):
    """y[c, p, q] = the maximum or the mean of the window of x[c] that begins at (p, q) stride - pad.

    x: [C, H, W, N] -> y: [C, P, Q, N], P = 1 + (H + 2 pad - size) / stride, rounded by `rounding`, and Q likewise.
    A window that hangs over the map is clipped to it: padding never is a maximum, and counts in a mean only with
    `count_pad`. Of equal maxima the first, in reading order, gets the gradient. Windows that overlap (stride < size):
    Krizhevsky et al. 2012, section 3.4.
    """

    mode: str = option("max", choices=("max", "avg"), doc="what is taken of a window")
    size: Size = option(least=1, doc="window, pixels")
    stride: Size | None = option(None, least=1, doc="distance between windows, pixels; default: the window's size")
    pad: Size = option(0, least=0, doc="border on each side, pixels; smaller than the window")
    rounding: str = option("floor", choices=ROUNDING, doc=ROUNDING_DOC)
    count_pad: bool = option(False, doc="avg: the divisor counts the padding (PyTorch's count_include_pad)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad.height >= self.size.height or self.pad.width >= self.size.width:
            raise ConfigError(f"expected it smaller than size ({text(self.size)}), found {text(self.pad)}", ("pad",))
        if self.count_pad and self.mode == "max":
            raise ConfigError("applies to mode avg alone, found mode max", ("count_pad",))

    def output(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        return Shape(x.channels, *positions(x, self.size, self.stride or self.size, self.pad, self.rounding))

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        op = pool.MAX_FORWARD if self.mode == "max" else pool.AVG_FORWARD
        emit(op, self._geometry(xs[0], y), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is None:
            return
        g = self._geometry(xs[0], y)
        if self.mode == "max":
            emit(pool.MAX_BACKWARD, g, x=xs[0], y=y, dy=dy, dx=dxs[0])
        else:
            emit(pool.AVG_BACKWARD, g, dy=dy, dx=dxs[0])

    def _geometry(self, x: Any, y: Any) -> pool.Pool:
        stride = self.stride or self.size
        return pool.Pool(
            **axes(x),
            size_h=self.size.height,
            size_w=self.size.width,
            stride_h=stride.height,
            stride_w=stride.width,
            start_h=-self.pad.height,
            start_w=-self.pad.width,
            out_h=y.shape[1],
            out_w=y.shape[2],
            count_pad=self.count_pad,
        )
