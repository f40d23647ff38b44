"""Mapping to Config: wiring, automatic neurons, rates, the way back to YAML, the reference of layers."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import layers
from convnet.config import (
    ConfigError,
    build_layers,
    describe_layers,
    describe_options,
    differences,
    dump,
    fingerprint,
    leaves,
    load_config,
)
from convnet.config.build import build_config
from convnet.config.load import Document, load
from convnet.config.schema import Config, Parallel, Solver
from layers.conv import Conv
from layers.initializers import Gaussian
from layers.neuron import Neuron
from layers.options import LAYERS, LayerSolver, Options, Size, options
from tests.convnet.toy import environment

DATA = {"type": "data", "size": 28}
EXAMPLE = """\
name: lenet
seed: 1
precision: fp32                      # fp32 | tf32 | bf16
run: {dir: runs/digits}
data:
  train: {type: folder, path: data/digits/train}
  val:   {type: folder, path: data/digits/val}
layers:                              # an ordered mapping; `inputs` defaults to the layer before
  data:  {type: data, channels: 1, size: 28}
  conv1: {type: conv, filters: 32, size: 5, pad: 2, neuron: relu, init: {type: gaussian, std: 0.01}}
  pool1: {type: pool, mode: max, size: 3, stride: 2}
  fc1:   {type: fc, outputs: 10, solver: {lr: 0.02}}          # per-layer learning parameters
  cost:  {type: logreg, inputs: [fc1, labels]}
solver: {type: sgd, lr: 0.01, momentum: 0.9, weight_decay: 5e-4, schedule: {type: dexp, factor: 250, steps: 4}}
train: {batch_size: 128, epochs: 10}
parallel: {conv: data, fc: data}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(text: str = EXAMPLE, *overrides: str) -> Config:
    Path("digits.yaml").write_text(text, encoding="utf-8")
    return load_config("digits.yaml", overrides)


