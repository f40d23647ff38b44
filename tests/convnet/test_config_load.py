"""YAML to values and places: scalars as people write them, merging, includes, overrides, variables, bad files."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convnet.config.dump import yaml_text
from convnet.config.load import Document, load, locate
from layers.options import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(file: str, text: str | bytes) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_bytes(text if isinstance(text, bytes) else text.encode())


def read(text: str | bytes, *overrides: str, **environ: str) -> Document:
    write("c.yaml", text)
    return load("c.yaml", overrides, environ)


def error(text: str | bytes, *overrides: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, *overrides, **environ)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("1e4", 1e4), ("1.0e4", 1e4), ("1E-4", 1e-4), ("5e-4", 5e-4), ("1.e-4", 1e-4), (".1e-3", 1e-4),
        ("+1.5E+3", 1500.0), ("-.5", -0.5), ("5.", 5.0), ("0.0", 0.0), (".inf", float("inf")), ("-.INF", -float("inf")),
        ("3", 3), ("-3", -3), ("+3", 3), ("0", 0), ("0x1F", 31), ("12345678901234567890123", 12345678901234567890123),
        ("010", "010"), ("-01", "-01"), ("00.5", "00.5"), ("0o17", "0o17"), ("1_000", "1_000"),
        ("1:30", "1:30"), ("1.2.3", "1.2.3"),
        ("2001-01-01", "2001-01-01"), ("1e", "1e"), ("e5", "e5"),
        ("true", True), ("True", True), ("FALSE", False), ("tRUE", "tRUE"),
        ("on", "on"), ("off", "off"), ("yes", "yes"), ("no", "no"), ("y", "y"), ("N", "N"), ("NO", "NO"), ("On", "On"),
        ("null", None), ("~", None), ("", None), ("Null", None), ("none", "none"),
        ("'1'", "1"), ('"true"', "true"), ("''", ""), ("'null'", "null"), ("<<", "<<"), ("=", "="),
        ("!!str 12", "12"), ("!!float 3", 3.0), ("!!int '7'", 7),
        ("a b", "a b"), ("C:\\data", "C:\\data"), ("/d/x#y", "/d/x#y"), ("1 # one", 1),
        ("[1, a]", [1, "a"]), ("{}", {}),
    ],
)  # fmt: skip
def test_scalars_are_read_as_people_write_them(text: str, value: Any) -> None:
    found = read(f"a: {text}").values["a"]
    assert found == value and type(found) is type(value)


def test_keys_stay_text() -> None:
    assert read("on: 1\nno: 2\ny: 3\nOff: 4").values == {"on": 1, "no": 2, "y": 3, "Off": 4}


def test_places_are_those_of_keys_and_of_items() -> None:
    document = read("a: 1\nb:\n  c: {d: [5, 6]}\n")
    assert document.marks == {
        (): "c.yaml:1:1", ("a",): "c.yaml:1:1", ("b",): "c.yaml:2:1", ("b", "c"): "c.yaml:3:3",
        ("b", "c", "d"): "c.yaml:3:7", ("b", "c", "d", 0): "c.yaml:3:11", ("b", "c", "d", 1): "c.yaml:3:14",
    }  # fmt: skip


def test_an_error_is_located_at_its_key_or_at_the_section_around_it() -> None:
    marks = read("a: 1\nb:\n  c: 2\n").marks
    for path, key, place in [
        (("b", "c"), None, "3:3"),
        (("b",), "c", "3:3"),
        (("b",), "x", "2:1"),
        (("x", "y"), None, "1:1"),
    ]:
        assert locate(marks, ConfigError("m", path, key)).position == f"c.yaml:{place}"
    assert locate(marks, ConfigError("m", ("a",), position="elsewhere")).position == "elsewhere"


def test_line_ends_and_byte_order_mark_of_other_systems() -> None:
    document = read("\ufeffa: 1\r\nb: {c: 2}\r\n")
    assert document.values == {"a": 1, "b": {"c": 2}} and document.marks["b", "c"] == "c.yaml:2:5"


def test_anchors_and_merge_keys() -> None:
    text = "base: &b {lr: 1, m: 2}\nother: &o {m: 3, w: 4}\nx: {lr: 5, <<: *b}\ny: {<<: [*b, *o]}\nz: *b\n"
    document = read(text)
    assert document.values["x"] == {"lr": 5, "m": 2}
    assert document.values["y"] == {"lr": 1, "m": 2, "w": 4}
    assert document.values["z"] == {"lr": 1, "m": 2}
    assert document.marks["x", "lr"] == "c.yaml:3:5" and document.marks["x", "m"] == "c.yaml:1:18"


STREAM_END = "but got '<stream end>'"
NO_TOKEN = "not valid YAML: while scanning for the next token, found character '@' that cannot start any token"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.yaml: the file is empty; expected a mapping of sections"),
        ("# only a comment\n", "c.yaml: the file is empty; expected a mapping of sections"),
        ("---\n", "c.yaml:2:1: expected a mapping of sections, found nothing"),
        ("- a\n", "c.yaml:1:1: expected a mapping of sections, found ['a']"),
        ("lr:0.1\n", "c.yaml:1:1: expected a mapping of sections, found 'lr:0.1'"),
        ("a: 1\nb: 2\na: 3", "c.yaml:3:1: duplicate key 'a'; the first is at c.yaml:1:1"),
        ("a: {lr: 0.1, lr: 0.01}", "c.yaml:1:14: duplicate key 'lr'; the first is at c.yaml:1:5"),
        ("a: &x {}\nb:\n  <<: *x\n  <<: *x", "c.yaml:4:3: duplicate key '<<'; the first is at c.yaml:3:3"),
        ("a:\n\tb: 1", "c.yaml:2:1: tab character; use spaces"),
        ("a:\n  b: 1\n  \tc: 2", "c.yaml:3:3: tab character; use spaces"),
        ("a: 1\n\tb: 2", "c.yaml:2:1: tab character; use spaces"),
        ("a:\t1", "c.yaml:1:3: tab character; use spaces"),
        ("a: [1,\t2]", "c.yaml:1:7: tab character; use spaces"),
        ("a: |\n\tb", "c.yaml:2:1: tab character; use spaces"),
        ("1: 2", "c.yaml:1:1: expected a name before ':', found 1; a name like that needs quotes"),
        ("a: {true: 2}", "c.yaml:1:5: expected a name before ':', found true; a name like that needs quotes"),
        ("null: 2", "c.yaml:1:1: expected a name before ':', found nothing; a name like that needs quotes"),
        ("? [a]\n: b", "c.yaml:1:3: expected a name before ':', found ['a']; a name like that needs quotes"),
        ("? {a: 1}\n: b", "c.yaml:1:3: expected a name before ':', found a mapping; a name like that needs quotes"),
        ("a: 1\n---\nb: 2", "c.yaml:3:1: a second document begins here; expected one"),
        ("a: &x {b: *x}", "c.yaml:1:8: an alias stands inside its own anchor"),
        ("a: &x [*x]", "c.yaml:1:4: an alias stands inside its own anchor"),
        ("a: *y", "c.yaml:1:4: not valid YAML: found undefined alias 'y'"),
        ("a: {<<: 3}", "c.yaml:1:9: '<<' expects a mapping, found 3"),
        (b"a: 1\nb: caf\xe9", "c.yaml:2:7: not UTF-8 text (byte 0xe9); save the file as UTF-8"),
        (b"\xff\xfea", "c.yaml:1:1: not UTF-8 text (byte 0xff); save the file as UTF-8"),
        ("a: 1\nb: x\x00", "c.yaml:2:5: character U+0000 is not allowed"),
        ("a: !!python/object:os.system x", "c.yaml:1:4: unknown tag '!!python/object:os.system'"),
        ("a: !mine {b: 1}", "c.yaml:1:4: unknown tag '!mine'"),
        ("a: !!set {b}", "c.yaml:1:4: unknown tag '!!set'"),
        ("a: !!int x", "c.yaml:1:4: 'x' does not suit the tag !!int"),
        ("a: b: c", "c.yaml:1:5: not valid YAML: mapping values are not allowed here"),
        ("a: 'x", "c.yaml:1:6: not valid YAML: while scanning a quoted scalar, found unexpected end of stream"),
        ("a: {b: 1", "c.yaml:1:9: not valid YAML: while parsing a flow mapping, expected ',' or '}', " + STREAM_END),
        ("a: \u2028 @", f"c.yaml:2:2: {NO_TOKEN}"),
        ("[" * 5000, "c.yaml:1:1: sections are nested too deeply"),
        ("a: " + "[" * 60 + "]" * 60, "c.yaml:1:54: sections are nested too deeply"),
        ("include: 3", "c.yaml:1:1: include: expected a file name, or a list of them, found 3"),
        ("include: [{a: 1}]", "c.yaml:1:11: include: expected a file name, or a list of them, found a mapping"),
        ("include:", "c.yaml:1:1: include: expected a file name, or a list of them, found nothing"),
        ("a: 1\ninclude: b.yaml", "c.yaml:2:1: include: no such file: b.yaml"),
        ("include: c.yaml", "c.yaml:1:1: files include each other: c.yaml -> c.yaml"),
    ],
)  # fmt: skip
def test_bad_text_is_one_line_with_its_place(text: str | bytes, message: str) -> None:
    assert error(text) == message


def test_unreadable_files(folder: Path) -> None:
    for file, reason in ("none.yaml", "no such file or directory"), (".", "is a directory"):
        with pytest.raises(ConfigError) as caught:
            load(file)
        assert str(caught.value) == f"{file}: cannot be read: {reason}"


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=40), st.text("ab:-[]{}&*!?,#|>'\"%@ \t\n<$0.", max_size=30)))
def test_any_text_gives_a_mapping_or_a_located_error(text: str) -> None:
    try:
        assert isinstance(read(text.encode(errors="surrogateescape" if text.isascii() else "replace")).values, dict)
    except ConfigError as error:
        assert error.position.startswith("c.yaml") and "\n" not in error.position


def test_includes_merge_deeply_and_the_including_file_wins() -> None:
    write("nets/base.yaml", "layers:\n  data: {size: 28}\n  conv1: {filters: 8, size: 5}\nlr: 1\nlist: [1, 2]\n")
    write("more/extra.yaml", "lr: 2\nextra: 1\n")
    write("nets/net.yaml", "include: [base.yaml, ../more/extra.yaml]\nlist: [3]\n")
    write("run.yaml", "include: nets/net.yaml\nlayers:\n  fc: {outputs: 3}\n  conv1: {filters: 16}\n")
    document = load("run.yaml")
    assert document.values == {
        "layers": {"data": {"size": 28}, "conv1": {"filters": 16, "size": 5}, "fc": {"outputs": 3}},
        "lr": 2, "list": [3], "extra": 1,
    }  # fmt: skip
    assert list(document.values["layers"]) == ["data", "conv1", "fc"], "layers keep their order; new ones come last"
    assert document.marks["layers", "conv1", "filters"] == "run.yaml:4:11"
    assert document.marks["layers", "conv1", "size"] == "nets/base.yaml:3:23"
    assert document.marks["extra",] == os.path.join("nets", "../more/extra.yaml") + ":2:1"


def test_a_section_of_another_type_replaces_the_whole_section() -> None:
    write("base.yaml", "schedule: {type: dexp, factor: 250, steps: 4}\n")
    assert read("include: base.yaml\nschedule: {steps: 5}").values["schedule"] == {
        "type": "dexp",
        "factor": 250,
        "steps": 5,
    }
    assert read("include: base.yaml\nschedule: {type: constant}").values["schedule"] == {"type": "constant"}
    assert read("include: base.yaml", "schedule.type=constant").values["schedule"] == {"type": "constant"}


def test_errors_in_an_included_file_name_that_file() -> None:
    write("b.yaml", "a: 1\na: 2\n")
    assert error("include: b.yaml") == "b.yaml:2:1: duplicate key 'a'; the first is at b.yaml:1:1"
    write("b.yaml", "include: c.yaml\n")
    assert error("x: 1\ninclude: b.yaml") == "b.yaml:1:1: files include each other: c.yaml -> b.yaml -> c.yaml"


def test_a_file_may_be_included_twice_when_there_is_no_cycle() -> None:
    write("base.yaml", "a: 1")
    write("b.yaml", "include: base.yaml\nb: 2")
    assert read("include: [base.yaml, b.yaml]").values == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("solver.lr=0.02", {"solver": {"lr": 0.02, "x": {"y": 2}}}),
        ("solver.lr=1e-4", {"solver": {"lr": 1e-4, "x": {"y": 2}}}),
        ("solver.x={z: 3}", {"solver": {"lr": 1, "x": {"y": 2, "z": 3}}}),
        ("solver.x.y=[1, a]", {"solver": {"lr": 1, "x": {"y": [1, "a"]}}}),
        ("new.a.b=yes", {"solver": {"lr": 1, "x": {"y": 2}}, "new": {"a": {"b": "yes"}}}),
        ("solver.x=", {"solver": {"lr": 1, "x": None}}),
        ("path=/d/a=b", {"solver": {"lr": 1, "x": {"y": 2}}, "path": "/d/a=b"}),
        ("path=${HOME}/d", {"solver": {"lr": 1, "x": {"y": 2}}, "path": "/h/d"}),
    ],
)
def test_overrides(override: str, values: dict[str, Any]) -> None:
    assert read("solver: {lr: 1, x: {y: 2}}", override, HOME="/h").values == values


def test_later_overrides_win_and_places_name_the_override() -> None:
    document = read("solver: {lr: 1}", "solver.lr=2", "solver.lr=3")
    assert document.values == {"solver": {"lr": 3}}
    assert document.marks["solver", "lr"] == "command line: solver.lr=3"
    assert document.marks["solver",] == "c.yaml:1:1", "the section is still the file's"


def test_an_override_reaches_a_key_that_has_dots() -> None:
    values = read("layers: {a.b: {x: 1}, a: {b: 2}}", "layers.a.b.x=3", "layers.a.c=4").values
    assert values == {"layers": {"a.b": {"x": 3}, "a": {"b": 2, "c": 4}}}


@pytest.mark.parametrize("override", ["solver.lr", "=3", "a..b=1", ".a=1", ""])
def test_an_override_is_a_key_and_a_value(override: str) -> None:
    assert error("a: 1", override) == f"command line: {override}: expected KEY=VALUE, such as solver.lr=0.02"


def test_bad_yaml_in_an_override() -> None:
    assert error("a: 1", "a=*x") == "command line: a=*x: not valid YAML: found undefined alias 'x'"


def test_variables() -> None:
    text = "a: ${X}/b\nb: '${Y:-q r}'\nc: $${X}\nd: $X\ne: ${EMPTY}\nf: ${EMPTY:-z}\ng: ${N}\nh: ${Y:-}\n${X}: ${X}${X}"
    assert read(text, X="x", EMPTY="", N="12").values == {
        "a": "x/b", "b": "q r", "c": "${X}", "d": "$X", "e": "", "f": "z", "g": "12", "h": "", "x": "xx",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b: 1\na: x${NONE}", "c.yaml:2:4: environment variable NONE is not set; ${NONE:-...} would give a default"),
        ("a: ${1x}", "c.yaml:1:4: expected ${NAME} or ${NAME:-default}, found '${1x}'; $${ stands for '${'"),
        ("a: ${}", "c.yaml:1:4: expected ${NAME} or ${NAME:-default}, found '${}'; $${ stands for '${'"),
        ("a: ${X", "c.yaml:1:4: expected ${NAME} or ${NAME:-default}, found '${X'; $${ stands for '${'"),
    ],
)
def test_bad_variables(text: str, message: str) -> None:
    assert error(text, X="x") == message


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TRICKY = ["1e4", "010", "no", "null", "~", "<<", "0x1F", ".inf", "1:30", "", " a ", "a: b", "${X}", "$${X}", "# x", "-"]
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, st.sampled_from(TRICKY))


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda k: "${" not in k), SCALARS
    )
)
def test_dumped_values_are_read_back(values: dict[str, Any]) -> None:
    values.pop("include", None)
    escaped = {key: value.replace("${", "$${") if isinstance(value, str) else value for key, value in values.items()}
    assert read(yaml_text(escaped)).values == values
