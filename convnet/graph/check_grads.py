"""Gradients of a whole network against central differences of its loss, in float64.

Each parameter is moved along a random direction u: (L(w + h u) - L(w - h u)) / 2h is compared with the product of the
gradient and u.  Dropout masks do not change between the passes: they are a function of the step.

A ReLU or a maximum bends the loss; between w - h u and w + h u there may be such kinks, and the more of them the larger
the network is. Only a small h passes between them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from convnet.graph.engine import Engine
from convnet.graph.net import Network
from kernels.backend import NumPy
from layers.options import ConfigError

TOLERANCE = 1e-5  # of the relative error: float64 leaves about 1e-8, a wrong gradient is off by far more
CHANGE = 1e-5  # of the loss, aimed at first: larger ones meet its curvature, smaller ones rounding
STEP_MOST = 1e-4
SHRINK = 10  # each next step is so much smaller: fewer kinks of ReLUs and maxima lie within it
DIRECTIONS = 3  # tried where a kink stays within the smallest step
TINY = 1e-300


@dataclass(frozen=True)
class Check:
    """Of one parameter: the slope along the direction by the gradient and by differences.

    noise: of the difference, from the rounding of the loss; a gradient of 0 is right where no more is left of it.
    jump: by how much the slope is another on either side of the weights; 0 where the loss is smooth.
    inexact: a layer above leaves out a part of its gradient, as its option `exact` tells it to.
    """

    name: str
    shape: tuple[int, ...]
    gradient: float
    difference: float
    noise: float
    jump: float = 0.0
    inexact: bool = False

    @property
    def gap(self) -> float:
        return abs(self.gradient - self.difference)

    @property
    def error(self) -> float:
        """Relative to the larger of the two."""
        return self.gap / max(abs(self.gradient), abs(self.difference), TINY)

    @property
    def right(self) -> bool:
        return self.error <= TOLERANCE or self.gap <= self.noise

    @property
    def kink(self) -> bool:
        """The weights lie on a kink that can explain the error: there, differences tell nothing of the gradient."""
        return not self.right and abs(self.jump) >= self.gap

    @property
    def wrong(self) -> bool:
        return not (self.right or self.kink or self.inexact)

    @property
    def verdict(self) -> str:
        return "" if self.right else "inexact" if self.inexact else "kink" if self.kink else "WRONG"


class Checker:
    """A network with its initial weights, and one batch of random images and labels."""

    def __init__(self, network: Network, *, batch: int = 4, seed: int = 1, mean: Any = 0.0, std: Any = 1.0):
        options = {"batch_size": batch, "dtype": np.float64, "seed": seed, "mean": mean, "std": std}
        self.engine, self.batch = Engine(network, NumPy(), **options), batch
        self.coefficients = {node.name: node.cost.coeff for node in network.costs}
        self.targets: dict[str, np.ndarray] = {}  # by cost
        if not self.engine.trainable:
            raise ConfigError("nothing to check: the coefficients of all costs are 0", ("layers",))
        self.rng = np.random.Generator(np.random.Philox(key=seed))
        self.engine.initialize()
        shape = network.data[0].shape
        pixels = self.rng.integers(0, 256, (batch, shape.height, shape.width, shape.channels), np.uint8)
        labels = self.rng.integers(0, network.outputs or 2, batch).astype(np.int32)
        self.engine.feed(pixels=pixels, labels=labels, step=0, offset=0)

    def run(self) -> list[Check]:
        """One check for every parameter."""
        self.engine.executor("first", self.batch).run()
        gradients = {name: array.copy() for name, array in self.engine.gradients.items()}
        inexact = _inexact(self.engine.network)
        return [replace(self.check(name, grad), inexact=name in inexact) for name, grad in gradients.items()]

    def check(self, name: str, gradient: np.ndarray) -> Check:
        """Along a random direction, or along others where a kink is met."""
        found = self._along(name, gradient, self._direction(gradient))
        for _ in range(DIRECTIONS - 1):
            if found.kink:
                found = self._along(name, gradient, self._direction(gradient))
        return found

    def _direction(self, gradient: np.ndarray) -> np.ndarray:
        """Random, and leaning towards the gradient, so that the slope is not lost in rounding."""
        random, norm = self.rng.standard_normal(gradient.shape), np.linalg.norm(gradient)
        return random / np.linalg.norm(random) + (gradient / norm if norm else 0)

    def _along(self, name: str, gradient: np.ndarray, direction: np.ndarray) -> Check:
        """Compared at steps that shrink until both agree, or rounding would hide an error."""
        w, slope = self.engine.parameters[name], float((gradient * direction).sum())
        start = w.copy()

        def loss(t: float) -> float:
            w[...] = start + t * direction
            return self.loss()

        # That of a loss near 0 is no smaller than that of 1: it may be log p of a p near 1.
        rounding = 8 * np.finfo(np.float64).eps * max(abs(loss(0)), sum(self.coefficients.values()))
        step = min(CHANGE / max(abs(slope), TINY), STEP_MOST)
        while True:
            found = Check(name, w.shape, slope, (loss(step) - loss(-step)) / (2 * step), rounding / step)
            if found.right or rounding * SHRINK / step > TOLERANCE * abs(slope):
                break
            step /= SHRINK
        found = found if found.right else _without_curvature(found, loss, step)
        w[...] = start
        return found

    def loss(self) -> float:
        """What the gradients are of: for each cost, its coefficient times the mean over the batch, summed.

        Targets are those of the first call: the gradients take them as constants, whatever they come from.
        """
        costs = self.coefficients
        executor, total, held = self.engine.executor("loss", self.batch), 0.0, None
        for step, following in zip_longest(executor.run_stepwise(), executor.plan.steps[1:]):
            if held is not None:
                held[0][...], held = held[1], None  # others may read it as it is now
            if step.layer in costs and step.phase == "forward" and "y" in step.op.writes:
                total += costs[step.layer] * float(executor.array(step.arguments["y"])[0].mean())
            if following is not None and "t" in following.arguments.keys() - set(following.op.writes):
                targets = executor.array(following.arguments["t"])
                held = targets, targets.copy()
                targets[...] = self.targets.setdefault(following.layer, held[1])
        return total


def _inexact(network: Network) -> set[str]:
    """Parameters below a layer that leaves out a part of its gradient."""
    below: set[str] = set()
    for node in reversed(network.nodes.values()):
        if node.name in below or not getattr(node.layer, "exact", True):
            below.update(node.sources)
    return {name for node in network.nodes.values() if node.name in below for name in node.uses}


def _without_curvature(found: Check, loss: Callable[[float], float], step: float) -> Check:
    """The difference without the part that falls with the square of the step, and the jump.

    Half the step has a quarter of that part; the rounding that it has doubles.
    """
    half = (loss(step / 2) - loss(-step / 2)) / step
    difference = (4 * half - found.difference) / 3
    return replace(found, difference=difference, noise=3 * found.noise, jump=_jump(loss, step))


def _jump(loss: Callable[[float], float], step: float) -> float:
    """The slope after 0 less the slope before it, without the part that is curvature, which halves with the step."""
    whole, half = ((loss(t) - 2 * loss(0) + loss(-t)) / t for t in (step, step / 2))
    return 2 * half - whole


def report(checks: Sequence[Check]) -> str:
    """A table, the worst in it marked."""
    width = max(len("parameter"), *(len(check.name) for check in checks))
    lines = [f"{'parameter':{width}}  {'shape':16}  {'gradient':>13}  {'difference':>13}  {'error':>8}"]
    for check in checks:
        shape = "x".join(map(str, check.shape))
        numbers = f"{check.gradient:13.6e}  {check.difference:13.6e}  {check.error:8.1e}"
        lines.append(f"{check.name:{width}}  {shape:16}  {numbers}  {check.verdict}".rstrip())
    verdicts = [check.verdict for check in checks]
    wrong, kinks, inexact = (verdicts.count(verdict) for verdict in ("WRONG", "kink", "inexact"))
    if kinks:
        lines.append(f"{kinks} of {len(checks)} not comparable: the initial weights lie on a kink of the loss")
    if inexact:
        lines.append(f"{inexact} of {len(checks)} inexact by design: they lie below a layer with exact: false")
    good = "none wrong" if kinks or inexact else "all right"
    lines.append(f"{wrong} of {len(checks)} wrong (relative error above {TOLERANCE:g})" if wrong else good)
    return "\n".join(lines)
