"""Normalisation over windows within a map: response and contrast."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import norm
from layers.base import Emit, Layer, Shape, axes
from layers.options import layer, option


@dataclass(frozen=True)
class WindowNorm(Layer):
    """Base of the normalisations over square windows of one map."""

    size: int = option(least=1, doc="side of the window, pixels")
    scale: float = option(1e-4, least=0, doc="weight of the squares (alpha)")
    pow: float = option(0.75, doc="exponent (beta)")
    min_div: float = option(1.0, above=0, doc="what the sum is added to (k)")
    divide: bool = option(True, doc="divide scale by size^2, as cuda-convnet2 and Caffe do")

    def output(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def window(self, y: Any) -> dict[str, Any]:
        """The fields of the geometry."""
        alpha = self.scale / self.size**2 if self.divide else self.scale
        return axes(y) | {"size": self.size, "alpha": alpha, "power": self.pow, "k": self.min_div}


@layer("rnorm")
@dataclass(frozen=True)
class Rnorm(WindowNorm):
    """y = x (min_div + a S)^(-pow), S the sum of x^2 over the window of the pixel in its own map. y is as x.

    The window is `size` x `size` pixels from (h, w) - size // 2 on. Two forms of a are in use: `scale` / `size`^2
    (divide true) and `scale` (divide false). At the edges fewer pixels are summed, and the divisor stays `size`^2.
    Across maps: cmrnorm.
    """

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(norm.RNORM_FORWARD, norm.Rnorm(**self.window(y)), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            emit(norm.RNORM_BACKWARD, norm.Rnorm(**self.window(y)), x=xs[0], dy=dy, dx=dxs[0])


@layer("cnorm")
@dataclass(frozen=True)
class Cnorm(WindowNorm):
    """y = x (min_div + a S)^(-pow), S the sum over the pixel's window of d^2. y is as x.

    d = x - m, m the mean of the window around the pixel whose d it is, of the pixels that exist. Windows and a are
    those of rnorm. What is scaled is x itself, not d. cuda-convnet2 takes each m as a constant in the gradient: `exact`
    false.
    """

    exact: bool = option(True, doc="the gradient of the formula; false: without that of the means, as cuda-convnet2")

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(norm.CNORM_FORWARD, self._geometry(y), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            emit(norm.CNORM_BACKWARD, self._geometry(y), x=xs[0], dy=dy, dx=dxs[0])

    def _geometry(self, y: Any) -> norm.Cnorm:
        return norm.Cnorm(**self.window(y), exact=self.exact)
