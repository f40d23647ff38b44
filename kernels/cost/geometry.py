"""Geometries of the costs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Softmax:
    """A map of `channels` x `height` x `width` x `batch`, normalised over its channels."""

    channels: int
    height: int
    width: int
    batch: int


@dataclass(frozen=True)
class Logreg:
    """Multinomial logistic regression: logits of `classes` classes for each of `batch` samples.

    topk: a sample is right in the second error rate when its class is among so many. smoothing: s in the target
    (1 - s) * onehot + s / classes. scale: factor of the gradient, coeff / nominal batch.
    """

    classes: int
    batch: int
    topk: int = 5
    smoothing: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class Report:
    """A ring of `ring` steps for the sums over `batch` samples; `first` overwrites a step's sums, else they add up."""

    batch: int
    ring: int
    first: bool = True
