"""Costs of predictions against targets, and of a map alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kernels import cost, eltwise
from kernels.op import Op
from layers.base import Emit, Layer, Shape, axes
from layers.cost import Cost
from layers.neuron import Neuron
from layers.options import ConfigError, layer, option


@dataclass(frozen=True)
class TargetCost(Cost):
    """Inputs: predictions, and targets of the same shape, or the labels.

    Targets are constants: what makes them gets no gradient. One below 0 is none: that element counts nothing. An
    unlabeled sample has none. Of images that training mixes (mixup, cutmix), labels become shares of two classes.
    """

    arity: ClassVar[tuple[int, int | None]] = (2, 2)
    takes_targets: ClassVar[bool] = True
    ops: ClassVar[tuple[Op, Op]]  # forward and backward, of probabilities
    logits_ops: ClassVar[tuple[Op, Op]]

    logits: bool = option(False, doc="the first input holds logits, not probabilities")

    def check(self, *inputs: Shape) -> None:
        x, t = inputs
        if t not in (x, Shape(1)):
            raise ConfigError(f"expected labels, or targets of the shape {x}, found {t}", key="inputs")
        if t == Shape(1) and (x.height, x.width) != (1, 1):
            raise ConfigError(f"labels are for predictions of classes, Kx1x1, found {x}", key="inputs")

    def probabilities(self, emit: Emit, xs: Sequence[Any]) -> Any:
        return emit.keep("p", xs[0].shape, layout="hcwn") if self.logits else xs[0]

    def targets(self, emit: Emit, xs: Sequence[Any]) -> Any:
        """The map of targets: the second input, or what `spread` makes of labels."""
        return emit.keep("t", xs[0].shape, layout="hcwn") if _labels(xs) else xs[1]

    def spread(self, emit: Emit, xs: Sequence[Any]) -> None:
        """Emit the step from labels to targets, where there are labels."""
        if _labels(xs):
            classes, _, _, batch = xs[0].shape
            emit(cost.ONE_HOT, cost.OneHot(classes, batch), **self.labels(emit, xs), t=self.targets(emit, xs))

    def geometry(self, emit: Emit, x: Any) -> Any:
        """That of all four operations."""
        raise NotImplementedError

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        self.spread(emit, xs)
        g, t = self.geometry(emit, xs[0]), self.targets(emit, xs)
        if self.logits:
            emit(self.logits_ops[0], g, x=xs[0], t=t, p=self.probabilities(emit, xs), y=y)
        else:
            emit(self.ops[0], g, x=xs[0], t=t, y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        g, t, p = self.geometry(emit, xs[0]), self.targets(emit, xs), self.probabilities(emit, xs)
        if dxs[0] is not None and self.logits:
            emit(self.logits_ops[1], g, p=p, t=t, dx=dxs[0])
        elif dxs[0] is not None:
            emit(self.ops[1], g, x=p, t=t, dx=dxs[0])


def _labels(xs: Sequence[Any]) -> bool:
    return len(xs[1].shape) == 1


@layer("crossent")
@dataclass(frozen=True)
class Crossent(TargetCost):
    """Cross-entropy with soft targets: loss = -sum over c of t[c] log p[c].

    Inputs: probabilities p [K, 1, 1, N], of a softmax layer as a rule; targets t of the same shape, or the labels.
    Results of each sample: its loss, and its top-1 error: 1 where the target of the likeliest class is 0.
    Of a softmax layer its input is read instead, so that the loss is exact where p is 0; the gradient of the scores is
    coeff (p sum(t) - t) / batch_size. Otherwise log 0 is -50 and the gradient of p is -coeff t / p / batch_size.
    """

    ops: ClassVar[tuple[Op, Op]] = cost.CROSSENT_FORWARD, cost.CROSSENT_BACKWARD
    logits_ops: ClassVar[tuple[Op, Op]] = cost.CROSSENT_LOGITS_FORWARD, cost.CROSSENT_LOGITS_BACKWARD

    def fused(self, source: Layer) -> Layer | None:
        return replace(self, logits=True) if source.type == "softmax" else None

    def results(self, *inputs: Shape) -> tuple[str, ...]:
        return "loss", "top1_error"

    def check(self, *inputs: Shape) -> None:
        if (x := inputs[0]).channels < 2 or (x.height, x.width) != (1, 1):
            raise ConfigError(f"expected the probabilities of two or more classes, Kx1x1, found {x}", key="inputs")
        super().check(*inputs)

    def geometry(self, emit: Emit, x: Any) -> cost.Crossent:
        classes, _, _, batch = x.shape
        return cost.Crossent(classes, batch, self.scale(emit))


@layer("bce")
@dataclass(frozen=True)
class Bce(TargetCost):
    """Binary cross-entropy: loss = -sum over elements of (pos_weight t log p + (1 - t) log(1 - p)).

    Inputs: logits x, p = 1 / (1 + exp(-x)), or a logistic neuron, whose input is read instead; targets t in 0..1 of the
    same shape, or the labels of K classes (of one: its labels 0 and 1 are the targets).
    Results of each sample: its loss; bit_error, the share of elements that are on another side of 0.5 than their
    targets; of two or more classes, Kx1x1, top1_error: 1 where the target of the likeliest is 0.
    The gradient of x is coeff (p - t) / batch_size for a pos_weight of 1. If not `logits`, the input is p itself, log 0
    is -50, and the gradient of p is coeff ((1 - t) / (1 - p) - pos_weight t / p) / batch_size.
    """

    ops: ClassVar[tuple[Op, Op]] = cost.BCE_FORWARD, cost.BCE_BACKWARD
    logits_ops: ClassVar[tuple[Op, Op]] = cost.BCE_LOGITS_FORWARD, cost.BCE_LOGITS_BACKWARD

    logits: bool = option(True, doc="the first input holds logits, not probabilities")
    pos_weight: float = option(1.0, above=0, doc="weight of the elements whose target is 1")

    def fused(self, source: Layer) -> Layer | None:
        return replace(self, logits=True) if isinstance(source, Neuron) and source.kind == "logistic" else None

    def results(self, *inputs: Shape) -> tuple[str, ...]:
        return ("loss", "bit_error", *["top1_error"] * _classes((inputs[0].channels, *_sides(inputs[0]))))

    def geometry(self, emit: Emit, x: Any) -> cost.Bce:
        return cost.Bce(**axes(x), weight=self.pos_weight, scale=self.scale(emit), top1=_classes(x.shape[:3]))


def _sides(shape: Shape) -> tuple[int, int]:
    return shape.height, shape.width


def _classes(shape: tuple[int, ...]) -> bool:
    """Whether the elements of a map (C, H, W) are those of two or more classes."""
    return shape[0] > 1 and shape[1:] == (1, 1)


@layer("dce")
@dataclass(frozen=True)
class Dce(Bce):
    """Detection cross-entropy: bce of K classes, Kx1x1, with the precision and the recall of each class.

    A class is declared where p >= 0.5 and present where t >= 0.5. precision: the share of the declared that are
    present; recall: the share of the present that are declared.
    """

    def check(self, *inputs: Shape) -> None:
        if _sides(inputs[0]) != (1, 1):
            raise ConfigError(f"expected predictions of classes, Kx1x1, found {inputs[0]}", key="inputs")
        super().check(*inputs)

    def counted(self, *inputs: Shape) -> int:
        return inputs[0].channels

    def count(self, emit: Emit, xs: Sequence[Any], counts: Any) -> None:
        classes, _, _, batch = xs[0].shape
        p, t = self.probabilities(emit, xs), self.targets(emit, xs)
        emit(cost.COUNT, cost.Count(classes, batch), p=p, t=t, counts=counts)


@layer("sum2")
@dataclass(frozen=True)
class Sum2(Cost):
    """Sum of squares: loss = sum over all elements of x^2; the gradient is 2 coeff x / batch_size.

    Behind an eltsum of a prediction and, with the coefficient -1, of what it should be, it is the squared error.
    """

    def results(self, *inputs: Shape) -> tuple[str, ...]:
        return ("loss",)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(cost.SUM2_FORWARD, cost.Sum2(**axes(xs[0])), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            emit(eltwise.SUM, eltwise.Sum(**axes(xs[0]), coeff=2 * self.scale(emit)), x=xs[0], y=dxs[0])
