"""Sets the rates of the next step."""

from convnet.train.extension import EDITOR, Extension
from convnet.train.rates import RateTable
from convnet.train.trainer import Trainer


class SetRates(Extension):
    """After every step, and before the first: the schedule's rates for the update that comes."""

    name, priority = "rates", EDITOR

    def __init__(self, table: RateTable):
        super().__init__()
        self.table = table

    def start(self, trainer: Trainer) -> None:
        self(trainer)

    def __call__(self, trainer: Trainer) -> None:
        trainer.rates = self.table.at(trainer.step, trainer.shift)
