"""The NumPy convolution against its definition, written as loops over every product."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import Conv, reference
from kernels.layout import LAYOUTS, view


@st.composite
def geometries(draw: st.DrawFn) -> Conv:
    """Any small convolution: strides above the filter, padding above the image, overhang, groups."""
    groups = draw(st.integers(1, 3))
    small = st.integers(1, 3)
    height, width, rows, cols = (draw(st.integers(1, 6)) for _ in range(4))
    stride_h, stride_w = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    pad_top, pad_left = draw(st.integers(0, 7)), draw(st.integers(0, 7))
    out_h, out_w = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    return Conv(
        groups * draw(small), height, width, draw(small), groups * draw(small), rows, cols, stride_h, stride_w,
        pad_top, pad_left, out_h, out_w, groups,
    )  # fmt: skip


def random_map(rng: np.random.Generator, shape: tuple[int, ...], layout: str, dtype: type = np.float64) -> np.ndarray:
    """A map of small integers in the given layout, so that sums are exact in any order."""
    x = view(np.empty(int(np.prod(shape)), dtype), shape, layout)
    x[...] = rng.integers(-4, 5, shape)
    return x


def products(g: Conv):
    """(f, c, c in the group, r, s, p, q, h, v) of every product of a filter value and an image value."""
    channels, filters = g.channels // g.groups, g.filters // g.groups
    axes = g.filters, channels, g.rows, g.cols, g.out_h, g.out_w
    for f, i, r, s, p, q in itertools.product(*map(range, axes)):
        h, v = p * g.stride_h - g.pad_top + r, q * g.stride_w - g.pad_left + s
        if 0 <= h < g.height and 0 <= v < g.width:
            yield f, f // filters * channels + i, i, r, s, p, q, h, v


def shapes(g: Conv) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    x, y = (g.channels, g.height, g.width, g.batch), (g.filters, g.out_h, g.out_w, g.batch)
    return x, (g.filters, g.channels // g.groups, g.rows, g.cols), y


layouts = st.sampled_from(sorted(LAYOUTS))
betas = st.sampled_from([0.0, 1.0, -0.5])


@settings(max_examples=150, deadline=None)
@given(g=geometries(), of_x=layouts, of_y=layouts, biased=st.booleans(), seed=st.integers(0, 9))
def test_forward(g, of_x, of_y, biased, seed):
    rng = np.random.default_rng(seed)
    x_shape, w_shape, y_shape = shapes(g)
    x, w, y = random_map(rng, x_shape, of_x), random_map(rng, w_shape, ""), random_map(rng, y_shape, of_y)
    b = random_map(rng, (g.filters,), "") if biased else None
    expected = np.zeros(y_shape) + (0 if b is None else b[:, None, None, None])
    for f, c, i, r, s, p, q, h, v in products(g):
        expected[f, p, q] += w[f, i, r, s] * x[c, h, v]
    y[...] = np.nan
    reference.forward(g, x, w, b, y)
    np.testing.assert_array_equal(y, expected)


@settings(max_examples=150, deadline=None)
@given(g=geometries(), of_x=layouts, of_y=layouts, beta=betas, seed=st.integers(0, 9))
def test_dgrad(g, of_x, of_y, beta, seed):
    rng = np.random.default_rng(seed)
    x_shape, w_shape, y_shape = shapes(g)
    dx, w, dy = random_map(rng, x_shape, of_x), random_map(rng, w_shape, ""), random_map(rng, y_shape, of_y)
    expected = beta * dx
    for f, c, i, r, s, p, q, h, v in products(g):
        expected[c, h, v] += w[f, i, r, s] * dy[f, p, q]
    if beta == 0:
        dx[...] = np.nan
    reference.dgrad(g, dy, w, dx, beta)
    np.testing.assert_array_equal(dx, expected)


@settings(max_examples=150, deadline=None)
@given(g=geometries(), of_x=layouts, of_y=layouts, beta=betas, seed=st.integers(0, 9))
def test_wgrad_and_bgrad(g, of_x, of_y, beta, seed):
    rng = np.random.default_rng(seed)
    x_shape, w_shape, y_shape = shapes(g)
    x, dw, dy = random_map(rng, x_shape, of_x), random_map(rng, w_shape, ""), random_map(rng, y_shape, of_y)
    db = random_map(rng, (g.filters,), "")
    expected, expected_b = beta * dw, beta * db + dy.sum((1, 2, 3))
    for f, c, i, r, s, p, q, h, v in products(g):
        expected[f, i, r, s] += (x[c, h, v] * dy[f, p, q]).sum()
    if beta == 0:
        dw[...] = db[...] = np.nan
    reference.wgrad(g, x, dy, dw, beta)
    reference.bgrad(g, dy, db, beta)
    np.testing.assert_array_equal(dw, expected)
    np.testing.assert_array_equal(db, expected_b)


def test_several_fills_of_the_buffer(monkeypatch):
    """Columns gathered a row at a time and all at once are the same ones."""
    g = Conv(3, 9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 5, 8, 1)
    rng = np.random.default_rng(0)
    x_shape, w_shape, y_shape = shapes(g)
    x, w = random_map(rng, x_shape, "hcwn"), random_map(rng, w_shape, "")
    y, again = random_map(rng, y_shape, "hcwn"), random_map(rng, y_shape, "hcwn")
    reference.forward(g, x, w, None, y)
    monkeypatch.setattr(reference, "BUFFER", 0)
    reference.forward(g, x, w, None, again)
    np.testing.assert_array_equal(y, again)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_that_of_the_arrays(dtype, monkeypatch):
    """No product is computed in another precision than its arguments have."""
    g = Conv(4, 5, 5, 2, 6, 3, 3, 1, 1, 1, 1, 5, 5, 2)
    rng = np.random.default_rng(0)
    x_shape, w_shape, y_shape = shapes(g)
    x, y = random_map(rng, x_shape, "hcwn", dtype), random_map(rng, y_shape, "hcwn", dtype)
    w = random_map(rng, w_shape, "", dtype)
    seen = set()
    matmul = np.matmul

    def watched(a, b, **options):
        seen.update((a.dtype, b.dtype))
        return matmul(a, b, **options)

    monkeypatch.setattr(np, "matmul", watched)
    reference.forward(g, x, w, w[:, 0, 0, 0].copy(), y)
    reference.dgrad(g, y, w, x, 0.5)
    reference.wgrad(g, x, y, w, 0.5)
    assert seen == {np.dtype(dtype)}
