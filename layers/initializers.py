"""Initial values of parameters.

fan_in is the number of inputs that one output sums (C/groups * R * S of a convolution); fan_out is the number of
outputs that one input reaches, F * R * S, taken from the shape.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from layers.options import ConfigError, Options, Registry, option

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
        fan_out = shape[0] * math.prod(shape[2:])
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
    """Variance 2 / fan, which keeps the scale of activations through ReLUs (He et al. 2015)."""

    fan: str = option("in", choices=("in", "out"), doc="in keeps the scale forward, out keeps that of gradients")

    def variance(self, fan_in: int, fan_out: int) -> float:
        return 2 / (fan_in if self.fan == "in" else fan_out)
