"""Initial values: moments against the stated formulas, bounds, and equal draws from equal generators."""

import numpy as np
import pytest

from layers.initializers import Constant, Gaussian, He, Initializer, Uniform, Xavier
from layers.options import ConfigError

SHAPE, FAN_IN, FAN_OUT = (200, 6, 5, 3), 6 * 5 * 3, 200 * 5 * 3


def fill(init: Initializer, seed: int = 1) -> np.ndarray:
    return init.fill(np.random.Generator(np.random.Philox(seed)), SHAPE, FAN_IN)


@pytest.mark.parametrize(
    ("init", "mean", "std"),
    [
        (Gaussian(mean=3, std=0.5), 3, 0.5),
        (Constant(value=2), 2, 0),
        (Uniform(low=-1, high=3), 1, 4 / np.sqrt(12)),
        (Xavier(), 0, np.sqrt(2 / (FAN_IN + FAN_OUT))),
        (Xavier(distribution="normal"), 0, np.sqrt(2 / (FAN_IN + FAN_OUT))),
        (He(), 0, np.sqrt(2 / FAN_IN)),
        (He(fan="out", distribution="uniform"), 0, np.sqrt(2 / FAN_OUT)),
    ],
)
def test_moments(init: Initializer, mean: float, std: float) -> None:
    x = fill(init)
    assert x.dtype == np.float64 and x.shape == SHAPE
    assert abs(x.mean() - mean) <= 5 * std / np.sqrt(x.size)
    assert abs(x.std() - std) <= 0.02 * std
    np.testing.assert_array_equal(x, fill(init))


def test_uniform_draws_keep_their_bounds_and_fill_them() -> None:
    bound = np.sqrt(6 / (FAN_IN + FAN_OUT))
    assert 0.99 * bound < np.abs(fill(Xavier())).max() <= bound


def test_bounds_in_the_wrong_order_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^high: expected a number >= low \(2.0\), found 1.0$"):
        Uniform(low=2, high=1)


def test_different_seeds_differ() -> None:
    assert (fill(He(), 1) != fill(He(), 2)).any()
