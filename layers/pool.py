"""Pooling: the maximum, the mean or the sum of each window of each map, or of the whole map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import pool
from layers.base import Emit, Layer, Shape, axes
from layers.options import ConfigError, Size, layer, option
from layers.window import POOL_ROUNDING_DOC, ROUNDING, pool_positions, text

MODES = ("max", "maxabs", "avg", "sum")
MODE_DOC = "what is taken of a window; maxabs: the element of the largest absolute value, with its sign"
Windows = tuple[str, pool.Pool]  # a mode, and where the windows lie


@dataclass(frozen=True)
class Pooling(Layer):
    """Base of the layers that take something of windows."""

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        mode, g = self.windows(xs[0], y)
        emit(pool.MAX_FORWARD if mode.startswith("max") else pool.AVG_FORWARD, g, x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        mode, g = self.windows(xs[0], y)
        if dxs[0] is None:
            return
        if mode.startswith("max"):
            emit(pool.MAX_BACKWARD, g, x=xs[0], y=y, dy=dy, dx=dxs[0])
        else:
            emit(pool.AVG_BACKWARD, g, dy=dy, dx=dxs[0])

    def windows(self, x: Any, y: Any) -> Windows:
        """The mode, and the windows of x that the elements of y are taken of."""
        raise NotImplementedError


def windows(mode: str, x: Any, y: Any, size: Size, stride: Size, start: Size, count_pad: bool = False) -> Windows:
    """Windows of `size`, the first of which begins at `start`, `stride` apart."""
    geometry = pool.Pool(
        **axes(x),
        size_h=size.height,
        size_w=size.width,
        stride_h=stride.height,
        stride_w=stride.width,
        start_h=start.height,
        start_w=start.width,
        out_h=y.shape[1],
        out_w=y.shape[2],
        count_pad=count_pad,
        divide=mode != "sum",
        absolute=mode == "maxabs",
    )
    return mode, geometry


@layer("pool")
@dataclass(frozen=True)
class Pool(Pooling):
    """y[c, p, q] = the maximum, mean or sum of the window of x[c] that begins at (p, q) stride - pad.

    x: [C, H, W, N] -> y: [C, P, Q, N], P = 1 + (H + 2 pad - size) / stride, rounded by `rounding`, and Q likewise.
    With `start` windows begin at start + (p, q) stride, and P = 1 + (H - start - size) / stride.
    A window that hangs over the map is clipped to it: padding never is a maximum, and counts in a mean only with
    `count_pad`. Of equal maxima the first, in reading order, gets the gradient. Windows that overlap (stride < size):
    Krizhevsky et al. 2012, section 3.4. A window may be larger than the map where `rounding` keeps it.
    """

    mode: str = option("max", choices=MODES, doc=MODE_DOC)
    size: Size = option(least=1, doc="window, pixels")
    stride: Size | None = option(None, least=1, doc="distance between windows, pixels; default: the window's size")
    pad: Size = option(0, least=0, doc="border on each side, pixels; smaller than the window")
    start: Size | None = option(
        None, doc="in place of pad: where the first window begins, pixels; negative: border before the map alone"
    )
    rounding: str = option("floor", choices=ROUNDING, doc=POOL_ROUNDING_DOC)
    count_pad: bool = option(False, doc="avg: the divisor counts the padding (PyTorch's count_include_pad)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad.height >= self.size.height or self.pad.width >= self.size.width:
            raise ConfigError(f"expected it smaller than size ({text(self.size)}), found {text(self.pad)}", ("pad",))
        if self.start is not None:
            self._check_start(self.start)
        if self.count_pad and self.mode != "avg":
            raise ConfigError(f"applies to mode avg alone, found mode {self.mode}", ("count_pad",))

    def _check_start(self, start: Size) -> None:
        if max(self.pad) > 0 or self.count_pad:
            other = "count_pad, which needs pad" if self.count_pad else f"pad {text(self.pad)}"
            raise ConfigError(f"takes the place of pad, found both start and {other}", ("start",))
        if -start.height >= self.size.height or -start.width >= self.size.width:
            found = f"expected the first window (size {text(self.size)}) to reach the map, found {text(start)}"
            raise ConfigError(found, ("start",))

    def output(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        stride = self.stride or self.size
        return Shape(x.channels, *pool_positions(x, self.size, stride, self.pad, self.rounding, self.start))

    def windows(self, x: Any, y: Any) -> Windows:
        start = self.start or Size(-self.pad.height, -self.pad.width)
        return windows(self.mode, x, y, self.size, self.stride or self.size, start, self.count_pad)


@layer("global_pool")
@dataclass(frozen=True)
class GlobalPool(Pooling):
    """y[c] = the mean (or other `mode`) of all of x[c], whatever the map's size: x [C, H, W, N] -> y [C, 1, 1, N].

    Global average pooling: Lin et al. 2014. PyTorch's AdaptiveAvgPool2d(1) and AdaptiveMaxPool2d(1).
    """

    mode: str = option("avg", choices=MODES, doc=MODE_DOC)

    def output(self, *inputs: Shape) -> Shape:
        return Shape(inputs[0].channels)

    def windows(self, x: Any, y: Any) -> Windows:
        return windows(self.mode, x, y, Size(*x.shape[1:3]), Size(1, 1), Size(0, 0))
