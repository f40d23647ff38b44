"""The progress bar of training, on a terminal."""

from typing import Any

from convnet.console import Console
from convnet.train.extension import Extension
from convnet.train.trainer import Trainer


class Progress(Extension):
    """Counts every step; tqdm estimates the time left."""

    name = "progress"

    def __init__(self, console: Console):
        super().__init__()
        self.console = console
        self.bar: Any = None

    def start(self, trainer: Trainer) -> None:
        self.bar = self.console.bar(total=trainer.steps_total, initial=trainer.step, unit="step", desc="train")

    def __call__(self, trainer: Trainer) -> None:
        self.bar.update()

    def finish(self, trainer: Trainer) -> None:
        if self.bar is not None:
            self.bar.close()
