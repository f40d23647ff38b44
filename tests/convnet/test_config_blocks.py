"""Blocks: layers written once, expanded to plain named layers that keep their places."""

from pathlib import Path

import pytest

from convnet.config import ConfigError, dump, load_config
from convnet.session import make_network

TEXT = """\
data: {train: {type: folder, path: x}}
train: {epochs: 1}
blocks:
  residual:
    conv1: {type: conv, filters: $width, size: 3, pad: 1, neuron: relu}
    conv2: {type: conv, filters: $width, size: 3, pad: 1}
    add: {type: eltsum, inputs: [conv2, $input], neuron: relu}
layers:
  data: {type: data, size: 8}
  stem: {type: conv, filters: 4, size: 1}
  stage: {block: residual, repeat: 2, width: 4}
  fc: {type: fc, outputs: 3}
  cost: {type: logreg, inputs: [fc, labels]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text, *overrides):
    Path("c.yaml").write_text(text)
    return load_config("c.yaml", overrides, environ={})


def inputs(config):
    return {spec.name: spec.inputs for spec in config.layers}


def test_a_repeated_block_becomes_named_layers_each_reading_the_one_before():
    assert inputs(load(TEXT)) == {
        "data": (),
        "stem": ("data",),
        "stage.0.conv1": ("stem",),
        "stage.0.conv1.relu": ("stage.0.conv1",),
        "stage.0.conv2": ("stage.0.conv1.relu",),
        "stage.0.add": ("stage.0.conv2", "stem"),
        "stage.0.add.relu": ("stage.0.add",),
        "stage.1.conv1": ("stage.0.add.relu",),
        "stage.1.conv1.relu": ("stage.1.conv1",),
        "stage.1.conv2": ("stage.1.conv1.relu",),
        "stage.1.add": ("stage.1.conv2", "stage.0.add.relu"),
        "stage.1.add.relu": ("stage.1.add",),
        "fc": ("stage.1.add.relu",),
        "cost": ("fc", "labels"),
    }


def test_it_is_the_network_of_the_layers_written_out():
    config = load(TEXT)
    plain = dump(config)
    assert "block" not in plain
    assert load(plain) == config


def test_parameters_of_each_repetition_and_the_number_of_the_first():
    text = TEXT.replace("repeat: 2, width: 4", "repeat: [{width: 4}, {width: 8}], first: 3").replace(
        "[conv2, $input]", "[conv2, conv2]"
    )
    layers = {spec.name: spec.layer for spec in load(text).layers}
    assert [layers[f"stage.{i}.conv1"].filters for i in (3, 4)] == [4, 8]


def test_a_block_used_once_has_no_number_and_may_stand_in_place():
    text = TEXT.replace("repeat: 2, width: 4", "width: 4")
    assert {"stage.conv1", "stage.add.relu"} <= inputs(load(text)).keys()
    written = TEXT.replace(
        "{block: residual, repeat: 2, width: 4}", "{block: {a: {type: neuron, kind: relu}}, repeat: 2}"
    )
    assert inputs(load(written))["stage.1.a"] == ("stage.0.a",)


def test_names_of_blocks_and_repetitions_stand_for_their_last_layer():
    text = TEXT.replace("  fc:", "  sum: {type: eltsum, inputs: [stage, stage.0, stage.0.conv1]}\n  fc:")
    assert inputs(load(text))["sum"] == ("stage.1.add.relu", "stage.0.add.relu", "stage.0.conv1.relu")


def test_a_block_reads_what_it_is_told_to():
    text = TEXT.replace("repeat: 2, width: 4", "repeat: 2, width: 3, inputs: data")
    found = inputs(load(text.replace("fc, outputs: 3}", "fc, outputs: 3}\n  s: {type: sum2, inputs: stem}")))
    assert found["stage.0.conv1"] == ("data",) and found["stage.0.add"] == ("stage.0.conv2", "data")
    assert found["stage.1.conv1"] == ("stage.0.add.relu",)


def test_blocks_in_blocks():
    outer = "  pair:\n    a: {block: residual, width: $w}\n    b: {block: residual, width: $w, inputs: a}\n"
    text = TEXT.replace("layers:\n", outer + "layers:\n").replace(
        "residual, repeat: 2, width: 4", "pair, repeat: 2, w: 4"
    )
    found = inputs(load(text))
    assert found["stage.1.b.conv1"] == ("stage.1.a.add.relu",)
    assert found["stage.1.a.add"] == ("stage.1.a.conv2", "stage.0.b.add.relu")


def test_shared_weights_name_a_layer_of_the_same_copy():
    text = TEXT.replace("conv2: {type: conv,", "conv2: {type: conv, share: conv1,")
    network = make_network(load(text))
    assert network["stage.1.conv2"].uses >= {"stage.1.conv1.weight"}


def test_expanded_layers_can_be_changed():
    config = load(
        TEXT + "  stage.1.conv2: {solver: {lr: 0}}\n", "layers.stage.0.conv1.bias=false", "layers.stage.width=4"
    )
    layers = {spec.name: spec.layer for spec in config.layers}
    assert layers["stage.1.conv2"].solver.lr == 0 and layers["stage.0.conv2"].solver.lr is None
    assert not layers["stage.0.conv1"].bias and layers["stage.1.conv1"].bias
    assert [spec.name for spec in config.layers][-1] == "cost"


def test_an_including_file_changes_parameters():
    Path("base.yaml").write_text(TEXT)
    names = inputs(load("include: base.yaml\nlayers: {stage: {repeat: 5}}\n"))
    assert "stage.4.add" in names and list(names)[-1] == "cost"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("block: residual", "block: resi",
         "11:11: layer 'stage': unknown block 'resi'; did you mean 'residual'? (residual)"),
        ("block: residual", "block: 3",
         "11:11: layer 'stage': block: expected the name of a block, or its layers, found 3"),
        ("block: residual", "block: [residual]",
         "11:11: layer 'stage': block: expected the name of a block, or its layers, found ['residual']"),
        ("block: residual", "block: {}", "11:11: layer 'stage': block: expected a mapping of names to layers, found an "
         "empty mapping"),
        (", width: 4", "", "11:3: layer 'stage': parameter 'width' of block 'residual' is missing; c.yaml:5:25 has its "
         "place"),
        (", width: 4", ", widht: 4", "11:39: layer 'stage': unknown option 'widht'; did you mean 'width'? (block, "
         "repeat, first, inputs, width)"),
        ("repeat: 2", "repeat: 0", "11:28: layer 'stage': repeat: expected an integer >= 1 and <= 10000, or a list of "
         "parameters, found 0"),
        ("repeat: 2", "repeat: []", "11:28: layer 'stage': repeat: expected an integer >= 1 and <= 10000, or a list of "
         "parameters, found []"),
        ("repeat: 2", "repeat: [2]", "11:37: layer 'stage': repeat[0]: expected a mapping of parameters, found 2"),
        ("repeat: 2", "repeat: [{wide: 1}]", "11:38: layer 'stage': unknown option 'wide'; did you mean 'width'? "
         "(block, repeat, first, inputs, width)"),
        ("repeat: 2", "first: 2", "11:28: layer 'stage': first: numbers repetitions; expected `repeat` beside it"),
        ("repeat: 2", "repeat: 2, first: -1", "11:39: layer 'stage': first: expected an integer >= 0, found -1"),
        # in what a block makes: the layer's name, and the place in the block or of the parameter
        ("width: 4", "width: none", "11:39: layer 'stage.0.conv1': filters: expected an integer >= 1, found 'none'"),
        ("conv2: {type: conv,", "conv2: {type: conf,", "6:13: layer 'stage.0.conv2': unknown layer type 'conf'"),
        ("$width, size: 3, pad: 1}", "$width, size: 99}", "6:42: layer 'stage.0.conv2': size 99 is larger than the "
         "8x8 map (with pad 0)"),
        ("width: 4", "width: 5", "7:25: layer 'stage.0.add': expected inputs of equal shapes, found 5x8x8, 4x8x8"),
        ("[conv2, $input]", "[conv3, $input]", "7:25: layer 'stage.0.add': inputs: input 'conv3' does not exist"),
        ("  stem", "  stage.0.conv1: {type: neuron, kind: relu}\n  stem", "5:5: layer 'stage.0.conv1': two layers have "
         "this name; the first is at c.yaml:10:3"),
        ("  data: {type: data, size: 8}\n  stem: {type: conv, filters: 4, size: 1}\n", "", "9:3: layer 'stage': block "
         "'residual' reads the layer before it, and there is none"),
        ("blocks:\n", "blocks: 3\nx:\n", "3:1: blocks: expected a mapping of names to blocks, found 3"),
        ("    add: {", "    more: {block: residual, width: 3}\n    add: {", "7:12: layer 'stage.0.more': block "
         "'residual' contains itself"),
        ("repeat: 2", "repeat: 10000", "7:5: layer 'stage.3332.add': expected at most 10000 layers, blocks written"),
    ],
)  # fmt: skip
def test_errors(old: str, new: str, expected: str) -> None:
    assert TEXT.count(old) >= 1
    with pytest.raises(ConfigError) as caught:
        make_network(load(TEXT.replace(old, new, 1)))
    assert str(caught.value).startswith(f"c.yaml:{expected}")


def test_without_a_section_of_blocks():
    with pytest.raises(ConfigError, match=r"unknown block 'residual'; there is no section 'blocks'"):
        load(TEXT[: TEXT.index("blocks:")] + TEXT[TEXT.index("layers:") :])


def test_an_error_in_a_block_names_the_copy_that_has_it():
    text = TEXT.replace("repeat: 2, width: 4", "repeat: [{width: 4}, {width: 0}]")
    with pytest.raises(ConfigError, match=r"c.yaml:11:50: layer 'stage.1.conv1': filters: .* found 0"):
        load(text)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("stage.1.con2.filters", "there is no layer 'stage.1.con2'; did you mean 'stage.1.conv2'?"),
        ("stage.1.con2.solver.lr", "there is no layer 'stage.1.con2'; did you mean 'stage.1.conv2'?"),
        ("stage.2.conv2.filters", "there is no layer 'stage.2.conv2'; did you mean 'stage.1.conv2'?"),
        ("stag.1.conv2.solver.lr", "there is no layer 'stag.1.conv2'; did you mean 'stage.1.conv2'?"),
        ("stage.widht", "layer 'stage': unknown option 'widht'; did you mean 'width'? (block, repeat, "),
        ("stage.1.conv2.filtres", "layer 'stage.1.conv2': unknown option 'filtres'; did you mean 'filters'? ("),
        ("stage.init.std.x", "layer 'stage': unknown option 'init'; did you mean 'inputs'? (block, "),
    ],
)
def test_a_mistyped_name_on_the_command_line(key, expected):
    with pytest.raises(ConfigError) as caught:
        load(TEXT, f"layers.{key}=3")
    assert str(caught.value).startswith(f"command line: layers.{key}=3: {expected}")
