"""Initial values: moments against the stated formulas, bounds, equal draws from equal generators; files, functions."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from layers.initializers import Constant, FromCheckpoint, FromFunction, Gaussian, He, Initializer, Uniform, Xavier
from layers.options import ConfigError, build

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
        (He(slope=5**0.5, distribution="uniform"), 0, np.sqrt(1 / (3 * FAN_IN))),  # of torch.nn.Linear
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


# From a file


@pytest.fixture
def file(tmp_path):
    tensors = {
        "conv1.weight": np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE),
        "conv1.bias": np.array([1.0, np.nan]),
        "half": np.ones(SHAPE, np.float16),
    }
    save_file(tensors, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def test_a_tensor_of_a_file_or_of_a_checkpoint(file):
    for path in (file, file.parent):
        x = fill(FromCheckpoint(path=str(path), tensor="conv1.weight"))
        assert x.dtype == np.float64
        np.testing.assert_array_equal(x, np.arange(np.prod(SHAPE)).reshape(SHAPE))
    np.testing.assert_array_equal(fill(FromCheckpoint(path=str(file), tensor="half")), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "gone.safetensors"}, "path: 'gone.safetensors' does not exist"),
        ({"path": "empty"}, "path: 'empty/weights.safetensors' does not exist"),
        ({"path": "bad.safetensors"}, "path: 'bad.safetensors' cannot be read: "),
        (
            {"tensor": "conv1.wieght"},
            "tensor: 'weights.safetensors' has no tensor 'conv1.wieght'; did you mean 'conv1.w",
        ),
        ({"tensor": "x"}, "tensor: 'weights.safetensors' has no tensor 'x'; it holds "),
        (
            {"tensor": "conv1.bias"},
            "'conv1.bias' of 'weights.safetensors': expected the shape [200, 6, 5, 3], found [2]",
        ),
    ],
)
def test_a_tensor_that_does_not_suit(file, monkeypatch, options, message):
    monkeypatch.chdir(file.parent)
    (file.parent / "empty").mkdir()
    (file.parent / "bad.safetensors").write_bytes(b"not a file of tensors")
    with pytest.raises(ConfigError) as found:
        fill(FromCheckpoint(**{"path": "weights.safetensors", "tensor": "conv1.weight", **options}))
    assert str(found.value).startswith(message)


def test_a_tensor_with_a_nan(file):
    with pytest.raises(ConfigError, match="expected finite numbers, found a NaN or infinity"):
        FromCheckpoint(path=str(file), tensor="conv1.bias").fill(np.random.default_rng(0), (2,), 1)


# From a function

MODULE = """
import numpy as np
constant = 3
def ramp(rng, shape, fan_in, start=0.0, step=1.0):
    return start + step * np.arange(np.prod(shape)).reshape(shape) + 0 * fan_in
def noise(rng, shape, fan_in):
    return rng.standard_normal(shape)
def wrong(rng, shape, fan_in):
    return np.zeros(shape[:-1])
def broken(rng, shape, fan_in):
    return np.full(shape, np.inf)
def words(rng, shape, fan_in):
    return "many"
def fails(rng, shape, fan_in):
    raise ValueError("no such thing")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the current folder, with a name of its own for each test."""
    name = f"starts_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_bad.py").write_text("import no_such_package_anywhere")
    (tmp_path / f"{name}_worse.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    return name


def test_a_function_with_arguments(module):
    section = {"type": "function", "name": f"{module}.ramp", "arguments": {"start": 5, "step": 0.5}}
    x = fill(build(Initializer, section))
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x, 5 + 0.5 * np.arange(np.prod(SHAPE)).reshape(SHAPE))


def test_a_function_draws_from_the_generator_of_its_parameter(module):
    init = FromFunction(name=f"{module}.noise")
    np.testing.assert_array_equal(fill(init, 4), np.random.Generator(np.random.Philox(4)).standard_normal(SHAPE))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ramp", "name: expected a dotted name such as package.module.function, found 'ramp'"),
        (
            "no_such_package_anywhere.f",
            "name: cannot import 'no_such_package_anywhere': there is no module 'no_such_pa",
        ),
        (
            "{}_bad.f",
            "name: cannot import '{}_bad': there is no module 'no_such_package_anywhere' on Python's path or in",
        ),
        ("{}_worse.f", "name: importing '{}_worse' failed: ZeroDivisionError: division by zero"),
        ("{}.rmap", "name: module '{}' has no 'rmap'; did you mean 'ramp'?"),
        ("{}.constant", "name: module '{}' has 'constant', not a function"),
        ("{}.fails", "name: {}.fails failed with ValueError: no such thing"),
        ("{}.wrong", "what {}.wrong returned: expected the shape [200, 6, 5, 3], found [200, 6, 5]"),
        ("{}.broken", "what {}.broken returned: expected finite numbers, found a NaN or infinity"),
        ("{}.words", "what {}.words returned: expected an array of numbers, found str"),
    ],
)
def test_a_function_that_does_not_suit(module, name, message):
    with pytest.raises(ConfigError) as found:
        fill(FromFunction(name=name.format(module)))
    assert str(found.value).startswith(message.format(module))
