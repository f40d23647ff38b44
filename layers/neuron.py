"""Neurons: an activation function, applied to each element."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import neuron
from layers.base import Emit, Layer, Shape, axes
from layers.options import layer, option


@layer("neuron")
@dataclass(frozen=True)
class Neuron(Layer):
    """y = f(x): relu max(0, x), tanh, or logistic 1 / (1 + exp(-x)). Shapes: y is as x.

    The slope of relu at 0 is 0. `neuron: relu` on another layer makes a layer of this type behind it.
    """

    kind: str = option(choices=neuron.KINDS, doc="the function")

    def output(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(neuron.FORWARD, self._geometry(y), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            emit(neuron.BACKWARD, self._geometry(y), y=y, dy=dy, dx=dxs[0])

    def _geometry(self, y: Any) -> neuron.Neuron:
        return neuron.Neuron(**axes(y), kind=neuron.KINDS.index(self.kind))
