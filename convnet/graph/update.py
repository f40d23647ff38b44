"""The steps between a gradient and the next forward pass: waiting, clipping, the move, bounds, averages."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from convnet.graph.net import Network
from convnet.graph.steps import Step, Value
from kernels import update
from kernels.op import Op


@dataclass(frozen=True)
class Rule:
    """How all parameters move. clip: norm of all gradients above which they are scaled down.

    decay: of the moving averages of parameters and states, None for no averages; with `warmup` it begins low.
    What a layer has of its own stands in its `solver`.
    """

    nesterov: bool = False
    clip: float | None = None
    decay: float | None = None
    warmup: bool = True


def waiting(network: Network) -> tuple[str, ...]:
    """Parameters that do not move at every step: their gradients add up in between."""
    return tuple(name for node in network.nodes.values() if period(node.layer) > 1 for name in node.params)


def period(layer: Any) -> int:
    """Steps of one update of a layer's parameters."""
    return getattr(getattr(layer, "solver", None), "update_every", 1)


@dataclass(frozen=True)
class Updating:
    """The steps that move the trainable parameters by their gradients; `ready`, `move` and `settle`, in this order.

    trainable: their values, by name, of what this rank holds. flat: the values of the whole network. A part is
    (begin, end), in elements of the flat arrays, whole blocks.
    """

    network: Network
    trainable: Mapping[str, Any]
    flat: Mapping[str, Value]
    rule: Rule

    @property
    def whole(self) -> tuple[int, int]:
        """The part that is everything."""
        return 0, self.flat["weights"].size

    def all(self) -> list[Step]:
        return [*self.ready([self.whole]), *self.move(self.whole), *self.settle()]

    def ready(self, parts: Iterable[tuple[int, int]]) -> Iterator[Step]:
        """Gradients that wait, and the norm of all; without `clipped`, parts may be made ready one by one."""
        for part in parts:
            if "pending" in self.flat:
                yield self._step(update.COLLECT, update.Collect(*self._extent(part)), part)
        if self.clipped:
            blocks = self.flat["owner"].size
            yield self._step(update.NORM, update.Norm(blocks, self.flat["norms"].size), self.whole)

    @property
    def clipped(self) -> bool:
        """Whether no part may move before all are ready."""
        return "norms" in self.flat

    def move(self, part: tuple[int, int]) -> Iterator[Step]:
        """One part of the parameters."""
        ring = self.flat["norms"].size if self.clipped else 1
        geometry = update.Sgd(*self._extent(part), self.rule.nesterov, self.rule.clip or 0.0, ring)
        yield self._step(update.SGD, geometry, part)

    def settle(self) -> Iterator[Step]:
        """Bounds of weights, then averages."""
        flat = self.flat
        for name, bounds in _bounds(self.network, self.trainable):
            if bounds.rows:
                yield self._step(update.RESCALE, bounds, self.whole, w=self.trainable[name])
        for now, average in ("weights", "weight averages"), ("states", "state averages"):
            if average in flat and flat[now].size and self.rule.decay is not None:
                geometry = update.Average(flat[now].size // update.BLOCK, 1 - self.rule.decay, self.rule.warmup)
                yield self._step(update.AVERAGE, geometry, self.whole, w=flat[now], e=flat[average])

    def _extent(self, part: tuple[int, int]) -> tuple[int, int]:
        """Blocks of a part, and rows of the table of rates."""
        return (part[1] - part[0]) // update.BLOCK, self.flat["rates"].shape[0]

    def _step(self, op: Op, geometry: Any, part: tuple[int, int], **given: Value) -> Step:
        begin, end = part
        found: dict[str, Value | None] = {**self.flat, "norms": self.flat.get("norms")}
        found["owner"] = self.flat["owner"].part(begin // update.BLOCK, end // update.BLOCK)
        for name, array in ("w", "weights"), ("dw", "gradients"), ("v", "velocity"), ("pending", "pending"):
            if array in self.flat:
                found[name] = self.flat[array].part(begin, end)
        found |= given
        return Step("all", "update", op, geometry, {name: found[name] for name in op.arguments})


def measuring(flat: Mapping[str, Value]) -> list[Step]:
    """The step that takes the mean magnitude of each parameter and of its last update."""
    names = ("weights", "velocity", "spans", "magnitudes")
    arguments = dict(zip(update.MAGNITUDE.arguments, (flat[name] for name in names), strict=True))
    return [Step("all", "measure", update.MAGNITUDE, update.Magnitude(flat["spans"].shape[0]), arguments)]


def _bounds(network: Network, trainable: Mapping[str, Any]) -> Iterator[tuple[str, update.Rescale]]:
    """The trainable weights whose norm is bounded, output by output."""
    index = {name: i for i, name in enumerate(network.params)}
    for node in network.nodes.values():
        name, solver = f"{node.name}.weight", getattr(node.layer, "solver", None)
        if name not in index or name not in trainable:
            continue
        ball, low, high = (getattr(solver, key, None) for key in ("wball", "norm_min", "norm_max"))
        columns = node.params[name].fan_in
        shape = prod(trainable[name].shape) // columns, columns, index[name]
        if ball is not None:
            shrinks = getattr(node.layer, "ball_shrinks", False)
            yield name, update.Rescale(*shape, low=0.0 if shrinks else ball, high=ball)
        elif low is not None or high is not None:
            yield name, update.Rescale(*shape, low=low or 0.0, high=inf if high is None else high, centered=True)
