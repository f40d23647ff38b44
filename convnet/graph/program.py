"""Which steps a run consists of: forward, backward and update of a network at one batch size."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convnet.graph.net import LABELS, Network, Node
from convnet.graph.steps import Recorder, Step, Value
from kernels import cost, update
from layers.base import Shape

RING = 1024  # steps whose results are kept on the device until the log reads them
RESULTS = 3  # per-sample results of a cost: negative log likelihood, top-1 error, top-k error


def history_of(name: str) -> str:
    """The array that holds the results of the cost `name` in the last steps, [RESULTS, RING]."""
    return f"history {name}"


@dataclass(frozen=True)
class Program:
    """A step list and the values it leaves: of the first cost, per-sample results [3, 1, 1, N] and, where it makes
    them, class probabilities [K, 1, 1, N]."""

    steps: list[Step]
    outputs: tuple[Value, ...] = ()


@dataclass
class Values:
    """The persistent values that programs share, by full name; `flat` holds those of the whole network."""

    dtype: np.dtype
    nominal_batch: int
    parameters: Mapping[str, Value]
    gradients: Mapping[str, Value]  # of trainable parameters only
    states: Mapping[str, Value]
    flat: Mapping[str, Value]


def training(network: Network, values: Values, batch: int, *, accumulate: bool = False) -> Program:
    """Forward and backward; gradients are added to what is there if `accumulate`."""
    record = _Record(network, values, batch, training=True, accumulate=accumulate)
    program = record.forward()
    record.report(first=not accumulate)
    record.backward()
    return program


def loss(network: Network, values: Values, batch: int) -> Program:
    """The forward pass of training, alone."""
    return _Record(network, values, batch, training=True).forward()


def evaluation(network: Network, values: Values, batch: int) -> Program:
    """The forward pass of evaluation."""
    return _Record(network, values, batch, training=False).forward()


def updating(values: Values) -> list[Step]:
    """The step that moves all parameters by their gradients."""
    names = ("weights", "gradients", "velocity", "owner", "rates", "healthy")
    arguments = dict(zip(update.SGD.arguments, (values.flat[name] for name in names), strict=True))
    geometry = update.Sgd(blocks=values.flat["owner"].size, parameters=values.flat["rates"].shape[0])
    return [Step("all", "update", update.SGD, geometry, arguments)]


def measuring(values: Values) -> list[Step]:
    """The step that takes the mean magnitude of each parameter and of its last update."""
    names = ("weights", "velocity", "spans", "magnitudes")
    arguments = dict(zip(update.MAGNITUDE.arguments, (values.flat[name] for name in names), strict=True))
    geometry = update.Magnitude(parameters=values.flat["spans"].shape[0])
    return [Step("all", "measure", update.MAGNITUDE, geometry, arguments)]


class _Record:
    """Builds one program."""

    def __init__(self, network: Network, values: Values, batch: int, *, training: bool, accumulate: bool = False):
        self.network, self.values, self.batch = network, values, batch
        self.needed = _feeding_costs(network)
        self.recorder = Recorder(
            dtype=values.dtype,
            training=training,
            nominal_batch=values.nominal_batch,
            parameters=values.parameters,
            gradients=values.gradients,
            states=values.states,
            inputs=self._inputs(),
            accumulate=accumulate,
        )
        self.outputs: dict[str, Value] = {LABELS: self.recorder.inputs[LABELS]}
        self.output_gradients: dict[str, Value] = {}

    def _inputs(self) -> dict[str, Value]:
        """The inputs of a step; those of each sample are as long as this program's batch."""
        shape = self.network.data[0].shape
        per_sample = {
            "pixels": ((shape.height, shape.width, shape.channels), np.uint8),
            "mirror": ((), np.uint8),
            LABELS: ((), np.int32),
        }
        inputs = {
            name: Value(name, (self.batch, *rest), np.dtype(dtype), arena=False)
            for name, (rest, dtype) in per_sample.items()
        }
        return {**self.values.flat, **inputs}

    def _map(self, name: str, shape: Shape) -> Value:
        extent = (shape.channels, shape.height, shape.width, self.batch)
        return Value(name, extent, self.values.dtype, self.network.layouts()[name.removeprefix("d ")])

    def forward(self) -> Program:
        for node in self._nodes():
            y = self.outputs[node.name] = self._map(node.name, node.shape)
            xs = [self.outputs[name] for name in node.inputs]
            node.layer.forward(self.recorder.at(node.name, "forward"), xs, y)
        main = self.network.costs[0].name
        probabilities = self.recorder.kept.get((main, "p"))
        outputs = (self.outputs[main], probabilities) if probabilities else (self.outputs[main],)
        return Program(self.recorder.steps, outputs)

    def report(self, *, first: bool) -> None:
        """The sums of each cost; any that is not finite stops the updates."""
        geometry = cost.Report(batch=self.batch, ring=RING, first=first)
        common = {name: self.values.flat[name] for name in ("clock", "healthy")}
        for node in self.network.costs:
            emit, history = self.recorder.at(node.name, "forward"), self.values.flat[history_of(node.name)]
            emit(cost.REPORT, geometry, y=self.outputs[node.name], history=history, **common)

    def backward(self) -> None:
        need = self.network.needing_gradient(self.values.gradients)
        for node in reversed(self._nodes()):
            dy = self.output_gradients.get(node.name)
            if node.name in need and (dy is not None or node.layer.is_cost):
                dxs = [self._gradient(name) if name in need else None for name in node.inputs]
                xs = [self.outputs[name] for name in node.inputs]
                node.layer.backward(self.recorder.at(node.name, "backward"), xs, self.outputs[node.name], dy, dxs)

    def _gradient(self, name: str) -> Value:
        if name not in self.output_gradients:
            self.output_gradients[name] = self._map(f"d {name}", self.network[name].shape)
        return self.output_gradients[name]

    def _nodes(self) -> list[Node]:
        return [node for node in self.network.nodes.values() if node.name in self.needed]


def _feeding_costs(network: Network) -> set[str]:
    """Nodes that some cost depends on."""
    needed: set[str] = set()
    for node in reversed(network.nodes.values()):
        if node.layer.is_cost or node.name in needed:
            needed |= {node.name, *node.inputs}
    return needed - {LABELS}
