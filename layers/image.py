"""Layers that move or smooth pixels: crop, nailbed, horizontal flip, blur. Channels stay apart; gradients pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import image
from kernels.op import ceil_div
from layers.base import Emit, Layer, Shape, axes
from layers.options import ConfigError, Size, layer, option
from layers.pool import Pooling, Windows, windows
from layers.window import text

PIXEL = Size(1, 1)


@layer("crop")
@dataclass(frozen=True)
class Crop(Pooling):
    """y[c, h, w] = x[c, start + h, start + w]: x [C, H, W, N] -> y [C, size, N]. What is cut off has no gradient."""

    start: Size = option(least=0, doc="row and column of the first pixel that is kept")
    size: Size = option(least=1, doc="what is kept, pixels")

    def output(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        if self.start.height + self.size.height > x.height or self.start.width + self.size.width > x.width:
            found = f"size {text(self.size)} from {list(self.start)} on is not within the {x.height}x{x.width} map"
            raise ConfigError(found, key="size")
        return Shape(x.channels, *self.size)

    def windows(self, x: Any, y: Any) -> Windows:
        return windows("sum", x, y, PIXEL, PIXEL, self.start)


@layer("nailbed")
@dataclass(frozen=True)
class Nailbed(Pooling):
    """y[c, p, q] = x[c, first + (p, q) stride]: one pixel of each stride x stride, as many as fit, centred.

    x: [C, H, W, N] -> y: [C, P, Q, N], P = ceil(H / stride), first = (H - stride (P - 1)) / 2 rounded down; Q likewise.
    """

    stride: Size = option(least=1, doc="distance between the pixels that are taken")

    def output(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        return Shape(x.channels, ceil_div(x.height, self.stride.height), ceil_div(x.width, self.stride.width))

    def windows(self, x: Any, y: Any) -> Windows:
        sides = zip(x.shape[1:3], y.shape[1:3], self.stride, strict=True)
        first = Size(*((side - stride * (count - 1)) // 2 for side, count, stride in sides))
        return windows("sum", x, y, PIXEL, self.stride, first)


@layer("href")
@dataclass(frozen=True)
class Href(Layer):
    """y[c, h, w] = x[c, h, W - 1 - w]: each map reflected left to right, always. y is as x."""

    def output(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(image.FLIP, image.Flip(**axes(y)), x=xs[0], y=y, beta=0.0)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            emit(image.FLIP, image.Flip(**axes(y)), x=dy, y=dxs[0])


@layer("blur")
@dataclass(frozen=True)
class Blur(Layer):
    """y = x convolved, down and across, with exp(-d^2 / (2 stdev^2)), |d| <= size / 2, scaled to the sum 1. y is as x.

    What lies outside of the map is 0. The filter is symmetric, so that the gradient is blurred the same way.
    """

    size: int = option(least=3, most=9, doc="side of the filter, pixels: 3, 5, 7 or 9")
    stdev: float = option(above=0, doc="standard deviation of the Gaussian, pixels")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % 2 == 0:
            raise ConfigError(f"expected 3, 5, 7 or 9, found {self.size}", ("size",))

    def output(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        half = emit.keep("half", y.shape, layout="hcwn")
        emit(image.BLUR, self._geometry(y, vertical=True), x=xs[0], y=half, beta=0.0)
        emit(image.BLUR, self._geometry(y, vertical=False), x=half, y=y, beta=0.0)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            half = emit.keep("d half", y.shape, layout="hcwn")
            emit(image.BLUR, self._geometry(y, vertical=True), x=dy, y=half, beta=0.0)
            emit(image.BLUR, self._geometry(y, vertical=False), x=half, y=dxs[0])

    def _geometry(self, y: Any, vertical: bool) -> image.Blur:
        return image.Blur(**axes(y), size=self.size, stdev=self.stdev, vertical=vertical)
