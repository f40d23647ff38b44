"""Updates, element by element."""

import numpy as np
import pytest

from kernels.update import (
    AVERAGE,
    BLOCK,
    COLLECT,
    MAGNITUDE,
    NORM,
    RESCALE,
    SGD,
    Average,
    Collect,
    Magnitude,
    Norm,
    Rescale,
    Sgd,
)

HEALTHY, BROKEN = np.ones(1, np.int32), np.zeros(1, np.int32)


def clock(step=0):
    return np.array([0, 0, step, 0], np.uint32)


def sgd(w, dw, v, rates, owner, healthy=HEALTHY, norms=None, step=0, **options):
    """rates: (learning rate, momentum, decay[, share])."""
    g = Sgd(blocks=len(owner), parameters=len(rates), ring=1 if norms is None else len(norms), **options)
    table = np.array([(*row, 1)[:4] for row in rates], float)
    SGD.reference(g, w, dw, v, np.array(owner, np.int32), table, clock(step), norms, healthy)


def test_three_steps_of_one_weight():
    """inc = momentum * inc - lr * (gradient + decay * w), w += inc."""
    w, v, weight, step = np.full(BLOCK, 2.0), np.zeros(BLOCK), 2.0, 0.0
    for gradient, lr in ((1.0, 0.1), (-0.5, 0.1), (0.25, 0.01)):  # the old step is not rescaled by the new rate
        sgd(w, np.full(BLOCK, gradient), v, [(lr, 0.9, 0.004)], [0])
        step = 0.9 * step - lr * (gradient + 0.004 * weight)
        weight += step
    np.testing.assert_allclose(w, weight, rtol=1e-14)
    np.testing.assert_allclose(v, step, rtol=1e-14)


def test_nesterov_is_that_of_pytorch_at_a_constant_rate():
    """d = gradient + decay * w; buf = momentum * buf + d (buf = d at first); w -= lr * (d + momentum * buf)."""
    w, v, weight, buffer = np.full(BLOCK, 2.0), np.zeros(BLOCK), 2.0, 0.0
    for gradient in (1.0, -0.5, 0.25, 3.0):
        sgd(w, np.full(BLOCK, gradient), v, [(0.1, 0.9, 0.004)], [0], nesterov=True)
        total = gradient + 0.004 * weight
        buffer = 0.9 * buffer + total
        weight -= 0.1 * (total + 0.9 * buffer)
    np.testing.assert_allclose(w, weight, rtol=1e-14)
    np.testing.assert_allclose(v, -0.1 * buffer, rtol=1e-14)


def test_each_block_has_the_rates_of_its_owner():
    w, v = np.zeros(3 * BLOCK), np.zeros(3 * BLOCK)
    sgd(w, np.ones(3 * BLOCK), v, [(0.5, 0, 0), (0.25, 0, 0)], [1, 0, 1])
    np.testing.assert_array_equal(w.reshape(3, BLOCK)[:, 0], [-0.25, -0.5, -0.25])
    assert (w.reshape(3, BLOCK) == w[::BLOCK, None]).all()


def test_nothing_happens_to_an_unhealthy_network():
    w, v = np.ones(BLOCK), np.ones(BLOCK)
    sgd(w, np.full(BLOCK, np.nan), v, [(0.1, 0.9, 0.1)], [0], healthy=BROKEN)
    assert (w == 1).all() and (v == 1).all()


@pytest.mark.parametrize("nesterov", [False, True])
def test_a_parameter_without_a_share_keeps_its_weights_and_its_momentum(nesterov):
    w, v = np.ones(2 * BLOCK), np.ones(2 * BLOCK)
    sgd(w, np.ones(2 * BLOCK), v, [(0.1, 0.5, 0.1, 0), (0.1, 0.5, 0.1, 0.25)], [0, 1], nesterov=nesterov)
    assert (w[:BLOCK] == 1).all() and (v[:BLOCK] == 1).all()
    assert (w[BLOCK:] != 1).all() and (v[BLOCK:] != 1).all()


def test_clipping_scales_gradients_by_the_norm_of_this_step():
    """PyTorch's clip_grad_norm_: the factor is min(1, most / (norm + 1e-6)); decay is added after it."""
    norms = np.array([1e-3, 4.0])
    for step, factor in ((3, 1 / (4 + 1e-6)), (4, 1)):
        w, v = np.full(BLOCK, 2.0), np.zeros(BLOCK)
        sgd(w, np.ones(BLOCK), v, [(0.5, 0.9, 0.1)], [0], norms=norms, step=step, clip=1.0)
        np.testing.assert_allclose(w, 2 - 0.5 * (factor + 0.1 * 2), rtol=1e-14)


