"""How a network is divided among ranks, and the programs that follow from it."""

from dataclasses import dataclass
from typing import Any

from convnet.graph.program import COUNTS, EVALUATED, Program, Values
from convnet.graph.update import Rule
from convnet.parallel.data import Exchange
from convnet.parallel.hybrid import Hybrid
from convnet.parallel.placement import Placement
from layers.options import ConfigError


@dataclass(frozen=True)
class Division:
    """How a network is divided, and the programs that follow: see convnet.graph.program.Undivided.

    scheme: of training; evaluation has one pass.
    """

    placement: Placement
    scheme: str = "A"

    def __post_init__(self) -> None:
        self.placement.check(self.scheme)

    def shared(self, exchange: Exchange, rule: Rule) -> set[str]:
        """The parameters of which each rank has the gradient of its own samples; ConfigError where they cannot be."""
        expected = "while no layer is divided among ranks"
        if exchange.sharded:
            raise ConfigError(f"sharded is possible only {expected}; expected replicated", ("parallel", "update"))
        if rule.clip is not None:
            raise ConfigError(f"the norm of all gradients is known only {expected}", ("solver", "clip_norm"))
        return self.placement.exchanged

    @property
    def joint(self) -> set[str]:
        return {node.name for node in self.placement.region}

    def training(self, values: Values, batch: int, total: int, distance: int, *, accumulate: bool = False) -> Program:
        record = self._record(values, batch, total, distance, self.scheme, training=True, accumulate=accumulate)
        return record.step(COUNTS, first=not accumulate, backward=True)

    def loss(self, values: Values, batch: int, total: int, distance: int) -> Program:
        return self._record(values, batch, total, distance, self.scheme, scored=True, training=True).step(COUNTS)

    def evaluation(self, values: Values, batch: int, total: int) -> Program:
        record = self._record(values, batch, total, 0, "A", scored=True, training=False)
        return record.step(EVALUATED)

    def _record(self, *arguments: Any, **options: Any) -> Hybrid:
        return Hybrid(self.placement, *arguments, **options)
