"""What layers with learned weights have in common."""

import math
from dataclasses import dataclass
from typing import ClassVar

from layers.base import Layer, Param
from layers.initializers import Constant, He, Initializer
from layers.options import ConfigError, LayerSolver, option


@dataclass(frozen=True)
class WeightSolver(LayerSolver):
    """Learning parameters of one layer with weights. The bounds hold for each output's weights, after each update."""

    wball: float | None = option(None, above=0, doc="L2 norm to which each output's weights are scaled; of a local "
                                 "layer only those of a larger norm")  # fmt: skip
    norm_min: float | None = option(None, above=0, doc="least sqrt(sum (w - mean)^2) / n of an output's n weights")
    norm_max: float | None = option(None, above=0, doc="most sqrt(sum (w - mean)^2) / n of an output's n weights")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm_min is not None and self.norm_max is not None and self.norm_max < self.norm_min:
            raise ConfigError(f"expected a number >= norm_min ({self.norm_min}), found {self.norm_max}", ("norm_max",))
        if self.wball is not None and (self.norm_min, self.norm_max) != (None, None):
            raise ConfigError("expected either wball or norm_min and norm_max, found both", key="wball")


@dataclass(frozen=True)
class Weighted(Layer):
    """A linear layer's options: a weight, a bias for each output, how they start and how they learn."""

    ball_shrinks: ClassVar[bool] = False  # weights inside of the ball of `wball` stay there

    bias: bool = option(True, doc="add a learned bias to each output")
    init: Initializer = option(He(), doc="initial weights; the default keeps the scale of activations through ReLUs")
    init_bias: Initializer = option(Constant(), doc="initial biases")
    solver: WeightSolver = option(WeightSolver(), doc="learning parameters of this layer")
    share: str | None = option(
        None,
        doc="a layer above of this type, whose weights (not biases) are used here too, with the init and the learning "
        "parameters that they have there; `solver` is for biases",
    )

    def weights(self, shape: tuple[int, ...]) -> dict[str, Param]:
        """Parameters for weights of `shape`, outputs first: each output sums the product of the other sides."""
        weight = Param(shape, self.init, fan_in=math.prod(shape[1:]))
        if not self.bias:
            return {"weight": weight}
        return {"weight": weight, "bias": Param(shape[:1], self.init_bias, weight.fan_in, decays=False)}
