"""Blocks: layers that are written once and expanded to plain named layers before anything else looks at them.

    blocks:
      residual:
        conv1: {type: conv, filters: $width, size: 3, pad: 1, neuron: relu}
        conv2: {type: conv, filters: $width, size: 3, pad: 1}
        add: {type: eltsum, inputs: [conv2, $input], neuron: relu}
    layers:
      stage1: {block: residual, repeat: 3, width: 64}

gives stage1.0.conv1 to stage1.2.add, each repetition reading the one before; without `repeat`, stage1.conv1 to
stage1.add.  `$width` is a parameter, `$input` the layer that the block reads.  Everything keeps its place in the file,
parameters that of their value.
"""

import re
from collections.abc import Callable, Iterator

from convnet.config.text import Tree
from layers.options import ConfigError, show
from layers.registry import suggest
from layers.values import as_integer

PARAMETER = re.compile(r"\$(\w+)")
INPUT = "input"  # the parameter that stands for the layer that a block reads
KEYS = ("block", "repeat", "first", "inputs")  # of the section that uses a block; the others are its parameters
NAMES_LAYERS = ("inputs", "share")  # options that hold names of layers
MOST = 10_000  # layers of an expanded network, and so repetitions: a few lines of blocks of blocks stand for billions


def expand(tree: Tree) -> tuple[Tree, Tree]:
    """The document with plain layers alone, and what is to be merged on top: sections that change expanded layers.

    Such a section has the name of a layer that a block made, and no `type`.
    """
    sections = dict(tree.value)
    blocks, layers = sections.pop("blocks", Tree({}, tree.mark)), sections.get("layers")
    if not isinstance(blocks.value, dict):
        found = f"expected a mapping of names to blocks, found {show(blocks.plain())}"
        raise ConfigError(found, ("blocks",), position=blocks.mark)
    changes: dict[str, Tree] = {}
    if layers and isinstance(layers.value, dict) and any(map(uses_block, layers.value.values())):
        changes = {name: section for name, section in layers.value.items() if _is_change(section)}
        expansion = _Expansion(blocks.value)
        for name, section in layers.value.items():
            if name not in changes:
                expansion.add(name, section)
        changes = {name: expansion.resolved(section) for name, section in changes.items()}
        sections["layers"] = Tree(expansion.made, layers.mark)
    return Tree(sections, tree.mark), Tree({"layers": Tree(changes, tree.mark)} if changes else {}, tree.mark)


def uses_block(section: Tree) -> bool:
    """Whether a section stands for the layers of a block."""
    return isinstance(section.value, dict) and "block" in section.value


def _is_change(section: Tree) -> bool:
    return isinstance(section.value, dict) and "block" not in section.value and "type" not in section.value


class _Expansion:
    """The layers made so far. Positions are in the trees, so errors are complete where they are raised."""

    def __init__(self, blocks: dict[str, Tree]):
        self.blocks = blocks
        self.made: dict[str, Tree] = {}
        self.outputs: dict[str, str] = {}  # the layer that the name of a block stands for in `inputs`
        self.open: list[str] = []  # the blocks that are being expanded

    def add(self, name: str, section: Tree) -> None:
        if uses_block(section):
            self._add_blocks(name, section)
        elif name in self.made:
            first = f"the first is at {self.made[name].mark}"
            raise ConfigError(f"two layers have this name; {first}", ("layers", name), position=section.mark)
        elif len(self.made) == MOST:
            raise _error(name, section, f"expected at most {MOST} layers, blocks written out")
        else:
            self.made[name] = self.resolved(section)

    def resolved(self, section: Tree) -> Tree:
        """A layer whose inputs name layers, not blocks."""
        return _renamed(section, lambda name: self.outputs.get(name, name))

    def _add_blocks(self, name: str, section: Tree) -> None:
        kind, body = self._block(name, section)
        given = {key: value for key, value in section.value.items() if key not in KEYS}
        reads = self.resolved(section).value.get("inputs")
        previous = reads or (Tree(list(self.made)[-1], section.mark) if self.made else None)
        self.open.append(kind)
        for copy, more in _repetitions(name, section):
            parameters = {**given, **more, **({INPUT: previous} if previous else {})}
            _check_parameters(name, section, kind, body, parameters)
            self._add_layers(copy, body, parameters, reads)
            previous = reads = Tree(self.outputs[copy], section.mark)
        self.open.pop()
        self.outputs[name] = self.outputs[copy]

    def _add_layers(self, copy: str, body: Tree, parameters: dict[str, Tree], reads: Tree | None) -> None:
        """One copy of a block; its first layer reads `reads` where the block was told to."""
        for key, section in body.value.items():
            section = _renamed(section, lambda name: f"{copy}.{name}" if _stands_in(body, name) else name)
            section = _scalars(section, lambda leaf: _argument(leaf, parameters))
            if reads and isinstance(section.value, dict) and "inputs" not in section.value:
                section = Tree({**section.value, "inputs": reads}, section.mark)
            reads = None
            self.add(f"{copy}.{key}", section)
        last = f"{copy}.{key}"
        self.outputs[copy] = self.outputs.get(last, last)

    def _block(self, name: str, section: Tree) -> tuple[str, Tree]:
        """The name and the layers of the block that a section uses: one of `blocks`, or written in its place."""
        block = section.value["block"]
        if not isinstance(block.value, dict | str):
            found = f"block: expected the name of a block, or its layers, found {show(block.plain())}"
            raise _error(name, block, found)
        kind, body = ("", block) if isinstance(block.value, dict) else (block.value, self.blocks.get(block.value))
        if body is None:
            near = suggest(kind, self.blocks) if self.blocks else "; there is no section 'blocks'"
            raise _error(name, block, f"unknown block '{kind}'{near}")
        if kind and kind in self.open:
            raise _error(name, block, f"block '{kind}' contains itself")
        if not isinstance(body.value, dict) or not body.value:
            expected = f"expected a mapping of names to layers, found {show(body.plain())}"
            raise ConfigError(expected, ("blocks", kind) if kind else ("layers", name, "block"), position=body.mark)
        return kind, body


