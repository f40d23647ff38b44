"""Local layers and unshared biases: what they have in common with a convolution, and their numbers."""

import numpy as np
import pytest

from layers.base import Shape
from layers.conv import Conv
from layers.initializers import He
from layers.local import Local
from tests.layers.cases import case
from tests.layers.harness import make_feed, run

WINDOW = {"filters": 4, "size": (3, 2), "stride": (2, 1), "pad": 1, "groups": 2}


def test_a_local_layer_of_repeated_weights_is_the_convolution():
    conv, local = case(Conv(**WINDOW), (6, 5, 4), batch=3), case(Local(**WINDOW), (6, 5, 4), batch=3)
    feed = make_feed(conv)
    shapes = {key: param.shape for key, param in local.layer.params(*local.inputs).items()}
    repeated = {
        "a.weight": np.broadcast_to(feed["a.weight"], shapes["weight"]),
        "a.bias": np.broadcast_to(feed["a.bias"][:, None, None], shapes["bias"]),
    }
    expected, found = run(conv, feed), run(local, feed | repeated)
    for name in ("a.y", "dx0"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12)
    # The gradient of a shared weight is the sum of what it gets at all positions.
    np.testing.assert_allclose(found["d a.weight"].sum((0, 1)), expected["d a.weight"], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["d a.bias"].sum((1, 2)), expected["d a.bias"], rtol=1e-12, atol=1e-12)


def test_filters_of_their_own_at_each_position():
    row = case(Local(filters=1, size=2), (1, 2, 3), batch=1)
    weight = np.array([[1.0, 0, 0, 0], [0, 0, 0, 2]]).reshape(1, 2, 1, 1, 2, 2)
    given = {"x0": np.arange(1.0, 7).reshape(1, 2, 3, 1), "a.weight": weight, "a.bias": np.array([[[10.0, 20]]])}
    y = run(row, make_feed(row) | given)["a.y"]
    np.testing.assert_array_equal(y[0, 0, :, 0], [1 + 10, 2 * 6 + 20])


def test_unshared_biases_of_a_convolution():
    shared, own = (case(Conv(filters=2, size=2, shared_biases=s), (3, 3, 4), batch=5) for s in (True, False))
    feed = make_feed(own)
    without = run(shared, feed | {"a.bias": np.zeros(2)})
    after = run(own, feed)
    np.testing.assert_allclose(after["a.y"], without["a.y"] + feed["a.bias"][..., None], rtol=1e-12)
    np.testing.assert_allclose(after["d a.bias"], feed["a.dy"].sum(3), rtol=1e-12)
    np.testing.assert_array_equal(after["d a.weight"], without["d a.weight"])


@pytest.mark.parametrize("bias", [True, False])
def test_parameters(bias):
    params = Local(filters=6, size=(3, 2), groups=2, bias=bias).params(Shape(4, 5, 5))
    assert params["weight"].shape == (3, 4, 6, 2, 3, 2) and params["weight"].fan_in == 12
    assert ("bias" in params) == bias
    if bias:
        assert params["bias"].shape == (6, 3, 4) and not params["bias"].decays
    conv = Conv(filters=6, size=(3, 2), groups=2, shared_biases=False).params(Shape(4, 5, 5))
    assert {key: param.shape for key, param in conv.items()} == {"weight": (6, 2, 3, 2), "bias": (6, 3, 4)}


def test_positions_do_not_count_as_outputs_of_an_input():
    """Initial values of a local layer have the spread of those of a convolution, forward and backward."""
    weight = Local(filters=64, size=3).params(Shape(16, 8, 8))["weight"]
    filled = He(fan="out").fill(np.random.default_rng(0), weight.shape, weight.fan_in)
    assert filled.shape == (6, 6, 64, 16, 3, 3)
    assert filled.std() == pytest.approx(np.sqrt(2 / (64 * 9)), rel=0.01)


def test_multiply_adds_are_those_of_the_convolution():
    assert Local(**WINDOW).multiply_adds(Shape(6, 5, 4)) == Conv(**WINDOW).multiply_adds(Shape(6, 5, 4)) > 0
