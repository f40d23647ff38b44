"""One pass through the layers that ranks compute together: how gradients come back from the readers of a map.

Where its readers each have a part of a sum, the ranks add up; where each has computed the whole gradient, the home
takes its part of it. See maps.py for the ways of the maps themselves. All ranks start the same transfers in the same
order, those that compute nothing too.
"""

from typing import Any

from convnet.graph.net import Node
from convnet.graph.steps import Value
from convnet.parallel.maps import Finish, Maps, TurnEmit
from convnet.parallel.passes import Pass
from convnet.parallel.placement import DATA, FULL, Placement
from kernels import batch


class Turn(Maps):
    """A pass. need: nodes with a gradient. single: this is the only pass."""

    def __init__(self, record: Any, placement: Placement, turn: Pass, need: set[str], *, single: bool):
        super().__init__(record, placement, turn)
        self.need, self.single = need, single
        self.gradients: dict[tuple[str, str], Value] = {}
        self._returning: dict[str, Finish] = {}

    def target(self, reader: Node, name: str) -> Value | None:
        """Where a reader writes its part of the gradient of an input: None where another rank does it alone."""
        view = self.view(reader, name)
        if view == "whole" and self._added_up(name) and not self._sums(reader) and self.rank != 0:
            return None
        return self._gradient(name, view)

    def _added_up(self, name: str) -> bool:
        """Whether the gradient of a whole map is a sum over the ranks, and not complete at each."""
        return any(self._sums(node) for node in self._contributors(name) if self.view(node, name) == "whole")

    def _contributors(self, name: str) -> list[Node]:
        """Those that add to the gradient of a map through other ranks, in order."""
        return [n for n in self.readers[name] if n.name in self.need and self.view(n, name) != "home"]

    def _gradient(self, name: str, view: str) -> Value:
        if self.homes[name] == DATA and view == "home":
            value: Value = self.record.gradient(name)
            return value
        if (name, view) not in self.gradients:
            node = self.placement.network[name]
            begin, end = self.placement.channels(node) if view == "home" else (0, 0)
            count = self.record.batch if view == "own" else 0
            self.gradients[name, view] = self._value(node, f"d {name} {view}", end - begin, count)
        return self.gradients[name, view]

    def _written(self, value: Value) -> bool:
        return self.recorder.written(value)

    def done_with(self, node: Node) -> None:
        """Once the gradients of a node's inputs stand: start what brings home those that no other reader adds to."""
        for name in dict.fromkeys(node.sources):
            if name in self.need and [node] == self._contributors(name)[:1]:  # backward comes last to the first
                source = self.placement.network[name]
                self._returning[name] = self._return(source, self.emit(source))

    def _return(self, node: Node, emit: TurnEmit) -> Finish:
        if self._owns.get(node.name) is not None:
            self._return_own(node, emit)
        whole, added = self._gradient(node.name, "whole"), self._added_up(node.name)
        if added and not self._written(whole):
            self._zero(node, emit, whole)
        back = {"data": self._to_samples, "shard": self._to_channels, "one": self._to_one, "full": self._to_all}
        return back[self.homes[node.name].kind](node, emit, whole, added)

    def _zero(self, node: Node, emit: TurnEmit, whole: Value) -> None:
        """A gradient that nothing of this rank adds to: a share of the map that lies behind its end."""
        count = whole.shape[3]
        emit(batch.SPLIT, self._division(whole, 1, count, first=count), x=self.whole(node.name), y=whole)

    def _return_own(self, node: Node, emit: TurnEmit) -> None:
        """The gradient of the samples of each rank to that of the whole map."""
        own = self._gradient(node.name, "own")
        source = own
        if not self._fits(own):
            source = self._shares(node, f"d {node.name} share")
            emit(batch.SPLIT, self._division(own, 1, self.turn.run), x=own, y=source)
        shares = self._shares(node, f"d {node.name} shares", self.size)
        emit.start("all_gather", source, shares)()
        if not self._added_up(node.name) or self.rank == 0:
            whole = self._gradient(node.name, "whole")
            emit(batch.JOIN, self._division(whole, self.size, self.turn.run), x=shares, y=whole)

    def _to_samples(self, node: Node, emit: TurnEmit, whole: Value, added: bool) -> Finish:
        """Passes bring disjoint samples, so that only a single one may find something to add to."""
        turn, target = self.turn, self._gradient(node.name, "home")
        beta = {} if self.single else {"beta": 0.0}
        if not added:
            if self.piece.count:
                self._place(emit, whole, target, self.piece.column, **beta)
            return _nothing
        if turn.root is not None:
            mine = turn.root == self.rank
            return emit.start("reduce", whole, target if mine else None, root=turn.root)
        shares = self._shares(node, f"d {node.name} shares", self.size)
        emit(batch.SPLIT, self._division(whole, self.size, turn.run), x=whole, y=shares)
        direct = self._fits(target) and not self._written(target)
        received = target if direct else self._shares(node, f"d {node.name} share")
        wait = emit.start("reduce_scatter", shares, received)

        def finish() -> None:
            wait()
            if not direct and self.piece.count:
                self._place(emit, received, target, 0, **beta)

        return finish

    def _to_channels(self, node: Node, emit: TurnEmit, whole: Value, added: bool) -> Finish:
        begin, end = self.placement.channels(node)
        target, most = self._gradient(node.name, "home"), self._most(node)
        if not added:
            self._copy(emit, whole, target, end - begin, begin)
            return _nothing
        exact = most * self.size == node.shape.channels
        shares = whole if exact else self._value(node, f"d {node.name} shares", most * self.size)
        self._copy(emit, whole, shares, node.shape.channels)
        direct = most == end - begin and not self._written(target)
        received = target if direct else self._value(node, f"d {node.name} share", most)
        wait = emit.start("reduce_scatter", shares, received)

        def finish() -> None:
            wait()
            self._copy(emit, received, target, end - begin)

        return finish

    def _to_one(self, node: Node, emit: TurnEmit, whole: Value, added: bool) -> Finish:
        mine, root = self.here(node), self.homes[node.name].rank
        received = self._value(node, f"d {node.name} sum") if mine and added else whole
        wait = emit.start("reduce", whole, received if mine else None, root=root) if added else _nothing

        def finish() -> None:
            wait()
            if mine:
                self._copy(emit, received, self._gradient(node.name, "home"), node.shape.channels)

        return finish

    def _to_all(self, node: Node, emit: TurnEmit, whole: Value, added: bool) -> Finish:
        return emit.start("all_reduce", whole, whole) if added else _nothing

    def arrive(self, name: str) -> Value | None:
        """The gradient of a map at home, once it is there; None at ranks that have no such map."""
        self.settle(name)
        if self.homes[name] == FULL:
            return self._gradient(name, "whole")
        return self._gradient(name, "home") if self.here(self.placement.network[name]) else None

    def settle(self, *names: str) -> None:
        """Wait for the gradients of these maps, or of all, that are still on their way."""
        for name in names or list(self._returning):
            self._returning.pop(name, _nothing)()


def _nothing() -> None:
    """Nothing to wait for."""
