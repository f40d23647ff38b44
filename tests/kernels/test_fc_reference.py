"""The NumPy products of a fully connected layer against their definition."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernels.fc import Fc, reference

small = st.integers(1, 6)
betas = st.sampled_from([0.0, 1.0, -0.5])


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small integers, so that sums are exact in any order."""
    return rng.integers(-4, 5, shape).astype(np.float64)


def start(out: np.ndarray, beta: float) -> np.ndarray:
    """What `out` holds before: anything when it is not to be read."""
    return out.copy() if beta else np.full_like(out, np.nan)


@given(features=small, outputs=small, batch=small, biased=st.booleans(), seed=st.integers(0, 9))
def test_forward(features, outputs, batch, biased, seed):
    rng = np.random.default_rng(seed)
    x, w, b = integers(rng, features, 1, 1, batch), integers(rng, outputs, features), integers(rng, outputs)
    y = np.full((outputs, 1, 1, batch), np.nan)
    reference.forward(Fc(features, outputs, batch), x, w, b if biased else None, y)
    expected = np.zeros((outputs, 1, 1, batch))
    for o, n in itertools.product(range(outputs), range(batch)):
        expected[o, 0, 0, n] = b[o] * biased + sum(w[o, k] * x[k, 0, 0, n] for k in range(features))
    np.testing.assert_array_equal(y, expected)


@given(features=small, outputs=small, batch=small, beta=betas, seed=st.integers(0, 9))
def test_gradients(features, outputs, batch, beta, seed):
    rng = np.random.default_rng(seed)
    g = Fc(features, outputs, batch)
    x, w, dy = (
        integers(rng, features, 1, 1, batch),
        integers(rng, outputs, features),
        integers(rng, outputs, 1, 1, batch),
    )
    old_dx, old_dw, old_db = integers(rng, *x.shape), integers(rng, *w.shape), integers(rng, outputs)
    dx, dw, db = (start(old, beta) for old in (old_dx, old_dw, old_db))
    reference.dgrad(g, dy, w, dx, beta)
    reference.wgrad(g, x, dy, dw, beta)
    reference.bgrad(g, dy, db, beta)
    expected_dx, expected_dw, expected_db = beta * old_dx, beta * old_dw, beta * old_db
    for k, o, n in itertools.product(range(features), range(outputs), range(batch)):
        expected_dx[k, 0, 0, n] += w[o, k] * dy[o, 0, 0, n]
        expected_dw[o, k] += x[k, 0, 0, n] * dy[o, 0, 0, n]
    for o, n in itertools.product(range(outputs), range(batch)):
        expected_db[o] += dy[o, 0, 0, n]
    np.testing.assert_array_equal(dx, expected_dx)
    np.testing.assert_array_equal(dw, expected_dw)
    np.testing.assert_array_equal(db, expected_db)


def test_parts_are_layers_of_their_own():
    """Each part of the outputs sees one part of the features; weights of one part lie after those of the other."""
    rng, g, part = np.random.default_rng(0), Fc(6, 9, 2, parts=3), Fc(2, 3, 2)
    x, w, b, dy = integers(rng, 6, 1, 1, 2), integers(rng, 9, 2), integers(rng, 9), integers(rng, 9, 1, 1, 2)
    y, dx, dw = np.empty_like(dy), np.empty_like(x), np.empty_like(w)
    reference.forward(g, x, w, b, y)
    reference.dgrad(g, dy, w, dx, 0.0)
    reference.wgrad(g, x, dy, dw, 0.0)
    for features, outputs in ((slice(2 * i, 2 * i + 2), slice(3 * i, 3 * i + 3)) for i in range(3)):
        own_y, own_dx, own_dw = np.empty_like(dy[outputs]), np.empty_like(x[features]), np.empty_like(w[outputs])
        reference.forward(part, x[features], w[outputs], b[outputs], own_y)
        reference.dgrad(part, dy[outputs], w[outputs], own_dx, 0.0)
        reference.wgrad(part, x[features], dy[outputs], own_dw, 0.0)
        np.testing.assert_array_equal(y[outputs], own_y)
        np.testing.assert_array_equal(dx[features], own_dx)
        np.testing.assert_array_equal(dw[outputs], own_dw)


def test_a_map_of_many_pixels_is_read_in_the_order_of_the_weights():
    """x [C, H, W, N] in the layout C, H, W, N has the features in the order of a PyTorch flatten."""
    x = np.arange(2 * 3 * 2 * 2, dtype=np.float64).reshape(2, 3, 2, 2)
    w = np.random.default_rng(0).integers(-4, 5, (4, 12)).astype(np.float64)
    y = np.empty((4, 1, 1, 2))
    reference.forward(Fc(12, 4, 2), x, w, None, y)
    np.testing.assert_array_equal(y[:, 0, 0], np.einsum("ochw,chwn->on", w.reshape(4, 2, 3, 2), x))
