"""Learning-rate schedules."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convnet.train.schedule import Constant, Dexp, MultiStep, Schedule
from layers.options import ConfigError, build


def per_epoch(schedule: Schedule, epochs: int, steps_per_epoch: int = 10) -> list[float]:
    total = epochs * steps_per_epoch
    first = [schedule.factor_at(epoch * steps_per_epoch, total, steps_per_epoch) for epoch in range(epochs)]
    last = [schedule.factor_at((epoch + 1) * steps_per_epoch - 1, total, steps_per_epoch) for epoch in range(epochs)]
    assert first == last, "the factor changes within an epoch"
    return first


def test_constant() -> None:
    assert per_epoch(Constant(), 3) == [1, 1, 1]


def test_multistep_changes_at_the_first_step_after_each_milestone() -> None:
    assert per_epoch(MultiStep(milestones=[2, 4]), 6) == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_multistep_takes_fractions_of_an_epoch() -> None:
    schedule = MultiStep(milestones=0.1, factor=0.5)  # 0.1 * 30 is not 3 in floating point
    assert [schedule.factor_at(step, 60, 30) for step in (2, 3)] == [1, 0.5]


def test_dexp_has_the_plateaus_of_cuda_convnet2() -> None:
    """0.01 / 250 / 4 gives .01, .0015874, .00025198, .00004; a plateau includes the step at its end."""
    schedule = Dexp(factor=250, steps=4)
    rates = [0.01 * schedule.factor_at(step, 40, 10) for step in (0, 10, 11, 20, 21, 30, 31, 39)]
    plateaus = [0.01, 0.0015874, 0.00025198, 0.00004]
    assert rates == pytest.approx([plateaus[i] for i in (0, 0, 1, 1, 2, 2, 3, 3)], rel=1e-4)


def test_dexp_of_two_plateaus_changes_at_half_time() -> None:
    schedule = Dexp(factor=10, steps=2)
    assert [schedule.factor_at(step, 100, 10) for step in (50, 51)] == [1, pytest.approx(0.1)]


@given(st.floats(1.01, 1e4), st.integers(1, 20), st.integers(1, 5000))
def test_dexp_never_rises_and_stays_in_its_range(factor: float, steps: int, total: int) -> None:
    schedule = Dexp(factor=factor, steps=steps)
    values = [schedule.factor_at(step, total, 1) for step in range(0, total + 1, max(total // 50, 1))]
    assert values[0] == 1 and all(a >= b for a, b in pairwise(values))
    assert min(values) >= 1 / factor * (1 - 1e-9)
    assert steps == 1 or schedule.factor_at(total, total, 1) == pytest.approx(1 / factor)


def test_milestones_must_rise() -> None:
    with pytest.raises(ConfigError, match=r"^milestones\[1\]: expected more than the one before \(30.0\), found 30.0$"):
        build(Schedule, {"type": "multistep", "milestones": [30, 30]})
