"""Softmax, the multinomial logistic cost and the record of results in NumPy."""

from typing import Any

import numpy as np

from kernels.cost.geometry import Logreg, Report, Softmax
from kernels.layout import Array, Map


@np.errstate(invalid="ignore")  # inf - inf is the NaN that `report` looks for
def softmax(x: Map, y: Map) -> None:
    """As softmax_forward."""
    np.subtract(x, x.max(axis=0), out=y)
    np.exp(y, out=y)
    y /= y.sum(axis=0)


def softmax_forward(g: Softmax, x: Map, y: Map) -> None:
    """y = exp(x - max) / sum exp(x - max) over the channels, at each pixel of each sample."""
    softmax(x, y)


def softmax_backward(g: Softmax, y: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + y * (dy - sum of y * dy over the channels)."""
    local = y * (dy - (y * dy).sum(axis=0))
    dx[...] = local if beta == 0 else beta * dx + local


def mixed(classes: int, labels: Array, second: Array | None, share: Array | None) -> Any:
    """Targets [classes, N]: `share` of one label and the rest of the other, which is none where it is negative."""
    hot = np.arange(classes)[:, None] == labels
    if second is None or share is None:
        return hot
    own = np.where(second < 0, 1, share)
    return own * hot + (1 - own) * (np.arange(classes)[:, None] == second)


def known(classes: int, labels: Array, second: Array | None) -> Any:
    """Whether the labels of a sample, where it has some, are classes."""
    return (labels < classes) & (True if second is None else second < classes)


@np.errstate(invalid="ignore")
def logreg_forward(g: Logreg, x: Map, labels: Array, second: Array | None, share: Array | None, p: Map, y: Map) -> None:
    """Softmax of the logits, and per sample the negative log likelihood and an error (0 or 1) for each k of topk.

    x, p: [K, 1, 1, N]. labels: int32 [N]; negative is unlabeled, and all are 0. y: [1 + len(topk), 1, 1, N].
    second, share: of samples that are mixed of two, int32 [N], another label, or negative, and [N], the share of the
    first in the target; the errors are those of the label with the larger share, the first of equal ones.
    The likelihood is of the smoothed target (see `Logreg`). A sample counts as right within k when fewer than k classes
    have a greater logit, or an equal one and a lower index; NaN counts as greater than all, and is never right itself.
    A label that is not below K gives NaN and errors.
    """
    softmax(x, p)
    logits, target, valid = x[:, 0, 0], mixed(g.classes, labels, second, share), known(g.classes, labels, second)
    shifted = logits - logits.max(axis=0)
    log_sum = np.log(np.exp(shifted).sum(axis=0))
    loss = log_sum - (1 - g.smoothing) * np.where(target == 0, 0, target * shifted).sum(axis=0)
    if g.smoothing:
        loss -= g.smoothing / g.classes * shifted.sum(axis=0)
    main = labels if second is None or share is None else np.where((second < 0) | (share >= 0.5), labels, second)
    chosen = np.where(np.arange(g.classes)[:, None] == main, logits, 0).sum(axis=0)
    behind = (logits < chosen) | ((logits == chosen) & (np.arange(g.classes)[:, None] >= main))
    rank = g.classes - behind.sum(axis=0)
    y[0, 0, 0] = np.where(labels >= 0, np.where(valid, loss, np.nan), 0)
    for row, k in enumerate(g.topk, 1):
        y[row, 0, 0] = (labels >= 0) & ~(valid & (rank < k))


def logreg_backward(
    g: Logreg, p: Map, labels: Array, second: Array | None, share: Array | None, dx: Map, beta: float
) -> None:
    """dx = beta * dx + scale * (p - target); nothing is added for unlabeled samples.

    target = (1 - s) * (share of the label and the rest of the second) + s / K.
    """
    target = (1 - g.smoothing) * mixed(g.classes, labels, second, share) + g.smoothing / g.classes
    local = np.where(labels >= 0, g.scale * (p[:, 0, 0] - target), 0)[:, None, None]
    dx[...] = local if beta == 0 else beta * dx + local


def report(g: Report, y: Map, clock: Array, history: Array, healthy: Array) -> None:
    """history[offset + i, step % ring] = or += the sum of y[i] over the samples.

    y: [rows, 1, 1, N], the results of one cost. clock: uint32 [4], its third the step. history: float64, all rows of
    all costs by ring. healthy: int32 [1], set to 0 where the first sum, the loss, is infinite or NaN and `watched` says
    that this counts, otherwise left as it is: updates stop.
    """
    total = y[:, 0, 0].sum(axis=1, dtype=np.float64)
    slot = int(clock[2]) % g.ring
    held = history[g.offset : g.offset + g.rows, slot]
    held[...] = total if g.first else held + total
    if g.watched and not np.isfinite(total[0]):
        healthy[0] = 0