def _repetitions(name: str, section: Tree) -> Iterator[tuple[str, dict[str, Tree]]]:
    """The name of each copy of a block, and the parameters that are its own."""
    repeat, first = section.value.get("repeat"), section.value.get("first", Tree(0, ""))
    if repeat is None:
        if "first" in section.value:
            raise _error(name, first, "first: numbers repetitions; expected `repeat` beside it")
        yield name, {}
        return
    begin = as_integer(first.value)
    if begin is None or begin < 0:
        raise _error(name, first, f"first: expected an integer >= 0, found {show(first.plain())}")
    written_out = isinstance(repeat.value, list) and repeat.value
    items = repeat.value if written_out else [Tree({}, repeat.mark)] * _count(name, repeat)
    for i, item in enumerate(items):
        if not isinstance(item.value, dict):
            raise _error(name, item, f"repeat[{i}]: expected a mapping of parameters, found {show(item.plain())}")
        yield f"{name}.{begin + i}", item.value


def _count(name: str, repeat: Tree) -> int:
    count = as_integer(repeat.value)
    if count is None or not 1 <= count <= MOST:
        expected = f"expected an integer >= 1 and <= {MOST}, or a list of parameters"
        raise _error(name, repeat, f"repeat: {expected}, found {show(repeat.plain())}")
    return count


def _check_parameters(name: str, section: Tree, kind: str, body: Tree, given: dict[str, Tree]) -> None:
    block = f"block '{kind}'" if kind else "the block"
    known = dict(reversed([*_parameters(body)]))  # each with its first place
    for parameter, value in given.items():
        if parameter not in known and parameter != INPUT:
            options = [*KEYS, *(option for option in known if option != INPUT)]
            raise _error(name, value, f"unknown option '{parameter}'{suggest(parameter, options)}")
    for parameter, mark in known.items():
        if parameter == INPUT and parameter not in given:
            raise _error(name, section, f"{block} reads the layer before it, and there is none")
        if parameter not in given:
            raise _error(name, section, f"parameter '{parameter}' of {block} is missing; {mark} has its place")


def _parameters(tree: Tree) -> Iterator[tuple[str, str]]:
    """The parameters in a block, each with a place where it stands."""
    if isinstance(tree.value, dict | list):
        for item in tree.value.values() if isinstance(tree.value, dict) else tree.value:
            yield from _parameters(item)
    elif name := _parameter(tree):
        yield name, tree.mark


def _parameter(leaf: Tree) -> str:
    match = PARAMETER.fullmatch(leaf.value) if isinstance(leaf.value, str) else None
    return match[1] if match else ""


def _argument(leaf: Tree, parameters: dict[str, Tree]) -> Tree:
    name = _parameter(leaf)
    return parameters[name] if name else leaf


def _renamed(section: Tree, rename: Callable[[str], str]) -> Tree:
    """A layer with other names in the options that hold names of layers."""
    if not isinstance(section.value, dict):
        return section

    def leaf(tree: Tree) -> Tree:
        return Tree(rename(tree.value), tree.mark) if isinstance(tree.value, str) else tree

    named = {key: _scalars(section.value[key], leaf) for key in NAMES_LAYERS if key in section.value}
    return Tree({**section.value, **named}, section.mark)


def _stands_in(body: Tree, name: str) -> bool:
    """Whether a block has a layer of that name, or one whose neuron or copy it may be."""
    return any(name == key or name.startswith(f"{key}.") for key in body.value)


def _scalars(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with every scalar changed."""
    if isinstance(tree.value, dict):
        return Tree({key: _scalars(item, change) for key, item in tree.value.items()}, tree.mark)
    if isinstance(tree.value, list):
        return Tree([_scalars(item, change) for item in tree.value], tree.mark)
    return change(tree)


def _error(name: str, at: Tree, message: str) -> ConfigError:
    return ConfigError(message, ("layers", name), position=at.mark)
