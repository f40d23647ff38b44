"""The steps between a gradient and the next forward pass: waiting, clipping, the move, bounds, averages."""

from collections.abc import Iterator, Mapping
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


def updating(network: Network, trainable: Mapping[str, Any], flat: Mapping[str, Value], rule: Rule) -> list[Step]:
    """The steps that move the trainable parameters by their gradients. flat: the values of the whole network."""
    blocks, parameters = flat["owner"].size, flat["rates"].shape[0]
    ring = flat["norms"].size if "norms" in flat else 1
    sources = {**flat, "w": flat["weights"], "dw": flat["gradients"], "v": flat["velocity"], "norms": flat.get("norms")}

    def step(op: Op, geometry: Any, **changed: Value) -> Step:
        found = sources | changed
        return Step("all", "update", op, geometry, {name: found[name] for name in op.arguments})

    steps = []
    if "pending" in flat:
        steps.append(step(update.COLLECT, update.Collect(blocks, parameters)))
    if "norms" in flat:
        steps.append(step(update.NORM, update.Norm(blocks, ring)))
    sgd = update.Sgd(blocks, parameters, rule.nesterov, rule.clip or 0.0, ring)
    steps.append(step(update.SGD, sgd))
    for name, bounds in _bounds(network):
        if name in trainable:
            steps.append(step(update.RESCALE, bounds, w=trainable[name]))
    for now, average in ("weights", "weight averages"), ("states", "state averages"):
        if average in flat and flat[now].size and rule.decay is not None:
            geometry = update.Average(flat[now].size // update.BLOCK, 1 - rule.decay, rule.warmup)
            steps.append(step(update.AVERAGE, geometry, w=flat[now], e=flat[average]))
    return steps


def measuring(flat: Mapping[str, Value]) -> list[Step]:
    """The step that takes the mean magnitude of each parameter and of its last update."""
    names = ("weights", "velocity", "spans", "magnitudes")
    arguments = dict(zip(update.MAGNITUDE.arguments, (flat[name] for name in names), strict=True))
    return [Step("all", "measure", update.MAGNITUDE, update.Magnitude(flat["spans"].shape[0]), arguments)]


def _bounds(network: Network) -> Iterator[tuple[str, update.Rescale]]:
    """The weights whose norm is bounded, output by output."""
    index = {name: i for i, name in enumerate(network.params)}
    for node in network.nodes.values():
        name, solver = f"{node.name}.weight", getattr(node.layer, "solver", None)
        if name not in index:
            continue
        ball, low, high = (getattr(solver, key, None) for key in ("wball", "norm_min", "norm_max"))
        columns = node.params[name].fan_in
        shape = prod(node.params[name].shape) // columns, columns, index[name]
        if ball is not None:
            shrinks = getattr(node.layer, "ball_shrinks", False)
            yield name, update.Rescale(*shape, low=0.0 if shrinks else ball, high=ball)
        elif low is not None or high is not None:
            yield name, update.Rescale(*shape, low=low or 0.0, high=inf if high is None else high, centered=True)
