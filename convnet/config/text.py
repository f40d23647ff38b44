"""YAML text to a tree of plain values, each with its place.

Scalars are read as people write them.  `1e-4`, `1E4` and `.5` are numbers; true and false are the only booleans, so
that `no`, `on` and `1:30` stay text (an option that is true or false accepts yes, no, on and off); a number with
leading zeros stays text, since it is octal for one reader and decimal for another.  In text, ${NAME} and
${NAME:-default} are environment variables, the default standing in for an unset or empty one; $${ is a plain "${".
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from layers.options import ConfigError, Path, show
from layers.values import INTEGER, NUMBER

TAG = "tag:yaml.org,2002:"
BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# What text a scalar of each type has, the characters it may begin with, and its value.
SCALARS: dict[str, tuple[str, list[str], Callable[[str], Any]]] = {
    "int": (INTEGER.pattern, [*"-+0123456789"], lambda text: int(text, 16 if text.startswith("0x") else 10)),
    "float": (
        NUMBER.pattern + r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        [*"-+.0123456789"],
        lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    ),
    "bool": ("|".join(BOOLS), [*"tTfF"], BOOLS.__getitem__),
    "null": ("|~|null|Null|NULL", ["", *"~nN"], lambda text: None),
    "merge": ("<<", ["<"], str),
}
VARIABLE = re.compile(r"\$\$(?=\{)|\$\{([^}]*)(\}?)")
VARIABLE_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
Where = Callable[[int, int], str]  # the place of a line and column, both from 0
MOST_VALUES = 100_000  # of a file, aliases written out: a few lines of aliases of aliases stand for billions
MOST_NESTED, TOO_DEEP = 50, "sections are nested too deeply"


class Resolver(BaseResolver):
    """Which plain scalars are not text."""


for _name, (_pattern, _first, _) in SCALARS.items():
    Resolver.add_implicit_resolver(TAG + _name, re.compile(f"(?:{_pattern})\\Z"), _first)


class _Loader(Reader, Scanner, Parser, Composer, Resolver):
    def __init__(self, text: str):
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        Resolver.__init__(self)


@dataclass(frozen=True)
class Tree:
    """A value with its place: a scalar, a list of trees, or a dict of trees."""

    value: Any
    mark: str

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: tree.plain() for key, tree in self.value.items()}
        return [tree.plain() for tree in self.value] if isinstance(self.value, list) else self.value

    def marks(self, path: Path = ()) -> dict[Path, str]:
        found = {path: self.mark}
        items = self.value.items() if isinstance(self.value, dict) else ()
        for key, tree in enumerate(self.value) if isinstance(self.value, list) else items:
            found.update(tree.marks((*path, key)))
        return found


def parse(text: str, where: Where, environ: Mapping[str, str]) -> Tree | None:
    """The tree of a document, None for an empty one; ConfigError, with its place, for anything but one document."""
    node = _compose(text, where)
    return None if node is None else _Construction(where, environ).tree(node)


def _compose(text: str, where: Where) -> yaml.Node | None:
    """The only document in `text`, None where there is none."""
    try:
        loader = _Loader(text)
        node = loader.get_node() if loader.check_node() else None
        if loader.check_node() and (second := loader.get_node()):
            mark = second.start_mark
            raise ConfigError("a second document begins here; expected one", position=where(mark.line, mark.column))
        return node
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, where) from None
    except ReaderError as error:
        *before, line = LINE_BREAK.split(text[: error.position])
        message = f"character U+{ord(text[error.position]):04X} is not allowed"
        raise ConfigError(message, position=where(len(before), len(line))) from None
    except RecursionError:
        raise ConfigError(TOO_DEEP, position=where(0, 0)) from None


def _syntax_error(error: yaml.MarkedYAMLError, text: str, where: Where) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    assert mark is not None
    line = LINE_BREAK.split(text)[mark.line]
    if line.startswith("\t", mark.column):
        return ConfigError("tab character; use spaces", position=where(mark.line, mark.column))
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    return ConfigError(f"not valid YAML: {problem}", position=where(mark.line, mark.column))


class _Construction:
    """Nodes to trees."""

    def __init__(self, where: Where, environ: Mapping[str, str]):
        self.where, self.environ = where, environ
        self.open: list[yaml.Node] = []
        self.count = 0

    def error(self, node: yaml.Node, message: str) -> ConfigError:
        return ConfigError(message, position=self.place(node))

    def place(self, node: yaml.Node) -> str:
        return self.where(node.start_mark.line, node.start_mark.column)

    def unknown_tag(self, node: yaml.Node) -> ConfigError:
        return self.error(node, f"unknown tag '{node.tag.replace(TAG, '!!')}'")

    def tree(self, node: yaml.Node, key: yaml.Node | None = None) -> Tree:
        if any(node is other for other in self.open):
            raise self.error(key or node, "an alias stands inside its own anchor")
        if len(self.open) > MOST_NESTED:
            raise self.error(key or node, TOO_DEEP)
        self.count += 1
        if self.count > MOST_VALUES:
            section = [*self.open, node][1]
            raise self.error(section, f"expected at most {MOST_VALUES} values in a file, aliases written out")
        self.open.append(node)
        value = self.value(node)
        self.open.pop()
        return Tree(value, self.place(key or node))

    def value(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode) and node.tag == TAG + "map":
            return self.mapping(node)
        if isinstance(node, yaml.SequenceNode) and node.tag == TAG + "seq":
            return [self.tree(item) for item in node.value]
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        raise self.unknown_tag(node)

    def mapping(self, node: yaml.MappingNode) -> dict[str, Tree]:
        """Its own keys on top of those that `<<` brings in."""
        merged: dict[str, Tree] = {}
        own: dict[str, Tree] = {}
        seen: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = key.value if key.tag == TAG + "merge" else self.key(key)
            if name in seen:
                raise self.error(key, f"duplicate key '{name}'; the first is at {self.place(seen[name])}")
            seen[name] = key
            if key.tag == TAG + "merge":
                merged = self.merged(value)
            else:
                own[name] = self.tree(value, key)
        return {**merged, **own}

    def merged(self, node: yaml.Node) -> dict[str, Tree]:
        """What `<<: *a` or `<<: [*a, *b]` brings in; the first mapping with a key wins."""
        found: dict[str, Tree] = {}
        for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            tree = self.tree(item)
            if not isinstance(tree.value, dict):
                raise self.error(item, f"'<<' expects a mapping, found {show(tree.plain())}")
            found = {**tree.value, **found}
        return found

    def key(self, node: yaml.Node) -> str:
        value = self.value(node)
        if isinstance(value, str):
            return value
        plain = Tree(value, "").plain()
        raise self.error(node, f"expected a name before ':', found {show(plain)}; a name like that needs quotes")

    def scalar(self, node: yaml.ScalarNode) -> Any:
        kind, text = node.tag.removeprefix(TAG), node.value
        if kind == "str":
            return VARIABLE.sub(lambda match: self.variable(match, node), text)
        pattern, _, value = SCALARS.get(kind, ("", [], None))
        if value is None:
            raise self.unknown_tag(node)
        if not re.fullmatch(pattern, text):
            raise self.error(node, f"'{text}' does not suit the tag !!{kind}")
        return value(text)

    def variable(self, match: re.Match[str], node: yaml.Node) -> str:
        if match[1] is None:
            return "$"
        parts = VARIABLE_NAME.fullmatch(match[1])
        if not parts or not match[2]:
            raise self.error(
                node, f"expected ${{NAME}} or ${{NAME:-default}}, found '{match[0]}'; $${{ stands for '${{'"
            )
        name, default = parts.groups()
        value = self.environ.get(name, "")
        if default is not None:
            return value or default
        if name not in self.environ:
            raise self.error(node, f"environment variable {name} is not set; ${{{name}:-...}} would give a default")
        return value
