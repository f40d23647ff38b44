"""Wiring: layer specifications to a network with shapes, checked before anything runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Protocol

from layers.base import LABELS, Layer, Param, Shape, State
from layers.cost import Cost
from layers.options import ConfigError, options
from layers.registry import nearest

OF_BIASES = ("lr", "lr_bias", "momentum", "update_every")  # options of a layer's solver that rule its biases, too
FEATURES_MOST = 2**31 - 1  # numbers in the map of a sample: kernels count them in 32 bits


class LayerSpec(Protocol):
    """What the wiring reads of a configured layer."""

    @property
    def name(self) -> str: ...

    @property
    def layer(self) -> Layer: ...

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def path(self) -> tuple[str, ...]: ...

    @property
    def ranks(self) -> tuple[int, ...] | None: ...


@dataclass(frozen=True)
class Node:
    """A layer in its place: the names and shapes of its inputs, and the shape of its output.

    shared: parameters that it does not have but uses, such as {"conv2.weight": "conv1.weight"}.
    ranks: those that compute it, as configured.
    """

    name: str
    layer: Layer
    inputs: tuple[str, ...]
    in_shapes: tuple[Shape, ...]
    shape: Shape
    shared: Mapping[str, str] = field(default_factory=dict)
    ranks: tuple[int, ...] | None = None

    @property
    def _params(self) -> dict[str, Param]:
        return {f"{self.name}.{key}": param for key, param in self.layer.params(*self.in_shapes).items()}

    @property
    def params(self) -> dict[str, Param]:
        """Its own parameters by full name, such as "conv1.weight"."""
        return {name: param for name, param in self._params.items() if name not in self.shared}

    @property
    def uses(self) -> set[str]:
        """The parameters that it reads: its own, and those of others."""
        return {self.shared.get(name, name) for name in self._params}

    @property
    def states(self) -> dict[str, State]:
        return {f"{self.name}.{key}": state for key, state in self.layer.states(*self.in_shapes).items()}

    @property
    def sources(self) -> tuple[str, ...]:
        """The inputs that a gradient goes to: not what a cost is given as targets."""
        return self.inputs[:1] if self.layer.is_cost else self.inputs

    @property
    def cost(self) -> Cost:
        """The layer of a node that is a cost."""
        assert isinstance(self.layer, Cost)
        return self.layer

    @property
    def results(self) -> tuple[str, ...]:
        """Names of a cost's results, such as "cost.loss"."""
        return tuple(f"{self.name}.{name}" for name in self.cost.results(*self.in_shapes))

    @property
    def counted(self) -> int:
        """Classes that a cost counts."""
        return self.cost.counted(*self.in_shapes)