def wiring(section: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {spec.name: spec.inputs for spec in build_layers(section)}


def test_the_example_of_the_documentation() -> None:
    found = config()
    assert (found.name, found.run.dir, found.train.batch_size) == ("lenet", "runs/digits", 128)
    assert {spec.name: spec.inputs for spec in found.layers} == {
        "data": (), "conv1": ("data",), "conv1.relu": ("conv1",), "pool1": ("conv1.relu",), "fc1": ("pool1",),
        "cost": ("fc1", "labels"),
    }  # fmt: skip
    conv, relu = found.layers[1:3]
    assert conv.layer == Conv(filters=32, size=5, pad=2, init=Gaussian(std=0.01)) and conv.layer.pad == Size(2, 2)
    assert relu.layer == Neuron(kind="relu") and relu.path == ("layers", "conv1")


def test_names_default_to_the_file_and_the_run_to_the_name() -> None:
    found = config(EXAMPLE.replace("name: lenet\n", "").replace("run: {dir: runs/digits}\n", ""))
    assert (found.name, found.run.dir) == ("digits", "runs/digits")


def test_an_input_means_the_neuron_of_that_layer_and_the_default_the_layer_before() -> None:
    section = {
        "data": DATA,
        "a": {"type": "conv", "filters": 4, "size": 3, "neuron": "relu"},
        "b": {"type": "conv", "filters": 4, "size": 3, "inputs": "data"},
        "sum": {"type": "eltsum", "inputs": ["a", "b"], "neuron": "tanh"},
        "c": {"type": "softmax"},
        "plain": {"type": "softmax", "inputs": ["a.relu"]},
        "second": {"type": "neuron", "kind": "tanh", "inputs": ["sum"], "neuron": "logistic"},
    }
    assert wiring(section) == {
        "data": (), "a": ("data",), "a.relu": ("a",), "b": ("data",), "sum": ("a.relu", "b"), "sum.tanh": ("sum",),
        "c": ("sum.tanh",), "plain": ("a.relu",), "second": ("sum.tanh",), "second.logistic": ("second",),
    }  # fmt: skip


def test_a_data_layer_that_is_not_the_first_has_no_input() -> None:
    assert wiring({"data": DATA, "more": DATA})["more"] == ()


def test_a_type_alone_is_a_section() -> None:
    assert wiring({"data": DATA, "p": "softmax"}) == {"data": (), "p": ("data",)}


def test_a_name_with_dots_is_one_name_unless_a_neuron_has_it() -> None:
    section = {"data": DATA, "block.0": "softmax", "block.0.sum": {"type": "softmax", "neuron": "relu"}}
    assert list(wiring(section)) == ["data", "block.0", "block.0.sum", "block.0.sum.relu"]
    with pytest.raises(ConfigError, match=r"a layer and the neuron of another are both called 'a.relu'"):
        wiring({"data": DATA, "a.relu": "softmax", "a": {"type": "softmax", "neuron": "relu"}})


def test_an_error_found_later_is_located() -> None:
    found = config()
    error = found.locate(ConfigError("is larger than the map", ("size",)), ("layers", "pool1"))
    assert str(error) == "digits.yaml:11:34: layer 'pool1': size: is larger than the map"
    assert found.locate(ConfigError("unused", ("layers", "fc1"))).position == "digits.yaml:12:3"


def test_rates_of_a_parameter() -> None:
    solver = Solver(lr=0.1, lr_bias=0.2, momentum=0.9, weight_decay=1e-3)
    assert solver.rates(None, bias=False, decays=True) == (0.1, 0.9, 1e-3)
    assert solver.rates(LayerSolver(), bias=True, decays=False) == (0.2, 0.9, 0)
    own = LayerSolver(lr=0.5, momentum=0, weight_decay=0)
    assert solver.rates(own, bias=False, decays=True) == (0.5, 0, 0)
    assert solver.rates(own, bias=True, decays=False) == (0.5, 0, 0)
    assert solver.rates(LayerSolver(lr=0.5, lr_bias=0), bias=True, decays=False).lr == 0


def test_one_word_sets_the_whole_parallel_section() -> None:
    for word, fc in (("data", "data"), ("hybrid", "model"), ("auto", "auto")):
        found = config(EXAMPLE.replace("parallel: {conv: data, fc: data}", f"parallel: {word}")).parallel
        assert found == Parallel(conv="data", fc=fc)


def test_ranks_of_a_layer_are_those_of_its_neuron() -> None:
    section = {
        "data": DATA,
        "fc": {"type": "fc", "outputs": 2, "neuron": "relu", "ranks": 1},
        "drop": {"type": "dropout"},
    }
    found = {spec.name: spec.ranks for spec in build_layers(section)}
    assert found == {"data": None, "fc": (1,), "fc.relu": (1,), "drop": None}
    for wrong in ([], "a", [0, 0], -1, True, [0.5]):
        with pytest.raises(ConfigError, match="layer 'fc': ranks: expected the numbers of ranks"):
            build_layers({"data": DATA, "fc": {"type": "fc", "outputs": 2, "ranks": wrong}})
    with pytest.raises(ConfigError, match="layer 'data': ranks: a data layer is computed by all ranks"):
        build_layers({"data": {**DATA, "ranks": [0]}})


def test_ranks_survive_the_way_to_yaml_and_back(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(EXAMPLE)
    config = load_config(tmp_path / "net.yaml", ["layers.fc1.ranks=[1, 0]"])
    (tmp_path / "again.yaml").write_text(dump(config))
    again = load_config(tmp_path / "again.yaml")
    assert [spec.ranks for spec in again.layers if spec.name == "fc1"] == [(0, 1)]
    assert again == config and fingerprint(again) != fingerprint(load_config(tmp_path / "net.yaml"))


def test_a_dumped_config_is_equal_and_so_is_what_it_dumps() -> None:
    found = config()
    Path("resolved.yaml").write_text(dump(found))
    again = load_config("resolved.yaml")
    assert again == found and dump(again) == dump(found) and fingerprint(again) == fingerprint(found)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = st.sampled_from(["on", "a", "conv1", "x.y", "null", "no", "1e4", "0x1", "y", "a.relu", "block-1.2"])
INITS = st.one_of(
    st.fixed_dictionaries({"type": st.just("gaussian"), "std": st.floats(0, 10)}),
    st.fixed_dictionaries({"type": st.just("he"), "fan": st.sampled_from(["in", "out"])}),
)
SIDES = st.one_of(st.integers(1, 9), st.tuples(st.integers(1, 9), st.integers(1, 9)).map(list))
NEURONS = st.one_of(
    st.sampled_from(["relu", "tanh", "brelu[6]"]),
    st.builds(lambda a, b: f"linear[{a},{b}]", st.floats(-9, 9), st.floats(-9, 9)),
    st.builds(lambda a: {"kind": "drelu", "a": a}, st.floats(1e-9, 9)),
)
CONVS = st.fixed_dictionaries(
    {"type": st.just("conv"), "filters": st.integers(1, 10**6), "size": SIDES},
    optional={
        "stride": SIDES, "bias": st.booleans(), "init": INITS, "neuron": NEURONS,
        "solver": st.fixed_dictionaries({}, optional={"lr": st.floats(0, 1), "momentum": st.floats(0, 0.99)}),
    },
)  # fmt: skip
SUMS = st.just({"type": "eltsum", "inputs": ["data", "data"], "neuron": "logistic"})
NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.integers(-(10**9), 10**9))
DOCUMENTS = st.fixed_dictionaries(
    {
        "data": st.fixed_dictionaries(
            {"train": st.fixed_dictionaries({"type": st.just("folder"), "path": TEXT})},
            optional={
                "mean": NUMBERS,
                "cache": st.sampled_from(["off", 512]),
                "threads": st.none() | st.integers(1, 9),
            },
        ),
        "train": st.fixed_dictionaries(
            {"epochs": st.integers(1, 10**5)}, optional={"last_batch": st.sampled_from(["keep", "drop"])}
        ),
        "solver": st.fixed_dictionaries(
            {"lr": st.floats(0, 1e3)},
            optional={
                "schedule": st.one_of(
                    st.just("constant"),
                    st.lists(st.integers(1, 90), unique=True).map(
                        lambda m: {"type": "multistep", "milestones": sorted(m), "factor": 0.5}
                    ),
                )
            },
        ),
        "layers": st.dictionaries(NAMES, CONVS | SUMS, max_size=4).map(lambda section: {"data": DATA, **section}),
    },
    optional={
        "name": TEXT.filter(lambda t: t.isprintable() and not {"/", "\\"} & set(t)).map("x{}".format),
        "seed": st.integers(0, 2**64 - 1),
        "run": st.fixed_dictionaries({"dir": TEXT.map("{}/run".format)}),
    },
)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS)
def test_any_config_survives_the_way_to_yaml_and_back(values: dict[str, Any]) -> None:
    try:
        found = build_config(Document(values, {}), name="x")
    except ConfigError as error:
        assert "are both called 'a.relu'" in str(error)
        return
    Path("r.yaml").write_text(dump(found), encoding="utf-8")
    assert build_config(load("r.yaml", environ={})) == found


