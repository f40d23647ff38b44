"""Pooling across maps: maxout."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import cmpool
from layers.base import Emit, Layer, Shape, axes
from layers.options import ConfigError, layer, option


@layer("cmpool")
@dataclass(frozen=True)
class Cmpool(Layer):
    """y[o] = the maximum of `size` maps from start + o stride on, of those that exist, at each pixel.

    x: [C, H, W, N] -> y: [O, H, W, N] with O = 1 + (C - start - size) / stride, rounded up, so that every map is in a
    group. Maxout (Goodfellow et al. 2013) where groups do not overlap. Of equal maxima the first gets the gradient, as
    in PyTorch; cuda-convnet2 gives it to all of them.
    """

    size: int = option(least=1, doc="maps of a group")
    stride: int | None = option(None, least=1, doc="maps from one group to the next, at most size; default: size")
    start: int = option(0, most=0, doc="where the first group begins; it reaches map 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride is not None and self.stride > self.size:
            limit = f"expected it <= size ({self.size}), so that no map is left out"
            raise ConfigError(f"{limit}, found {self.stride}", ("stride",))
        if -self.start >= self.size:
            raise ConfigError(f"expected it > -size ({-self.size}), found {self.start}", ("start",))

    def output(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        if self.size > x.channels:
            raise ConfigError(f"size {self.size} is larger than the {x.channels} maps of the input ({x})", key="size")
        outputs = 1 - (self.size + self.start - x.channels) // (self.stride or self.size)
        return Shape(outputs, x.height, x.width)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(cmpool.FORWARD, self._geometry(xs[0], y), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            emit(cmpool.BACKWARD, self._geometry(xs[0], y), x=xs[0], y=y, dy=dy, dx=dxs[0])

    def _geometry(self, x: Any, y: Any) -> cmpool.Cmpool:
        window = {"size": self.size, "stride": self.stride or self.size, "start": self.start}
        return cmpool.Cmpool(**axes(x), **window, outputs=y.shape[0])
