"""A config file to plain values, each with its place: files that it includes, overrides of the command line.

`include: base.yaml`, or a list of files, relative to the file that says so.  Mappings are merged key by key, and the
including file wins.  A section of another `type` replaces the whole section; so does anything that is not a mapping.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from convnet.config.blocks import expand, uses_block
from convnet.config.text import LINE_BREAK, Tree, parse
from layers.options import ConfigError, Path, show

ALIKE = 0.8  # 1: equal; a name of several parts is like many others a little


@dataclass(frozen=True)
class Document:
    """Plain values, and the place of each: of the key in a mapping, of the item in a list."""

    values: dict[str, Any]
    marks: dict[Path, str]


def locate(marks: Mapping[Path, str], error: ConfigError) -> ConfigError:
    """The error with the place of what it is about, or of the closest section around that."""
    if error.position:
        return error
    path = error.path if error.key is None else (*error.path, error.key)
    while path and path not in marks:
        path = path[:-1]
    return error.at(marks.get(path, ""))


def load(
    file: str | os.PathLike[str], overrides: Iterable[str] = (), environ: Mapping[str, str] = os.environ
) -> Document:
    """Read a config file and what it includes, then apply overrides such as "solver.lr=0.02".

    Raises ConfigError, with its place, for whatever is wrong with a file, its text or an override.
    """
    tree = _read(os.fspath(file), environ, ())
    for override in overrides:
        known = merge(tree, expand(tree)[0])  # an override may name a layer that a block makes
        tree = merge(tree, _override(known, override, environ))
    tree = merge(*expand(tree))
    return Document(tree.plain(), tree.marks())


def merge(base: Tree, over: Tree) -> Tree:
    """`over` on top of `base`: mappings key by key, anything else and a section of another type as a whole."""
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    types = [tree.value["type"].value for tree in (base, over) if "type" in tree.value]
    if len(types) == 2 and types[0] != types[1]:
        return over
    merged = {key: merge(base.value[key], tree) if key in base.value else tree for key, tree in over.value.items()}
    return Tree({**base.value, **merged}, base.mark)


def _override(tree: Tree, override: str, environ: Mapping[str, str]) -> Tree:
    """The tree that an override puts on top of `tree`."""
    place = f"command line: {override}"
    dotted, equals, text = override.partition("=")
    if not equals or not all(dotted.split(".")):
        raise ConfigError("expected KEY=VALUE, such as solver.lr=0.02", position=place)
    leaf = parse(text, lambda line, column: place, environ) or Tree(None, place)
    keys = _keys(tree, dotted.split("."))
    _check_layer(tree, keys, place)
    for key in reversed(keys):
        leaf = Tree({key: leaf}, place)
    return leaf


def _keys(tree: Tree | None, parts: list[str]) -> list[str]:
    """The keys that a dotted path goes through; a key of the tree may have dots itself, as a layer's name can."""
    if not parts:
        return []
    names = tree.value if tree and isinstance(tree.value, dict) else {}
    used = next((n for n in range(len(parts), 1, -1) if ".".join(parts[:n]) in names), 1)
    key = ".".join(parts[:used])
    return [key, *_keys(names.get(key), parts[used:])]


def _check_layer(tree: Tree, keys: list[str], place: str) -> None:
    """Raise ConfigError for nearly the name of a layer of a block, which would be read as options of the block."""
    layers = tree.value.get("layers")
    if keys[0] != "layers" or len(keys) < 4 or not layers or not isinstance(layers.value, dict):
        return
    section = layers.value.get(keys[1])
    if section and (not uses_block(section) or keys[2] in section.value):
        return
    known = [name for name, section in layers.value.items() if not uses_block(section)]
    names = [".".join(keys[1:used]) for used in range(3, len(keys) + 1)]  # how far the name goes is not known
    pairs = [(SequenceMatcher(None, other, name).ratio(), name, other) for name in names for other in known]
    alike, name, near = max(pairs, default=(0.0, "", ""))
    if alike > ALIKE:
        raise ConfigError(f"there is no layer '{name}'; did you mean '{near}'?", position=place)


def _read(file: str, environ: Mapping[str, str], including: tuple[str, ...]) -> Tree:
    """A file as a tree, its includes merged in. including: the chain of files that led here."""

    def where(line: int, column: int) -> str:
        return f"{file}:{line + 1}:{column + 1}"

    tree = parse(_text(file), where, environ)
    if tree is None:
        raise ConfigError("the file is empty; expected a mapping of sections", position=file)
    if not isinstance(tree.value, dict):
        raise ConfigError(f"expected a mapping of sections, found {show(tree.plain())}", position=tree.mark)
    include = tree.value.pop("include", Tree([], ""))
    base = Tree({}, tree.mark)
    for item in include.value if isinstance(include.value, list) else [include]:
        base = merge(base, _included(item, file, environ, (*including, file)))
    return merge(base, tree)


def _included(item: Tree, file: str, environ: Mapping[str, str], including: tuple[str, ...]) -> Tree:
    if not isinstance(item.value, str):
        message = f"expected a file name, or a list of them, found {show(item.plain())}"
        raise ConfigError(message, ("include",), position=item.mark)
    path = os.path.join(os.path.dirname(file), item.value)
    if os.path.realpath(path) in map(os.path.realpath, including):
        raise ConfigError(f"files include each other: {' -> '.join((*including, path))}", position=item.mark)
    if not os.path.isfile(path):
        raise ConfigError(f"no such file: {path}", ("include",), position=item.mark)
    return _read(path, environ, including)


def _text(file: str) -> str:
    try:
        with open(file, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise ConfigError(f"cannot be read: {(error.strerror or str(error)).lower()}", position=file) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        *before, line = LINE_BREAK.split(data[: error.start].decode("utf-8-sig"))
        message = f"not UTF-8 text (byte 0x{data[error.start]:02x}); save the file as UTF-8"
        raise ConfigError(message, position=f"{file}:{len(before) + 1}:{len(line) + 1}") from None
