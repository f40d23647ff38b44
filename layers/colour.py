"""Layers that change the colour space of an image. No gradient passes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels import image
from layers.base import Emit, Layer, Shape, axes
from layers.options import ConfigError, layer, option


@dataclass(frozen=True)
class Colour(Layer):
    """Base of the layers that take the three channels of a pixel to three others."""

    differentiable: ClassVar[bool] = False

    def output(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        if x.channels != 3:
            raise ConfigError(f"expected the channels R, G, B, found {x}", key="inputs")
        return x

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        """Nothing."""


@layer("rgb2yuv")
@dataclass(frozen=True)
class Rgb2yuv(Colour):
    """Channels R, G, B to Y, U, V (the primaries of BT.709); y is as x, in the same range.

    Y = .2126 R + .7152 G + .0722 B, U = -.09991 R - .33609 G + .436 B, V = .615 R - .55861 G - .05639 B.
    """

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(image.RGB2YUV, image.Colour(**axes(y), center=False), x=xs[0], y=y)


@layer("rgb2lab")
@dataclass(frozen=True)
class Rgb2lab(Colour):
    """Channels R, G, B, from 0 to 1, to L*, a*, b* (CIE 1976, of CIE RGB); y is as x, L from 0 to 100.

    X = .49 R + .31 G + .2 B, Y = .17697 R + .8124 G + .01063 B, Z = .01 G + .99 B.
    L = 116 f(Y) - 16, a = 500 (f(X) - f(Y)), b = 200 (f(Y) - f(Z)),
    f(t) = t^.3333 where t > .0088564517, else 7.787037 t + .13793103.
    """

    center: bool = option(False, doc="50 is subtracted from L, which then is from -50 to 50")

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(image.RGB2LAB, image.Colour(**axes(y), center=self.center), x=xs[0], y=y)
