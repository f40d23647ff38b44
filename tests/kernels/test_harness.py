"""The harness finds what it is there to find."""

import numpy as np
import pytest

from kernels import neuron
from tests.kernels import harness
from tests.kernels.arguments import arguments

OP, G = neuron.FORWARD, neuron.Neuron(3, 4, 2, 5, kind=0)


def check(start, layout="hcwn", op=OP, beta=0.0):
    values = arguments(op, G, np.random.default_rng(0))
    expected = harness.reference(op, G, values, np.float64, "chwn", beta)
    harness.compare(op, harness.run(op, np, values, np.float32, layout, beta, {}, start), expected)


def right(bound):
    np.maximum(bound["x"], 0, out=bound["y"])


def beyond(array):
    """The map with the channels next to it, which lie in the guard."""
    shape = (array.shape[0] + 1, *array.shape[1:])
    return np.lib.stride_tricks.as_strided(array, shape, array.strides)


def writes_outside(bound):
    right(bound)
    beyond(bound["y"])[-1] = 0


def changes_input(bound):
    right(bound)
    bound["x"][0, 0, 0, 0] += 1


def misses_an_element(bound):
    right(bound)
    bound["y"][2, 3, 1, 4] = np.nan


def is_off(bound):
    right(bound)
    bound["y"][0, 1, 0, 1] += 1e-4


def reads_outside(bound):
    right(bound)
    bound["y"][...] += 0 * beyond(bound["x"])[1:]


@pytest.mark.parametrize("layout", harness.LAYOUTS)
def test_right(layout):
    check(right, layout)


@pytest.mark.parametrize("layout", ["hcwn", "chwn"])
@pytest.mark.parametrize("start", [writes_outside, changes_input, misses_an_element, is_off, reads_outside])
def test_faults(start, layout):
    with pytest.raises(AssertionError):
        check(start, layout)


def test_reading_a_result_that_does_not_count():
    def start(bound):
        bound["dx"][...] = bound["beta"] * bound["dx"] + (bound["y"] > 0) * bound["dy"]

    check(start, op=neuron.BACKWARD, beta=1.0)
    with pytest.raises(AssertionError):
        check(start, op=neuron.BACKWARD, beta=0.0)
