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

    topk: for each error rate, the k among whose likeliest classes a sample's own must be; up to eight. smoothing: s in
    the target (1 - s) * onehot + s / classes. scale: factor of the gradient, coeff / nominal batch.
    """

    classes: int
    batch: int
    topk: tuple[int, ...] = (1, 5)
    smoothing: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class OneHot:
    """Targets of `classes` classes from the labels of `batch` samples."""

    classes: int
    batch: int


@dataclass(frozen=True)
class Crossent:
    """Scores or probabilities of `classes` classes and targets, for each of `batch` samples.

    scale: factor of the gradient, coeff / nominal batch.
    """

    classes: int
    batch: int
    scale: float = 1.0


@dataclass(frozen=True)
class Bce:
    """Maps of `channels` x `height` x `width` x `batch`, a prediction and a target of two outcomes for each element.

    weight: of the elements whose target is 1. scale: factor of the gradient, coeff / nominal batch. top1: report that
    error, too: the elements of a sample are classes.
    """

    channels: int
    height: int
    width: int
    batch: int
    weight: float = 1.0
    scale: float = 1.0
    top1: bool = True


@dataclass(frozen=True)
class Count:
    """Probabilities and targets of `classes` classes for each of `batch` samples."""

    classes: int
    batch: int


@dataclass(frozen=True)
class Sum2:
    """A map of `channels` x `height` x `width` x `batch`."""

    channels: int
    height: int
    width: int
    batch: int


@dataclass(frozen=True)
class Report:
    """A ring of `ring` steps for sums over `batch` samples.

    The `rows` results of a cost go to the rows of the ring from `offset` on. first: overwrite a step's sums, else they
    add up. watched: a first sum that is not finite stops the updates.
    """

    batch: int
    ring: int
    rows: int
    offset: int = 0
    first: bool = True
    watched: bool = True
