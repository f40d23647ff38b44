"""What hangs on the training loop: extensions, the order in which they run, and when.

A WRITER makes results (the watch, the evaluation), an EDITOR changes what the next step does (the learning rate),
a READER uses what there is (the log, the checkpoint).  Writers run first, so that a result is made before it is
printed, and printed before the state that counts it is saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convnet.train.trainer import Trainer

Trigger = Callable[["Trainer"], bool]

WRITER, EDITOR, READER = 300, 200, 100


class Extension:
    """Base of all extensions. `name` is the key of its state in a checkpoint; `due` says after which steps it runs."""

    name = ""
    priority = READER

    def __init__(self, due: Trigger = lambda trainer: True):
        self.due = due

    def start(self, trainer: Trainer) -> None:
        """Before the first step, of a fresh or a resumed run."""

    def __call__(self, trainer: Trainer) -> None:
        """After a step, where due."""

    def rescue(self, trainer: Trainer) -> None:
        """After a failure that left the state whole: keep what was done since the last checkpoint."""

    def finish(self, trainer: Trainer) -> None:
        """After the last step, also when training failed."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: numbers, strings, lists and dicts."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned."""


def every_steps(count: int) -> Trigger:
    """After every `count` steps, and after the last step of the run."""
    return lambda trainer: trainer.step % count == 0 or trainer.finished


def every_epochs(count: int) -> Trigger:
    """At the end of every `count` epochs, and after the last step of the run."""
    return lambda trainer: (trainer.position == 0 and trainer.epoch % count == 0) or trainer.finished


def every_minutes(count: float) -> Trigger:
    """When the last checkpoint is `count` minutes of training old."""
    return lambda trainer: trainer.unsaved_seconds >= 60 * count


def any_of(*triggers: Trigger) -> Trigger:
    """When one of the triggers is."""
    return lambda trainer: any(trigger(trainer) for trigger in triggers)


def improved(trainer: Trainer) -> bool:
    """When the evaluation after this step was the best so far."""
    return trainer.best.get("step") == trainer.step


def stopping(trainer: Trainer) -> bool:
    """When a signal ends the run before its last step."""
    return trainer.stop and not trainer.finished
