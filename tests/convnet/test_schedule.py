"""Learning-rate schedules."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convnet.config.schema import Solver
from convnet.train.rates import RateTable
from convnet.train.schedule import (
    SCHEDULES,
    Constant,
    Cosine,
    Dexp,
    Exp,
    Linear,
    MultiStep,
    Poly,
    Schedule,
    Step,
    Warmup,
)
from layers.options import ConfigError, build
from tests.convnet.networks import small

ALL = [
    Constant(), Linear(factor=20), Exp(factor=20), Dexp(factor=250, steps=4), Step(every=2), Step(every=0.7),
    MultiStep(milestones=(1.5, 4)), Poly(power=2), Cosine(final=0.1),
]  # fmt: skip


def per_epoch(schedule: Schedule, epochs: int, steps_per_epoch: int = 10) -> list[float]:
    total = epochs * steps_per_epoch
    first = [schedule.factor_at(epoch * steps_per_epoch, total, steps_per_epoch) for epoch in range(epochs)]
    last = [schedule.factor_at((epoch + 1) * steps_per_epoch - 1, total, steps_per_epoch) for epoch in range(epochs)]
    assert first == last, "the factor changes within an epoch"
    return first


def test_every_type_is_here() -> None:
    assert {type(schedule).type for schedule in ALL} == set(SCHEDULES)


def test_constant() -> None:
    assert per_epoch(Constant(), 3) == [1, 1, 1]


def test_multistep_changes_at_the_first_step_after_each_milestone() -> None:
    assert per_epoch(MultiStep(milestones=[2, 4]), 6) == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_multistep_takes_fractions_of_an_epoch() -> None:
    schedule = MultiStep(milestones=0.1, factor=0.5)  # 0.1 * 30 is not 3 in floating point
    assert [schedule.factor_at(step, 60, 30) for step in (2, 3)] == [1, 0.5]


def test_step_changes_after_every_n_epochs() -> None:
    assert per_epoch(Step(every=2), 6) == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    assert per_epoch(Step(every=3, factor=0.5), 7) == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]


@given(st.integers(1, 200), st.integers(1, 40))
def test_step_is_multistep_at_the_multiples(tenths: int, per_epoch: int) -> None:
    every = tenths / 10
    milestones = tuple(every * k for k in range(1, 1 + int(50 / every)))
    step, multi = Step(every=every, factor=0.5), MultiStep(milestones=milestones or (51,), factor=0.5)
    for t in (0, 1, per_epoch, 7 * per_epoch // 2, 40 * per_epoch):
        nearest = [m * per_epoch for m in milestones if abs(m * per_epoch % 1 - 0.5) < 1e-6]
        if not nearest:  # halves round to even in one, down in the other
            assert step.factor_at(t, 50 * per_epoch, per_epoch) == multi.factor_at(t, 50 * per_epoch, per_epoch)


def test_linear_and_exp_are_those_of_cuda_convnet2() -> None:
    """b (1 - p) + (b / f) p, and b f^-p, with p = updates done / all updates."""
    for step, p in ((0, 0.0), (25, 0.25), (50, 0.5), (99, 0.99)):
        assert 0.01 * Linear(factor=5).factor_at(step, 100, 10) == pytest.approx(0.01 * (1 - p) + 0.01 / 5 * p)
        assert 0.01 * Exp(factor=5).factor_at(step, 100, 10) == pytest.approx(0.01 * 5**-p)


def test_dexp_has_the_plateaus_of_cuda_convnet2() -> None:
    """0.01 / 250 / 4 gives .01, .0015874, .00025198, .00004; a plateau includes the step at its end."""
    schedule = Dexp(factor=250, steps=4)
    rates = [0.01 * schedule.factor_at(step, 40, 10) for step in (0, 10, 11, 20, 21, 30, 31, 39)]
    plateaus = [0.01, 0.0015874, 0.00025198, 0.00004]
    assert rates == pytest.approx([plateaus[i] for i in (0, 0, 1, 1, 2, 2, 3, 3)], rel=1e-4)


def test_dexp_of_two_plateaus_changes_at_half_time() -> None:
    schedule = Dexp(factor=10, steps=2)
    assert [schedule.factor_at(step, 100, 10) for step in (50, 51)] == [1, pytest.approx(0.1)]


def test_poly_and_cosine() -> None:
    assert [Poly(power=2).factor_at(step, 4, 1) for step in range(4)] == [1, 0.5625, 0.25, 0.0625]
    found = [Cosine().factor_at(step, 6, 1) for step in range(6)]
    root = 3**0.5 / 2
    assert found == pytest.approx([1, (1 + root) / 2, 0.75, 0.5, 0.25, (1 - root) / 2])
    assert Cosine(final=0.2).factor_at(3, 6, 1) == pytest.approx(0.6)


def test_warm_up_is_a_straight_line_to_the_rate_at_its_end() -> None:
    schedule = Constant(warmup=Warmup(epochs=2, start=0.2))
    assert [schedule.factor_at(step, 40, 4) for step in range(10)] == pytest.approx(
        [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1]
    )


def test_after_the_warm_up_a_cosine_spans_what_is_left_and_milestones_stay() -> None:
    cosine, multi = Cosine(warmup=Warmup(epochs=2)), MultiStep(milestones=(1, 3), warmup=Warmup(epochs=2))
    assert [cosine.factor_at(step, 10, 1) for step in range(10)] == pytest.approx(
        [0, 0.5, *(Cosine().factor_at(step, 8, 1) for step in range(8))]
    )
    assert [multi.factor_at(step, 4, 1) for step in range(4)] == pytest.approx([0, 0.05, 0.1, 0.01])


def test_a_warm_up_longer_than_the_run_is_all_there_is() -> None:
    schedule = Linear(factor=10, warmup=Warmup(epochs=10))
    assert [schedule.factor_at(step, 4, 2) for step in range(4)] == pytest.approx([0, 0.05, 0.1, 0.15])


@given(st.sampled_from(ALL), st.integers(1, 12), st.integers(1, 30), st.floats(0, 3), st.data())
def test_a_resumed_run_has_the_rates_of_one_that_never_stopped(schedule, epochs, steps_per_epoch, warm, data) -> None:
    warmup = Warmup(epochs=warm, start=0.1) if warm else None
    schedule = type(schedule)(**{**vars(schedule), "warmup": warmup})
    network, total = small(), epochs * steps_per_epoch

    def rates(begin: int) -> list[np.ndarray]:
        table = RateTable(network, Solver(schedule=schedule), steps_total=total, steps_per_epoch=steps_per_epoch)
        return [table.at(step) for step in range(begin, min(total, begin + 20))]

    whole, begin = rates(0), data.draw(st.integers(0, min(total, 20)))
    tail = rates(begin)[: len(whole) - begin]
    np.testing.assert_array_equal(tail, whole[begin:])
    factors = [schedule.factor_at(step, total, steps_per_epoch) for step in range(total)]
    assert all(0 <= factor <= 1 for factor in factors)


@given(st.floats(1.01, 1e4), st.integers(1, 20), st.integers(1, 5000))
def test_dexp_never_rises_and_stays_in_its_range(factor: float, steps: int, total: int) -> None:
    schedule = Dexp(factor=factor, steps=steps)
    values = [schedule.factor_at(step, total, 1) for step in range(0, total + 1, max(total // 50, 1))]
    assert values[0] == 1 and all(a >= b for a, b in pairwise(values))
    assert min(values) >= 1 / factor * (1 - 1e-9)
    assert steps == 1 or schedule.factor_at(total, total, 1) == pytest.approx(1 / factor)


@given(st.sampled_from([s for s in ALL if not isinstance(s, Constant)]), st.integers(2, 2000))
def test_the_others_do_not_rise_either(schedule: Schedule, total: int) -> None:
    values = [schedule.factor_at(step, total, max(total // 8, 1)) for step in range(total)]
    assert values[0] == 1 and all(a >= b for a, b in pairwise(values))


def test_a_schedule_of_the_biases_is_their_own() -> None:
    solver = Solver(lr=0.1, lr_bias=0.2, schedule=Dexp(factor=4, steps=2), schedule_bias=Constant())
    table = RateTable(small(), solver, steps_total=10, steps_per_epoch=5)
    found = dict(zip(small().params, table.at(9)[:, 0].tolist(), strict=True))
    assert found["fc1.weight"] == pytest.approx(0.025) and found["fc1.bias"] == pytest.approx(0.2)


def test_a_shift_moves_the_schedule_and_not_the_turns_of_layers() -> None:
    network = small(fc1={"type": "fc", "outputs": 4, "solver": {"update_every": 3}})
    solver = Solver(schedule=MultiStep(milestones=(1,)))
    table = RateTable(network, solver, steps_total=20, steps_per_epoch=5)
    for step in range(6):
        found, expected = table.at(step, 4), table.at(step + 4)
        np.testing.assert_array_equal(found[:, :3], expected[:, :3])
        np.testing.assert_array_equal(found[:, 3], table.at(step)[:, 3])


def test_what_lies_behind_the_end_of_the_training() -> None:
    schedule = MultiStep(milestones=(10, 20, 30.5), warmup=Warmup(epochs=25))
    assert schedule.beyond(20) == [
        "the warm-up lasts 25 epochs, the training 20",
        "the training ends at epoch 20, before milestones: 30.5",
    ]
    assert not schedule.beyond(31) and not Constant().beyond(1)


def test_milestones_must_rise() -> None:
    with pytest.raises(ConfigError, match=r"^milestones\[1\]: expected more than the one before \(30.0\), found 30.0$"):
        build(Schedule, {"type": "multistep", "milestones": [30, 30]})
