"""Maxima across maps and of several inputs: which are taken, and who gets the gradient of equal ones."""

import numpy as np
import pytest

from layers.base import Shape
from layers.cmpool import Cmpool
from layers.join import Eltmax
from tests.layers.test_values import apply, features

# channels, size, stride, start; the channels of each output
GROUPS = [
    (6, 2, None, 0, [[0, 1], [2, 3], [4, 5]]),
    (7, 3, None, 0, [[0, 1, 2], [3, 4, 5], [6]]),
    (5, 3, 2, 0, [[0, 1, 2], [2, 3, 4]]),
    (6, 3, 2, -1, [[0, 1], [1, 2, 3], [3, 4, 5]]),
    (4, 4, 1, 0, [[0, 1, 2, 3]]),
    (4, 4, 1, -3, [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]),
]


@pytest.mark.parametrize("channels, size, stride, start, groups", GROUPS)
def test_groups_of_maps(channels, size, stride, start, groups):
    layer = Cmpool(size=size, stride=stride, start=start)
    assert layer.output(Shape(channels, 2, 3)) == Shape(len(groups), 2, 3)
    x = np.random.default_rng(0).standard_normal((channels, 2, 3, 4))
    np.testing.assert_array_equal(apply(layer, x)["a.y"], [x[group].max(0) for group in groups])


def test_the_first_of_equal_maps_gets_the_gradient():
    dx = apply(Cmpool(size=3), features([2], [2], [1]), dy=features([5.0]))["dx0"].ravel()
    np.testing.assert_array_equal(dx, [5, 0, 0])
    overlapping = apply(Cmpool(size=2, stride=1), features([1], [3], [3]), dy=features([5.0], [7]))["dx0"].ravel()
    np.testing.assert_array_equal(overlapping, [0, 12, 0])


def test_the_first_of_equal_inputs_gets_the_gradient():
    a, b, c = features([1.0, 4, 2]), features([3.0, 4, 2]), features([3.0, 4, 9])
    after = apply(Eltmax(), a, b, c, dy=features([10.0, 20, 30]))
    np.testing.assert_array_equal(after["a.y"].ravel(), [3, 4, 9])
    gradients = [after[f"dx{i}"].ravel().tolist() for i in range(3)]
    assert gradients == [[0, 20, 0], [10, 0, 0], [0, 0, 30]]


def test_nan_stays_visible():
    for order in ([np.nan, 1.0], [1.0, np.nan]):
        assert np.isnan(apply(Cmpool(size=2), features(*([v] for v in order)))["a.y"]).all()
        assert np.isnan(apply(Eltmax(), *(features([v]) for v in order))["a.y"]).all()
