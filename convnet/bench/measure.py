"""Times of what a training step consists of: as it runs, without its transfers, of these alone, and step by step."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from convnet.graph.engine import Engine
from convnet.graph.executor import Executor
from convnet.graph.plan import ProgramPlan
from convnet.parallel.choose import noise
from convnet.parallel.communicator import Communicator, Silent
from convnet.parallel.model import moves
from kernels.backend import cupy

WARM, ROUNDS = 4, 30  # runs before, and in, a measurement
PASSES = 5  # of a measurement step by step


@dataclass(frozen=True)
class Measured:
    """Seconds of one training step at this rank: as it is; with transfers that move nothing; the transfers alone.

    steps: of each step of its lists, together as long as the one without transfers.
    """

    total: float
    silent: float
    exchange: float
    steps: Sequence[float]

    @property
    def exposed(self) -> float:
        """What the transfers make it longer."""
        return max(self.total - self.silent, 0.0)


def seconds_of(backend: Any, run: Callable[[], object], warm: int = WARM, rounds: int = ROUNDS) -> float:
    """The median over rounds; on a GPU by its own clock, with nothing waited for between them."""
    for _ in range(warm):
        run()
    backend.synchronize()
    if backend.name != "cuda":
        return median(_host_seconds(run) for _ in range(rounds))
    marks = [_mark(backend)]
    for _ in range(rounds):
        run()
        marks.append(_mark(backend))
    return median(_between(marks))


def _host_seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _mark(backend: Any) -> Any:
    """An event on a GPU's stream."""
    event = cupy().cuda.Event()
    event.record(backend.stream)
    return event


def _between(marks: Sequence[Any]) -> list[float]:
    marks[-1].synchronize()
    return [cupy().cuda.get_elapsed_time(a, b) / 1e3 for a, b in itertools.pairwise(marks)]


def measure(engine: Engine, silent: bool = False) -> Measured:
    """A step of an engine's full batch, on random images; all ranks of its communicator measure together.

    silent: its communicator moves nothing anyway.
    """
    prepare(engine)
    programs = engine.programs(engine.batch_size)
    plans = [engine.plan(*program)[1] for program in programs]
    quiet = [engine.bound(plan, Silent(engine.communicator.rank, engine.communicator.size)) for plan in plans]
    without = seconds_of(engine.backend, lambda: _run(quiet))
    steps = _scaled(step_seconds(engine.backend, quiet), without)
    if silent:
        return Measured(without, without, 0.0, steps)
    loud = [engine.executor(*program) for program in programs]
    alone = [engine.bound(_transfers(plan), engine.communicator) for plan in plans]
    total = seconds_of(engine.backend, lambda: _run(loud))
    return Measured(total, without, seconds_of(engine.backend, lambda: _run(alone)), steps)


def prepare(engine: Engine) -> None:
    """Inputs and weights that make ordinary numbers, and everything compiled."""
    inputs, rates = noise(engine), np.zeros((len(engine.parameters), 4), np.float32)
    engine.initialize()
    engine.train(**inputs, step=0, rates=rates, total=engine.batch_size)


def step_seconds(backend: Any, executors: Sequence[Executor]) -> list[float]:
    """Of each step of the lists, one after the other: the medians over some passes."""
    passes = [_pass(backend, executors) for _ in range(PASSES)]
    return [median(times) for times in zip(*passes, strict=True)]


def _pass(backend: Any, executors: Sequence[Executor]) -> list[float]:
    if backend.name == "cuda":
        marks = [_mark(backend), *(_mark(backend) for executor in executors for _ in executor.run_stepwise())]
        return _between(marks)
    times = [time.perf_counter(), *(time.perf_counter() for executor in executors for _ in executor.run_stepwise())]
    return [b - a for a, b in itertools.pairwise(times)]


def _scaled(times: Sequence[float], total: float) -> list[float]:
    """With the same sum as the whole: single steps are started with gaps between, which a replayed list has not."""
    factor = total / max(sum(times), 1e-12)
    return [factor * seconds for seconds in times]


def _transfers(plan: ProgramPlan) -> ProgramPlan:
    """A plan with its transfers alone."""
    chosen = [i for i, step in enumerate(plan.steps) if moves(step)]
    return replace(plan, steps=[plan.steps[i] for i in chosen], choices=[plan.choices[i] for i in chosen])


def _run(executors: Sequence[Executor]) -> None:
    for executor in executors:
        executor.run()


SIZES = tuple(int(megabytes * 1e6) for megabytes in (0.004, 0.25, 1, 8, 64, 128, 244))


def all_reduces(backend: Any, communicator: Communicator, sizes: Sequence[int] = SIZES) -> dict[int, float]:
    """Seconds of all-reduces of float32 arrays of so many bytes, by size; all ranks measure together."""
    source, target = (backend.zeros(max(sizes) // 4, np.float32) for _ in range(2))
    found = {}
    for size in sizes:
        start, wait = communicator.bind("all_reduce", source[: size // 4], target[: size // 4])
        found[size] = seconds_of(backend, _both(start, wait), rounds=ROUNDS if size < 8e6 else ROUNDS // 3)
    return found


def _both(start: Callable[[], object], wait: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        start()
        wait()

    return run
