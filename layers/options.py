"""Options: the one declaration from which values are checked, errors are worded and help is printed.

    @layer("pool")
    @dataclass(frozen=True)
    class Pool(Layer):
        size: Size = option(least=1, doc="window, pixels")
        mode: str = option("max", choices=("max", "avg"), doc="what is taken of a window")

The annotation gives the type: int, float, bool, str, dict (any mapping), Size, tuple[T, ...], T | None, a union of
scalars, another class of options (a nested section), or a base class with a `registry` (a section whose `type` chooses
the class).  Values are checked and converted wherever an object is made, from a file or in Python:
`Pool(size=3).size == Size(3, 3)`.
"""

import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from layers.registry import ConfigError, Path, Registry, nearest, one_of, suggest
from layers.values import LARGEST, SCALARS, Rule, Size, as_integer, show

__all__ = [
    "LAYERS", "ConfigError", "LayerSolver", "Options", "Path", "Registry", "Rule", "Size",
    "build", "expected", "layer", "option", "options", "show",
]  # fmt: skip

Section = TypeVar("Section", bound="Options")
REQUIRED: Any = dataclasses.MISSING


def option(
    default: Any = REQUIRED,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    doc: str = "",
) -> Any:
    """A field of an `Options` class; without a default it must be given."""
    rule = Rule(least, above, most, below, tuple(choices), doc)
    return dataclasses.field(default=default, kw_only=True, metadata={"rule": rule})


@dataclass(frozen=True)
class Options:
    """Base of every section. A subclass checks what spans several options in `__post_init__`, after super's.

    type: the name under which a class is registered.
    shorthand: options that a lone value in place of the section sets; of a registered one, a lone name is its type.
    words: that may stand in place of the section, and the options that each stands for.
    """

    type: ClassVar[str] = ""
    registry: ClassVar[Registry | None] = None
    shorthand: ClassVar[tuple[str, ...]] = ()
    words: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __post_init__(self) -> None:
        for name, hint, rule, _ in options(type(self)):
            try:
                object.__setattr__(self, name, _convert(hint, rule, getattr(self, name)))
            except ConfigError as error:
                raise error.under(name) from None


def options(cls: Any) -> tuple[tuple[str, Any, Rule, Any], ...]:
    """Name, annotation, rule and default (REQUIRED: none) of each option of a class, in order."""
    return _declared(cls)


@functools.cache  # each object that is built asks
def _declared(cls: Any) -> tuple[tuple[str, Any, Rule, Any], ...]:
    hints = get_type_hints(cls)
    fields = (f for f in dataclasses.fields(cls) if "rule" in f.metadata)
    return tuple((f.name, hints[f.name], f.metadata["rule"], f.default) for f in fields)


def build(cls: type[Section], value: Any, path: Path = (), extra: Sequence[str] = ()) -> Section:
    """An instance of `cls`, or of the registered class that `value["type"]` names, from a mapping of its options.

    path: where the mapping stands, for errors.  extra: further keys that the caller reads itself.
    """
    try:
        return _build(cls, value, tuple(extra))
    except ConfigError as error:
        raise error.under(*path) from None


def _build(cls: type[Section], value: Any, extra: tuple[str, ...] = ()) -> Section:
    if isinstance(value, cls):
        return value
    value = _written_out(cls, value)
    cls = _chosen(cls, value)
    known = {name: (hint, rule, default) for name, hint, rule, default in options(cls)}
    keys = ("type", *known, *extra) if cls.type else (*known, *extra)
    for key in value:
        if key not in keys:
            raise ConfigError(f"unknown option '{key}'{suggest(str(key), keys)}", key=key)
    for name, (hint, rule, default) in known.items():
        if default is REQUIRED and name not in value:
            raise ConfigError(f"option '{name}' is missing; expected {expected(hint, rule)}")
    return cls(**{name: value[name] for name in known if name in value})


def _written_out(cls: type[Options], value: Any) -> Mapping[str, Any]:
    """The section as a mapping, where it was given by shorthand."""
    if isinstance(value, Mapping):
        return value
    if cls.shorthand and value is not None:
        return dict.fromkeys(cls.shorthand, value)
    if cls.registry and isinstance(value, str):
        return {"type": value}
    if cls.words and isinstance(value, str):
        if value in cls.words:
            return cls.words[value]
        raise ConfigError(f"expected {one_of(cls.words)}, or {expected(cls, Rule())}, found {show(value)}")
    raise ConfigError(f"expected {expected(cls, Rule())}, found {show(value)}")


def _chosen(cls: type[Section], value: Mapping[str, Any]) -> type[Section]:
    """The class that a section's `type` names."""
    if not cls.registry or (cls.type and "type" not in value):
        return cls
    name = value.get("type", cls.registry.default)
    if not name and "type" not in value:
        raise ConfigError(f"option 'type' is missing; expected {one_of(cls.registry)}")
    if not isinstance(name, str):
        raise ConfigError(f"expected {one_of(cls.registry)}, found {show(name)}", ("type",))
    try:
        return cls.registry[name]
    except ConfigError as error:
        raise ConfigError(error.message, key="type") from None


