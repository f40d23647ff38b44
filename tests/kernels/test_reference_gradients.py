"""Every backward reference against central differences of its forward reference, in float64.

For a random direction u and a random dy, the change of sum(dy * y) along u is sum(dx * u).
"""

import numpy as np
import pytest

from kernels import cmpool, cost, eltwise, image, neuron, norm, pool, random

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
    name = neuron.KINDS[kind]
    g = neuron.Neuron(*SHAPE, kind, a=0.713, b=1.3)

    def backward(x, y, dy, dx):
        reads, derivative = neuron.FUNCTIONS[name].reads, neuron.FUNCTIONS[name].derivative
        if not reads:
            dx[...] = derivative(g, None) * dy
        else:
            op = neuron.BACKWARD_X if reads == "x" else neuron.BACKWARD
            op.reference(g, x if reads == "x" else y, dy, dx, 0.0)

    x = spread(SHAPE, 0.05)
    check(lambda x, y: neuron.FORWARD.reference(g, x, y), backward, abs(x) + 0.1 if name in ("sqrt", "log") else x)


POOLS = [
    pool.Pool(*SHAPE, 2, 3, 1, 1, 0, 0, 3, 1),
    pool.Pool(*SHAPE, 3, 2, 2, 2, -1, -1, 3, 2),
    pool.Pool(*SHAPE, 3, 2, 2, 2, -1, -1, 3, 2, count_pad=True),
    pool.Pool(*SHAPE, 1, 1, 3, 2, 1, 0, 2, 2),
    pool.Pool(*SHAPE, 5, 4, 5, 4, 0, 0, 1, 1, divide=False, absolute=True),
    pool.Pool(*SHAPE, 3, 2, 1, 1, -1, 1, 4, 1, divide=False, absolute=True),
]


