"""Fully connected layers: every output sums all features of its input, or all of its part of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels import fc
from layers.base import Emit, Param, Shape
from layers.options import ConfigError, layer, option
from layers.weights import Weighted


@layer("fc")
@dataclass(frozen=True)
class Fc(Weighted):
    """y = w x + b.

    x: [C, H, W, N], read as [C H W, N]. weight: [outputs, C H W], the features in the order C, H, W as in PyTorch after
    `flatten`. y: [outputs, 1, 1, N].
    """

    flat_input: ClassVar[bool] = True

    outputs: int = option(least=1, doc="number of outputs")

    def output(self, *inputs: Shape) -> Shape:
        return Shape(self.outputs)

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return self.weights((self.output(*inputs).features, inputs[0].features // self._parts))

    def multiply_adds(self, *inputs: Shape) -> int:
        return math.prod(self.params(*inputs)["weight"].shape)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        b = emit.param("bias") if self.bias else None
        emit(fc.FORWARD, self._geometry(xs[0], y), x=xs[0], w=emit.param("weight"), b=b, y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        g = self._geometry(xs[0], y)
        if (dw := emit.grad("weight")) is not None:
            emit(fc.WGRAD, g, x=xs[0], dy=dy, dw=dw)
        if (db := emit.grad("bias")) is not None:
            emit(fc.BGRAD, g, dy=dy, db=db)
        if dxs[0] is not None:
            emit(fc.DGRAD, g, dy=dy, w=emit.param("weight"), dx=dxs[0])

    @property
    def _parts(self) -> int:
        return 1

    def _geometry(self, x: Any, y: Any) -> fc.Fc:
        channels, height, width, batch = x.shape
        return fc.Fc(channels * height * width, y.shape[0], batch, self._parts)


@layer("sfc")
@dataclass(frozen=True)
class Sfc(Fc):
    """Split fully connected layer: x is cut in parts, each an fc layer of its own; W is block-diagonal.

    x: [C, H, W, N], read as [C H W, N] and cut in `parts` equal parts, one after the other. weight:
    [parts outputs, C H W / parts], bias: [parts outputs]; the rows of one part after those of the other.
    y: [parts outputs, 1, 1, N].
    """

    outputs: int = option(least=1, doc="number of outputs of each part")
    parts: int = option(least=1, doc="number of parts; divides the features of the input")

    def output(self, *inputs: Shape) -> Shape:
        if inputs[0].features % self.parts:
            found = f"parts {self.parts} does not divide the {inputs[0].features} features of the input ({inputs[0]})"
            raise ConfigError(found, key="parts")
        return Shape(self.parts * self.outputs)

    @property
    def _parts(self) -> int:
        return self.parts
