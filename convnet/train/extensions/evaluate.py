"""Evaluates the network in the course of training, and knows which evaluation was the best."""

import math
from collections.abc import Callable
from typing import Any

from convnet.evaluate import Evaluation
from convnet.train.extension import WRITER, Extension, Trigger
from convnet.train.trainer import Trainer


class Evaluate(Extension):
    """evaluate: runs over the validation set; returns None when a signal cut it short. Owed until it is done.

    Runs after the watch: an evaluation of a network that broke in between would be a good one's.
    """

    name, priority = "evaluate", WRITER

    def __init__(self, evaluate: Callable[[], Evaluation | None], due: Trigger):
        super().__init__(due)
        self.evaluate, self.owed = evaluate, False

    def start(self, trainer: Trainer) -> None:
        if self.owed:
            self(trainer)

    def __call__(self, trainer: Trainer) -> None:
        self.owed = trainer.unsaved = True
        with trainer.paused():
            found = self.evaluate()
        self.owed = found is None
        if found is None:
            trainer.stop = True
            return
        trainer.rows.append({"event": "eval", "step": trainer.step, "epoch": trainer.epochs_done, **found.row()})
        key, sign = ("top1_accuracy", 1) if found.confusion is not None else ("loss", -1)
        # The first of equal ones stays the best; a comparison with NaN is false.
        if sign * found.results[key] > sign * trainer.best.get(key, -sign * math.inf):
            trainer.best = {"step": trainer.step, "epoch": trainer.epochs_done, key: found.results[key]}

    def state(self) -> dict[str, Any]:
        return {"owed": self.owed}

    def load(self, state: dict[str, Any]) -> None:
        self.owed = state["owed"]