def test_leaves_differ_where_fingerprints_do() -> None:
    """Also at the end of a long list."""
    one, other = (
        config(EXAMPLE, f"solver.schedule={{type: multistep, milestones: {milestones}}}", "run.dir=elsewhere")
        for milestones in ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 11])
    )
    found = {key: value for key, value in leaves(one).items() if leaves(other)[key] != value}
    assert json.loads(found.pop("solver.schedule.milestones")) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] and not found
    assert not any(key.startswith(("run", "name")) for key in leaves(one))


def test_fingerprints_differ_where_what_is_computed_does() -> None:
    base = fingerprint(config())
    assert fingerprint(config(EXAMPLE, "run.dir=elsewhere", "name=other")) == base
    changed = ["seed=2", "solver.lr=1", "layers.conv1.filters=33", "layers.conv1.neuron=tanh", "train.epochs=11"]
    assert len({base, *(fingerprint(config(EXAMPLE, override)) for override in changed)}) == 6
    reordered = "  pool1: {type: pool, mode: max, size: 3, stride: 2}\n"
    text = EXAMPLE.replace(reordered, "").replace("  fc1:", f"{reordered}  fc1:")
    assert fingerprint(config(text)) == base


def test_differences_are_named() -> None:
    old = config()
    assert differences(old, old) == []
    new = config(EXAMPLE, "solver.lr=0.02", "layers.conv1.neuron=tanh", "solver.schedule=constant")
    assert differences(old, new) == [
        "layer 'conv1': neuron: 'relu' -> 'tanh'",
        "solver.lr: 0.01 -> 0.02",
        "solver.schedule.type: 'dexp' -> 'constant'",
        "solver.schedule.factor: 250.0 -> absent",
        "solver.schedule.steps: 4 -> absent",
    ]


