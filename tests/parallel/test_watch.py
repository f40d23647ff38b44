"""Whom rank 0 blames when a job does not get on; the clock is the test's."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from convnet.parallel import watch
from convnet.parallel.watch import Health, Pulse, place

EXCHANGE, UPDATE = "convnet/parallel/communicator.py:1 in gather", "convnet/train/trainer.py:1 in update"


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    return now


def beat(done, at=EXCHANGE, busy=0, longest=0.0):
    return {"kind": "beat", "done": done, "at": at, "busy": busy, "longest": longest}


def after(clock, health, seconds, *beats):
    """The fault found when the ranks have said the same for so many seconds."""
    for _ in range(seconds):
        clock[0] += 1.0
        for rank, found in enumerate(beats):
            if found:
                health.note(rank, found)
        if fault := health.fault():
            return fault
    return None


def test_a_rank_of_which_nothing_is_heard(clock):
    health = Health(3)
    assert after(clock, health, 10, beat(0), None, beat(0)) is None
    rank, text = after(clock, health, 1, beat(0), None, beat(0))
    assert rank == 1 and text.startswith("no sign of life for 11 s")


def test_nobody_is_blamed_after_this_process_was_stopped_itself(clock):
    health = Health(2)
    clock[0] += 60
    assert health.fault() is None
    assert after(clock, health, 5, beat(0), beat(0)) is None


@pytest.mark.parametrize(
    "beats, blamed",
    [
        ((beat(4), beat(4, UPDATE), beat(4)), 1),  # it is not in an exchange
        ((beat(5, UPDATE), beat(5), beat(4)), 2),  # it is behind
        ((beat(4), beat(4), beat(4)), 0),
    ],
)
def test_no_rank_gets_on(clock, beats, blamed):
    health = Health(3)
    health.watch(8.0)
    assert after(clock, health, 8, *beats) is None
    rank, text = after(clock, health, 2, *beats)
    assert rank == blamed and f"hangs in {beats[blamed]['at']}: no rank has got on for" in text


def test_progress_and_what_takes_long_are_no_hang(clock):
    health = Health(2)
    health.watch(8.0)
    assert after(clock, health, 100, beat(0), beat(0, busy=1)) is None
    for step in range(5):
        assert after(clock, health, 8, beat(step), beat(step)) is None
    assert after(clock, health, 28, beat(5, longest=10.0), beat(5)) is None
    assert after(clock, health, 2, beat(5, longest=10.0), beat(5))


def test_what_takes_long_takes_no_more_than_ten_minutes(clock):
    health = Health(2)
    health.watch(8.0)
    assert after(clock, health, 607, beat(0), beat(0, busy=1)) is None
    assert after(clock, health, 3, beat(0), beat(0, busy=1))


def test_a_standstill_takes_an_hour_before_the_first_step_and_after_the_last(clock):
    health = Health(2)
    assert after(clock, health, 3500, beat(0), beat(0)) is None
    health.moved()
    assert after(clock, health, 3500, beat(0), beat(0)) is None
    health.watch(8.0)
    health.watch(0)
    assert after(clock, health, 3600, beat(0), beat(0)) is None
    assert after(clock, health, 2, beat(0), beat(0))


def test_a_pulse_knows_the_longest_step_but_the_first_and_without_what_takes_long(clock):
    pulse = Pulse()
    for seconds, waiting in ((50.0, 0.0), (2.0, 0.0), (3.0, 9.0), (1.0, 0.0)):
        clock[0] += seconds
        with pulse.occupied(), pulse.occupied():
            assert pulse.beat()["busy"] == 2
            clock[0] += waiting
        pulse.step()
    assert (pulse.done, pulse.longest, pulse.beat()["busy"]) == (4, 3.0, 0)


def test_the_device_may_hang_where_files_may_not(clock):
    pulse = Pulse()
    for seconds in (50.0, 3.0):  # of the device, among as many for images
        with pulse.occupied():
            clock[0] += seconds
            with pulse.waiting():
                assert pulse.beat()["busy"] == 0
                clock[0] += seconds
            assert pulse.beat()["busy"] == 1
        with pulse.waiting():
            clock[0] += 1.0
        pulse.step()
    assert (pulse.longest, pulse.spent) == (4.0, 0.0)


def test_where_the_main_thread_is():
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(place).result()
    assert found.startswith("tests/parallel/test_watch.py:") and found.endswith("in test_where_the_main_thread_is")
