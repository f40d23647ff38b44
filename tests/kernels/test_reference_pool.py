"""Pooling against loops over single pixels, and the rules for ties, NaN and empty windows."""

import itertools

import numpy as np
import pytest

from kernels.pool import AVG_BACKWARD, AVG_FORWARD, MAX_BACKWARD, MAX_FORWARD, Pool
from tests.kernels.cases import POOLS


def pixels(g, p, q):
    """The pixels of window (p, q), in row-major order."""
    top, left = g.start_h + p * g.stride_h, g.start_w + q * g.stride_w
    rows, columns = range(top, top + g.size_h), range(left, left + g.size_w)
    return [(h, w) for h in rows for w in columns if 0 <= h < g.height and 0 <= w < g.width]


def area(g, p, q):
    """Positions of window (p, q) on the map, or on the map with its padding; 1 for a sum."""
    if not g.divide:
        return 1
    if not g.count_pad:
        return max(1, len(pixels(g, p, q)))
    top, left = g.start_h + p * g.stride_h, g.start_w + q * g.stride_w
    rows = [h for h in range(top, top + g.size_h) if g.start_h <= h < g.height - g.start_h]
    columns = [w for w in range(left, left + g.size_w) if g.start_w <= w < g.width - g.start_w]
    return max(1, len(rows) * len(columns))


@pytest.mark.parametrize("g", POOLS, ids=str)
def test_against_loops(g):
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 4, (g.channels, g.height, g.width, g.batch)).astype(float)
    dy = rng.standard_normal((g.channels, g.out_h, g.out_w, g.batch))
    top, mean, d_top, d_mean = np.zeros_like(dy), np.zeros_like(dy), np.zeros_like(x), np.zeros_like(x)
    for c, n, p, q in itertools.product(range(g.channels), range(g.batch), range(g.out_h), range(g.out_w)):
        inside = pixels(g, p, q)
        if inside:
            rank = abs if g.absolute else float
            best = max(inside, key=lambda at, c=c, n=n, rank=rank: rank(x[(c, *at, n)]))  # the first of equals
            top[c, p, q, n] = x[(c, *best, n)]
            d_top[(c, *best, n)] += dy[c, p, q, n]
        for at in inside:
            mean[c, p, q, n] += x[(c, *at, n)] / area(g, p, q)
            d_mean[(c, *at, n)] += dy[c, p, q, n] / area(g, p, q)
    y, dx = np.full_like(dy, np.nan), np.full_like(x, np.nan)
    MAX_FORWARD.reference(g, x, y)
    np.testing.assert_array_equal(y, top)
    MAX_BACKWARD.reference(g, x, y, dy, dx, 0.0)
    np.testing.assert_allclose(dx, d_top, rtol=1e-12, atol=1e-12)
    AVG_FORWARD.reference(g, x, y)
    np.testing.assert_allclose(y, mean, rtol=1e-12, atol=1e-12)
    AVG_BACKWARD.reference(g, dy, dx, 0.0)
    np.testing.assert_allclose(dx, d_mean, rtol=1e-12, atol=1e-12)


def test_the_divisor():
    """A 2x2 window at a corner of a padded map of ones: one pixel, or a quarter of one with the padding counted."""
    x, y = np.ones((1, 2, 2, 1)), np.empty((1, 2, 2, 1))
    for count_pad, corner in ((False, 1.0), (True, 0.25)):
        AVG_FORWARD.reference(Pool(1, 2, 2, 1, 2, 2, 2, 2, -1, -1, 2, 2, count_pad), x, y)
        np.testing.assert_array_equal(y, corner)


def test_nan_passes_and_takes_no_gradient():
    g = Pool(1, 1, 4, 1, 1, 2, 1, 2, 0, 0, 1, 2)
    x, y, dx = np.array([np.nan, 5, 1, 2]).reshape(1, 1, 4, 1), np.empty((1, 1, 2, 1)), np.empty((1, 1, 4, 1))
    MAX_FORWARD.reference(g, x, y)
    np.testing.assert_array_equal(y.ravel(), [np.nan, 2])
    MAX_BACKWARD.reference(g, x, y, np.ones_like(y), dx, 0.0)
    np.testing.assert_array_equal(dx.ravel(), [0, 0, 0, 1])


def test_the_largest_absolute_value_keeps_its_sign():
    g = Pool(1, 1, 6, 1, 1, 3, 1, 3, 0, 0, 1, 2, absolute=True)
    x, y, dx = np.array([1, -4, 4, 0, np.nan, -9]).reshape(1, 1, 6, 1), np.empty((1, 1, 2, 1)), np.empty((1, 1, 6, 1))
    MAX_FORWARD.reference(g, x, y)
    np.testing.assert_array_equal(y.ravel(), [-4, np.nan])
    MAX_BACKWARD.reference(g, x, y, np.ones_like(y), dx, 0.0)
    np.testing.assert_array_equal(dx.ravel(), [0, 1, 0, 0, 0, 0])


def test_an_empty_window_gives_zero():
    g = Pool(1, 2, 2, 1, 1, 1, 2, 2, 0, 0, 2, 2)  # windows at 0 and 2
    x, y = np.full((1, 2, 2, 1), -3.0), np.empty((1, 2, 2, 1))
    for op in (MAX_FORWARD, AVG_FORWARD):
        op.reference(g, x, y)
        np.testing.assert_array_equal(y.ravel(), [-3, 0, 0, 0])
