"""What layers with learned weights have in common."""

import math
from dataclasses import dataclass

from layers.base import Layer, Param
from layers.initializers import Constant, He, Initializer
from layers.options import LayerSolver, option


@dataclass(frozen=True)
class Weighted(Layer):
    """A linear layer's options: a weight, a bias for each output, how they start and how they learn."""

    bias: bool = option(True, doc="add a learned bias to each output")
    init: Initializer = option(He(), doc="initial weights; the default keeps the scale of activations through ReLUs")
    init_bias: Initializer = option(Constant(), doc="initial biases")
    solver: LayerSolver = option(LayerSolver(), doc="learning parameters of this layer")

    def weights(self, shape: tuple[int, ...]) -> dict[str, Param]:
        """Parameters for weights of `shape`, outputs first: each output sums the product of the other sides."""
        weight = Param(shape, self.init, fan_in=math.prod(shape[1:]))
        if not self.bias:
            return {"weight": weight}
        return {"weight": weight, "bias": Param(shape[:1], self.init_bias, weight.fan_in, decays=False)}
