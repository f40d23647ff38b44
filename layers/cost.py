"""What costs have in common: a coefficient, and results of each sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from layers.base import Emit, Layer, Shape
from layers.options import option


@dataclass(frozen=True)
class Cost(Layer):
    """A layer from which the gradient starts. Its output [R, 1, 1, N] holds `results` of each sample.

    The gradient is that of the mean loss over the configured batch, times `coeff`.
    """

    is_cost: ClassVar[bool] = True
    takes_targets: ClassVar[bool] = False  # whether its second input may be a layer's map in place of the labels

    coeff: float = option(1.0, least=0, doc="factor of the gradient, not of the reported loss; 0: report alone")

    def results(self, *inputs: Shape) -> tuple[str, ...]:
        """Names of the rows of the output; the first is the loss, the others, where they end in _error, are in 0..1."""
        raise NotImplementedError

    def check(self, *inputs: Shape) -> None:
        """Raise ConfigError where the inputs do not suit."""

    def output(self, *inputs: Shape) -> Shape:
        self.check(*inputs)
        return Shape(len(self.results(*inputs)))

    def probabilities(self, emit: Emit, xs: Sequence[Any]) -> Any:
        """Those of the classes [K, 1, 1, N], once `forward` has run; None for a cost that knows no classes."""
        return None

    def counted(self, *inputs: Shape) -> int:
        """For how many classes `count` counts; 0: it does not."""
        return 0

    def count(self, emit: Emit, xs: Sequence[Any], counts: Any) -> None:
        """Emit what adds to counts int64 [3, K], for each class: samples declared to be of it, of it, and both."""

    def labels(self, emit: Emit, xs: Sequence[Any]) -> dict[str, Any]:
        """The arguments of an operation that reads labels: its second input, and those that mixed samples have."""
        return {"labels": xs[1], "second": emit.optional("second"), "share": emit.optional("share")}

    def scale(self, emit: Emit) -> float:
        """The factor that makes the gradient of a sum over samples that of the mean."""
        return self.coeff / emit.nominal_batch
