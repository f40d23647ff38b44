"""Every backward reference against central differences of its forward reference, in float64.

For a random direction u and a random dy, the change of sum(dy * y) along u is sum(dx * u).
"""

import numpy as np
import pytest

from kernels import cost, eltwise, neuron, norm, pool, random

STEP = 1e-6
SHAPE = (5, 4, 3, 2)
CLOCK = np.array([1, 2, 3, 4], np.uint32)


def check(forward, backward, x, y_shape=None, tolerance=1e-7):
    """forward(x, y) and backward(x, y, dy, dx), in place; y = forward(x)."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        u, dy = rng.standard_normal(x.shape), rng.standard_normal(y_shape or x.shape)
        y, ahead, behind, dx = np.empty_like(dy), np.empty_like(dy), np.empty_like(dy), np.full(x.shape, np.nan)
        forward(x + STEP * u, ahead)
        forward(x - STEP * u, behind)
        forward(x, y)
        backward(x, y, dy, dx)
        numeric, analytic = np.sum(dy * (ahead - behind)) / (2 * STEP), np.sum(dx * u)
        assert abs(numeric - analytic) < tolerance * (1 + abs(numeric)), (numeric, analytic)


def spread(shape, gap=0.01):
    """Random values no two of which are near each other or 0: away from the kinks of max and relu."""
    count = int(np.prod(shape))
    return (np.random.default_rng(1).permutation(count) - count // 2 + 0.5).reshape(shape) * gap


def normal(shape, seed=2):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("kind", range(len(neuron.KINDS)), ids=neuron.KINDS)
def test_neuron(kind):
    g = neuron.Neuron(*SHAPE, kind)
    check(
        lambda x, y: neuron.FORWARD.reference(g, x, y),
        lambda x, y, dy, dx: neuron.BACKWARD.reference(g, y, dy, dx, 0.0),
        spread(SHAPE, 0.05),
    )


POOLS = [
    pool.Pool(*SHAPE, 2, 3, 1, 1, 0, 0, 3, 1),
    pool.Pool(*SHAPE, 3, 2, 2, 2, -1, -1, 3, 2),
    pool.Pool(*SHAPE, 3, 2, 2, 2, -1, -1, 3, 2, count_pad=True),
    pool.Pool(*SHAPE, 1, 1, 3, 2, 1, 0, 2, 2),
]


@pytest.mark.parametrize("g", POOLS, ids=str)
def test_pool(g):
    outputs = (g.channels, g.out_h, g.out_w, g.batch)
    check(
        lambda x, y: pool.MAX_FORWARD.reference(g, x, y),
        lambda x, y, dy, dx: pool.MAX_BACKWARD.reference(g, x, y, dy, dx, 0.0),
        spread(SHAPE),
        outputs,
    )
    check(
        lambda x, y: pool.AVG_FORWARD.reference(g, x, y),
        lambda x, y, dy, dx: pool.AVG_BACKWARD.reference(g, dy, dx, 0.0),
        normal(SHAPE),
        outputs,
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_lrn(size):
    g = norm.Lrn(*SHAPE, size=size, alpha=0.4, power=0.75, k=1.5)
    check(
        lambda x, y: norm.LRN_FORWARD.reference(g, x, y),
        lambda x, y, dy, dx: norm.LRN_BACKWARD.reference(g, x, dy, dx, 0.0),
        normal(SHAPE),
    )


class Batch:
    """Batch normalisation forward and backward as a layer chains the operations."""

    g = norm.BatchNorm(*SHAPE, eps=1e-3, momentum=0.1)

    def __init__(self):
        self.w, self.b = normal(5, 3), normal(5, 4)
        self.mean, self.inv_std, self.sum_dy, self.sum_dy_xhat = (np.empty(5) for _ in range(4))

    def forward(self, x, w, b, y):
        norm.BATCH_STATS.reference(self.g, x, self.mean, self.inv_std, np.zeros(5), np.ones(5))
        norm.BATCH_FORWARD.reference(self.g, x, self.mean, self.inv_std, w, b, y)

    def sums(self, x, dy):
        norm.BATCH_SUMS.reference(self.g, x, dy, self.mean, self.inv_std, self.sum_dy, self.sum_dy_xhat)

    def dgrad(self, x, y, dy, dx):
        self.sums(x, dy)
        arguments = x, dy, self.mean, self.inv_std, self.w, self.sum_dy, self.sum_dy_xhat, dx, 0.0
        norm.BATCH_DGRAD.reference(self.g, *arguments)

    def wgrad(self, x, dy, dw):
        self.sums(x, dy)
        norm.BATCH_WGRAD.reference(self.g, self.sum_dy_xhat, dw, 0.0)

    def bgrad(self, x, dy, db):
        self.sums(x, dy)
        norm.BATCH_WGRAD.reference(self.g, self.sum_dy, db, 0.0)


def test_batch_norm():
    batch, x = Batch(), normal(SHAPE) + 1
    check(lambda x, y: batch.forward(x, batch.w, batch.b, y), batch.dgrad, x)
    check(lambda w, y: batch.forward(x, w, batch.b, y), lambda w, y, dy, dw: batch.wgrad(x, dy, dw), batch.w, SHAPE)
    check(lambda b, y: batch.forward(x, batch.w, b, y), lambda b, y, dy, db: batch.bgrad(x, dy, db), batch.b, SHAPE)


def test_dropout():
    g = random.Dropout(*SHAPE, keep=0.6, key=9)
    check(
        lambda x, y: random.DROPOUT.reference(g, x, CLOCK, y),
        lambda x, y, dy, dx: random.DROPOUT_BACKWARD.reference(g, dy, CLOCK, dx, 0.0),
        normal(SHAPE),
    )


def test_sum():
    g = eltwise.Sum(*SHAPE, coeff=-1.7)
    check(
        lambda x, y: eltwise.SUM.reference(g, x, y, 0.0),
        lambda x, y, dy, dx: eltwise.SUM.reference(g, dy, dx, 0.0),
        normal(SHAPE),
    )


def test_softmax():
    g = cost.Softmax(*SHAPE)
    check(
        lambda x, y: cost.SOFTMAX_FORWARD.reference(g, x, y),
        lambda x, y, dy, dx: cost.SOFTMAX_BACKWARD.reference(g, y, dy, dx, 0.0),
        normal(SHAPE),
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logreg(smoothing):
    """The gradient of scale times the summed loss; an unlabeled sample adds nothing."""
    g = cost.Logreg(classes=6, batch=4, topk=2, smoothing=smoothing, scale=0.3)
    labels, p = np.array([5, 0, -1, 3], np.int32), np.empty((6, 1, 1, 4))

    def loss(x, total):
        y = np.empty((3, 1, 1, 4))
        cost.LOGREG_FORWARD.reference(g, x, labels, p, y)
        total[...] = g.scale * y[0].sum()

    def gradient(x, total, dtotal, dx):
        cost.LOGREG_BACKWARD.reference(g, p, labels, dx, 0.0)
        dx *= dtotal

    check(loss, gradient, normal((6, 1, 1, 4)), (1,))
