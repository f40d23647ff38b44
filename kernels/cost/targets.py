"""Costs of predictions against a map of targets, and of a map alone, in NumPy.

A target below 0 is none: that element counts nothing, in no sum, no error and no gradient.
"""

from typing import Any

import numpy as np

from kernels.cost.geometry import Bce, Count, Crossent, OneHot, Sum2
from kernels.cost.reference import known, mixed, softmax
from kernels.layout import Array, Map

LOG_ZERO = -50.0  # what is taken for the logarithm of 0


def one_hot(g: OneHot, labels: Array, second: Array | None, share: Array | None, t: Map) -> None:
    """t[c, n] = 1 where c is the label of n, else 0; all -1 where the label is negative, NaN where it is no class.

    labels: int32 [N]. t: [K, 1, 1, N]. With a single class, t is the label itself, 0 or 1. second, share: of samples
    mixed of two, as in logreg_forward: t is `share` of that of the label, and the rest of that of the second.
    """
    classes = max(g.classes, 2)
    targets = mixed(classes, labels, second, share)[-g.classes :]
    t[:, 0, 0] = np.where(labels < 0, -1, np.where(known(classes, labels, second), targets, np.nan))


def crossent_forward(g: Crossent, x: Map, t: Map, y: Map) -> None:
    """Per sample -sum over c of t[c] log x[c], with log 0 = -50, and the top-1 error.

    x: probabilities [K, 1, 1, N]. t: targets [K, 1, 1, N]. y: [2, 1, 1, N]. The likeliest class, the first of equal
    ones, is an error when its target is not above 0; a NaN is one, too.
    """
    loss = -np.where(t < 0, 0, t * _safe_log(x)).sum(axis=(0, 1, 2))
    y[0, 0, 0], y[1, 0, 0] = loss, _top1(x, t, loss)


def crossent_backward(g: Crossent, x: Map, t: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx - scale * t / x; 0 for x = 0, where the logarithm is cut off."""
    local = np.where((t < 0) | (x <= 0), 0, -g.scale * t / np.where(x <= 0, 1, x))
    dx[...] = local if beta == 0 else beta * dx + local


@np.errstate(invalid="ignore")
def crossent_logits_forward(g: Crossent, x: Map, t: Map, p: Map, y: Map) -> None:
    """p = softmax(x), and per sample what crossent_forward says of it; the loss is exact where p is 0."""
    shifted, targets = x - x.max(axis=0), np.where(t < 0, 0, t)
    logs = np.log(np.exp(shifted).sum(axis=0)) * targets.sum(axis=0)
    loss = (logs - np.where(targets == 0, 0, targets * shifted).sum(axis=0))[0, 0]
    y[0, 0, 0] = np.where((t < 0).all(axis=0), 0, loss)
    y[1, 0, 0] = _top1(x, t, loss)
    softmax(x, p)


def crossent_logits_backward(g: Crossent, p: Map, t: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + scale * (p * sum of t - t), the sum over the classes."""
    targets = np.where(t < 0, 0, t)
    local = g.scale * (p * targets.sum(axis=0) - targets)
    dx[...] = local if beta == 0 else beta * dx + local


def bce_forward(g: Bce, x: Map, t: Map, y: Map) -> None:
    """Per sample the sum of -(weight * t log x + (1 - t) log(1 - x)), with log 0 = -50, and two errors.

    x: probabilities, t: targets [C, H, W, N]. y: [2 or 3, 1, 1, N]: the sum; the share of elements on another side of
    0.5 than their targets; with g.top1, whether the target of the greatest element, of equal ones the first in the
    order C, H, W, is not above 0. A NaN is an error.
    """
    _bce(g, x, x >= 0.5, t, y, -g.weight * t * _safe_log(x) - (1 - t) * _safe_log(1 - x))


def bce_backward(g: Bce, x: Map, t: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + scale * ((1 - t) / (1 - x) - weight * t / x), each term 0 where its logarithm is cut off."""
    above, below = np.where(x <= 0, np.inf, x), np.where(x >= 1, np.inf, 1 - x)
    local = np.where(t < 0, 0, g.scale * ((1 - t) / below - g.weight * t / above))
    dx[...] = local if beta == 0 else beta * dx + local


@np.errstate(invalid="ignore")
def bce_logits_forward(g: Bce, x: Map, t: Map, p: Map, y: Map) -> None:
    """p = 1 / (1 + exp(-x)), and per sample what bce_forward says of it; the sum is exact where p is 0 or 1."""
    small = np.exp(-np.abs(x))
    tail = np.log1p(small)
    _bce(g, x, x >= 0, t, y, g.weight * t * (np.maximum(-x, 0) + tail) + (1 - t) * (np.maximum(x, 0) + tail))
    p[...] = np.where(x >= 0, 1, small) / (1 + small)


def bce_logits_backward(g: Bce, p: Map, t: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + scale * ((1 - t) p - weight * t (1 - p)): p - t, where weight is 1."""
    local = np.where(t < 0, 0, g.scale * ((1 - t) * p - g.weight * t * (1 - p)))
    dx[...] = local if beta == 0 else beta * dx + local


def count(g: Count, p: Map, t: Map, counts: Array) -> None:
    """counts[:, c] += how many samples were declared to be of class c (p >= 0.5), are (t >= 0.5), and were rightly.

    p, t: [K, 1, 1, N]. counts: int64 [3, K].
    """
    declared, positive, labeled = p[:, 0, 0] >= 0.5, t[:, 0, 0] >= 0.5, ~(t[:, 0, 0] < 0)
    for row, found in enumerate((declared & labeled, positive, declared & positive)):
        counts[row] += found.sum(axis=1)


def sum2_forward(g: Sum2, x: Map, y: Map) -> None:
    """y[0, n] = the sum of x^2 over all elements of sample n. y: [1, 1, 1, N]."""
    y[0, 0, 0] = np.square(x).sum(axis=(0, 1, 2))


def _safe_log(x: Any) -> Any:
    return np.where(x <= 0, LOG_ZERO, np.log(np.where(x <= 0, 1, x)))


def _bce(g: Bce, x: Any, declared: Any, t: Any, y: Map, losses: Any) -> None:
    labeled, everything = ~(t < 0), (0, 1, 2)
    y[0, 0, 0] = loss = np.where(labeled, losses, 0).sum(axis=everything)
    wrong = (labeled & (declared != (t >= 0.5))).sum(axis=everything)
    y[1, 0, 0] = wrong / np.maximum(labeled.sum(axis=everything), 1)
    if g.top1:
        y[2, 0, 0] = _top1(x, t, loss)


def _top1(x: Any, t: Any, loss: Any) -> Any:
    """Whether the element with the greatest x has no target above 0, for each sample; False where none has a target."""
    flat = t.reshape(-1, t.shape[3])
    best = np.where(flat < 0, -np.inf, x.reshape(flat.shape)).argmax(axis=0)
    right = (np.take_along_axis(flat, best[None], axis=0)[0] > 0) & ~np.isnan(loss)
    return ~right & ~(flat < 0).all(axis=0)
