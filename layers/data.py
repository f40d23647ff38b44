"""The input layer: pixels to a map of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels import image
from layers.base import Emit, Layer, Shape, axes
from layers.options import Size, layer, option


@layer("data")
@dataclass(frozen=True)
class Data(Layer):
    """y[c, h, w, n] = (pixels[n, h, w, c] - mean[c]) / std[c], mirrored left to right where mirror[n] is not 0.

    pixels uint8 [N, H, W, C] and mirror uint8 [N] come with each batch; mean and std [C], on the scale 0 to 255, are
    constants of the run. y: [C, H, W, N].
    """

    arity: ClassVar[tuple[int, int | None]] = (0, 0)

    channels: int = option(3, least=1, doc="channels of an image: 3 for RGB, 1 for grey")
    size: Size = option(least=1, doc="the part of an image that the network sees, pixels")

    def output(self, *inputs: Shape) -> Shape:
        return Shape(self.channels, *self.size)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        feeds = {name: emit.input(name) for name in ("pixels", "mirror", "mean", "std")}
        emit(image.PREPARE, image.Prepare(**axes(y)), **feeds, y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        """Nothing: images have no gradient."""
