"""Step lists of networks that are divided by more than samples: "one weird trick", and layers on ranks of their own.

Layers whose home (placement.py) is `data` see a rank's own samples, all others those of a pass (passes.py), from all
ranks. With several passes, each goes forward and back before the next, and gradients of weights add up; the layers
before see their gradient when all passes are done. What turn.py moves between ranks is under way while others compute.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from convnet.graph.net import Node
from convnet.graph.program import Program, Record, Values
from convnet.graph.steps import Value
from convnet.parallel.maps import Finish, TurnEmit
from convnet.parallel.passes import passes
from convnet.parallel.placement import DATA, Placement
from convnet.parallel.shares import longest
from convnet.parallel.turn import Turn
from kernels import batch, fc
from kernels.op import Op
from layers.base import LABELS
from layers.data import TARGETS

LATER = (fc.WGRAD, fc.BGRAD)  # after the gradient of the input, which others wait for


class Hybrid(Record):
    """Builds one program of a rank.

    batch, total: its samples, and those of all ranks. distance: between the places of neighbouring ranks' first
    samples. scheme: A, B or C. scored: the probabilities of its samples are wanted.
    """

    def __init__(
        self,
        placement: Placement,
        values: Values,
        batch: int,
        total: int,
        distance: int,
        scheme: str,
        *,
        scored: bool = False,
        **options: Any,
    ):
        network = placement.network
        super().__init__(network, values, batch, total, **options)
        unit = values.feeds[not self.recorder.training].unit
        self.placement, self.distance, self.most = placement, distance, longest(total, placement.size, unit)
        self.scored = scored
        self.need = network.needing_gradient(values.gradients) if self.recorder.training else set()
        self.region = [node for node in self.nodes if placement.homes[node.name] != DATA]
        self.around = [node for node in self.nodes if placement.homes[node.name] == DATA]
        read = {name for node in self.region for name in node.inputs}
        self.crossing = [node.name for node in self.around if node.name in read]
        found = passes(scheme, total, placement.size, unit)
        self.turns = [Turn(self, placement, turn, self.need, single=len(found) == 1) for turn in found]
        self.probabilities: Value | None = None
        self._all_targets = self._gather_targets()

    def step(self, kind: str, *, first: bool = True, backward: bool = False) -> Program:
        """All steps but the update. kind: of what costs count. first: of the micro-batches of a step."""
        together = self.turns[0] if len(self.turns) == 1 else None
        if together:
            self._forward(self.nodes, together)
            self._conclude(together, kind)
        else:
            self._pass_by_pass(kind, backward)
        self.count(kind)
        if self.recorder.training:
            self.report(first=first)
        if backward:
            self._backward(self.nodes if together else self.around, self.turns[0])
        outputs = tuple(self.outputs[node.name] for node in self.network.costs)
        return Program(self.recorder.steps, outputs, self._probabilities())

    def _pass_by_pass(self, kind: str, backward: bool) -> None:
        self._forward(self.around, self.turns[0])
        self._begin(self.turns[0])
        for i, turn in enumerate(self.turns):
            if i + 1 < len(self.turns):
                self._begin(self.turns[i + 1])
            self._forward(self.region, turn)
            self._conclude(turn, kind)
            if backward:
                self._backward(self.region, turn)
        for turn in self.turns:
            turn.settle()

    def _begin(self, turn: Turn) -> None:
        for name in self.crossing:
            turn.begin(name)

    def count(self, kind: str) -> None:
        for node in self.around:
            if node.layer.is_cost and node.counted:
                counts = self.values.flat[f"{kind} {node.name}"]
                node.cost.count(self.recorder.at(node.name, "forward"), self._xs(node), counts)

    # Labels

    def _gather_targets(self) -> Any:
        """Start it, where a cost of the region reads labels; what waits for its end, and returns those of all ranks.

        With them come the second labels of mixed samples, and the shares of the first.
        """
        reader = next((node for node in self.region if LABELS in node.inputs), None)
        if reader is None:
            return None
        emit, given = self.turns[0].emit(reader), self.recorder.inputs
        found = {name: self._gather(emit, given[name]) for name in (LABELS, *TARGETS) if name in given}

        @cache
        def taken() -> dict[str, Value]:
            for _, wait in found.values():
                wait()
            return {name: value for name, (value, _) in found.items()}

        return taken

    def _gather(self, emit: TurnEmit, own: Value) -> tuple[Value, Finish]:
        """Start to gather a number of each sample from all ranks; those of all, and what waits for them."""
        source = own
        if self.batch != self.most:
            source = Value(f"own {own.name}", (self.most,), own.dtype)
            emit(_pick(own), batch.Labels(self.most, self.batch), x=own, y=source)
        found = Value(f"all {own.name}", (self.most * self.placement.size,), own.dtype)
        return found, emit.start("all_gather", source, found)

    def _labels_of(self, node: Node, turn: Turn) -> Value:
        """Those of a pass; its costs find the others beside them."""
        span = turn.turn
        if not turn.targets:
            for name, x in self._all_targets().items():
                turn.targets[name] = y = Value(f"{name} {span.index}", (span.count,), x.dtype)
                geometry = batch.Labels(span.count, x.size, span.first(self.most), span.run, self.most)
                turn.emit(node)(_pick(x), geometry, x=x, y=y)
        return turn.targets[LABELS]

    # Forward

    def _forward(self, nodes: Iterable[Node], turn: Turn) -> None:
        for node in nodes:
            xs = self._inputs_of(node, turn)
            if self.placement.homes[node.name] == DATA:
                y = self.outputs[node.name] = self._map(node, node.name)
                node.layer.forward(self.recorder.at(node.name, "forward"), xs, y)
            elif turn.here(node):
                node.layer.forward(turn.emit(node, "forward"), xs, turn.make(node))
            if turn.single and turn.wanted(node):
                turn.begin(node.name)

    def _inputs_of(self, node: Node, turn: Turn) -> list[Any]:
        home, homes = self.placement.homes[node.name], self.placement.homes
        found: list[Any] = []
        for name in node.inputs:
            if name == LABELS:
                found.append(self.outputs[LABELS] if home == DATA else self._labels_of(node, turn))
            else:
                found.append(self.outputs[name] if home == homes[name] == DATA else turn.read(node, name))
        return found

    def _conclude(self, turn: Turn, kind: str) -> None:
        """What costs of the region have found out in a pass: each rank keeps that of its own samples."""
        for node in self.region:
            if node.layer.is_cost:
                self._keep(node, turn.maps[node.name], turn)
                if self.placement.rank == 0 and node.counted:  # counts are added up over the ranks
                    counts = self.values.flat[f"{kind} {node.name}"]
                    node.cost.count(turn.emit(node, "forward"), self._inputs_of(node, turn), counts)

    def _keep(self, node: Node, results: Value, turn: Turn) -> None:
        if node.name not in self.outputs:
            self.outputs[node.name] = self._map(node, node.name)
        turn.results(node, results, self.outputs[node.name])
        if node is self.network.main and self.network.classifier and self.scored:
            found = node.cost.probabilities(turn.emit(node, "forward"), self._inputs_of(node, turn))
            if self.probabilities is None:
                shape = (*found.shape[:3], self.batch)
                self.probabilities = Value("probabilities", shape, found.dtype, found.layout)
            turn.results(node, found, self.probabilities)

    def _probabilities(self) -> Value | None:
        main = self.network.main
        if self.placement.homes[main.name] == DATA and self.network.classifier:
            return main.cost.probabilities(self.recorder.at(main.name, "forward"), self._xs(main))
        return self.probabilities

    # Backward

    def _backward(self, nodes: Sequence[Node], turn: Turn) -> None:
        for node in reversed(nodes):
            if node.name in self.need:
                if self.placement.homes[node.name] == DATA:
                    self._own_backward(node, turn)
                    if turn.single:
                        turn.done_with(node)
                else:
                    self._joint_backward(node, turn)

    def _own_backward(self, node: Node, turn: Turn) -> None:
        homes = self.placement.homes
        if turn.single:
            turn.settle(node.name)
        dy = self.output_gradients.get(node.name)
        dxs = [self._target(node, name, turn, homes[name] == DATA) for name in node.sources]
        dxs += [None] * (len(node.inputs) - len(dxs))
        emit = self.recorder.at(node.name, "backward")
        node.layer.backward(emit, self._inputs_of(node, turn), self.outputs[node.name], dy, dxs)

    def _joint_backward(self, node: Node, turn: Turn) -> None:
        """The gradient of the input is on its way while those of the weights are computed."""
        dy = None if node.layer.is_cost else turn.arrive(node.name)
        xs, steps = self._inputs_of(node, turn), self.recorder.steps
        begin = len(steps)
        if turn.here(node):
            dxs = [self._target(node, name, turn, False) for name in node.sources]
            dxs += [None] * (len(node.inputs) - len(dxs))
            node.layer.backward(turn.emit(node, "backward"), xs, turn.maps[node.name], dy, dxs)
        later = [step for step in steps[begin:] if step.op in LATER]
        steps[begin:] = [step for step in steps[begin:] if step.op not in LATER]
        turn.done_with(node)
        steps += later

    def _target(self, node: Node, name: str, turn: Turn, own: bool) -> Value | None:
        if name not in self.need:
            return None
        return self.gradient(name) if own else turn.target(node, name)


def _pick(values: Value) -> Op:
    """What takes some of them, a number of each sample."""
    return batch.LABELS if values.dtype.kind == "i" else batch.AMOUNTS
