"""Options: conversion, limits, nesting, registries, and the words of every error."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from layers.options import REQUIRED, ConfigError, LayerSolver, Options, Registry, Size, build, expected, option, options

SHAPES = Registry("shape", default="square")


@dataclass(frozen=True)
class Form(Options):
    registry: ClassVar[Registry | None] = SHAPES


@SHAPES.register("square")
@dataclass(frozen=True)
class Square(Form):
    side: float = option(1.0, above=0)


@SHAPES.register("circle")
@dataclass(frozen=True)
class Circle(Form):
    radius: float = option(above=0, below=10)


@dataclass(frozen=True)
class Pair(Options):
    shorthand: ClassVar[tuple[str, ...]] = ("left", "right")

    left: int = option()
    right: int = option()


@dataclass(frozen=True)
class Section(Options):
    size: Size = option(least=1)
    count: int = option(1, least=0, most=2**64 - 1)
    rate: float = option(0.1, above=0, below=1)
    flag: bool = option(False)
    mode: str = option("max", choices=("max", "avg"))
    path: str = option("")
    limit: int | None = option(None, least=1)
    cache: int | str = option("auto", least=1, choices=("auto", "off"))
    mean: tuple[float, ...] = option((0.0,), least=0)
    names: tuple[str, ...] = option(())
    form: Form = option(Square())
    solver: LayerSolver | None = option(None)
    pair: Pair | None = option(None)


def value(name: str, given: object) -> object:
    return getattr(build(Section, {"size": 1, name: given}), name)


@pytest.mark.parametrize(
    ("name", "given", "found"),
    [
        ("size", 3, Size(3, 3)),
        ("size", [3, 5], Size(height=3, width=5)),
        ("size", Size(3, 5), Size(3, 5)),
        ("size", "7", Size(7, 7)),
        ("count", 1e4, 10_000),
        ("count", "12", 12),
        ("count", "0xff", 255),
        ("count", 2**64 - 1, 2**64 - 1),
        ("rate", "1e-4", 1e-4),
        ("flag", "on", True),
        ("flag", "Yes", True),
        ("flag", "off", False),
        ("flag", "no", False),
        ("flag", "FALSE", False),
        ("mode", "avg", "avg"),
        ("path", "no", "no"),
        ("limit", None, None),
        ("limit", 4, 4),
        ("cache", "off", "off"),
        ("cache", 512, 512),
        ("cache", "512", 512),
        ("mean", 3, (3.0,)),
        ("mean", [1, 2.5], (1.0, 2.5)),
        ("mean", [], ()),
        ("names", "a", ("a",)),
        ("form", "square", Square(side=1)),
        ("form", {}, Square(side=1)),
        ("form", {"side": 2}, Square(side=2)),
        ("form", {"type": "circle", "radius": 2}, Circle(radius=2)),
        ("form", Circle(radius=2), Circle(radius=2)),
        ("solver", {"lr": 1}, LayerSolver(lr=1.0)),
        ("pair", 3, Pair(left=3, right=3)),
        ("pair", {"left": 1, "right": 2}, Pair(left=1, right=2)),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_option(name: str, given: object, found: object) -> None:
    assert value(name, given) == found
    assert type(value(name, given)) is type(found)


LEARNING = "lr, lr_bias, weight_decay, momentum, update_every"
SIZE = "expected a size >= 1 (one number, or [height, width])"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("size", 0, f"size: {SIZE}, found 0"),
        ("size", 1.5, f"size: {SIZE}, found 1.5"),
        ("size", [1, 2, 3], f"size: {SIZE}, found [1, 2, 3]"),
        ("size", [1, -1], f"size: {SIZE}, found [1, -1]"),
        ("size", [], f"size: {SIZE}, found []"),
        ("size", True, f"size: {SIZE}, found true"),
        ("size", {"height": 1}, f"size: {SIZE}, found a mapping"),
        ("count", -1, "count: expected an integer >= 0 and <= 18446744073709551615, found -1"),
        ("count", 2**64, "count: expected an integer >= 0 and <= 18446744073709551615, found 18446744073709551616"),
        ("count", "012", "count: expected an integer >= 0 and <= 18446744073709551615, found '012'"),
        ("rate", 0, "rate: expected a number > 0 and < 1, found 0"),
        ("rate", 1, "rate: expected a number > 0 and < 1, found 1"),
        ("rate", "fast", "rate: expected a number > 0 and < 1, found 'fast'"),
        ("rate", float("nan"), "rate: expected a number > 0 and < 1, found nan"),
        ("rate", float("inf"), "rate: expected a number > 0 and < 1, found inf"),
        ("rate", 10**400, f"rate: expected a number > 0 and < 1, found {10**400}"),
        ("rate", None, "rate: expected a number > 0 and < 1, found nothing"),
        ("rate", False, "rate: expected a number > 0 and < 1, found false"),
        ("flag", 1, "flag: expected true or false, found 1"),
        ("flag", "maybe", "flag: expected true or false, found 'maybe'"),
        ("mode", "agv", "mode: expected one of max, avg, found 'agv'; did you mean 'avg'?"),
        ("mode", 3, "mode: expected one of max, avg, found 3"),
        ("path", 12, "path: expected a string, found 12; put it in quotes"),
        ("path", True, "path: expected a string, found true; put it in quotes"),
        ("path", ["a"], "path: expected a string, found ['a']"),
        ("limit", 0, "limit: expected an integer >= 1, found 0"),
        ("limit", "x", "limit: expected an integer >= 1, found 'x'"),
        ("cache", 0, "cache: expected an integer >= 1 or one of auto, off, found 0"),
        ("cache", "of", "cache: expected an integer >= 1 or one of auto, off, found 'of'; did you mean 'off'?"),
        ("mean", [1, -2], "mean[1]: expected a number >= 0, found -2"),
        ("mean", None, "mean: expected a list of numbers >= 0, found nothing"),
        ("mean", {"a": 1}, "mean: expected a list of numbers >= 0, found a mapping"),
        ("names", [1], "names[0]: expected a string, found 1; put it in quotes"),
        ("form", 3, "form: expected a mapping with a 'type' (circle, square), found 3"),
        ("form", "cirle", "form: unknown shape type 'cirle'; did you mean 'circle'? (circle, square)"),
        ("form", {"type": 3}, "form.type: expected one of circle, square, found 3"),
        ("form", "circle", "form: option 'radius' is missing; expected a number > 0 and < 10"),
        ("form", {"type": "circle", "radius": 0}, "form.radius: expected a number > 0 and < 10, found 0"),
        ("form", {"type": "circle", "side": 2}, "form: unknown option 'side'; expected one of type, radius"),
        ("solver", {"lrr": 1}, f"solver: unknown option 'lrr'; did you mean 'lr'? ({LEARNING})"),
        ("solver", 3, f"solver: expected a mapping of {LEARNING}, found 3"),
        ("pair", "x", "pair.left: expected an integer, found 'x'"),
    ],
)  # fmt: skip
def test_an_error_says_where_what_was_expected_and_what_was_found(name: str, given: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        value(name, given)
    assert str(caught.value) == message


def test_missing_and_unknown_options() -> None:
    with pytest.raises(ConfigError) as missing:
        build(Section, {}, ("layers", "conv1"))
    assert str(missing.value) == f"layer 'conv1': option 'size' is missing; {SIZE}"
    with pytest.raises(ConfigError) as unknown:
        build(Section, {"sise": 1}, ("layers", "conv1"))
    assert str(unknown.value).startswith("layer 'conv1': unknown option 'sise'; did you mean 'size'? (size, count, ")
    assert (unknown.value.path, unknown.value.key) == (("layers", "conv1"), "sise")


def test_keys_that_the_caller_reads_are_accepted_and_suggested() -> None:
    assert build(Section, {"size": 1, "inputs": "a"}, extra=("inputs",)) == Section(size=1)
    with pytest.raises(ConfigError, match="did you mean 'inputs'"):
        build(Section, {"size": 1, "input": "a"}, extra=("inputs",))


def test_objects_made_in_python_are_checked_like_those_from_files() -> None:
    section = Section(size=3, mean=2)
    assert section.size == Size(3, 3) and section.mean == (2.0,)
    assert replace(section, size=[4, 5]).size == Size(4, 5)
    with pytest.raises(ConfigError, match=r"^rate: expected a number > 0 and < 1, found 3$"):
        Section(size=3, rate=3)


def test_an_error_seen_from_outside_keeps_its_place() -> None:
    error = ConfigError("is wrong", ("size",)).under("layers", "pool1")
    assert str(error) == "layer 'pool1': size: is wrong"
    assert str(error.at("a.yaml:3:5")) == "a.yaml:3:5: layer 'pool1': size: is wrong"
    assert str(error.at("a.yaml:3:5").under("x")) == "a.yaml:3:5: x.layers.pool1.size: is wrong"


def test_registration_is_checked() -> None:
    with pytest.raises(ValueError, match="shape 'square' is declared twice"):
        SHAPES.register("square")(Square)
    with pytest.raises(TypeError, match="shape 'blob': Blob must be a dataclass"):

        @SHAPES.register("blob")
        class Blob(Form):
            pass

    assert list(SHAPES) == ["circle", "square"] and Circle.type == "circle"


def test_declarations_can_be_listed() -> None:
    listed = {name: (expected(hint, rule), default) for name, hint, rule, default in options(Section)}
    assert listed["size"] == ("a size >= 1 (one number, or [height, width])", REQUIRED)
    assert listed["limit"] == ("an integer >= 1 or null", None)
    assert listed["names"] == ("a list of strings", ())