@pytest.mark.parametrize("g", POOLS, ids=str)
def test_pool(g):
    outputs = (g.channels, g.out_h, g.out_w, g.batch)
    check(
        lambda x, y: pool.MAX_FORWARD.reference(g, x, y),
        lambda x, y, dy, dx: pool.MAX_BACKWARD.reference(g, x, y, dy, dx, 0.0),
        spread(SHAPE) + 0.002,  # so that no two have the same absolute value either
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


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_lrn_of_blocks(size):
    g = norm.Lrn(*SHAPE, size=size, alpha=0.4, power=0.75, k=1.5, blocked=True)
    check(
        lambda x, y: norm.LRN_FORWARD.reference(g, x, y),
        lambda x, y, dy, dx: norm.LRN_BACKWARD.reference(g, x, dy, dx, 0.0),
        normal(SHAPE),
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_rnorm_and_cnorm(size):
    window = {"size": size, "alpha": 0.4, "power": 0.75, "k": 1.5}
    rnorm, cnorm = norm.Rnorm(*SHAPE, **window), norm.Cnorm(*SHAPE, **window)
    check(
        lambda x, y: norm.RNORM_FORWARD.reference(rnorm, x, y),
        lambda x, y, dy, dx: norm.RNORM_BACKWARD.reference(rnorm, x, dy, dx, 0.0),
        normal(SHAPE),
    )
    check(
        lambda x, y: norm.CNORM_FORWARD.reference(cnorm, x, y),
        lambda x, y, dy, dx: norm.CNORM_BACKWARD.reference(cnorm, x, dy, dx, 0.0),
        normal(SHAPE) + 1,
    )


def test_cnorm_with_means_as_constants():
    """The inexact gradient is exact for a function whose means do not move."""
    window = {"size": 3, "alpha": 0.4, "power": 0.75, "k": 1.5}
    inexact, rnorm = norm.Cnorm(*SHAPE, **window, exact=False), norm.Rnorm(*SHAPE, **window)
    x = normal(SHAPE) + 1
    rows, columns = (np.array([max(0, i - 1) <= j <= i + 1 for i in range(n) for j in range(n)], float).reshape(n, n)
                     for n in SHAPE[1:3])  # fmt: skip
    sums, areas = (np.einsum("ph,qw,chwn->cpqn", rows, columns, a) for a in (x, np.ones_like(x)))
    means = sums / areas

    def forward(x, y):
        scaled = np.empty_like(x)
        norm.RNORM_FORWARD.reference(rnorm, x - means, scaled)
        y[...] = x * scaled / (x - means)

    check(forward, lambda x, y, dy, dx: norm.CNORM_BACKWARD.reference(inexact, x, dy, dx, 0.0), x)


CMPOOLS = [
    cmpool.Cmpool(*SHAPE, size=2, stride=2, start=0, outputs=3),
    cmpool.Cmpool(*SHAPE, size=3, stride=1, start=-1, outputs=5),
]


@pytest.mark.parametrize("g", CMPOOLS, ids=str)
def test_cmpool(g):
    check(
        lambda x, y: cmpool.FORWARD.reference(g, x, y),
        lambda x, y, dy, dx: cmpool.BACKWARD.reference(g, x, y, dy, dx, 0.0),
        spread(SHAPE),
        (g.outputs, *SHAPE[1:]),
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


def test_flip_and_blur_are_their_own_transposes():
    flip = image.Flip(*SHAPE)
    check(
        lambda x, y: image.FLIP.reference(flip, x, y, 0.0),
        lambda x, y, dy, dx: image.FLIP.reference(flip, dy, dx, 0.0),
        normal(SHAPE),
    )
    for vertical in (True, False):
        blur = image.Blur(*SHAPE, size=5, stdev=1.2, vertical=vertical)
        check(
            lambda x, y, g=blur: image.BLUR.reference(g, x, y, 0.0),
            lambda x, y, dy, dx, g=blur: image.BLUR.reference(g, dy, dx, 0.0),
            normal(SHAPE),
        )


def test_softmax():
    g = cost.Softmax(*SHAPE)
    check(
        lambda x, y: cost.SOFTMAX_FORWARD.reference(g, x, y),
        lambda x, y, dy, dx: cost.SOFTMAX_BACKWARD.reference(g, y, dy, dx, 0.0),
        normal(SHAPE),
    )


def test_costs_of_targets():
    """The gradient of scale times the summed loss, from probabilities and from logits; some targets are none."""
    rng, p = np.random.default_rng(5), np.empty(SHAPE)
    t = rng.random(SHAPE)
    t[rng.random(SHAPE) < 0.3] = -1
    flat = (5 * 4 * 3, 1, 1, 2)
    bce, crossent = cost.Bce(*SHAPE, weight=1.7, scale=0.3), cost.Crossent(flat[0], 2, scale=0.3)
    pairs = [
        (cost.BCE_FORWARD, cost.BCE_BACKWARD, bce, SHAPE, False),
        (cost.BCE_LOGITS_FORWARD, cost.BCE_LOGITS_BACKWARD, bce, SHAPE, True),
        (cost.CROSSENT_FORWARD, cost.CROSSENT_BACKWARD, crossent, flat, False),
        (cost.CROSSENT_LOGITS_FORWARD, cost.CROSSENT_LOGITS_BACKWARD, crossent, flat, True),
    ]
    for forward, backward, g, shape, logits in pairs:
        targets, kept = t.reshape(shape), p.reshape(shape)

        def loss(x, total, forward=forward, g=g, targets=targets, kept=[kept] * logits):
            y = np.empty((3, 1, 1, 2))
            forward.reference(g, x, targets, *kept, y)
            total[...] = g.scale * y[0].sum()

        def gradient(x, total, dtotal, dx, backward=backward, g=g, targets=targets, kept=kept, logits=logits):
            backward.reference(g, kept if logits else x, targets, dx, 0.0)
            dx *= dtotal

        x = normal(shape) if logits else rng.uniform(0.1, 0.9, shape)
        check(loss, gradient, x, (1,))


MIXED = np.array([1, -1, 2, 0], np.int32), np.array([0.7, 0.2, 0.4, 0.1])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("second, share", [(None, None), MIXED], ids=["one label", "two labels"])
def test_logreg(smoothing, second, share):
    """The gradient of scale times the summed loss; an unlabeled sample adds nothing."""
    g = cost.Logreg(classes=6, batch=4, topk=(1, 2), smoothing=smoothing, scale=0.3)
    labels, p = np.array([5, 0, -1, 3], np.int32), np.empty((6, 1, 1, 4))

    def loss(x, total):
        y = np.empty((3, 1, 1, 4))
        cost.LOGREG_FORWARD.reference(g, x, labels, second, share, p, y)
        total[...] = g.scale * y[0].sum()

    def gradient(x, total, dtotal, dx):
        cost.LOGREG_BACKWARD.reference(g, p, labels, second, share, dx, 0.0)
        dx *= dtotal

    check(loss, gradient, normal((6, 1, 1, 4)), (1,))
