"""Saves the state of the run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from convnet import checkpoint
from convnet.checkpoint import Arrays
from convnet.errors import NotFinite, NotSaved, UserError, reason
from convnet.train.extension import Extension, Trigger
from convnet.train.trainer import Trainer


class SaveCheckpoint(Extension):
    """folder: RUN/checkpoints. config: its text. constants: what the state says of the run besides its counters.

    states: those of all extensions, by name.  left_out: images that cannot be read, and that steps of
    several ranks were done without.
    """

    name = "checkpoint"

    def __init__(
        self,
        folder: Path,
        *,
        due: Trigger,
        keep: int,
        config: str,
        constants: dict[str, Any],
        states: Callable[[], dict[str, Any]],
        left_out: Callable[[], list[str]],
        warn: Callable[[str], None],
    ):
        super().__init__(due)
        self.folder, self.keep = folder, keep
        self.config, self.constants, self.states = config, constants, states
        self.left_out, self.warn = left_out, warn

    def start(self, trainer: Trainer) -> None:
        if trainer.control.rank == 0:
            self._mark_best(trainer)  # a run that was killed may not have come to it
        # An owed evaluation was made up for; or a signal came before the first step.
        if trainer.unsaved and (trainer.step or trainer.stop):
            self(trainer)

    def __call__(self, trainer: Trainer) -> None:
        with trainer.paused():
            # All ranks take part, since each may hold a part; the first alone writes.
            arrays = trainer.engine.tensors(), trainer.engine.momentum(), trainer.engine.extras()
            left_out = self.left_out()
            if trainer.control.rank == 0:
                with trainer.control.busy():
                    self._write(trainer, left_out, *arrays)
        trainer.saved()

    def _write(
        self, trainer: Trainer, left_out: list[str], weights: Arrays, momentum: Arrays, extras: dict[str, Arrays]
    ) -> None:
        _check_finite(weights, trainer.step)
        state = {**self.constants, **trainer.state(), "left_out": left_out, "extensions": self.states()}
        try:
            checkpoint.save(self.folder, weights, momentum, self.config, state, extras)
            self._mark_best(trainer)
            checkpoint.prune(self.folder, self.keep)
        except OSError as error:
            raise NotSaved(f"saving step {trainer.step} failed: {reason(error)}; {self._last()}") from error

    def rescue(self, trainer: Trainer) -> None:
        if not (trainer.unsaved and trainer.whole and trainer.images):
            if checkpoint.listing(self.folder):
                self.warn(f"the run failed; {self._last()}")
            return
        try:
            self(trainer)
        except UserError as error:
            self.warn(str(error))
        else:
            self.warn(f"the run failed; step {trainer.step} is saved, --resume continues there")

    def _last(self) -> str:
        """What a run that cannot save goes back to."""
        found = checkpoint.listing(self.folder)
        return f"{found[-1]} is good, --resume continues there" if found else "there is no checkpoint yet"

    def _mark_best(self, trainer: Trainer) -> None:
        path = checkpoint.place(self.folder, trainer.best.get("step", -1))
        if path.is_dir() and path != checkpoint.best(self.folder):
            checkpoint.mark_best(self.folder, path)


def _check_finite(tensors: dict[str, np.ndarray], step: int) -> None:
    """An update can overflow before any loss shows it; such a network must not replace a good one."""
    bad = [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]
    if bad:
        raise NotFinite(f"step {step}: {', '.join(bad)} holds a NaN or infinity after the update; nothing was saved")
