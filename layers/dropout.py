"""Dropout: a random part of the elements is zeroed in each training step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import eltwise, random
from layers.base import Emit, Layer, Shape, axes
from layers.options import layer, option


@layer("dropout")
@dataclass(frozen=True)
class Dropout(Layer):
    """Training: y = x / keep with probability `keep`, else 0, drawn for each element. Evaluation: y = x. y is as x.

    Srivastava et al. 2014, scaled while training so that evaluation needs no change. With `scale: eval`, as there and
    in cuda-convnet2's dropout2, y = x or 0 in training, and y = keep x in evaluation. `keep` is 1 - p of PyTorch's
    Dropout(p). An element's draw depends on the run's seed, the step, the layer's name, and the sample's place in the
    batch alone: neither on the number of devices nor on the memory layout.
    """

    keep: float = option(0.5, above=0, most=1, doc="probability that an element is kept, not that it is dropped")
    scale: str = option("train", choices=("train", "eval"), doc="where the expectation is made the same: see above")

    def output(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        if emit.training:
            emit(random.DROPOUT, self._geometry(emit, y), x=xs[0], clock=emit.input("clock"), y=y)
        elif self.scale == "eval":
            emit(eltwise.SUM, eltwise.Sum(**axes(y), coeff=self.keep), x=xs[0], y=y, beta=0.0)
        else:
            emit(eltwise.COPY, eltwise.Copy(**axes(y)), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            emit(random.DROPOUT_BACKWARD, self._geometry(emit, y), dy=dy, clock=emit.input("clock"), dx=dxs[0])

    def _geometry(self, emit: Emit, y: Any) -> random.Dropout:
        return random.Dropout(**axes(y), keep=self.keep, key=emit.key, scaled=self.scale == "train")
