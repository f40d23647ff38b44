"""`convnet bench scaling`: a training step on more and more ranks, and what the transfers between them cost.

Weak scaling keeps the images of each rank, strong scaling those of all. Each way to divide the network that the config
allows is measured (`parallel=auto`: all that are possible). The time line of convnet/parallel/model.py, from measured
steps and links, predicts the same, and larger worlds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from convnet import session
from convnet.bench.measure import Measured, all_reduces, measure
from convnet.bench.report import Findings, Larger, Row
from convnet.config import Config
from convnet.device import describe
from convnet.errors import UserError
from convnet.graph.engine import Engine
from convnet.graph.net import Network
from convnet.parallel import choose
from convnet.parallel.communicator import Communicator, Mpi, Silent, Solo
from convnet.parallel.control import Control
from convnet.parallel.model import Links, simulate
from convnet.parallel.nccl import Nccl
from kernels.backend import nccl


@dataclass(frozen=True)
class Asked:
    """What is to be measured. counts: of ranks. batches: images of each rank, in turn. whole: of all, which do not
    become more with the ranks. if_step: seconds that a step is supposed to take by itself. larger: worlds to predict;
    a bandwidth of 0 within their machines is that measured here.
    """

    counts: Sequence[int]
    batches: Sequence[int]
    whole: int
    if_step: float | None = None
    larger: Sequence[Links] = ()


class Bench:
    """One rank of the measurement; all ranks go through it together."""

    def __init__(self, config: Config, asked: Asked, backend: Any, control: Control):
        if max(asked.counts) > control.size:
            raise UserError(f"expected at most {control.size} ranks, as many as there are, found {max(asked.counts)}")
        self.config, self.asked, self.backend, self.control = config, asked, backend, control
        self.found = Findings(f"{max(asked.counts)} x {describe(backend)}")
        self.links = Links()

    def run(self) -> Findings:
        """All measurements, then the predictions."""
        with self.control.busy():
            worlds = {count: self._communicator(count) for count in sorted(set(self.asked.counts))}
            for count, communicator in worlds.items():
                if count > 1:
                    self._measure_links(count, communicator)
            for scaling, count, images in self._cases():
                self._measure(scaling, count, images, worlds[count])
            _efficiencies(self.found.rows)
            for links in self.asked.larger:
                self._predict(links)
            self.control.barrier()
        return self.found

    def _cases(self) -> Iterator[tuple[str, int, int]]:
        for batch in self.asked.batches:
            yield from (("weak", count, batch * count) for count in self.asked.counts)
        yield from (("strong", count, self.asked.whole) for count in self.asked.counts)

    def _communicator(self, count: int) -> Communicator | None:
        """Of the first ranks; None at others."""
        mine = self.control.rank < count
        if count == 1:
            return Solo() if mine else None
        if self.backend.name == "cuda":
            key = self.control.broadcast(nccl().get_unique_id() if self.control.rank == 0 else b"")
            return Nccl(self.control.rank, count, self.backend, lambda own: key) if mine else None
        from mpi4py import MPI

        part = MPI.COMM_WORLD.Split(0 if mine else MPI.UNDEFINED, self.control.rank)
        return Mpi(part) if mine else None

    def _measure_links(self, count: int, communicator: Communicator | None) -> None:
        if communicator:
            found = self.found.buses[count] = all_reduces(self.backend, communicator)
            self.links = Links(gpus=count).fitted(found)
        self.control.barrier()

    def _measure(self, scaling: str, count: int, images: int, communicator: Communicator | None) -> None:
        if communicator:
            for divided, engine in self._engines(images, communicator):
                measured = measure(engine, silent=count == 1)
                self.found.rows.append(self._row(scaling, divided, engine, measured))
        self.control.barrier()

    def _engines(self, images: int, communicator: Communicator) -> Iterator[tuple[str, Engine]]:
        """One for each way to divide the network, with its name; images: of a batch."""
        config, network = self._at(images)
        make = session.timed_maker(config, network, self.backend)
        for choice in session.divisions(config, network, communicator):
            yield choice.name, make(self.backend, communicator, choice.division)

    def _row(self, scaling: str, divided: str, engine: Engine, measured: Measured) -> Row:
        ranks, supposed = engine.communicator.size, None
        steps, links = choose.steps_of(engine), replace(self.links, gpus=ranks)
        if self.asked.if_step is not None and ranks > 1:
            factor = self.asked.if_step / measured.silent
            supposed = simulate(steps, [factor * seconds for seconds in measured.steps], links).exposed
        predicted = simulate(steps, measured.steps, links).total
        return Row(scaling, divided, ranks, engine.batch_size, measured, predicted, supposed)

    def _at(self, images: int) -> tuple[Config, Network]:
        """The config at another batch, and its network."""
        train = replace(self.config.train, batch_size=images, accumulate=1)
        config = replace(self.config, train=train, marks=self.config.marks)
        return config, session.make_network(config)

    def _predict(self, links: Links) -> None:
        """Of the first rank of a larger world: its steps run here, and the transfers are those of the model."""
        if not links.bandwidth:
            links = replace(self.links, nodes=links.nodes, gpus=links.gpus, between=links.between)
        for batch in self.asked.batches if self.control.rank == 0 else ():
            alone = measure(next(self._engines(batch, Solo()))[1], silent=True)
            for divided, engine in self._engines(batch * links.size, Silent(0, links.size)):
                measured = measure(engine, silent=True)
                times = simulate(choose.steps_of(engine), measured.steps, links)
                efficiency = alone.total / times.total
                self.found.larger.append(Larger(links, divided, engine.batch_size, times, efficiency))


def _efficiencies(rows: Sequence[Row]) -> None:
    """Of each row, by the speed of the one with one rank."""
    for row in rows:
        one = [
            other
            for other in rows
            if other.ranks == 1
            and other.scaling == row.scaling
            and other.images * (row.ranks if row.scaling == "weak" else 1) == row.images
        ]
        row.efficiency = row.speed / (row.ranks * one[0].speed) if one else None
