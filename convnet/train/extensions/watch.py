"""Brings results from the device, and stops a run whose loss is no longer a number.

The device itself updates nothing once a loss is not finite, so that looking late loses only time.
"""

import numpy as np

from convnet.errors import NotFinite
from convnet.train.extension import WRITER, Extension, Trigger
from convnet.train.rates import RateTable
from convnet.train.trainer import Trainer

UNTRAINED = "no update has been made yet: look at how the weights begin (init), and at data.mean and data.std"


class Watch(Extension):
    """Must be due whenever something reads the results, and at least once while the device keeps them."""

    name, priority = "watch", WRITER

    def __init__(self, due: Trigger, table: RateTable):
        super().__init__(due)
        self.table = table

    def __call__(self, trainer: Trainer) -> None:
        begin, watched = trainer.collected, trainer.engine.network.watched
        losses = trainer.collect()[list(watched.values())]
        bad, costs = np.nonzero(~np.isfinite(losses.T))
        if len(bad):
            step, cost = int(bad[0]), int(costs[0])
            of = f" of '{list(watched)[cost]}'" if len(trainer.engine.network.costs) > 1 else ""
            raise NotFinite(self.explain(trainer, begin + step, f"{of} is {float(losses[cost, step])}"))

    def rescue(self, trainer: Trainer) -> None:
        if trainer.whole:
            self(trainer)

    def explain(self, trainer: Trainer, step: int, loss: str) -> str:
        """step: the update, counted from 0, whose forward pass gave `loss`."""
        *_, last = trainer.engine.parts(trainer.last_total)
        everywhere = trainer.control.exchange(trainer.engine.first_nonfinite(*last))
        order = list(trainer.engine.network.nodes)  # what one rank has found may have come from another
        found = min(filter(None, everywhere), key=lambda told: order.index(told[0]), default=None)
        where = f"; the first NaN or infinity is in '{found[1]}' of layer '{found[0]}'" if found else ""
        advice = self._advice(found[0] if found else "", step + trainer.shift) if step else UNTRAINED
        epoch = (step + trainer.shift) // trainer.steps_per_epoch + 1
        return f"step {step + 1} (epoch {epoch}): the loss{loss}{where}; {advice}"

    def _advice(self, layer: str, step: int) -> str:
        own = self.table.learning_rate_of(layer, step)
        rate = f"that of '{layer}', is {own:g}" if own else f"is {self.table.learning_rate(step):g}"
        return f"the learning rate{',' * bool(own)} {rate}; a lower one may help"
