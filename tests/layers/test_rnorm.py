"""Response and contrast normalisation: numbers worked out by hand."""

import numpy as np
import pytest

from layers.cmrnorm import Cmrnorm
from layers.rnorm import Cnorm, Rnorm
from tests.layers.test_values import apply


def test_response_within_a_map():
    """The middle of a 3x3 map of tens sees nine of them, a corner four; scale is divided by nine in either place."""
    x = np.full((1, 3, 3, 1), 10.0)
    y = apply(Rnorm(size=3, scale=0.09, pow=0.5, min_div=1), x)["a.y"][0, :, :, 0]
    assert y[1, 1] == pytest.approx(10 / np.sqrt(1 + 0.01 * 900))
    assert y[0, 0] == pytest.approx(10 / np.sqrt(1 + 0.01 * 400))
    undivided = apply(Rnorm(size=3, scale=0.01, pow=0.5, min_div=1, divide=False), x)["a.y"][0, :, :, 0]
    np.testing.assert_allclose(undivided, y)


def test_a_flat_map_has_no_contrast():
    """Clipped windows have the mean of what is there, so that edges of a flat map are flat too."""
    y = apply(Cnorm(size=3, scale=9, pow=1, min_div=2), np.full((1, 3, 4, 2), 10.0))["a.y"]
    np.testing.assert_allclose(y, 5)


def test_contrast_of_a_row():
    """1, 3, 8 in windows of three have the means 2, 4, 5.5 and the deviations -1, -1, 2.5; what is scaled is x."""
    x = np.array([1.0, 3, 8]).reshape(1, 1, 3, 1)
    y = apply(Cnorm(size=3, scale=1, pow=1, min_div=1, divide=False), x)["a.y"].ravel()
    np.testing.assert_allclose(y, [1 / (1 + 1 + 1), 3 / (1 + 1 + 1 + 6.25), 8 / (1 + 1 + 6.25)])


def test_the_gradient_of_contrast_without_that_of_the_means():
    """Two pixels that see each other: x = 1, 5, means 3, d = -2, 2, D = 1 + 8; only pixel 0 has a gradient, of 1.

    The terms of its sum over windows are -2 a p d x0 / D^2 = -2 d / 81; the means take 0 = 2 (d0 + d1) / 81 / 2 of it.
    """
    x, dy = np.array([1.0, 5]).reshape(1, 1, 2, 1), np.array([1.0, 0]).reshape(1, 1, 2, 1)
    options = {"size": 3, "scale": 1, "pow": 1, "min_div": 1, "divide": False}
    inexact = apply(Cnorm(**options, exact=False), x, dy=dy)["dx0"].ravel()
    np.testing.assert_allclose(inexact, [1 / 9 + 4 / 81, -4 / 81])
    # Against a third, far pixel the means matter: differences of the formula itself tell.
    x = np.array([1.0, 5, 2]).reshape(1, 1, 3, 1)
    dy = np.array([1.0, 0, 0]).reshape(1, 1, 3, 1)

    def first(values):
        return apply(Cnorm(**options), np.reshape(values, x.shape))["a.y"].ravel()[0]

    steps = 1e-6 * np.eye(3)
    numeric = [(first(x.ravel() + step) - first(x.ravel() - step)) / 2e-6 for step in steps]
    exact, inexact = (apply(Cnorm(**options, exact=e), x, dy=dy)["dx0"].ravel() for e in (True, False))
    np.testing.assert_allclose(exact, numeric, rtol=1e-7)
    assert np.abs(inexact - numeric).max() > 0.01


def test_blocks_of_maps():
    """Five maps in blocks of two: 1 2, 3 4, and 5 alone; scale is divided by two."""
    x = np.arange(1.0, 6).reshape(5, 1, 1, 1)
    y = apply(Cmrnorm(size=2, scale=2, pow=1, min_div=1, blocked=True), x)["a.y"].ravel()
    np.testing.assert_allclose(y, [1 / 6, 2 / 6, 3 / 26, 4 / 26, 5 / 26])
