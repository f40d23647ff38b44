"""One pass through the layers that ranks compute together: how maps reach their readers, and gradients come back.

A layer reads a map where it lies (its home, placement.py), or whole, gathered from all ranks, or, where it is computed
for a rank's own samples, the part of these. What is in common here:

    home of the map    whole map                             gradient of the map, from that of the whole one
    data               gather samples                        add up over the ranks, scatter samples
    shard              gather channels                       add up, scatter channels
    one                broadcast                             add up at that rank
    full               as it is                              add up at all ranks

Nothing is added up where every reader has computed the whole gradient; the home then takes its part. All ranks start
the same transfers in the same order, those that compute nothing too.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from convnet.graph.net import Node
from convnet.graph.steps import LayerEmit, Recorder, Value
from convnet.parallel.passes import Pass
from convnet.parallel.placement import DATA, FULL, SHARD, Placement
from kernels import batch, eltwise, random, wire
from layers.base import axes

Finish = Callable[[], None]


class TurnEmit(LayerEmit):
    """What a layer writes to in one pass: its arrays are those of the pass, and it draws by places in whole maps.

    inputs: of samples, those of the pass.
    """

    def __init__(
        self, recorder: Recorder, layer: str, phase: str, turn: Pass, place: dict[str, Any], inputs: dict[str, Value]
    ):
        super().__init__(recorder, layer, phase)
        self.ranks, self.total = 1, turn.count  # it sees the samples of all
        self._turn, self._place, self._inputs = turn, place, inputs

    def __call__(self, op: Any, geometry: Any, **arguments: Any) -> None:
        if isinstance(geometry, random.Dropout):
            geometry = replace(geometry, **self._place)
        super().__call__(op, geometry, **arguments)

    def optional(self, name: str) -> Value | None:
        return self._inputs.get(name)

    def keep(self, name: str, shape: tuple[int, ...], dtype: str = "", layout: str = "") -> Value:
        return super().keep(f"{name} {self._turn.index}", shape, dtype, layout)


class Maps:
    """How maps reach their readers in a pass. record: of the whole program, with the maps of a rank's own samples."""

    def __init__(self, record: Any, placement: Placement, turn: Pass):
        self.record, self.placement, self.turn = record, placement, turn
        self.recorder: Recorder = record.recorder
        self.rank, self.size, self.homes = placement.rank, placement.size, placement.homes
        self.piece = turn.pieces[self.rank]
        self.maps: dict[str, Value] = {}  # what this rank has of the maps that are not divided by samples
        self.targets: dict[str, Value] = {}  # labels, and what mixed samples have of them
        self._wholes: dict[str, Value] = {}
        self._owns: dict[str, Value] = {}
        self._coming: dict[str, Finish] = {}
        self.readers: dict[str, list[Node]] = {name: [] for name in placement.network.nodes}
        for node in record.nodes:
            for name in node.sources:
                self.readers[name].append(node)

    # Maps

    def emit(self, node: Node, phase: str = "exchange") -> TurnEmit:
        """What the layer of a node writes to, or what moves its map."""
        channel = self.placement.channels(node)[0] if self.homes[node.name] == SHARD else 0
        distance = self.record.distance
        first = self.turn.first(distance) - self.rank * distance  # the clock holds the place of this rank's first one
        place = {"channel": channel, "first": first, "run": self.turn.run, "stride": distance}
        return TurnEmit(self.recorder, node.name, phase, self.turn, place, self.targets)

    def here(self, node: Node) -> bool:
        """Whether this rank computes a node."""
        return self.homes[node.name].kind != "one" or self.homes[node.name].rank == self.rank

    def make(self, node: Node) -> Value:
        """The map of a node at this rank."""
        begin, end = self.placement.channels(node)
        self.maps[node.name] = self._value(node, node.name, end - begin)
        return self.maps[node.name]

    def read(self, reader: Node, name: str) -> Value | None:
        """A map as a reader sees it. All ranks come here, whether they compute the reader or not."""
        view = self.view(reader, name)
        return self.maps.get(name) if view == "home" else self.whole(name) if view == "whole" else self.own(name)

    def view(self, reader: Node, name: str) -> str:
        """How a reader sees a map: at home, whole, or, where it lies elsewhere, of its own samples."""
        reads, lies = self.homes[reader.name], self.homes[name]
        if reads == DATA:
            return "home" if lies == DATA else "own"
        return "home" if reads == lies and lies != FULL and not self._gathers(reader) else "whole"

    def _gathers(self, reader: Node) -> bool:
        """Whether a layer needs all channels of its input to compute some of its output."""
        return self.homes[reader.name] == SHARD and reader.layer.type == "fc"

    def _sums(self, reader: Node) -> bool:
        """Whether a layer's gradient of its input is a part of a sum over the ranks."""
        return self.homes[reader.name].kind == "one" or self._gathers(reader)

    def wanted(self, node: Node) -> bool:
        """Whether anything reads the map of a node through other ranks."""
        return any(self.view(reader, node.name) != "home" for reader in self.readers[node.name])

    def begin(self, name: str) -> None:
        """Start what makes a map whole."""
        if name in self._wholes or name in self._coming or self.homes[name] == FULL:
            return
        node = self.placement.network[name]
        gather = {"data": self._gather_samples, "shard": self._gather_channels, "one": self._broadcast}
        self._coming[name] = gather[self.homes[name].kind](node, self.emit(node))

    def whole(self, name: str) -> Value:
        """A map with all channels, of all samples of the pass."""
        if self.homes[name] == FULL:
            return self.maps[name]
        self.begin(name)
        if name in self._coming:
            self._coming.pop(name)()
        return self._wholes[name]

    def own(self, name: str) -> Value:
        """A map with all channels, of this rank's samples."""
        if name not in self._owns:
            node, whole, count = self.placement.network[name], self.whole(name), self.record.batch
            self._owns[name] = y = self._value(node, f"{name} own", count=count)
            g = self._division(whole, 1, count, first=self.piece.column)
            self.emit(node)(batch.SPLIT, g, x=whole, y=y)
        return self._owns[name]

    def results(self, node: Node, found: Value, target: Value) -> None:
        """Of a whole map of a node, put the samples of this rank in their place."""
        if self.piece.count:
            self._place(self.emit(node), found, target, self.piece.column, beta=0.0)

    def _value(self, node: Node, name: str, channels: int = 0, count: int = 0, layout: str = "") -> Value:
        """An array as a node's map, of so many channels and samples: by default all of the pass."""
        shape = (channels or node.shape.channels, node.shape.height, node.shape.width, count or self.turn.count)
        layout = layout or self.record.layouts[node.name]
        return Value(f"{name} {self.turn.index}", shape, self.recorder.dtype, layout)

    def _shares(self, node: Node, name: str, parts: int = 1) -> Value:
        return self._value(node, name, parts * node.shape.channels, self.turn.run, "chwn")

    def _division(self, x: Value, parts: int, share: int, **places: int) -> batch.Shares:
        """A map in shares of so many samples."""
        return batch.Shares(**axes(x), parts=parts, share=share, **places)

    def _fits(self, own: Value) -> bool:
        """Whether a rank's own map is all that it hands over in this pass, in the right order."""
        plain = own.layout == "chwn" or own.shape[1] == 1
        return plain and self.piece.count == self.turn.run == own.shape[3]

    def _gather_samples(self, node: Node, emit: TurnEmit) -> Finish:
        turn, x = self.turn, self.record.outputs[node.name]
        if turn.root is not None:
            mine = turn.root == self.rank
            self._wholes[node.name] = whole = x if mine else self._value(node, f"{node.name} whole")
            return emit.start("broadcast", x if mine else None, whole, root=turn.root)
        source = x
        if not self._fits(x):
            source = self._shares(node, f"{node.name} share")
            emit(batch.SPLIT, self._division(x, 1, turn.run, first=self.piece.own), x=x, y=source)
        shares = self._shares(node, f"{node.name} shares", self.size)
        wait = emit.start("all_gather", source, shares)
        self._wholes[node.name] = whole = self._value(node, f"{node.name} whole")

        def finish() -> None:
            wait()
            emit(batch.JOIN, self._division(whole, self.size, turn.run), x=shares, y=whole, beta=0.0)

        return finish

    def _gather_channels(self, node: Node, emit: TurnEmit) -> Finish:
        y, most = self.maps[node.name], self._most(node)
        source = y
        if y.shape[0] < most:  # what is behind the last channel is sent, too, and must be a number
            source = self._value(node, f"{node.name} share", most)
            emit(wire.CLEAR, wire.Clear(source.size), x=source)
            self._copy(emit, y, source, y.shape[0])
        shares = self._value(node, f"{node.name} shares", most * self.size)
        wait = emit.start("all_gather", source, shares)
        exact = node.shape.channels == shares.shape[0]
        self._wholes[node.name] = whole = shares if exact else self._value(node, f"{node.name} whole")

        def finish() -> None:
            wait()
            self._copy(emit, shares, whole, node.shape.channels)

        return finish

    def _broadcast(self, node: Node, emit: TurnEmit) -> Finish:
        y, root = self.maps.get(node.name), self.homes[node.name].rank
        self._wholes[node.name] = whole = y or self._value(node, f"{node.name} whole")
        return emit.start("broadcast", y, whole, root=root)

    def _most(self, node: Node) -> int:
        """Channels of the largest shard."""
        return self.placement.channels(node, 0)[1]

    def _copy(self, emit: TurnEmit, x: Value, y: Value, channels: int, begin: int = 0) -> None:
        """The first channels of y from those of x from `begin` on; y may be x, or hold what is added to."""
        if x is not y:
            _, height, width, count = y.shape
            emit(eltwise.COPY, eltwise.Copy(channels, height, width, count, x_offset=begin), x=x, y=y)

    def _place(self, emit: TurnEmit, x: Value, y: Value, offset: int, **beta: float) -> None:
        """This rank's samples of x, from `offset` on, in their place among its own."""
        piece = self.piece
        g = self._division(y, 1, piece.count, first=piece.own, offset=offset, length=x.shape[3])
        emit(batch.JOIN, g, x=x, y=y, **beta)
