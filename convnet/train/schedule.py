"""Learning-rate schedules: the factor on every learning rate, a pure function of the step.

Nothing is remembered between steps, so that a resumed run has the rates of one that never stopped.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from layers.options import ConfigError, Options, Registry, option

SCHEDULES = Registry("schedule")


@dataclass(frozen=True)
class Warmup(Options):
    """Linear warm-up: at the update t, counted from 0, of n the rate is that of the schedule times
    start + (1 - start) * t / n (Goyal et al. 2017)."""

    shorthand: ClassVar[tuple[str, ...]] = ("epochs",)

    epochs: float = option(above=0, doc="how long it lasts; fractions are allowed")
    start: float = option(0.0, least=0, most=1, doc="the first factor; 0 makes the first update an empty one")


@dataclass(frozen=True)
class Schedule(Options):
    """Base of all schedules. Those over the whole training begin after the warm-up; epochs count from the start."""

    registry: ClassVar[Registry | None] = SCHEDULES

    warmup: Warmup | None = option(None, doc="rise to the rate in the first epochs")

    def factor_at(self, step: int, steps_total: int, steps_per_epoch: int) -> float:
        """The factor at `step`, an update counted from 0, of a run of `steps_total`."""
        if self.warmup is None:
            return self.main(step, 0, steps_total, steps_per_epoch)
        begin, start = round(self.warmup.epochs * steps_per_epoch), self.warmup.start
        ramp = start + (1 - start) * step / begin if step < begin else 1.0
        return ramp * self.main(step, begin, steps_total, steps_per_epoch)

    def beyond(self, epochs: int) -> list[str]:
        """What lies behind the end of a training of so many epochs, for people."""
        lasts = self.warmup.epochs if self.warmup else 0
        return [f"the warm-up lasts {lasts:g} epochs, the training {epochs}"] if lasts > epochs else []

    def main(self, step: int, begin: int, steps_total: int, steps_per_epoch: int) -> float:
        """The factor without the warm-up, which lasts until the step `begin`."""
        done, total = max(step - begin, 0), max(steps_total - begin, 1)
        return self.over(min(done, total), total)

    def over(self, done: int, total: int) -> float:
        """The factor after `done` of `total` steps."""
        raise NotImplementedError


@SCHEDULES.register("constant")
@dataclass(frozen=True)
class Constant(Schedule):
    """The configured rate throughout."""

    def over(self, done: int, total: int) -> float:
        return 1.0


@SCHEDULES.register("linear")
@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line to the rate divided by `factor`, as in cuda-convnet2: (1 - p) + p / factor, p = step / total."""

    factor: float = option(above=0, doc="first rate divided by last rate")

    def over(self, done: int, total: int) -> float:
        return 1 - done / total * (1 - 1 / self.factor)


@SCHEDULES.register("exp")
@dataclass(frozen=True)
class Exp(Schedule):
    """Exponential decay to the rate divided by `factor`, as in cuda-convnet2: factor^-p with p = step / total."""

    factor: float = option(above=0, doc="first rate divided by last rate")

    def over(self, done: int, total: int) -> float:
        return self.factor ** (-done / total)


@SCHEDULES.register("dexp")
@dataclass(frozen=True)
class Dexp(Schedule):
    """Discrete exponential, as in cuda-convnet2: `steps` equally long plateaus down to the rate divided by `factor`.

    With p = step / steps_total, the multiplier is factor^(-i / (steps - 1)) for the least i with p <= (i + 1) / steps.
    """

    factor: float = option(above=0, doc="first rate divided by last rate")
    steps: int = option(least=1, doc="number of plateaus; with one the rate is constant")

    def over(self, done: int, total: int) -> float:
        plateau = max(-(-done * self.steps // total) - 1, 0)  # ceil(p * steps) - 1, in exact arithmetic
        return self.factor ** (-min(plateau, self.steps - 1) / max(self.steps - 1, 1))


@SCHEDULES.register("poly")
@dataclass(frozen=True)
class Poly(Schedule):
    """Polynomial decay to 0: (1 - p)^power with p = step / total, as in Caffe."""

    power: float = option(1.0, above=0, doc="1 is a straight line; 2 falls fast at first, 0.5 at last")

    def over(self, done: int, total: int) -> float:
        return (1 - done / total) ** self.power


@SCHEDULES.register("cosine")
@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine: final + (1 - final) (1 + cos(pi p)) / 2 with p = step / total (Loshchilov and Hutter 2017)."""

    final: float = option(0.0, least=0, most=1, doc="last rate divided by first rate")

    def over(self, done: int, total: int) -> float:
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * done / total)) / 2


@SCHEDULES.register("step")
@dataclass(frozen=True)
class Step(Schedule):
    """The rate times `factor` after every `every` epochs."""

    every: float = option(above=0, doc="epochs between changes; fractions are allowed")
    factor: float = option(0.1, above=0, doc="what the rate is multiplied by at each change")

    def main(self, step: int, begin: int, steps_total: int, steps_per_epoch: int) -> float:
        passed = int((step + 0.5) / (self.every * steps_per_epoch))  # a change stands at the step nearest to it
        return self.factor**passed


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

    def beyond(self, epochs: int) -> list[str]:
        late = ", ".join(f"{milestone:g}" for milestone in self.milestones if milestone > epochs)
        return super().beyond(epochs) + (
            [f"the training ends at epoch {epochs}, before milestones: {late}"] if late else []
        )

    def main(self, step: int, begin: int, steps_total: int, steps_per_epoch: int) -> float:
        passed = sum(round(milestone * steps_per_epoch) <= step for milestone in self.milestones)
        return self.factor**passed
