"""Costs: softmax and likelihood against their formulas, the rules for ties and labels, the record of a step."""

import numpy as np
import pytest

from kernels.cost import (
    COUNT,
    LOGREG_BACKWARD,
    LOGREG_FORWARD,
    ONE_HOT,
    REPORT,
    SOFTMAX_FORWARD,
    Count,
    Logreg,
    OneHot,
    Report,
    Softmax,
)


def logreg(logits, labels, second=None, share=None, **options):
    """Per sample the loss and the error for each k of `topk`, of logits [K, N]."""
    classes, batch = np.shape(logits)
    g = Logreg(classes, batch, **options)
    x, p = np.reshape(logits, (classes, 1, 1, batch)).astype(float), np.empty((classes, 1, 1, batch))
    y = np.empty((1 + len(g.topk), 1, 1, batch))
    LOGREG_FORWARD.reference(g, x, np.array(labels, np.int32), second, share, p, y)
    return y.reshape(-1, batch)


def test_softmax_of_large_logits():
    x, y = np.array([1000.0, 1000, 999]).reshape(3, 1, 1, 1), np.empty((3, 1, 1, 1))
    SOFTMAX_FORWARD.reference(Softmax(3, 1, 1, 1), x, y)
    np.testing.assert_allclose(y.ravel(), np.exp([0, 0, -1]) / np.exp([0, 0, -1]).sum())


def test_uniform_logits_cost_log_k():
    assert logreg(np.zeros((1000, 2)), [0, 999])[0] == pytest.approx([np.log(1000)] * 2)


def test_loss_stays_finite_where_the_probability_underflows():
    assert logreg([[0.0], [2000.0]], [0])[0, 0] == 2000


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss(smoothing):
    logits, labels = np.random.default_rng(0).standard_normal((6, 4)), [3, 0, 5, 3]
    log_p = logits - np.log(np.exp(logits).sum(0))
    target = (1 - smoothing) * np.eye(6)[:, labels] + smoothing / 6
    np.testing.assert_allclose(logreg(logits, labels, smoothing=smoothing)[0], -(target * log_p).sum(0))


def test_errors_against_a_stable_sort():
    """A sample is right within k when its class is among the first k of a stable descending sort."""
    rng = np.random.default_rng(0)
    logits, labels = rng.integers(0, 4, (9, 200)).astype(float), rng.integers(0, 9, 200)
    rank = [list(np.argsort(-logits[:, n], kind="stable")).index(labels[n]) for n in range(200)]
    for k, errors in zip((1, 3, 9), logreg(logits, labels, topk=(1, 3, 9))[1:], strict=True):
        np.testing.assert_array_equal(errors, np.array(rank) >= k)


