"""The reference of all sections and layer types, from the declarations that validate them."""

import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, get_args

import layers
from convnet.config.dump import flow_text, plain
from convnet.config.schema import Config
from layers.initializers import Initializer
from layers.options import LAYERS, REQUIRED, ConfigError, Options, Rule, expected, options
from layers.registry import suggest

WIDTH = 100
WIRING = """\
  inputs: the name of a layer, or a list of names; default: the layer before
  neuron: a function that is applied to the output, in a layer of its own; see the neuron layer
  ranks: the one of several ranks that computes it, for the whole batch, such as [0]; default: as its inputs"""
# What can be described, apart from the options of Config.
INIT = ("init", Initializer, Rule(doc="initial values of a layer's weights, in its init and init_bias"), REQUIRED)
TEXTS = {
    "include": "a file, or a list of files, relative to this one, that it builds on. Mappings are merged key by key, "
    "and this file wins; lists and sections of another type are replaced.",
    "blocks": "layers that are written once, by the name of the block, and used any number of times in layers. "
    "docs/config.md tells how.",
    "layers": "the network: a mapping of names to layers, in order. `convnet layers` lists the types, `convnet layers "
    "TYPE` the options of one.",
}


def describe_layers(name: str | None = None) -> str:
    """Every layer type in a line, or all about the one called `name`; ConfigError where there is none."""
    LAYERS.discover(layers)
    if name is None:
        return _table({kind: document(LAYERS[kind]).partition("\n")[0] for kind in LAYERS})
    cls = LAYERS[name]
    lines = [cls.type, "", document(cls), "", "Options of this layer:", *_options(cls, "  ", registered=False)]
    return "\n".join([*lines, "", "Of every layer:", WIRING])


def describe_options(name: str | None = None) -> str:
    """Every section of a config in a line, or all options below the one called `name`; ConfigError for another."""
    sections = {option[0]: option for option in (*options(Config), INIT)}
    if name is None:
        return _table({key: rule.doc for key, _, rule, _ in sections.values()} | TEXTS)
    if name in TEXTS:
        return "\n".join(textwrap.wrap(f"{name}: {TEXTS[name]}", WIDTH))
    if name not in sections:
        raise ConfigError(f"unknown section '{name}'{suggest(name, sections | TEXTS)}")
    return "\n".join(_option(*sections[name], "", registered=True))


def _table(rows: dict[str, str]) -> str:
    width = max(map(len, rows))
    return "\n".join(f"{key:{width}}  {text.partition('. ')[0]}".rstrip() for key, text in rows.items())


def document(cls: type) -> str:
    """The docstring; nothing where Python runs without them, and a dataclass has its signature in their place."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return "" if text.startswith(f"{cls.__name__}(") else text


def _options(cls: type, indent: str, *, registered: bool) -> Iterator[str]:
    for option in options(cls):
        yield from _option(*option, indent, registered=registered)


def _option(name: str, hint: Any, rule: Rule, default: Any, indent: str, *, registered: bool) -> Iterator[str]:
    """What it accepts, its help, and the options below it; registered: also those of each `type` that it may have."""
    head = f"{name}: {expected(hint, rule)}; {default_text(default)}"
    yield from textwrap.wrap(head, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
    yield from textwrap.wrap(rule.doc, WIDTH, initial_indent=indent + "    ", subsequent_indent=indent + "    ")
    for section in (cls for cls in get_args(hint) or (hint,) if inspect.isclass(cls) and issubclass(cls, Options)):
        types = section.registry
        if types is None:
            yield from _options(section, indent + "  ", registered=registered)
        elif registered:
            yield from (line for kind in types for line in _kind(types[kind], indent + "  "))


def _kind(cls: Any, indent: str) -> Iterator[str]:
    text = f"type {cls.type}: {document(cls)}"
    yield from textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "    ")
    yield from _options(cls, indent + "  ", registered=True)


def default_text(value: Any) -> str:
    """What a help text says of an option's default."""
    if value is REQUIRED:
        return "required"
    value = plain(value)
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if item is not None}
    return f"default {flow_text(value)}"