def test_the_norm_of_all_gradients_goes_to_the_place_of_its_step():
    dw, norms = np.zeros(2 * BLOCK, np.float32), np.zeros(3)
    dw[[0, 5, BLOCK + 7]] = 2, -3, 6
    NORM.reference(Norm(2, ring=3), dw, clock(7), norms)
    np.testing.assert_array_equal(norms, [0, 7, 0])


def test_the_norm_does_not_overflow_in_float32():
    norms = np.zeros(1)
    NORM.reference(Norm(1, ring=1), np.full(BLOCK, 1e30, np.float32), clock(), norms)
    np.testing.assert_allclose(norms, 32e30, rtol=1e-6)


def test_gradients_wait_for_the_step_at_which_their_parameter_has_a_share():
    """Two parameters: one moves every step, one every third, by the mean of three gradients."""
    owner, pending, seen = np.array([0, 1], np.int32), np.zeros(2 * BLOCK), []
    for step, gradient in enumerate((1.0, 4.0, -2.0, 7.0)):
        dw = np.full(2 * BLOCK, gradient)
        rates = np.array([(0.1, 0, 0, 1), (0.1, 0, 0, 1 / 3 if step == 2 else 0)])
        COLLECT.reference(Collect(2, 2), dw, pending, owner, rates, HEALTHY)
        seen.append((dw[0], dw[-1], pending[0], pending[-1]))
    np.testing.assert_allclose(seen, [(1, 0, 0, 1), (4, 0, 0, 5), (-2, 1, 0, 0), (7, 0, 0, 7)])
    assert COLLECT.reference(Collect(2, 2), dw, pending, owner, rates, BROKEN) is None
    assert pending[-1] == 7


def rescaled(w, low, high, centered=False, share=1.0, healthy=HEALTHY):
    w = np.array(w, float)
    g = Rescale(*w.shape, parameter=1, low=low, high=high, centered=centered)
    RESCALE.reference(g, w, np.array([(0, 0, 0, 0), (1, 0, 0, share)], float), healthy)
    return w


def test_rows_are_brought_to_a_norm_or_below_it():
    w = [(3, 4), (0.3, 0.4), (0, 0)]
    np.testing.assert_allclose(rescaled(w, 2, 2), [(1.2, 1.6), (1.2, 1.6), (0, 0)])
    np.testing.assert_allclose(rescaled(w, 0, 2), [(1.2, 1.6), (0.3, 0.4), (0, 0)])


def test_the_centered_norm_is_that_of_the_deviations_over_their_number():
    """q = sqrt(sum (w - mean)^2) / n: of (1, 3, 2, 2) it is sqrt(2) / 4; the mean is scaled with the rest."""
    w = [(1, 3, 2, 2), (10, 30, 20, 20)]
    q = 2**0.5 / 4
    np.testing.assert_allclose(rescaled(w, 2 * q, 5 * q, True), np.array(w) * [[2], [0.5]])


def test_equal_weights_have_no_centered_norm_that_could_be_scaled():
    w = np.full((2, 27), 0.1, np.float32)
    np.testing.assert_array_equal(rescaled(w, 1, 2, True), w.astype(float))


def test_weights_that_did_not_move_are_not_rescaled():
    w = np.ones((2, 3))
    np.testing.assert_array_equal(rescaled(w, 5, 5, share=0), w)
    np.testing.assert_array_equal(rescaled(w, 5, 5, healthy=BROKEN), w)


def average(w, e, weight, step=0, warmup=False, healthy=HEALTHY):
    AVERAGE.reference(Average(1, weight, warmup), w, e, clock(step), healthy)
    return e


def test_the_average_follows_with_its_decay():
    e = np.full(BLOCK, 1.0)
    for w in (2.0, 4.0):
        average(np.full(BLOCK, w), e, weight=0.25)
    np.testing.assert_allclose(e, 0.75 * (0.75 * 1 + 0.25 * 2) + 0.25 * 4)
    np.testing.assert_array_equal(average(np.zeros(BLOCK), e.copy(), 0.25, healthy=BROKEN), e)


@pytest.mark.parametrize(("step", "decay"), [(0, 0.1), (10, 11 / 20), (100_000, 0.9)])
def test_the_decay_begins_low(step, decay):
    """min(decay, (1 + t) / (10 + t))."""
    e = average(np.zeros(BLOCK), np.ones(BLOCK), weight=0.1, step=step, warmup=True)
    np.testing.assert_allclose(e, decay)


def test_magnitude():
    w, v = np.array([1.0, -3, 100, 2, -2, 2]), np.array([0.5, -0.5, 100, 1, 0, -2])
    spans, out = np.array([(0, 2), (2, 0), (3, 3)], np.int64), np.full((3, 2), np.nan)
    MAGNITUDE.reference(Magnitude(3), w, v, spans, out)
    np.testing.assert_array_equal(out, [(2, 0.5), (0, 0), (2, 1)])