class Network:
    """Nodes in the order of the config, every input defined before it is used."""

    def __init__(self, specs: Sequence[LayerSpec]):
        self.nodes: dict[str, Node] = {}
        for spec in specs:
            self.nodes[spec.name] = self._node(spec)
        self._check_use(specs)

    def _node(self, spec: LayerSpec) -> Node:
        layer, inputs = self._fused(spec)
        least, most = spec.layer.arity
        if not least <= len(inputs) <= (most if most is not None else len(inputs)):
            expected = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            raise ConfigError(f"expected {expected} inputs, got {len(inputs)}", (*spec.path, "inputs"))
        for name in inputs:
            if name != LABELS and self.nodes[name].layer.is_cost:
                message = f"expected a layer that gives a map, found the cost '{name}'"
                raise ConfigError(message, (*spec.path, "inputs"))
        shapes = tuple(Shape(1) if name == LABELS else self.nodes[name].shape for name in inputs)
        try:
            shape = layer.output(*shapes)
            _check_targets(layer, inputs, shapes)
            if shape.features > FEATURES_MOST:
                raise ConfigError(f"expected an output of at most {FEATURES_MOST} numbers a sample, found {shape}")
            return Node(spec.name, layer, inputs, shapes, shape, self._shared(spec, shapes), spec.ranks)
        except ConfigError as error:
            raise error.under(*spec.path) from None

    def _shared(self, spec: LayerSpec, shapes: Sequence[Shape]) -> dict[str, str]:
        """The weights of another layer that `share` names; errors are relative to the layer."""
        name = getattr(spec.layer, "share", None)
        if name is None:
            return {}
        if name not in self.nodes:
            raise ConfigError(f"'{name}' is not a layer above{nearest(name, self.nodes)}", ("share",))
        owner, kind = self.nodes[name], spec.layer.type
        if owner.layer.type != kind:
            raise ConfigError(f"expected a layer of type {kind}, found '{name}' of type {owner.layer.type}", ("share",))
        theirs = owner.layer.params(*owner.in_shapes)["weight"].shape
        mine = spec.layer.params(*shapes)["weight"].shape
        if mine != theirs:
            message = f"expected weights of the shape {list(mine)}, found those of '{name}', {list(theirs)}"
            raise ConfigError(message, ("share",))
        weight = owner.shared.get(f"{name}.weight", f"{name}.weight")
        _check_sharer(spec.layer, weight.removesuffix(".weight"))
        return {f"{spec.name}.weight": weight}

    def _fused(self, spec: LayerSpec) -> tuple[Layer, tuple[str, ...]]:
        """The layer that stands for a configured one, and its inputs: a cost may read through the layer before it.

        convnet.config has made sure that every input stands above.
        """
        if spec.inputs and spec.inputs[0] in self.nodes:
            source = self.nodes[spec.inputs[0]]
            if (fused := spec.layer.fused(source.layer)) is not None:
                return fused, (source.inputs[0], *spec.inputs[1:])
        return spec.layer, tuple(spec.inputs)

    def _check_use(self, specs: Sequence[LayerSpec]) -> None:
        if not self.costs:
            raise ConfigError("the network has no cost layer, such as logreg", ("layers",))
        used = {name for spec in specs for name in spec.inputs}
        for spec in specs:
            if spec.name not in used and not spec.layer.is_cost:
                raise ConfigError("nothing uses this layer's output", spec.path)
        if not self.data:
            raise ConfigError("the network has no data layer", ("layers",))
        if len(self.data) > 1:
            raise ConfigError(f"expected one data layer, got {', '.join(node.name for node in self.data)}", ("layers",))
        if not self.params:
            raise ConfigError("the network has no layer with weights, such as conv or fc", ("layers",))

    @property
    def costs(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.layer.is_cost]

    @property
    def data(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.layer.type == "data"]

    @property
    def classifier(self) -> Node | None:
        """The first cost, one with a gradient if it can be, that compares scores of two or more classes with labels."""
        found = [node for node in self.costs if LABELS in node.inputs and node.in_shapes[0].features > 1]
        return min(found, key=_only_reports, default=None)

    @property
    def main(self) -> Node:
        """The cost whose results are those of the network: the classifier, or the first, with a gradient if any has."""
        return self.classifier or min(self.costs, key=_only_reports)

    @property
    def outputs(self) -> int:
        """Classes that the network tells apart; 0 where it is no classifier."""
        return self.classifier.in_shapes[0].features if self.classifier else 0

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the results of all costs, such as "cost.loss", cost by cost."""
        return tuple(name for node in self.costs for name in node.results)

    @property
    def watched(self) -> dict[str, int]:
        """The costs with a gradient, and which result their loss is: it must stay finite."""
        return {node.name: self.results.index(node.results[0]) for node in self.costs if node.cost.coeff > 0}

    @property
    def reached(self) -> set[str]:
        """Nodes that the gradient of some cost reaches; one with the coefficient 0 has none."""
        found = set[str]()
        for node in reversed(self.nodes.values()):
            if node.name in found or (node.layer.is_cost and node.cost.coeff > 0):
                found |= {node.name, *node.sources}
        return found

    @property
    def learnable(self) -> set[str]:
        """Parameters that some gradient reaches."""
        reached = self.reached
        return {name for node in self.nodes.values() if node.name in reached for name in node.uses}

    @cached_property
    def params(self) -> dict[str, Param]:
        return {name: param for node in self.nodes.values() for name, param in node.params.items()}

    @property
    def shared(self) -> dict[str, str]:
        """Names under which layers use parameters of others, and the names of these."""
        return {name: owner for node in self.nodes.values() for name, owner in node.shared.items()}

    @cached_property
    def states(self) -> dict[str, State]:
        return {name: state for node in self.nodes.values() for name, state in node.states.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the parameters, then of the states."""
        return {name: of.shape for name, of in (self.params | self.states).items()}

    def needing_gradient(self, trainable: Iterable[str]) -> set[str]:
        """Nodes whose output gradient is computed: those with a trainable parameter in or before them, below a cost."""
        trained, learners = set(trainable), dict[str, str]()  # node -> a node in or before it that learns
        reached = self.reached
        for node in (node for node in self.nodes.values() if node.name in reached):
            before = [learners[name] for name in node.sources if name in learners]
            if before and not node.layer.differentiable:
                raise ConfigError(
                    f"no gradient passes a {node.layer.type} layer, but layer '{before[0]}' below it learns;"
                    " freeze that one (solver: {lr: 0}) or move this one in front of it",
                    ("layers", node.name),
                )
            if before or trained & node.uses:
                learners[node.name] = before[0] if before else node.name
        return set(learners)

    def layouts(self) -> dict[str, str]:
        """Memory order of each node's map: C, H, W, N where a fully connected layer reads it, else H, C, W, N."""
        flat = {name for node in self.nodes.values() if node.layer.flat_input for name in node.inputs}
        return {name: "chwn" if name in flat else "hcwn" for name in self.nodes}

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]