def test_labels_that_are_no_class():
    y = logreg(np.zeros((3, 3)), [-1, 3, 2**31 - 1], topk=(1, 2))
    np.testing.assert_array_equal(y, [[0, np.nan, np.nan], [0, 1, 1], [0, 1, 1]])
    dx = np.empty((3, 1, 1, 3))
    labels = np.array([-1, 0, 2], np.int32)
    LOGREG_BACKWARD.reference(Logreg(3, 3), np.full((3, 1, 1, 3), 1 / 3), labels, None, None, dx, 0.0)
    np.testing.assert_allclose(dx[:, 0, 0], np.array([[0, -2, 1], [0, 1, 1], [0, 1, -2]]) / 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_loss_of_a_sample_without_finite_logits_is_nan(bad):
    """The class that is NaN is wrong for every k; one behind it may still come second. Other samples are unharmed."""
    loss, top1, topk = logreg([[bad, bad, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [0, 1, 0], topk=(1, 2))
    np.testing.assert_array_equal(np.isnan(loss), [True, True, False])
    np.testing.assert_array_equal(top1, [np.isnan(bad), 1, 0])
    np.testing.assert_array_equal(topk, [np.isnan(bad), 0, 0])


def test_targets_of_labels():
    labels = np.array([2, -1, 0, 3], np.int32)
    for classes, expected in (
        (3, [[0, -1, 1, np.nan], [0, -1, 0, np.nan], [1, -1, 0, np.nan]]),
        (1, [[np.nan, -1, 0, np.nan]]),
    ):
        t = np.empty((classes, 1, 1, 4))
        ONE_HOT.reference(OneHot(classes, 4), labels, None, None, t)
        np.testing.assert_array_equal(t[:, 0, 0], expected)
    ONE_HOT.reference(OneHot(1, 2), np.array([1, 0], np.int32), None, None, t := np.empty((1, 1, 1, 2)))
    assert t.ravel().tolist() == [1, 0]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_of_a_mixed_sample_is_that_of_its_labels(smoothing):
    """Each with its share; the error is that of the label with the larger one."""
    rng = np.random.default_rng(0)
    logits, labels, second = rng.standard_normal((6, 40)), rng.integers(0, 6, 40), rng.integers(-1, 6, 40)
    share = rng.choice([0, 0.3, 0.5, 0.9, 1], 40)
    found = logreg(logits, labels, second, share, smoothing=smoothing)
    first, other = (logreg(logits, given, smoothing=smoothing) for given in (labels, np.maximum(second, 0)))
    whole = np.where(second < 0, 1, share)
    np.testing.assert_allclose(found[0], whole * first[0] + (1 - whole) * other[0])
    np.testing.assert_array_equal(found[1:], np.where(whole >= 0.5, first[1:], other[1:]))


def test_a_mixed_sample_of_no_class():
    y = logreg(np.zeros((3, 3)), [0, -1, 3], np.array([3, 1, -1]), np.full(3, 0.9), topk=(1, 2))
    np.testing.assert_array_equal(y, [[np.nan, 0, np.nan], [1, 0, 1], [1, 0, 1]])


def test_targets_of_mixed_labels():
    labels, second, share = np.array([2, -1, 0, 1]), np.array([0, 1, -1, 3]), np.array([0.7, 0.7, 0.7, 0.7])
    ONE_HOT.reference(OneHot(3, 4), labels, second, share, t := np.empty((3, 1, 1, 4)))
    np.testing.assert_allclose(t[:, 0, 0].T, [[0.3, 0, 0.7], [-1, -1, -1], [1, 0, 0], [np.nan] * 3])
    labels, second, share, t = np.array([1, 0]), np.array([0, 1]), np.array([0.6, 0.9]), np.empty((1, 1, 1, 2))
    ONE_HOT.reference(OneHot(1, 2), labels, second, share, t)
    np.testing.assert_allclose(t.ravel(), [0.6, 0.1])


def test_counts_of_each_class_add_up():
    p, t = np.array([[0.5, 0.9, 0.4, 1.0], [0.1, 0.6, 0.6, 0.6]]), np.array([[1, 0, 1, -1], [0, 0.5, 0.4, 1]])
    counts = np.full((3, 2), 10**12)
    for _ in range(2):
        COUNT.reference(Count(2, 4), p[:, None, None], t[:, None, None], counts)
    assert (counts - 10**12).tolist() == [[4, 6], [4, 4], [2, 4]]


class TestReport:
    y = np.arange(6.0).reshape(3, 1, 1, 2)

    def report(self, history, y=None, step=0, first=True):
        healthy = np.ones(1, np.int32)
        clock = np.array([0, 0, step, 0], np.uint32)
        g = Report(2, history.shape[1], 3, first=first)
        REPORT.reference(g, self.y if y is None else y, clock, history, healthy)
        return healthy[0]

    def test_a_step_has_one_slot_of_the_ring(self):
        history = np.full((3, 4), 7.0)
        assert self.report(history, step=9) == 1
        np.testing.assert_array_equal(history, [[7, 1, 7, 7], [7, 5, 7, 7], [7, 9, 7, 7]])

    def test_parts_of_a_step_add_up(self):
        history = np.full((3, 1), np.nan)
        self.report(history, first=True)
        self.report(history, first=False)
        np.testing.assert_array_equal(history.ravel(), [2, 10, 18])

    def test_a_cost_has_rows_of_its_own(self):
        history, clock, healthy = np.zeros((6, 2)), np.zeros(4, np.uint32), np.ones(1, np.int32)
        REPORT.reference(Report(2, 2, 3, offset=2), self.y, clock, history, healthy)
        np.testing.assert_array_equal(history[:, 0], [0, 0, 1, 5, 9, 0])

    def test_the_loss_of_a_cost_that_is_not_watched_may_be_anything(self):
        healthy = np.ones(1, np.int32)
        g = Report(2, 1, 3, watched=False)
        REPORT.reference(g, self.y * np.nan, np.zeros(4, np.uint32), np.zeros((3, 1)), healthy)
        assert healthy[0] == 1

    @pytest.mark.parametrize("loss", [np.nan, np.inf, -np.inf])
    def test_a_loss_that_is_not_finite_is_unhealthy(self, loss):
        y = self.y.copy()
        y[0, 0, 0, 1] = loss
        assert self.report(np.zeros((3, 1)), y) == 0
