"""Learning-rate schedules: the factor on every learning rate, a pure function of the step.

Nothing is remembered between steps, so that a resumed run has the rates of one that never stopped.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from layers.options import ConfigError, Options, Registry, option

SCHEDULES = Registry("schedule")


@dataclass(frozen=True)
class Schedule(Options):
    """Base of all schedules."""

    registry: ClassVar[Registry | None] = SCHEDULES

    def factor_at(self, step: int, steps_total: int, steps_per_epoch: int) -> float:
        """The factor at `step`, an update counted from 0, of a run of `steps_total`."""
        raise NotImplementedError


@SCHEDULES.register("constant")
@dataclass(frozen=True)
class Constant(Schedule):
    """The configured rate throughout."""

    def factor_at(self, step: int, steps_total: int, steps_per_epoch: int) -> float:
        return 1.0


@SCHEDULES.register("multistep")
@dataclass(frozen=True)
class MultiStep(Schedule):
    """The rate times `factor` from each milestone on."""

    milestones: tuple[float, ...] = option(above=0, doc="epochs after which the rate changes; fractions are allowed")
    factor: float = option(0.1, above=0, doc="what the rate is multiplied by at each milestone")

    def __post_init__(self) -> None:
        super().__post_init__()
        for i, (before, after) in enumerate(pairwise(self.milestones)):
            if after <= before:
                raise ConfigError(f"expected more than the one before ({before}), found {after}", ("milestones", i + 1))

    def factor_at(self, step: int, steps_total: int, steps_per_epoch: int) -> float:
        passed = sum(round(milestone * steps_per_epoch) <= step for milestone in self.milestones)
        return self.factor**passed


@SCHEDULES.register("dexp")
@dataclass(frozen=True)
class Dexp(Schedule):
    """Discrete exponential, as in cuda-convnet2: `steps` equally long plateaus down to the rate divided by `factor`.

    With p = step / steps_total, the multiplier is factor^(-i / (steps - 1)) for the least i with p <= (i + 1) / steps.
    """

    factor: float = option(above=0, doc="first rate divided by last rate")
    steps: int = option(least=1, doc="number of plateaus; with one the rate is constant")

    def factor_at(self, step: int, steps_total: int, steps_per_epoch: int) -> float:
        plateau = max(-(-step * self.steps // steps_total) - 1, 0)  # ceil(p * steps) - 1, in exact arithmetic
        return self.factor ** (-min(plateau, self.steps - 1) / max(self.steps - 1, 1))