def test_the_reference_lists_every_layer() -> None:
    lines = describe_layers().splitlines()
    assert [line.split()[0] for line in lines] == list(LAYERS)
    assert all(len(line.split()) > 3 for line in lines), "a layer has no summary"


@pytest.mark.parametrize("name", list(LAYERS.discover(layers)))
def test_the_reference_of_a_layer_names_every_option_with_help(name: str) -> None:
    text = describe_layers(name)
    for option, _, rule, _ in options(LAYERS[name]):
        assert f"\n  {option}: " in text and rule.doc, f"option '{option}' of {name} has no help"
    assert all(len(line) <= 120 for line in text.splitlines())


def test_the_reference_shows_types_ranges_and_defaults() -> None:
    text = describe_layers("conv")
    assert "  filters: an integer >= 1; required\n" in text
    assert "  size: a size >= 1 (one number, or [height, width]); required\n" in text
    assert "  stride: a size >= 1 (one number, or [height, width]); default 1\n" in text
    with pytest.raises(ConfigError, match="unknown layer type 'cnov'; did you mean 'conv'"):
        describe_layers("cnov")


def _leaves(cls: type, found: set[type]) -> set[type]:
    """The class and all that its options can be."""
    found.add(cls)
    for _, hint, _, _ in options(cls):
        for part in (part for part in get_args(hint) or (hint,) if inspect.isclass(part) and issubclass(part, Options)):
            registered = [part.registry[kind] for kind in part.registry] if part.registry else [part]
            for each in set(registered) - found:
                _leaves(each, found)
    return found


def test_the_reference_of_the_sections_names_every_option_with_help() -> None:
    sections = [line.split()[0] for line in describe_options().splitlines()]
    assert {"include", "blocks", "init", *(name for name, *_ in options(Config))} == set(sections)
    text = "\n".join(map(describe_options, sections))
    names = {name for cls in _leaves(Config, set()) for name, *_ in options(cls)}
    assert {"class_list", "on_error", "keep", "milestones", "eval_every"} <= names
    for name in names:
        assert re.search(rf"^ *{name}: ", text, re.MULTILINE), f"option '{name}' has no help"
    assert all(len(line) <= 120 for line in text.splitlines())


def test_a_section_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="unknown section 'trian'; did you mean 'train'"):
        describe_options("trian")


def test_the_reference_without_docstrings() -> None:
    """python -OO has none; the options keep their help."""
    code = "from convnet.config import describe_layers as d; print(d()); print(d('conv'))"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[: len(list(LAYERS))] == list(LAYERS) and "  filters: an integer >= 1; required" in lines


def test_a_folder_of_a_run_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert config(EXAMPLE, "run.dir=~/runs/x").run.dir == "/somewhere/runs/x"
