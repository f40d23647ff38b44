"""Normalisations against published numbers and against the formulas written out."""

import numpy as np
import pytest

from kernels import norm


@pytest.mark.parametrize("alpha, expected", [(1e-4 / 5, 43.8691), (1e-4, 23.2368)], ids=["divided", "undivided"])
def test_lrn_of_five_channels_of_100(alpha, expected):
    """The middle of five channels of 100: size 5, alpha 1e-4 (divided by the size or not), power 0.75, k 2."""
    g = norm.Lrn(5, 1, 1, 1, size=5, alpha=alpha, power=0.75, k=2.0)
    y = np.empty((5, 1, 1, 1))
    norm.LRN_FORWARD.reference(g, np.full((5, 1, 1, 1), 100.0), y)
    assert y[2, 0, 0, 0] == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 12])
def test_lrn_windows(size):
    """The window of c begins at c - size // 2 and is cut off at the ends, for even sizes too."""
    g = norm.Lrn(7, 1, 2, 3, size=size, alpha=0.3, power=0.6, k=1.0)
    x = np.random.default_rng(0).standard_normal((7, 1, 2, 3))
    y = np.empty_like(x)
    norm.LRN_FORWARD.reference(g, x, y)
    for c in range(7):
        window = x[max(0, c - size // 2) : c - size // 2 + size]
        np.testing.assert_allclose(y[c], x[c] * (1 + 0.3 * (window**2).sum(0)) ** -0.6, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 9])
def test_lrn_blocks(size):
    """Channel c is divided by the sum over channels floor(c / size) * size and on."""
    g = norm.Lrn(7, 1, 2, 3, size=size, alpha=0.3, power=0.6, k=1.0, blocked=True)
    x = np.random.default_rng(0).standard_normal((7, 1, 2, 3))
    y = np.empty_like(x)
    norm.LRN_FORWARD.reference(g, x, y)
    for c in range(7):
        block = x[c // size * size : c // size * size + size]
        np.testing.assert_allclose(y[c], x[c] * (1 + 0.3 * (block**2).sum(0)) ** -0.6, rtol=1e-12)


def window(x, size, h, w):
    """The pixels of the window of (h, w), [C, rows, columns, N]."""
    top, left = h - size // 2, w - size // 2
    return x[:, max(top, 0) : top + size, max(left, 0) : left + size]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 11])
def test_windows_within_a_map(size):
    """The window of (h, w) begins at h - size // 2, w - size // 2 and is cut off at the edges, for even sizes too."""
    sizes = (2, 4, 5, 3)
    x, mean = np.random.default_rng(0).standard_normal(sizes) + 1, np.empty(sizes)
    response, contrast = np.empty(sizes), np.empty(sizes)
    norm.RNORM_FORWARD.reference(norm.Rnorm(*sizes, size, 0.3, 0.6, 1.5), x, response)
    norm.CNORM_FORWARD.reference(norm.Cnorm(*sizes, size, 0.3, 0.6, 1.5), x, contrast)
    for h, w in np.ndindex(4, 5):
        mean[:, h, w] = window(x, size, h, w).mean((1, 2))
    for h, w in np.ndindex(4, 5):
        for y, d in (response, x), (contrast, x - mean):
            base = 1.5 + 0.3 * (window(d, size, h, w) ** 2).sum((1, 2))
            np.testing.assert_allclose(y[:, h, w], x[:, h, w] * base**-0.6, rtol=1e-12)


def stats(x, eps=0.1, momentum=0.25):
    channels = x.shape[0]
    mean, inv_std, running_mean, running_var = (
        np.empty(channels),
        np.empty(channels),
        np.zeros(channels),
        np.ones(channels),
    )
    norm.BATCH_STATS.reference(norm.BatchNorm(*x.shape, eps, momentum), x, mean, inv_std, running_mean, running_var)
    return mean, inv_std, running_mean, running_var


def test_batch_statistics():
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 6)) * 3 + 2
    mean, inv_std, running_mean, running_var = stats(x)
    flat = x.reshape(3, -1)
    np.testing.assert_allclose(mean, flat.mean(1))
    np.testing.assert_allclose(inv_std, (flat.var(1) + 0.1) ** -0.5)
    np.testing.assert_allclose(running_mean, 0.25 * flat.mean(1))
    np.testing.assert_allclose(running_var, 0.75 + 0.25 * flat.var(1, ddof=1))


def test_batch_statistics_of_one_value():
    """A batch of one after a global pool: variance 0, no division by n - 1 = 0."""
    mean, inv_std, running_mean, running_var = stats(np.full((1, 1, 1, 1), 8.0))
    assert (mean[0], running_mean[0], running_var[0]) == (8, 2, 0.75)
    assert inv_std[0] == pytest.approx(0.1**-0.5)


def test_batch_statistics_far_from_zero():
    """float32 values around 1000 of deviation 1: the variance does not cancel."""
    x = (np.random.default_rng(0).standard_normal((1, 8, 8, 64)) + 1000).astype(np.float32)
    inv_std = np.empty(1, np.float32)
    norm.BATCH_STATS.reference(norm.BatchNorm(1, 8, 8, 64, 0.0, 0.1), x, np.empty_like(inv_std), inv_std,
                               np.zeros_like(inv_std), np.ones_like(inv_std))  # fmt: skip
    assert inv_std[0] == pytest.approx(x.astype(float).std() ** -1, rel=1e-4)


def test_batch_inference_uses_the_running_statistics():
    x, y = np.random.default_rng(0).standard_normal((2, 3, 1, 4)), np.empty((2, 3, 1, 4))
    mean, var, w, b = np.array([1.0, 2]), np.array([4.0, 9]), np.array([3.0, -1]), np.array([0.5, 0])
    norm.BATCH_INFER.reference(norm.BatchNorm(2, 3, 1, 4, eps=0.0, momentum=0.1), x, mean, var, w, b, y)
    np.testing.assert_allclose(y[0], (x[0] - 1) / 2 * 3 + 0.5)
    np.testing.assert_allclose(y[1], -(x[1] - 2) / 3)
