"""Each layer in float32, on NumPy and on the GPU, against NumPy in float64; in training and in evaluation."""

import numpy as np
import pytest

from tests.layers.cases import CASES
from tests.layers.harness import make_feed, run

TOLERANCE = 2e-5  # of the largest value of an array; the longest sum of any row has some hundred terms


def compare(row, backend, **how):
    """Everything that a run leaves agrees with the run in float64."""
    feed = make_feed(row, names=how.get("names", "a"))
    found, expected = run(row, feed, backend, np.float32, **how), run(row, feed, **how)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        bound = TOLERANCE * max(1, np.abs(array).max())
        np.testing.assert_allclose(found[name], array, rtol=0, atol=bound, err_msg=name, equal_nan=False)


@pytest.mark.parametrize("layout", ["hcwn", "chwn"])  # of the output: the next layer decides it
@pytest.mark.parametrize("row", CASES, ids=str)
def test_training(row, layout, backend):
    compare(row, backend, layout=layout)


@pytest.mark.parametrize("row", CASES, ids=str)
def test_evaluation(row, backend):
    compare(row, backend, training=False)


@pytest.mark.parametrize("row", CASES, ids=str)
def test_two_layers_that_read_one_input(row, backend):
    compare(row, backend, names=("a", "b"))


@pytest.mark.parametrize("row", CASES, ids=str)
def test_the_same_bits_every_time(row, backend):
    feed = make_feed(row)
    first, again = (run(row, feed, backend, np.float32) for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name], err_msg=name)
