"""Fully connected layer: every output sums all features of its input."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels import fc
from layers.base import Emit, Param, Shape
from layers.options import layer, option
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
        return self.weights((self.outputs, inputs[0].features))

    def multiply_adds(self, *inputs: Shape) -> int:
        return self.outputs * inputs[0].features

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        b = emit.param("bias") if self.bias else None
        emit(fc.FORWARD, self._geometry(xs[0]), x=xs[0], w=emit.param("weight"), b=b, y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        g = self._geometry(xs[0])
        if (dw := emit.grad("weight")) is not None:
            emit(fc.WGRAD, g, x=xs[0], dy=dy, dw=dw)
        if (db := emit.grad("bias")) is not None:
            emit(fc.BGRAD, g, dy=dy, db=db)
        if dxs[0] is not None:
            emit(fc.DGRAD, g, dy=dy, w=emit.param("weight"), dx=dxs[0])

    def _geometry(self, x: Any) -> fc.Fc:
        channels, height, width, batch = x.shape
        return fc.Fc(channels * height * width, self.outputs, batch)