def _only_reports(cost: Node) -> bool:
    return cost.cost.coeff == 0


def _check_sharer(layer: Any, owner: str) -> None:
    """Raise ConfigError for what a layer says of weights that are another's; biases of its own learn as it says."""
    if layer.init != type(layer).__dataclass_fields__["init"].default:
        raise ConfigError(f"the weights are those of '{owner}', which sets how they start", ("init",))
    for name, _, _, default in options(type(layer.solver)):
        if getattr(layer.solver, name) != default and not (layer.bias and name in OF_BIASES):
            raise ConfigError(f"the weights are those of '{owner}', which sets how they learn", ("solver", name))


def _check_targets(layer: Layer, inputs: Sequence[str], shapes: Sequence[Shape]) -> None:
    """Raise ConfigError where a cost's labels are no labels. One label and one element have equal shapes."""
    if not isinstance(layer, Cost):
        return
    if inputs[0] == LABELS:
        raise ConfigError("the first input of a cost is a layer; expected [LAYER, labels]", ("inputs",))
    if len(inputs) > 1 and inputs[1] != LABELS and not (layer.takes_targets and shapes[1] == shapes[0]):
        targets = f", or targets of the shape {shapes[0]}" if layer.takes_targets else ""
        raise ConfigError(f"expected labels{targets}, found layer '{inputs[1]}' of {shapes[1]}", ("inputs",))


def multiply_adds(network: Network) -> int:
    """Multiply-adds of the forward pass of one sample."""
    return sum(node.layer.multiply_adds(*node.in_shapes) for node in network.nodes.values())


def describe(network: Network) -> list[dict[str, Any]]:
    """One row a layer: type, inputs, output shape, parameters, multiply-adds of one sample."""
    return [
        {
            "layer": node.name,
            "type": node.layer.type,
            "inputs": list(node.inputs),
            "output": str(node.shape),
            "parameters": sum(prod(param.shape) for param in node.params.values()),
            "multiply_adds": node.layer.multiply_adds(*node.in_shapes),
        }
        for node in network.nodes.values()
    ]
