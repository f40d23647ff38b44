"""Layers that resize images: by a fixed factor, or by a random one and a random crop. No gradient passes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels import image
from layers.base import Emit, Layer, Shape, axes
from layers.options import ConfigError, Size, layer, option
from layers.window import text


@layer("resize")
@dataclass(frozen=True)
class Resize(Layer):
    """The image shrunk by `scale`, bilinear: x [C, H, W, N] -> y [C, floor(H / scale), floor(W / scale), N].

    y[c, p, q] is x[c] at the row p scale + H / 2 - P / 2 scale, clamped to [0, H - 1.01], and the column likewise: the
    centres of both images meet.
    """

    differentiable: ClassVar[bool] = False

    scale: float = option(least=0.5, most=2, doc="pixels of the input to one of the output; below 1 enlarges")

    def output(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        height, width = int(x.height / self.scale), int(x.width / self.scale)
        if min(height, width) < 1:
            raise ConfigError(f"nothing is left of the {x.height}x{x.width} map at scale {self.scale:g}", key="scale")
        return Shape(x.channels, height, width)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(image.RESIZE, image.Resize(**_sides(xs[0], y), scale=self.scale), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        """Nothing."""


@layer("rscale")
@dataclass(frozen=True)
class Rscale(Layer):
    """A crop of `size`, of the image shrunk by a random factor in training: x [C, H, W, N] -> y [C, size, N].

    One factor and one place are drawn for all images of a step. The shrunk image is s = 0, 1, ... pixels larger than
    `size`, up to the whole image, with a probability proportional to (s + 1)^2, the number of crops that it has. The
    factor is uniform in what leads to s, the place uniform in all that fit. Where height and width differ, s counts
    along the side of the image that is shorter in proportion to `size`, and both sides shrink by one factor.
    The draw depends on the run's seed, the step and the layer's name alone.
    Evaluation: the middle of the image shrunk by `max_scale`, or by less where `size` covers all of it.
    Bilinear, as the resize layer.
    """

    differentiable: ClassVar[bool] = False

    max_scale: float = option(least=1, most=2, doc="largest factor by which an image is shrunk")
    size: Size = option(least=1, doc="what the network sees, pixels")

    def output(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        if self.size.height > x.height or self.size.width > x.width:
            raise ConfigError(f"size {text(self.size)} is larger than the {x.height}x{x.width} map", key="size")
        least = Size(int(x.height / self.max_scale), int(x.width / self.max_scale))
        if self.size.height < least.height and self.size.width < least.width:
            found = f"size {text(self.size)} is smaller than the {x.height}x{x.width} map at max_scale"
            raise ConfigError(f"{found} {self.max_scale:g}, {text(least)}", key="size")
        return Shape(x.channels, *self.size)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        sides = _sides(xs[0], y)
        if emit.training:
            emit(image.RSCALE, image.Rscale(**sides, key=emit.key), x=xs[0], clock=emit.input("clock"), y=y)
        else:
            scale = min(self.max_scale, sides["height"] / self.size.height, sides["width"] / self.size.width)
            emit(image.RESIZE, image.Resize(**sides, scale=scale), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        """Nothing."""


def _sides(x: Any, y: Any) -> dict[str, int]:
    """The sides of the input and of the output as geometries name them."""
    return {**axes(x), "out_h": y.shape[1], "out_w": y.shape[2]}
