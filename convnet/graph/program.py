"""Which steps a run consists of: forward and backward of a network at one batch size."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np

from convnet.graph.feed import Feed
from convnet.graph.net import Network, Node
from convnet.graph.steps import Recorder, Step, Value
from kernels import cost
from layers.base import LABELS

RING = 1024  # steps whose results are kept on the device until the log reads them
COUNTS, EVALUATED = "counts of", "evaluated counts of"  # what a cost has counted since the start, before its name


@dataclass(frozen=True)
class Program:
    """A step list and the values it leaves: per-sample results [R, 1, 1, N] of each cost and, of the main one, the
    probabilities of its classes [K, 1, 1, N] where it knows some."""

    steps: list[Step]
    results: tuple[Value, ...] = ()
    probabilities: Value | None = None

    @property
    def outputs(self) -> tuple[Value, ...]:
        return (*self.results, self.probabilities) if self.probabilities else self.results


@dataclass
class Values:
    """The persistent values that programs share, by full name; `flat` holds those of the whole network.

    A parameter that several layers use stands under the names of all. feeds: of training, and of evaluation.
    """

    dtype: np.dtype
    nominal_batch: int
    parameters: Mapping[str, Value]
    gradients: Mapping[str, Value]  # of trainable parameters only
    states: Mapping[str, Value]
    flat: Mapping[str, Value]
    ranks: int = 1
    feeds: tuple[Feed, Feed] = (Feed(), Feed())


@dataclass(frozen=True)
class Undivided:
    """The programs of ranks each of which computes the whole network for its own samples.

    batch, total: samples of this rank, and of all. distance: between the first samples of neighbouring ranks. joint:
    layers that ranks compute together.
    """

    network: Network
    joint: Set[str] = frozenset()

    def training(self, values: Values, batch: int, total: int, distance: int, *, accumulate: bool = False) -> Program:
        """Forward and backward; gradients are added to what is there if `accumulate`."""
        record = Record(self.network, values, batch, total, training=True, accumulate=accumulate)
        program = record.forward()
        record.report(first=not accumulate)
        record.count(COUNTS)
        record.backward()
        return program

    def loss(self, values: Values, batch: int, total: int, distance: int) -> Program:
        """The forward pass of training, alone."""
        return Record(self.network, values, batch, total, training=True).forward()

    def evaluation(self, values: Values, batch: int, total: int) -> Program:
        """The forward pass of evaluation."""
        record = Record(self.network, values, batch, batch, training=False)
        program = record.forward()
        record.count(EVALUATED)
        return program


class Record:
    """Builds one program. nodes: those that some cost depends on."""

    def __init__(
        self, network: Network, values: Values, batch: int, total: int, *, training: bool, accumulate: bool = False
    ):
        self.network, self.values, self.batch = network, values, batch
        self.nodes, self.layouts = _feeding_costs(network), network.layouts()
        self.recorder = Recorder(
            dtype=values.dtype,
            training=training,
            nominal_batch=values.nominal_batch,
            ranks=values.ranks,
            total=total,
            parameters=values.parameters,
            gradients=values.gradients,
            states=values.states,
            inputs={**values.flat, **values.feeds[not training].values(network.data[0].shape, batch, values.dtype)},
            accumulate=accumulate,
        )
        self.outputs: dict[str, Value] = {LABELS: self.recorder.inputs[LABELS]}
        self.output_gradients: dict[str, Value] = {}

    def _map(self, node: Node, name: str) -> Value:
        """A value with the shape and layout of a node's output."""
        extent = (node.shape.channels, node.shape.height, node.shape.width, self.batch)
        return Value(name, extent, self.values.dtype, self.layouts[node.name])

    def forward(self) -> Program:
        for node in self.nodes:
            y = self.outputs[node.name] = self._map(node, node.name)
            node.layer.forward(self.recorder.at(node.name, "forward"), self._xs(node), y)
        main = self.network.main
        probabilities = main.cost.probabilities(self.recorder.at(main.name, "forward"), self._xs(main))
        results = tuple(self.outputs[node.name] for node in self.network.costs)
        return Program(self.recorder.steps, results, probabilities if self.network.classifier else None)

    def report(self, *, first: bool) -> None:
        """The sums of all results to the history, cost by cost."""
        flat, offset = self.values.flat, 0
        kept = {name: flat[name] for name in ("clock", "history", "healthy")}
        for node in self.network.costs:
            rows = len(node.results)
            geometry = cost.Report(self.batch, RING, rows, offset, first, watched=node.cost.coeff > 0)
            self.recorder.at(node.name, "forward")(cost.REPORT, geometry, y=self.outputs[node.name], **kept)
            offset += rows

    def count(self, kind: str) -> None:
        """What costs count of each class, added to what they have counted so far."""
        for node in self.network.costs:
            if node.counted:
                counts = self.values.flat[f"{kind} {node.name}"]
                node.cost.count(self.recorder.at(node.name, "forward"), self._xs(node), counts)

    def backward(self) -> None:
        need = self.network.needing_gradient(self.values.gradients)
        for node in reversed(self.nodes):
            dy = self.output_gradients.get(node.name)
            if node.name in need and (dy is not None or node.layer.is_cost):
                dxs = [self.gradient(name) if name in need else None for name in node.sources]
                dxs += [None] * (len(node.inputs) - len(dxs))
                emit = self.recorder.at(node.name, "backward")
                node.layer.backward(emit, self._xs(node), self.outputs[node.name], dy, dxs)

    def _xs(self, node: Node) -> list[Value]:
        return [self.outputs[name] for name in node.inputs]

    def gradient(self, name: str) -> Value:
        """That of the map of a node."""
        if name not in self.output_gradients:
            self.output_gradients[name] = self._map(self.network[name], f"d {name}")
        return self.output_gradients[name]


def _feeding_costs(network: Network) -> list[Node]:
    """Nodes that some cost depends on, in order."""
    needed: set[str] = set()
    for node in reversed(network.nodes.values()):
        if node.layer.is_cost or node.name in needed:
            needed |= {node.name, *node.inputs}
    return [node for node in network.nodes.values() if node.name in needed]
