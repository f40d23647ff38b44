"""Costs: softmax and likelihood against their formulas, the rules for ties and labels, the record of a step."""

import numpy as np
import pytest

from kernels.cost import LOGREG_BACKWARD, LOGREG_FORWARD, REPORT, SOFTMAX_FORWARD, Logreg, Report, Softmax


def logreg(logits, labels, **options):
    """Per sample (loss, top-1 error, top-k error) of logits [K, N]."""
    classes, batch = np.shape(logits)
    x, p, y = (
        np.reshape(logits, (classes, 1, 1, batch)).astype(float),
        np.empty((classes, 1, 1, batch)),
        np.empty((3, 1, 1, batch)),
    )
    LOGREG_FORWARD.reference(Logreg(classes, batch, **options), x, np.array(labels, np.int32), p, y)
    return y.reshape(3, batch)


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
    for k in (1, 3, 9):
        _, top1, topk = logreg(logits, labels, topk=k)
        np.testing.assert_array_equal(top1, np.array(rank) >= 1)
        np.testing.assert_array_equal(topk, np.array(rank) >= k)


def test_labels_that_are_no_class():
    y = logreg(np.zeros((3, 3)), [-1, 3, 2**31 - 1], topk=2)
    np.testing.assert_array_equal(y, [[0, np.nan, np.nan], [0, 1, 1], [0, 1, 1]])
    dx = np.empty((3, 1, 1, 3))
    LOGREG_BACKWARD.reference(Logreg(3, 3), np.full((3, 1, 1, 3), 1 / 3), np.array([-1, 0, 2], np.int32), dx, 0.0)
    np.testing.assert_allclose(dx[:, 0, 0], np.array([[0, -2, 1], [0, 1, 1], [0, 1, -2]]) / 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_loss_of_a_sample_without_finite_logits_is_nan(bad):
    """The class that is NaN is wrong for every k; one behind it may still come second. Other samples are unharmed."""
    loss, top1, topk = logreg([[bad, bad, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [0, 1, 0], topk=2)
    np.testing.assert_array_equal(np.isnan(loss), [True, True, False])
    np.testing.assert_array_equal(top1, [np.isnan(bad), 1, 0])
    np.testing.assert_array_equal(topk, [np.isnan(bad), 0, 0])


class TestReport:
    y = np.arange(6.0).reshape(3, 1, 1, 2)

    def report(self, history, y=None, step=0, first=True):
        healthy = np.ones(1, np.int32)
        clock = np.array([0, 0, step, 0], np.uint32)
        REPORT.reference(Report(2, history.shape[1], first), self.y if y is None else y, clock, history, healthy)
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

    @pytest.mark.parametrize("loss", [np.nan, np.inf, -np.inf])
    def test_a_loss_that_is_not_finite_is_unhealthy(self, loss):
        y = self.y.copy()
        y[0, 0, 0, 1] = loss
        assert self.report(np.zeros((3, 1)), y) == 0
