"""Softmax: scores to probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import cost
from layers.base import Emit, Layer, Shape, axes
from layers.options import layer


@layer("softmax")
@dataclass(frozen=True)
class Softmax(Layer):
    """y[c] = exp(x[c]) / sum over c' of exp(x[c']), at each pixel of each sample; y is as x.

    A logreg cost behind it reads the scores instead: loss and softmax together are exact where a probability is 0.
    """

    def output(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(cost.SOFTMAX_FORWARD, cost.Softmax(**axes(y)), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            emit(cost.SOFTMAX_BACKWARD, cost.Softmax(**axes(y)), y=y, dy=dy, dx=dxs[0])
