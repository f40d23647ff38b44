"""Gradients of a whole network against central differences of its loss, in float64.

Each parameter is moved along a random direction u: (L(w + h u) - L(w - h u)) / 2h is compared with the product of the
gradient and u.  Dropout masks do not change between the passes: they are a function of the step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convnet.graph.engine import Engine
from convnet.graph.net import Network
from kernels.backend import NumPy

TOLERANCE = 1e-5  # of the relative error: float64 leaves about 1e-8, a wrong gradient is off by far more
CHANGE = 1e-5  # of the loss, aimed at: larger ones meet its curvature and its kinks, smaller ones rounding
STEP_MOST = 1e-4
TINY = 1e-300


@dataclass(frozen=True)
class Check:
    """Of one parameter: the slope along the direction by the gradient and by differences.

    noise: of the differences, from the rounding of the loss.
    """

    name: str
    shape: tuple[int, ...]
    gradient: float
    difference: float
    noise: float

    @property
    def error(self) -> float:
        """Relative to the larger of the two."""
        return abs(self.gradient - self.difference) / max(abs(self.gradient), abs(self.difference), TINY)

    @property
    def right(self) -> bool:
        return self.error <= TOLERANCE or abs(self.gradient - self.difference) <= self.noise


class Checker:
    """A network with its initial weights, and one batch of random images and labels."""

    def __init__(self, network: Network, *, batch: int = 4, seed: int = 1, mean: Any = 0.0, std: Any = 1.0):
        options = {"batch_size": batch, "dtype": np.float64, "seed": seed, "mean": mean, "std": std}
        self.engine, self.batch = Engine(network, NumPy(), **options), batch
        self.rng = np.random.Generator(np.random.Philox(key=seed))
        self.engine.initialize()
        shape = network.data[0].shape
        pixels = self.rng.integers(0, 256, (batch, shape.height, shape.width, shape.channels), np.uint8)
        labels = self.rng.integers(0, network.outputs or 2, batch).astype(np.int32)
        self.engine.feed(pixels, np.zeros(batch, np.uint8), labels, step=0, offset=0)

    def run(self) -> list[Check]:
        """One check for every parameter."""
        self.engine.executor("first", self.batch).run()
        gradients = {name: array.copy() for name, array in self.engine.gradients.items()}
        return [self.check(name, gradient) for name, gradient in gradients.items()]

    def check(self, name: str, gradient: np.ndarray) -> Check:
        """Along a random direction that leans towards the gradient, so that the slope is not lost in rounding."""
        random, norm = self.rng.standard_normal(gradient.shape), np.linalg.norm(gradient)
        direction = random / np.linalg.norm(random) + (gradient / norm if norm else 0)
        slope = float((gradient * direction).sum())
        step = min(CHANGE / max(abs(slope), TINY), STEP_MOST)
        w = self.engine.parameters[name]
        start = w.copy()
        losses = []
        for sign in (1, -1):
            w[...] = start + sign * step * direction
            losses.append(self.loss())
        w[...] = start
        noise = 8 * np.finfo(np.float64).eps * abs(losses[0]) / step
        return Check(name, gradient.shape, slope, (losses[0] - losses[1]) / (2 * step), noise)

    def loss(self) -> float:
        """What the gradients are of: for each cost, its coefficient times the mean over the batch, summed."""
        costs = {node.name: getattr(node.layer, "coeff", 1.0) for node in self.engine.network.costs}
        executor, total = self.engine.executor("loss", self.batch), 0.0
        for step in executor.run_stepwise():
            if step.layer in costs and step.phase == "forward" and "y" in step.op.writes:
                total += costs[step.layer] * float(executor.array(step.arguments["y"])[0].mean())
        return total


def report(checks: Sequence[Check]) -> str:
    """A table, the worst in it marked."""
    width = max(len("parameter"), *(len(check.name) for check in checks))
    lines = [f"{'parameter':{width}}  {'shape':16}  {'gradient':>13}  {'difference':>13}  {'error':>8}"]
    for check in checks:
        shape = "x".join(map(str, check.shape))
        numbers = f"{check.gradient:13.6e}  {check.difference:13.6e}  {check.error:8.1e}"
        lines.append(f"{check.name:{width}}  {shape:16}  {numbers}{'' if check.right else '  WRONG'}")
    wrong = sum(not check.right for check in checks)
    lines.append(f"{wrong} of {len(checks)} wrong (relative error above {TOLERANCE:g})" if wrong else "all right")
    return "\n".join(lines)
