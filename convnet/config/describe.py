"""The reference of all layer types, from the declarations that validate them."""

import inspect
import textwrap
from typing import Any

import layers
from convnet.config.dump import plain, yaml_text
from layers.options import LAYERS, REQUIRED, expected, options

WIDTH = 100
WIRING = """\
  inputs: the name of a layer, or a list of names; default: the layer before
  neuron: a function that is applied to the output, in a layer of its own; see the neuron layer"""


def describe_layers(name: str | None = None) -> str:
    """Every layer type in a line, or all about the one called `name`; ConfigError where there is none."""
    LAYERS.discover(layers)
    if name is not None:
        return _describe(LAYERS[name])
    width = max(map(len, LAYERS))
    return "\n".join(f"{kind:{width}}  {document(LAYERS[kind]).partition(chr(10))[0]}" for kind in sorted(LAYERS))


def document(cls: type) -> str:
    """The docstring of a layer, without its indentation."""
    return inspect.cleandoc(cls.__doc__ or "")


def _describe(cls: Any) -> str:
    lines = [cls.type, "", document(cls), "", "Options of this layer:"]
    for name, hint, rule, default in options(cls):
        head = f"{name}: {expected(hint, rule)}; {default_text(default)}"
        lines += textwrap.wrap(head, WIDTH, initial_indent=" " * 2, subsequent_indent=" " * 4)
        lines += textwrap.wrap(rule.doc, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join([*lines, "", "Of every layer:", WIRING])


def default_text(value: Any) -> str:
    """What a help text says of an option's default."""
    if value is REQUIRED:
        return "required"
    value = plain(value)
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if item is not None}
    text = yaml_text(value, default_flow_style=True, width=1000)
    return f"default {text.removesuffix('...' + chr(10)).strip()}"
