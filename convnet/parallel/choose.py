"""What is divided among ranks: the choices that a config leaves open, what each costs, and the one to take.

Each choice is planned as it would run, and its step list timed by the model of model.py. On GPUs, those that may be the
best are then run for a few steps, and the fastest is taken; all ranks measure together and take the same.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convnet.graph.engine import Engine
from convnet.graph.net import Network
from convnet.graph.steps import Step
from convnet.parallel.communicator import Communicator, Silent
from convnet.parallel.division import Division
from convnet.parallel.model import Links, Times, links, machine, predicted, size_of, starts
from convnet.parallel.passes import SCHEMES
from convnet.parallel.placement import SHARD, Placement, homes
from kernels.image import HEAD, MOST
from layers.base import LABELS
from layers.options import ConfigError

CLOSE = 1.3  # times the predicted best: what is worth a measurement
STEPS = 4, 12  # before and in a measurement
MakeEngine = Callable[..., Engine]  # of backend, communicator and division


@dataclass(frozen=True)
class Choice:
    """A way to divide a network; division: None where only samples are."""

    name: str
    division: Division | None


@dataclass(frozen=True)
class Prediction:
    """What the model says of a choice: bytes of all transfers of a step, of one rank, and times."""

    choice: Choice
    nbytes: int
    times: Times


def choices(network: Network, rank: int, size: int, fc: str, scheme: str) -> list[Choice]:
    """All that a config allows, whose options fc and scheme are; ConfigError where it allows nothing."""
    if size == 1:
        return [Choice("one rank", None)]
    found: list[Choice] = []
    if fc in ("data", "auto"):
        found.append(_choice("data", network, rank, size, "A", sharded=False))
    for name in SCHEMES if scheme == "auto" else (scheme,):
        if fc in ("model", "auto"):
            try:
                made = _choice(f"hybrid, scheme {name}", network, rank, size, name, sharded=True)
            except ConfigError:
                if scheme != "auto" or name == SCHEMES[0]:  # others are possible for less
                    raise
                continue
            if fc == "model" or (made.division and SHARD in made.division.placement.homes.values()):
                found.append(made)
    return found


def _choice(name: str, network: Network, rank: int, size: int, scheme: str, *, sharded: bool) -> Choice:
    placement = Placement(network, homes(network, size, sharded=sharded), rank, size)
    return Choice(name, Division(placement, scheme) if placement.divided else None)


def predict(found: Iterable[Choice], make: MakeEngine, planner: Any, between: Links) -> list[Prediction]:
    """What each choice costs by the model. make: an engine with a backend that plans alone, for rank 0 of many."""
    timed = machine(planner.arch).seconds
    predictions = []
    for choice in found:
        engine = make(planner, Silent(0, between.size), choice.division)
        steps = steps_of(engine)
        nbytes = sum(size_of(step) for step in steps if starts(step))
        predictions.append(Prediction(choice, nbytes, predicted(steps, between, timed)))
    return predictions


def steps_of(engine: Engine) -> list[Step]:
    """What an engine does in one training step."""
    return [step for program in engine.programs(engine.batch_size) for step in engine.plan(*program)[1].steps]


def best(found: Sequence[Choice], make: MakeEngine, planner: Any, backend: Any, communicator: Communicator) -> Choice:
    """The choice to take; on GPUs by measurement where the model sees no clear one."""
    if len(found) == 1:
        return found[0]
    between = links(planner.arch, communicator)
    predictions = sorted(predict(found, make, planner, between), key=lambda p: p.times.total)
    close = [p.choice for p in predictions if p.times.total <= CLOSE * predictions[0].times.total]
    if len(close) == 1 or backend.name != "cuda":
        return close[0]
    seconds = [measure(make(backend, communicator, choice.division)) for choice in close]
    return close[int(np.argmin(_added(np.array(seconds), backend, communicator)))]


def measure(engine: Engine) -> float:
    """Seconds of a training step on random images, as this rank sees it; all ranks measure together."""
    inputs = noise(engine)
    rates = np.zeros((len(engine.parameters), 4), np.float32)
    started = 0.0
    for step in range(sum(STEPS)):
        if step == STEPS[0]:
            engine.backend.synchronize()
            started = time.perf_counter()
        engine.train(**inputs, step=step, rates=rates, total=engine.batch_size)
    engine.backend.synchronize()
    return (time.perf_counter() - started) / STEPS[1]


def noise(engine: Engine) -> dict[str, np.ndarray]:
    """Random images and labels: this rank's part of a whole batch of training.

    Images in cells are as large as fits into these, and square, so that resizing takes about its usual time.
    """
    inputs, rng = engine.blank(), np.random.default_rng(0)
    name = "cells" if "cells" in inputs else "pixels"
    images = inputs[name] = rng.integers(0, 256, inputs[name].shape, np.uint8)
    if name == "cells":
        shape = engine.network.data[0].shape
        side = math.isqrt((images.shape[1] - HEAD) // shape.channels)
        images[:, :8].view(np.int32)[...] = min(side, MOST * shape.height), min(side, MOST * shape.width)
    inputs[LABELS] = rng.integers(0, max(engine.network.outputs, 1), inputs[LABELS].shape, np.int32)
    return inputs


def _added(values: np.ndarray, backend: Any, communicator: Communicator) -> np.ndarray:
    """Their sums over the ranks: the same everywhere."""
    array = backend.zeros(values.size, np.float64)
    backend.upload(array, values.astype(np.float64))
    communicator.move("all_reduce", array, array)
    summed: np.ndarray = backend.download(array)
    return summed


def rows(predictions: Sequence[Prediction]) -> list[tuple[str, ...]]:
    """A table for people: of each choice the bytes and times of a step; an asterisk at the fastest."""
    found: list[tuple[str, ...]] = [("divided", "MB moved", "compute ms", "exchange ms", "exposed ms", "step ms", "")]
    fastest = min(predictions, key=lambda p: p.times.total)
    for p in predictions:
        times = p.times.compute, p.times.exchange, p.times.exposed, p.times.total
        numbers = (f"{1e3 * seconds:.3f}" for seconds in times)
        found.append((p.choice.name, f"{p.nbytes / 1e6:.1f}", *numbers, "*" if p is fastest else " "))
    return found
