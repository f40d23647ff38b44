"""A loaded document to a Config: layer objects, their inputs, automatic neurons."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import layers
from convnet.config.load import Document, load, locate
from convnet.config.schema import Config, LayerSpec
from layers.base import LABELS, Layer
from layers.neuron import Neuron
from layers.options import LAYERS, ConfigError, build, show
from layers.registry import nearest, one_of

WIRING = ("inputs", "neuron", "ranks")  # keys of every layer's section that are not options of the layer
LAYER_NAME = re.compile(r"\w[\w.-]*")


def load_config(
    file: str | os.PathLike[str], overrides: Iterable[str] = (), environ: Mapping[str, str] = os.environ
) -> Config:
    """The configuration in a file, with overrides such as "solver.lr=0.02"; ConfigError says what is wrong where."""
    return build_config(load(file, overrides, environ), name=FilePath(file).stem)


def build_config(document: Document, name: str = "") -> Config:
    """name: what the run is called where the document does not say."""
    try:
        if "layers" not in document.values:
            raise ConfigError("section 'layers' is missing; expected a mapping of names to layers")
        specs = build_layers(document.values["layers"])
        config = build(Config, {"name": name, **document.values, "layers": specs})
    except ConfigError as error:
        raise locate(document.marks, error) from None
    return replace(config, marks=document.marks)


def build_layers(section: Any) -> tuple[LayerSpec, ...]:
    """The `layers` section, each automatic neuron being a layer of its own behind the one that asks for it.

    `{conv1: {..., neuron: relu}}` becomes "conv1" and "conv1.relu"; an input `conv1` of a later layer means the latter.
    """
    LAYERS.discover(layers)
    if not isinstance(section, Mapping) or not section:
        raise ConfigError(f"expected a mapping of names to layers, found {show(section)}", ("layers",))
    chain = _Chain(tuple(section))
    for name, value in section.items():
        try:
            chain.add(name, value)
        except ConfigError as error:
            raise error.under("layers", name) from None
    return tuple(chain.specs.values())


class _Chain:
    """The layers so far. Errors are relative to the layer that is being added."""

    def __init__(self, names: tuple[str, ...]):
        self.names = names  # of the whole section
        self.specs: dict[str, LayerSpec] = {}
        self.outputs: dict[str, str] = {}  # what the name of a layer stands for in `inputs`: the layer, or its neuron

    def add(self, name: str, value: Any) -> None:
        self._check_name(name)
        if isinstance(value, Mapping) and "type" not in value:
            near = nearest(name, self.outputs)
            raise ConfigError(f"option 'type' is missing; expected {one_of(LAYERS)}{near and f' ({near[2:]})'}")
        layer = build(Layer, value, extra=WIRING)
        section = value if isinstance(value, Mapping) else {}
        ranks = _ranks(section.get("ranks"), layer)
        self._append(name, layer, self._inputs(section, layer), name, ranks)
        if section.get("neuron") is not None:
            neuron = self._neuron(section["neuron"], layer)
            self._append(f"{name}.{neuron.kind}", neuron, (name,), name, ranks)

    def _check_name(self, name: str) -> None:
        if name == LABELS:
            raise ConfigError("that name stands for the labels of a batch; expected another")
        if not LAYER_NAME.fullmatch(name):
            raise ConfigError("expected a name of letters, digits, '_', '-' and '.'")

    def _append(
        self, name: str, layer: Layer, inputs: tuple[str, ...], section: str, ranks: tuple[int, ...] | None
    ) -> None:
        if name in self.specs:
            raise ConfigError(f"a layer and the neuron of another are both called '{name}'")
        self.specs[name] = LayerSpec(name, layer, inputs, ("layers", section), ranks)
        self.outputs[section] = name

    def _neuron(self, value: Any, layer: Layer) -> Neuron:
        """The neuron of a layer, from its kind alone or from the options of a neuron layer."""
        if layer.is_cost or layer.arity == (0, 0):
            raise ConfigError(f"a {layer.type} layer has no neuron", ("neuron",))
        whole = isinstance(value, Mapping)
        if whole and value.get("type", Neuron.type) != Neuron.type:
            raise ConfigError(f"expected a neuron, found {show(value['type'])}", ("neuron", "type"))
        try:
            return build(Neuron, value)
        except ConfigError as error:
            raise error.under("neuron") if whole else ConfigError(error.message, ("neuron",)) from None

    def _inputs(self, section: Mapping[str, Any], layer: Layer) -> tuple[str, ...]:
        """The specs, or `labels`, that a layer reads: as given, or the one before it."""
        if "inputs" in section:
            given = section["inputs"]
            names = given if isinstance(given, list) else [given]
            return tuple(self._input(name, layer) for name in names)
        if layer.arity == (0, 0):
            return ()
        if not self.specs:
            raise ConfigError("the first layer has none before it to read; expected a data layer")
        return (list(self.specs)[-1],)

    def _input(self, name: Any, layer: Layer) -> str:
        if not isinstance(name, str):
            raise ConfigError(f"expected the name of a layer, or a list of names, found {show(name)}", ("inputs",))
        if name == LABELS and not layer.is_cost:
            raise ConfigError("only a cost layer reads the labels", ("inputs",))
        if name == LABELS or (name in self.specs and name not in self.outputs):
            return name
        if name not in self.outputs:
            later = name in self.names
            where = "stands below; layers read from layers above" if later else "does not exist"
            near = "" if later else nearest(name, [*self.outputs, LABELS])
            raise ConfigError(f"input '{name}' {where}{near}", ("inputs",))
        return self.outputs[name]


def _ranks(given: Any, layer: Layer) -> tuple[int, ...] | None:
    """The ranks that compute a layer, as its section says."""
    if given is None:
        return None
    ranks = given if isinstance(given, list) else [given]
    if not ranks or not all(type(rank) is int and rank >= 0 for rank in ranks) or len(set(ranks)) < len(ranks):
        raise ConfigError(f"expected the numbers of ranks, such as [0], found {show(given)}", ("ranks",))
    if layer.is_cost or layer.arity == (0, 0):
        raise ConfigError(f"a {layer.type} layer is computed by all ranks; expected no ranks", ("ranks",))
    return tuple(sorted(ranks))
