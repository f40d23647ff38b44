"""Updates, element by element."""

import numpy as np

from kernels.update import BLOCK, MAGNITUDE, SGD, Magnitude, Sgd


def sgd(w, dw, v, rates, owner, healthy=1):
    g = Sgd(blocks=len(owner), parameters=len(rates))
    SGD.reference(g, w, dw, v, np.array(owner, np.int32), np.array(rates), np.array([healthy], np.int32))


def test_three_steps_of_one_weight():
    """inc = momentum * inc - lr * (gradient + decay * w), w += inc."""
    w, v, weight, step = np.full(BLOCK, 2.0), np.zeros(BLOCK), 2.0, 0.0
    for gradient, lr in ((1.0, 0.1), (-0.5, 0.1), (0.25, 0.01)):  # the old step is not rescaled by the new rate
        sgd(w, np.full(BLOCK, gradient), v, [(lr, 0.9, 0.004)], [0])
        step = 0.9 * step - lr * (gradient + 0.004 * weight)
        weight += step
    np.testing.assert_allclose(w, weight, rtol=1e-14)
    np.testing.assert_allclose(v, step, rtol=1e-14)


def test_each_block_has_the_rates_of_its_owner():
    w, v = np.zeros(3 * BLOCK), np.zeros(3 * BLOCK)
    sgd(w, np.ones(3 * BLOCK), v, [(0.5, 0, 0), (0.25, 0, 0)], [1, 0, 1])
    np.testing.assert_array_equal(w.reshape(3, BLOCK)[:, 0], [-0.25, -0.5, -0.25])
    assert (w.reshape(3, BLOCK) == w[::BLOCK, None]).all()


def test_nothing_happens_to_an_unhealthy_network():
    w, v = np.ones(BLOCK), np.ones(BLOCK)
    sgd(w, np.full(BLOCK, np.nan), v, [(0.1, 0.9, 0.1)], [0], healthy=0)
    assert (w == 1).all() and (v == 1).all()


def test_magnitude():
    w, v = np.array([1.0, -3, 100, 2, -2, 2]), np.array([0.5, -0.5, 100, 1, 0, -2])
    spans, out = np.array([(0, 2), (2, 0), (3, 3)], np.int64), np.full((3, 2), np.nan)
    MAGNITUDE.reference(Magnitude(3), w, v, spans, out)
    np.testing.assert_array_equal(out, [(2, 0.5), (0, 0), (2, 1)])
