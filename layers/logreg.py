"""The classification cost: negative log likelihood of the labels under the softmax."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels import cost
from layers.base import Emit, Layer, Shape
from layers.options import ConfigError, layer, option


@layer("logreg")
@dataclass(frozen=True)
class Logreg(Layer):
    """Multinomial logistic regression: softmax and cross-entropy in one.

    Inputs: scores [K, 1, 1, N] of the K classes, labels int32 [N] (-1: unlabeled, which counts nothing).
    y: [3, 1, 1, N], for each sample its loss, top-1 error and top-k error (0 or 1).
    loss = -sum over c of t[c] log p[c], p = softmax(scores), t = (1 - smoothing) onehot(label) + smoothing / K.
    The gradient is that of the mean loss over the configured batch, times coeff: coeff (p - t) / batch_size.
    """

    arity: ClassVar[tuple[int, int | None]] = (2, 2)
    is_cost: ClassVar[bool] = True
    takes_logits: ClassVar[bool] = True

    topk: int = option(5, least=1, doc="k of the top-k error")
    smoothing: float = option(0.0, least=0, below=1, doc="label smoothing: this share of the target is spread evenly")
    coeff: float = option(1.0, least=0, doc="factor of the gradient; the reported loss is without it")

    def output(self, *inputs: Shape) -> Shape:
        scores, labels = inputs
        if labels != Shape(1):
            raise ConfigError(f"expected [scores, labels], found a second input of {labels}", key="inputs")
        if (scores.height, scores.width) != (1, 1) or scores.channels < 2:
            found = f"expected the scores of two or more classes, Kx1x1, found {scores}"
            raise ConfigError(f"{found}; an fc layer with K outputs gives them", key="inputs")
        return Shape(3)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        g = self._geometry(emit, xs[0])
        emit(cost.LOGREG_FORWARD, g, x=xs[0], labels=xs[1], p=self._probabilities(emit, xs[0]), y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            p = self._probabilities(emit, xs[0])
            emit(cost.LOGREG_BACKWARD, self._geometry(emit, xs[0]), p=p, labels=xs[1], dx=dxs[0])

    def _probabilities(self, emit: Emit, x: Any) -> Any:
        return emit.keep("p", x.shape, layout="hcwn")

    def _geometry(self, emit: Emit, x: Any) -> cost.Logreg:
        classes, _, _, batch = x.shape
        scale = self.coeff / emit.nominal_batch
        return cost.Logreg(classes, batch, topk=min(self.topk, classes), smoothing=self.smoothing, scale=scale)
