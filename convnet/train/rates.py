"""Learning rate, momentum and weight decay of every parameter: a pure function of the step.

The update is cuda-convnet2's: v = momentum * v - lr * gradient - lr * weight_decay * w; w = w + v, the gradient being
the mean over the configured batch size, and over the steps of the update where a layer is not updated at each.
The rate stands inside v: when it changes, what v holds is not rescaled.
"""

import numpy as np

from convnet.config.schema import Solver
from convnet.graph.net import Network
from convnet.graph.update import period


class RateTable:
    """The rates of a network's parameters, in the order of `network.params`."""

    def __init__(self, network: Network, solver: Solver, *, steps_total: int, steps_per_epoch: int):
        self.solver, self.steps_total, self.steps_per_epoch = solver, max(steps_total, 1), steps_per_epoch
        parameters = [(node, *item) for node in network.nodes.values() for item in node.params.items()]
        rows = [
            solver.rates(getattr(node.layer, "solver", None), bias=_is_bias(name), decays=param.decays)
            for node, name, param in parameters
        ]
        self.base = np.array(rows, np.float64).reshape(-1, 3)  # columns lr, momentum, weight decay
        self.biases = np.array([_is_bias(name) for _, name, _ in parameters], bool)
        self.layers = [node.name for node, *_ in parameters]
        self.periods = np.array([period(node.layer) for node, *_ in parameters], np.int64)

    def factor(self, step: int, *, bias: bool = False) -> float:
        """What the schedule multiplies all rates, or those of biases, by at `step`, an update counted from 0."""
        schedule = (self.solver.schedule_bias if bias else None) or self.solver.schedule
        return schedule.factor_at(step, self.steps_total, self.steps_per_epoch)

    def at(self, step: int, shift: int = 0) -> np.ndarray:
        """float32 [parameters, 4] for the update `step`: lr, momentum, weight decay, share (see kernels/update).

        shift: how much further the schedule is; not the turn of layers that are not updated at each step.
        """
        now = step + shift
        lr = self.base[:, 0] * np.where(self.biases, self.factor(now, bias=True), self.factor(now))
        share = ((step + 1) % self.periods == 0) / self.periods
        return np.column_stack([lr, self.base[:, 1:], share]).astype(np.float32)

    def learning_rate(self, step: int) -> float:
        """The solver's own rate at `step`."""
        return self.solver.lr * self.factor(step)

    def learning_rate_of(self, layer: str, step: int) -> float:
        """The largest of a layer's parameters at `step`; 0 where it has none that learns."""
        rates = zip(self.layers, self.at(step)[:, 0].tolist(), strict=True)
        return max((lr for name, lr in rates if name == layer), default=0.0)


def _is_bias(name: str) -> bool:
    return name.endswith(".bias")


def trainable(network: Network, solver: Solver) -> tuple[str, ...]:
    """Parameters with a learning rate above 0; of the others no gradient is computed."""
    table = RateTable(network, solver, steps_total=1, steps_per_epoch=1)
    return tuple(name for name, (lr, *_) in zip(network.params, table.base, strict=True) if lr > 0)
