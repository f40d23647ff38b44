"""Initial values of parameters.

fan_in is the number of inputs that one output sums (C/groups * R * S of a convolution); fan_out is the number of
outputs that one input reaches, F * R * S, taken from the shape.
"""

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors import SafetensorError, safe_open

from layers.options import ConfigError, Options, Registry, option
from layers.registry import nearest

WEIGHTS = "weights.safetensors"  # the file in a checkpoint's folder

INITIALIZERS = Registry("initializer")


@dataclass(frozen=True)
class Initializer(Options):
    """Base of all initializers."""

    registry: ClassVar[Registry | None] = INITIALIZERS

    def fill(self, rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
        """A float64 array of `shape`."""
        raise NotImplementedError


@INITIALIZERS.register("gaussian")
@dataclass(frozen=True)
class Gaussian(Initializer):
    """Normal distribution N(mean, std^2)."""

    mean: float = option(0.0, doc="mean")
    std: float = option(0.01, least=0, doc="standard deviation")

    def fill(self, rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
        return rng.normal(self.mean, self.std, shape)


@INITIALIZERS.register("constant")
@dataclass(frozen=True)
class Constant(Initializer):
    """The same value everywhere."""

    value: float = option(0.0, doc="the value")

    def fill(self, rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
        return np.full(shape, self.value)


@INITIALIZERS.register("uniform")
@dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform distribution on [low, high)."""

    low: float = option(doc="least value")
    high: float = option(doc="bound above")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high < self.low:
            raise ConfigError(f"expected a number >= low ({self.low}), found {self.high}", ("high",))

    def fill(self, rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
        return rng.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class _Scaled(Initializer):
    """Mean 0 and a variance that follows from the fans."""

    distribution: str = option("normal", choices=("normal", "uniform"), doc="normal, or uniform of equal variance")

    def variance(self, fan_in: int, fan_out: int) -> float:
        raise NotImplementedError

    def fill(self, rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
        outputs, _, *taps = (*shape[-4:], 1)  # without the positions that the filters of a local layer have in front
        fan_out = outputs * math.prod(taps)
        std = math.sqrt(self.variance(fan_in, fan_out))
        if self.distribution == "normal":
            return rng.normal(0, std, shape)
        bound = math.sqrt(3) * std  # U(-b, b) has the variance b^2 / 3
        return rng.uniform(-bound, bound, shape)


@INITIALIZERS.register("xavier")
@dataclass(frozen=True)
class Xavier(_Scaled):
    """Variance 2 / (fan_in + fan_out); the uniform bound is sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""

    distribution: str = option("uniform", choices=("normal", "uniform"), doc="uniform, or normal of equal variance")

    def variance(self, fan_in: int, fan_out: int) -> float:
        return 2 / (fan_in + fan_out)


@INITIALIZERS.register("he")
@dataclass(frozen=True)
class He(_Scaled):
    """Variance 2 / ((1 + slope^2) fan), which keeps the scale of activations through ReLUs (He et al. 2015).

    With slope 5^(1/2) and the uniform distribution it is what PyTorch's conv and linear layers begin with.
    """

    fan: str = option("in", choices=("in", "out"), doc="in keeps the scale forward, out keeps that of gradients")
    slope: float = option(0.0, doc="of the neurons below 0, as of a leaky ReLU")

    def variance(self, fan_in: int, fan_out: int) -> float:
        return 2 / ((1 + self.slope**2) * (fan_in if self.fan == "in" else fan_out))


@INITIALIZERS.register("checkpoint")
@dataclass(frozen=True)
class FromCheckpoint(Initializer):
    """A tensor of a safetensors file, of the same shape."""

    path: str = option(doc="a safetensors file, or the folder of a checkpoint")
    tensor: str = option(doc="name of the tensor in it, such as conv1.weight")

    def fill(self, rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
        path = Path(self.path) / WEIGHTS if Path(self.path).is_dir() else Path(self.path)
        try:
            with safe_open(path, framework="np") as file:
                names = list(file.keys())
                if self.tensor not in names:
                    near = nearest(self.tensor, names) or f"; it holds {', '.join(names)}"
                    raise ConfigError(f"'{path}' has no tensor '{self.tensor}'{near}", ("tensor",))
                return _checked(file.get_tensor(self.tensor), shape, f"'{self.tensor}' of '{path}'")
        except FileNotFoundError:
            raise ConfigError(f"'{path}' does not exist", ("path",)) from None
        except (
            OSError,
            SafetensorError,
            TypeError,
        ) as error:  # a type that NumPy has not, such as bfloat16, is the last
            raise ConfigError(f"'{path}' cannot be read: {error}", ("path",)) from error


@INITIALIZERS.register("function")
@dataclass(frozen=True)
class FromFunction(Initializer):
    """What a Python function returns: f(rng, shape, fan_in, **arguments), an array of `shape`.

    rng: a numpy.random.Generator of the parameter's own, the same for the same seed. Modules are looked for on
    Python's path and in the current folder.
    """

    name: str = option(doc="the function by its module: package.module.function")
    arguments: dict | None = option(None, doc="a mapping of the function's further arguments")

    def fill(self, rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
        function = self.function()
        try:
            found = function(rng, shape, fan_in, **(self.arguments or {}))
        except Exception as error:  # whatever the code of a user raises
            raise ConfigError(f"{self.name} failed with {type(error).__name__}: {error}", ("name",)) from error
        return _checked(found, shape, f"what {self.name} returned")

    def function(self) -> Callable[..., Any]:
        """The function that `name` means."""
        module_name, _, name = self.name.rpartition(".")
        if not module_name:
            raise ConfigError(f"expected a dotted name such as package.module.function, found '{self.name}'", ("name",))
        try:
            with _current_folder():
                module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            message = f"cannot import '{module_name}': there is no module '{error.name}' on Python's path"
            raise ConfigError(f"{message} or in '{os.getcwd()}'", ("name",)) from error
        except Exception as error:
            raise ConfigError(
                f"importing '{module_name}' failed: {type(error).__name__}: {error}", ("name",)
            ) from error
        found = getattr(module, name, None)
        if not callable(found):
            functions = [key for key, value in vars(module).items() if callable(value)]
            fault = f"has no '{name}'{nearest(name, functions)}" if found is None else f"has '{name}', not a function"
            raise ConfigError(f"module '{module_name}' {fault}", ("name",))
        return found


@contextmanager
def _current_folder() -> Iterator[None]:
    """Within, modules are found in the current folder too, after all other places."""
    sys.path.append(os.getcwd())
    try:
        yield
    finally:
        sys.path.remove(os.getcwd())


def _checked(values: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """The values as float64; raises ConfigError unless they are finite and of `shape`."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"{what}: expected an array of numbers, found {type(values).__name__}") from None
    if array.shape != tuple(shape):
        raise ConfigError(f"{what}: expected the shape {list(shape)}, found {list(array.shape)}")
    if not np.isfinite(array).all():
        raise ConfigError(f"{what}: expected finite numbers, found a NaN or infinity")
    return array