def _convert(hint: Any, rule: Rule, value: Any) -> Any:
    """`value` as the type `hint`, within the limits of `rule`; converting twice changes nothing."""
    if get_origin(hint) in (Union, types.UnionType):
        return _convert_union(hint, rule, value)
    if get_origin(hint) is tuple:
        return _convert_tuple(get_args(hint)[0], rule, value)
    if hint is Size:
        return _convert_size(rule, value)
    if issubclass(hint, Options):
        return _build(hint, value)
    if hint not in SCALARS and isinstance(value, hint):
        return value
    found = SCALARS[hint](value)
    if found is None or not rule.admits(found):
        raise _mismatch(hint, rule, value)
    return found


def _mismatch(hint: Any, rule: Rule, value: Any) -> ConfigError:
    return ConfigError(f"expected {expected(hint, rule)}, found {show(value)}{_advice(hint, rule, value)}")


def _advice(hint: Any, rule: Rule, value: Any) -> str:
    """What may have been meant, or a limit that `expected` leaves out."""
    if hint is str and not rule.choices and isinstance(value, int | float):
        return "; put it in quotes"
    if hint is str and isinstance(value, str) and "\0" in value:
        return "; text has no character U+0000"
    kind = int if hint is Size else hint
    if kind in LARGEST and rule.most is None:
        numbers = map(SCALARS[kind], value if isinstance(value, list | tuple) else [value])
        if any(number is not None and abs(number) > LARGEST[kind] for number in numbers):
            return f"; the largest is {LARGEST[kind]:.10g}"
    return nearest(value, rule.choices) if isinstance(value, str) else ""


def _convert_union(hint: Any, rule: Rule, value: Any) -> Any:
    members = [member for member in get_args(hint) if member is not types.NoneType]
    if value is None and len(members) < len(get_args(hint)):
        return None
    if len(members) == 1 and value is not None:
        return _convert(members[0], rule, value)
    for member in members:
        try:
            return _convert(member, rule, value)
        except ConfigError:
            if isinstance(value, list | tuple) and get_origin(member) is tuple:
                raise  # it names the item
    raise _mismatch(hint, rule, value)


def _convert_tuple(hint: Any, rule: Rule, value: Any) -> tuple:
    items = value if isinstance(value, list | tuple) else [value]
    if value is None or isinstance(value, Mapping):
        raise _mismatch(tuple[hint, ...], rule, value)
    found = []
    for i, item in enumerate(items):
        try:
            found.append(_convert(hint, rule, item))
        except ConfigError as error:
            raise error.under(i) from None
    return tuple(found)


def _convert_size(rule: Rule, value: Any) -> Size:
    pair = value if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2:
        raise _mismatch(Size, rule, value)
    sides = [as_integer(side) for side in pair]
    if not all(side is not None and rule.admits(side) for side in sides):
        raise _mismatch(Size, rule, value)
    return Size(*sides)  # type: ignore[arg-type]


NOUNS = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    dict: ("a mapping", "mappings"),
}


def expected(hint: Any, rule: Rule) -> str:
    """What an option accepts, in words: "an integer >= 1", "one of max, avg"."""
    limits = f" {rule.limits()}" if rule.limits() else ""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [expected(member, rule) for member in get_args(hint) if member is not types.NoneType]
        return " or ".join(parts + ["null"] * (types.NoneType in get_args(hint)))
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return f"a list of {NOUNS.get(inner, ('', 'strings'))[1]}" + (limits if inner in (int, float) else "")
    if hint is Size:
        return f"a size{limits} (one number, or [height, width])"
    if hint in NOUNS:
        return NOUNS[hint][0] + ("" if hint in (bool, dict) else limits)
    if hint is str:
        return one_of(rule.choices) if rule.choices else "a string"
    if hint.registry and not hint.type:
        return f"a mapping with a 'type' ({', '.join(hint.registry)})"
    return f"a mapping of {', '.join(name for name, *_ in options(hint))}"


@dataclass(frozen=True)
class LayerSolver(Options):
    """Learning parameters of one layer; what is not given is the solver's."""

    lr: float | None = option(None, least=0, doc="learning rate of the weights; 0 freezes them")
    lr_bias: float | None = option(None, least=0, doc="learning rate of the biases; default: lr, where that is given")
    weight_decay: float | None = option(None, least=0, doc="weight decay of the weights")
    momentum: float | None = option(None, least=0, below=1, doc="momentum")
    update_every: int = option(1, least=1, doc="steps whose gradients are averaged for one update of this layer")


LAYERS = Registry("layer")
layer = LAYERS.register
