"""The NumPy local convolution against its definition, and against a convolution of equal filters everywhere."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import conv
from kernels.local import Local, Units, reference
from tests.kernels.test_conv_reference import betas, geometries, layouts, products, random_map, shapes


def local_of(g: conv.Conv) -> Local:
    return Local(**dataclasses.asdict(g))


def case(g: conv.Conv, of_x: str, of_y: str, seed: int):
    rng = np.random.default_rng(seed)
    x_shape, w_shape, y_shape = shapes(g)
    w = random_map(rng, (g.out_h, g.out_w, *w_shape), "")
    return random_map(rng, x_shape, of_x), w, random_map(rng, y_shape[:3], ""), random_map(rng, y_shape, of_y)


@settings(max_examples=100, deadline=None)
@given(g=geometries(), of_x=layouts, of_y=layouts, biased=st.booleans(), seed=st.integers(0, 9))
def test_forward(g, of_x, of_y, biased, seed):
    x, w, b, y = case(g, of_x, of_y, seed)
    expected = np.zeros(y.shape) + (b[..., None] if biased else 0)
    for f, c, i, r, s, p, q, h, v in products(g):
        expected[f, p, q] += w[p, q, f, i, r, s] * x[c, h, v]
    y[...] = np.nan
    reference.forward(local_of(g), x, w, b if biased else None, y)
    np.testing.assert_array_equal(y, expected)


@settings(max_examples=100, deadline=None)
@given(g=geometries(), of_x=layouts, of_y=layouts, beta=betas, seed=st.integers(0, 9))
def test_gradients(g, of_x, of_y, beta, seed):
    x, w, b, dy = case(g, of_x, of_y, seed)
    dx, dw, db = x[::-1].copy(), w[..., ::-1, :].copy(), b.copy()
    expected_dx, expected_dw, expected_db = beta * dx, beta * dw, beta * db + dy.sum(3)
    for f, c, i, r, s, p, q, h, v in products(g):
        expected_dx[c, h, v] += w[p, q, f, i, r, s] * dy[f, p, q]
        expected_dw[p, q, f, i, r, s] += (x[c, h, v] * dy[f, p, q]).sum()
    if beta == 0:
        for out in dx, dw, db:
            out[...] = np.nan
    reference.dgrad(local_of(g), dy, w, dx, beta)
    reference.wgrad(local_of(g), x, dy, dw, beta)
    reference.bgrad(Units(*dy.shape), dy, db, beta)
    np.testing.assert_array_equal(dx, expected_dx)
    np.testing.assert_array_equal(dw, expected_dw)
    np.testing.assert_array_equal(db, expected_db)


@settings(max_examples=50, deadline=None)
@given(g=geometries(), seed=st.integers(0, 9))
def test_equal_filters_are_a_convolution(g, seed):
    x, w, _, y = case(g, "hcwn", "hcwn", seed)
    as_conv = np.empty_like(y)
    conv.FORWARD.reference(g, x, w[0, 0], None, as_conv)
    reference.forward(local_of(g), x, np.broadcast_to(w[0, 0], w.shape), None, y)
    np.testing.assert_array_equal(y, as_conv)


def test_bias_of_each_unit():
    y = np.ones((2, 1, 2, 3))
    b = np.array([[[1.0, 2]], [[3, 4]]])
    reference.bias(Units(*y.shape), b, y, -2.0)
    np.testing.assert_array_equal(y, np.repeat(b[..., None] - 2, 3, 3))
    y[...] = np.nan
    reference.bias(Units(*y.shape), b, y, 0.0)
    np.testing.assert_array_equal(y, np.repeat(b[..., None], 3, 3))
