"""The classification cost: negative log likelihood of the labels under the softmax."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels import cost
from kernels.abi import LONGEST
from layers.base import Emit, Layer, Shape
from layers.cost import Cost
from layers.options import ConfigError, layer, option, show

TOPK = (5,)  # where nothing else is said; of fewer classes it is their number


@layer("logreg")
@dataclass(frozen=True)
class Logreg(Cost):
    """Multinomial logistic regression: softmax and cross-entropy in one.

    Inputs: scores [K, 1, 1, N] of the K classes, or a softmax layer; labels int32 [N] (-1: unlabeled, which counts
    nothing). Results of each sample: its loss, its top-1 error and its top-k error (0 or 1) for each k of topk.
    loss = -sum over c of t[c] log p[c], p = softmax(scores), t = (1 - smoothing) onehot(label) + smoothing / K.
    Of images that training mixes (mixup, cutmix), t has a share of each label; errors are of the one with the larger.
    The gradient is that of the mean loss over the configured batch, times coeff: coeff (p - t) / batch_size.
    """

    arity: ClassVar[tuple[int, int | None]] = (2, 2)

    topk: tuple[int, ...] = option(TOPK, least=1, doc="each k of the top-k errors; top-1 is always among them")
    smoothing: float = option(0.0, least=0, below=1, doc="label smoothing: this share of the target is spread evenly")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (found := len({1, *self.topk})) > LONGEST:
            raise ConfigError(f"expected at most {LONGEST} of them with 1, found {found}", ("topk",))
        if len(set(self.topk)) < len(self.topk):
            raise ConfigError(f"expected each k once, found {show(self.topk)}", ("topk",))

    def fused(self, source: Layer) -> Layer | None:
        return self if source.type == "softmax" else None

    def results(self, *inputs: Shape) -> tuple[str, ...]:
        return ("loss", *(f"top{k}_error" for k in self._ks(inputs[0].channels)))

    def check(self, *inputs: Shape) -> None:
        scores, labels = inputs
        if labels != Shape(1):
            raise ConfigError(f"expected [scores, labels], found a second input of {labels}", key="inputs")
        if (scores.height, scores.width) != (1, 1) or scores.channels < 2:
            found = f"expected the scores of two or more classes, Kx1x1, found {scores}"
            raise ConfigError(f"{found}; an fc layer with K outputs gives them", key="inputs")
        if self.topk != TOPK and max(self.topk) > scores.channels:
            raise ConfigError(f"expected at most {scores.channels}, the classes, found {max(self.topk)}", ("topk",))

    def probabilities(self, emit: Emit, xs: Sequence[Any]) -> Any:
        return emit.keep("p", xs[0].shape, layout="hcwn")

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        g, p = self._geometry(emit, xs[0]), self.probabilities(emit, xs)
        emit(cost.LOGREG_FORWARD, g, x=xs[0], **self.labels(emit, xs), p=p, y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            g, p = self._geometry(emit, xs[0]), self.probabilities(emit, xs)
            emit(cost.LOGREG_BACKWARD, g, p=p, **self.labels(emit, xs), dx=dxs[0])

    def _ks(self, classes: int) -> tuple[int, ...]:
        return tuple(sorted({1, *(min(k, classes) for k in self.topk)}))

    def _geometry(self, emit: Emit, x: Any) -> cost.Logreg:
        classes, _, _, batch = x.shape
        return cost.Logreg(classes, batch, self._ks(classes), self.smoothing, self.scale(emit))
