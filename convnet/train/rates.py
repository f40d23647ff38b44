"""Learning rate, momentum and weight decay of every parameter: a pure function of the step.

The update is cuda-convnet2's: v = momentum * v - lr * gradient - lr * weight_decay * w; w = w + v, the gradient being
the mean over the configured batch size.  The rate stands inside v: when it changes, what v holds is not rescaled.
"""

import numpy as np

from convnet.config.schema import Solver
from convnet.graph.net import Network


class RateTable:
    """The rates of a network's parameters, in the order of `network.params`."""

    def __init__(self, network: Network, solver: Solver, *, steps_total: int, steps_per_epoch: int):
        self.solver, self.steps_total, self.steps_per_epoch = solver, max(steps_total, 1), steps_per_epoch
        rows = [
            solver.rates(getattr(node.layer, "solver", None), bias=name.endswith(".bias"), decays=param.decays)
            for node in network.nodes.values()
            for name, param in node.params.items()
        ]
        self.base = np.array(rows, np.float64).reshape(-1, 3)  # columns lr, momentum, weight decay

    def factor(self, step: int) -> float:
        """What the schedule multiplies all rates by at `step`, an update counted from 0."""
        return self.solver.schedule.factor_at(step, self.steps_total, self.steps_per_epoch)

    def at(self, step: int) -> np.ndarray:
        """float32 [parameters, 3] for the update `step`."""
        return (self.base * (self.factor(step), 1.0, 1.0)).astype(np.float32)

    def learning_rate(self, step: int) -> float:
        """The solver's own rate at `step`."""
        return self.solver.lr * self.factor(step)


def trainable(network: Network, solver: Solver) -> tuple[str, ...]:
    """Parameters with a learning rate above 0; of the others no gradient is computed."""
    table = RateTable(network, solver, steps_total=1, steps_per_epoch=1)
    return tuple(name for name, (lr, *_) in zip(network.params, table.base, strict=True) if lr > 0)
