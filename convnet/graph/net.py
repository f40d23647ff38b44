"""Wiring: layer specifications to a network with shapes, checked before anything runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Protocol

from layers.base import Layer, Param, Shape, State
from layers.options import ConfigError

FEATURES_MOST = 2**31 - 1  # numbers in the map of a sample: kernels count them in 32 bits
LABELS = "labels"  # the reserved input name of the label vector


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


@dataclass(frozen=True)
class Node:
    """A layer in its place: the names and shapes of its inputs, and the shape of its output."""

    name: str
    layer: Layer
    inputs: tuple[str, ...]
    in_shapes: tuple[Shape, ...]
    shape: Shape

    @property
    def params(self) -> dict[str, Param]:
        """Its parameters by full name, such as "conv1.weight"."""
        return {f"{self.name}.{key}": param for key, param in self.layer.params(*self.in_shapes).items()}

    @property
    def states(self) -> dict[str, State]:
        return {f"{self.name}.{key}": state for key, state in self.layer.states(*self.in_shapes).items()}


class Network:
    """Nodes in the order of the config, every input defined before it is used."""

    def __init__(self, specs: Sequence[LayerSpec]):
        self.nodes: dict[str, Node] = {}
        for spec in specs:
            self.nodes[spec.name] = self._node(spec)
        self._check_use(specs)

    def _node(self, spec: LayerSpec) -> Node:
        inputs = tuple(self._resolve(spec, name) for name in spec.inputs)
        least, most = spec.layer.arity
        if not least <= len(inputs) <= (most if most is not None else len(inputs)):
            expected = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            raise ConfigError(f"expected {expected} inputs, got {len(inputs)}", (*spec.path, "inputs"))
        if spec.layer.is_cost and inputs[1:] != (LABELS,):
            raise ConfigError(f"expected [scores, {LABELS}], found [{', '.join(spec.inputs)}]", (*spec.path, "inputs"))
        shapes = tuple(Shape(1) if name == LABELS else self.nodes[name].shape for name in inputs)
        try:
            shape = spec.layer.output(*shapes)
            if shape.features > FEATURES_MOST:
                raise ConfigError(f"expected an output of at most {FEATURES_MOST} numbers a sample, found {shape}")
            return Node(spec.name, spec.layer, inputs, shapes, shape)
        except ConfigError as error:
            raise error.under(*spec.path) from None

    def _resolve(self, spec: LayerSpec, name: str) -> str:
        """The node that an input means; convnet.config has made sure that it stands above."""
        if name != LABELS and self.nodes[name].layer.is_cost:
            message = f"expected a layer that gives a map, found the cost '{name}'"
            raise ConfigError(message, (*spec.path, "inputs"))
        if name != LABELS and spec.layer.takes_logits and self.nodes[name].layer.type == "softmax":
            return self.nodes[name].inputs[0]  # softmax and log loss are one operation: it reads the logits
        return name

    def _check_use(self, specs: Sequence[LayerSpec]) -> None:
        used = {name for spec in specs for name in spec.inputs}
        for spec in specs:
            if spec.name not in used and not spec.layer.is_cost:
                raise ConfigError("nothing uses this layer's output", spec.path)
        if not self.costs:
            raise ConfigError("the network has no cost layer, such as logreg", ("layers",))
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
    def outputs(self) -> int:
        """Classes that the first cost tells apart."""
        return self.costs[0].in_shapes[0].features

    @cached_property
    def params(self) -> dict[str, Param]:
        return {name: param for node in self.nodes.values() for name, param in node.params.items()}

    @cached_property
    def states(self) -> dict[str, State]:
        return {name: state for node in self.nodes.values() for name, state in node.states.items()}

    def needing_gradient(self, trainable: Iterable[str]) -> set[str]:
        """Nodes whose output gradient is computed: those with a trainable parameter in or before them."""
        trained, need = set(trainable), set[str]()
        for node in self.nodes.values():
            if trained & node.params.keys() or need & set(node.inputs):
                need.add(node.name)
        return need

    def layouts(self) -> dict[str, str]:
        """Memory order of each node's map: C, H, W, N where a fully connected layer reads it, else H, C, W, N."""
        flat = {name for node in self.nodes.values() if node.layer.flat_input for name in node.inputs}
        return {name: "chwn" if name in flat else "hcwn" for name in self.nodes}

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]


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
