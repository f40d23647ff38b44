"""What a person reads after a mistake in a config: one line, with place, layer, expected, found, nearest spelling."""

from pathlib import Path

import pytest

import layers
from convnet.config import ConfigError, load_config
from kernels.neuron import KINDS
from layers.options import LAYERS

LENET = """\
name: lenet
data:
  train: {type: folder, path: digits/train}
layers:
  data: {type: data, channels: 1, size: 28}
  conv1: {type: conv, filters: 32, size: 5, pad: 2, neuron: relu}
  drop1: {type: dropout, keep: 0.5}
  cost: {type: logreg, inputs: [drop1, labels]}
solver: {lr: 0.01, schedule: {type: dexp, factor: 250, steps: 4}}
train: {batch_size: 128, epochs: 10}
"""
NEURONS = ", ".join(KINDS)
LAYER_TYPES = ", ".join(LAYERS.discover(layers))
SECTIONS = "name, seed, precision, run, data, layers, solver, train, parallel"


def message(text: str, *overrides: str) -> str:
    Path("c.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config("c.yaml", overrides, environ={})
    return str(caught.value)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # sections and options
        ("solver:", "slover:", f"9:1: unknown option 'slover'; did you mean 'solver'? ({SECTIONS})"),
        ("name: lenet", "name: 12", "1:1: name: expected a string, found 12; put it in quotes"),
        ("name: lenet", "name: on", None),
        ("name: lenet", "name: my net.é", None),
        ("name: lenet", "name: ''", "1:1: name: expected a name that a folder can have, found ''"),
        ("name: lenet", "name: ..", "1:1: name: expected a name that a folder can have, found '..'"),
        ("name: lenet", "name: a/b", "1:1: name: expected a name that a folder can have, found 'a/b'"),
        ("name: lenet", r"name: a\b", r"1:1: name: expected a name that a folder can have, found 'a\\b'"),
        ("name: lenet", r'name: "a\n"', r"1:1: name: expected a name that a folder can have, found 'a\n'"),
        ("name: lenet", r'name: "a\0b"', r"1:1: name: expected a string, found 'a\x00b'; "
         "text has no character U+0000"),
        ("name: lenet", "run: {dir: ''}", "1:7: run.dir: expected a folder that the run can make, found ''"),
        ("name: lenet", "run: {dir: a/..}", "1:7: run.dir: expected a folder that the run can make, found 'a/..'"),
        ("name: lenet", "run: {dir: /}", "1:7: run.dir: expected a folder that the run can make, found '/'"),
        ("name: lenet", "run: {dir: ../a/b c}", None),
        ("name: lenet", "seed: -1", "1:1: seed: expected an integer >= 0 and <= 18446744073709551615, found -1"),
        ("name: lenet", "precision: bf16", "1:1: precision: bf16 is not available yet; use fp32"),
        ("name: lenet", "precision: fp8", "1:1: precision: expected one of fp32, tf32, bf16, found 'fp8'"),
        ("name: lenet", "parallel: model", "1:1: parallel: expected one of data, hybrid, auto, or a mapping of "
         "conv, fc, scheme, update, wire, bucket, timeout, found 'model'"),
        ("name: lenet", "parallel: {conv: model}", "1:12: parallel.conv: expected data, found 'model'"),
        ("name: lenet", "parallel: {fc: models}", "1:12: parallel.fc: expected one of data, model, auto, found "
         "'models'; did you mean 'model'?"),
        ("name: lenet", "run:", "1:1: run: expected a mapping of dir, found nothing"),
        ("name: lenet", "run: a/b", "1:1: run: expected a mapping of dir, found 'a/b'"),
        ("train: {batch_size: 128, epochs: 10}", "", "1:1: option 'train' is missing; expected a mapping of "
         "batch_size, epochs, accumulate, last_batch, log_every, eval_every, checkpoint"),
        (", epochs: 10", "", "10:1: train: option 'epochs' is missing; expected an integer >= 1"),
        ("epochs: 10", "epochs: ten", "10:26: train.epochs: expected an integer >= 1, found 'ten'"),
        ("epochs: 10", "epochs: 010", "10:26: train.epochs: expected an integer >= 1, found '010'"),
        ("epochs: 10", "epochs: 1:30", "10:26: train.epochs: expected an integer >= 1, found '1:30'"),
        ("epochs: 10", "epochs: 2.5", "10:26: train.epochs: expected an integer >= 1, found 2.5"),
        ("epochs: 10", "epochs: 1e1", None),
        ("epochs: 10", "epochs: 1, accumulate: 3", "10:37: train.accumulate: expected a divisor of batch_size (128), "
         "found 3"),
        ("epochs: 10", "epochs: 1, checkpoint: {keep: 0}", "10:50: train.checkpoint.keep: expected an integer >= 1, "
         "found 0"),
        ("lr: 0.01", "lr: 1e-4", None),
        ("lr: 0.01", "lr: fast", "9:10: solver.lr: expected a number >= 0, found 'fast'"),
        ("lr: 0.01", "lr: 1e300", "9:10: solver.lr: expected a number >= 0, found 1e+300; the largest is "
         "3.402823466e+38"),
        ("lr: 0.01", "lr: .nan", "9:10: solver.lr: expected a number >= 0, found nan"),
        ("lr: 0.01", "lr:", "9:10: solver.lr: expected a number >= 0, found nothing"),
        ("lr: 0.01", "lrr: 1", "9:10: solver: unknown option 'lrr'; did you mean 'lr'? "
         "(type, lr, lr_bias, momentum, weight_decay, schedule, schedule_bias, nesterov, clip_norm, ema)"),
        ("lr: 0.01", "type: adam", "9:10: solver: unknown solver type 'adam'; expected sgd"),
        ("type: dexp", "type: dxp", "9:31: solver.schedule: unknown schedule type 'dxp'; did you mean 'dexp'? "
         "(constant, cosine, dexp, exp, linear, multistep, poly, step)"),
        ("lr: 0.01", "lr: 1, clip_norm: 0", "9:17: solver.clip_norm: expected a number > 0, found 0"),
        ("lr: 0.01", "lr: 1, ema: 1", "9:17: solver.ema.decay: expected a number >= 0 and < 1, found 1"),
        ("lr: 0.01", "lr: 1, ema: {decy: 0.9}", "9:23: solver.ema: unknown option 'decy'; did you mean 'decay'? "
         "(decay, warmup)"),
        (", steps: 4", ", steps: 4, warmup: 0", "9:66: solver.schedule.warmup.epochs: expected a number > 0, found 0"),
        ("size: 5", "size: 5, init: function", "6:45: layer 'conv1': init: option 'name' is missing; expected a "
         "string"),
        ("size: 5", "size: 5, init: {type: function, name: a.b, arguments: 3}", "6:79: layer 'conv1': init.arguments: "
         "expected a mapping, found 3"),
        (", steps: 4", "", "9:20: solver.schedule: option 'steps' is missing; expected an integer >= 1"),
        ("type: folder", "type: tar", "3:11: data.train: unknown data source type 'tar'; expected one of cifar, "
         "folder, list, raw, shards, synthetic"),
        (", path: digits/train", "", "3:3: data.train: option 'path' is missing; expected a string"),
        ("digits/train", "a, mirror: maybe", "3:34: data.train.mirror: expected true or false, found 'maybe'"),
        ("digits/train", "digits/train, mirror: off", None),
        ("digits/train", "d, resize: nnoe", "3:34: data.train.resize: expected an integer >= 1 or none or null, "
         "found 'nnoe'; did you mean 'none'?"),
        ("data:\n", "data:\n  mean: [1, 2]\n", "3:3: data.mean: expected one number, or one for each of 1 channels, "
         "found 2"),
        ("data:\n", "data:\n  std: [1, 0]\n", "3:12: data.std[1]: expected a number > 0, found 0"),
        # layers
        ("filters: 32", "filters: 0", "6:23: layer 'conv1': filters: expected an integer >= 1, found 0"),
        ("filters: 32", f"filters: {10**18}", "6:23: layer 'conv1': filters: expected an integer >= 1, found "
         "1000000000000000000; the largest is 2147483647"),
        ("size: 5", f"size: {2**31}", "6:36: layer 'conv1': size: expected a size >= 1 (one number, or [height, "
         "width]), found 2147483648; the largest is 2147483647"),
        ("size: 5", "size: [5, 0]", "6:36: layer 'conv1': size: expected a size >= 1 (one number, or [height, width]), "
         "found [5, 0]"),
        ("keep: 0.5", "kepe: 0.5", "7:26: layer 'drop1': unknown option 'kepe'; did you mean 'keep'? "
         "(type, keep, scale, inputs, neuron, ranks)"),
        ("keep: 0.5", "input: conv1", "7:26: layer 'drop1': unknown option 'input'; did you mean 'inputs'? "
         "(type, keep, scale, inputs, neuron, ranks)"),
        ("type: conv", "type: conf", "6:11: layer 'conv1': unknown layer type 'conf'; did you mean 'conv'? "
         f"({LAYER_TYPES})"),
        ("type: conv, ", "", f"6:3: layer 'conv1': option 'type' is missing; expected one of {LAYER_TYPES}"),
        ("type: conv", "type: [conv]", f"6:11: layer 'conv1': type: expected one of {LAYER_TYPES}, found ['conv']"),
        ("{type: dropout, keep: 0.5}", "", f"7:3: layer 'drop1': expected a mapping with a 'type' ({LAYER_TYPES}), "
         "found nothing"),
        ("pad: 2", "init: {type: gauss}", "6:52: layer 'conv1': init: unknown initializer type 'gauss'; did you mean "
         "'gaussian'? (checkpoint, constant, function, gaussian, he, uniform, xavier)"),
        ("pad: 2", "init: {type: gaussian, std: -1}", "6:68: layer 'conv1': init.std: expected a number >= 0, "
         "found -1"),
        ("pad: 2", "solver: {lr: -1}", "6:54: layer 'conv1': solver.lr: expected a number >= 0, found -1"),
        ("relu", "rellu", f"6:53: layer 'conv1': neuron: expected one of {NEURONS}, found 'rellu'; "
         "did you mean 'relu'?"),
        ("relu", "[relu]", f"6:53: layer 'conv1': neuron: expected one of {NEURONS}, found ['relu']"),
        ("relu", "'brelu[1,2]'", "6:53: layer 'conv1': neuron: brelu takes a, found a and b"),
        ("relu", "{kind: tanh, a: 2}", "6:53: layer 'conv1': neuron: tanh takes a and b, found a"),
        ("relu", "{kind: brelu, a: -1}", "6:75: layer 'conv1': neuron.a: expected a number > 0, found -1.0"),
        ("relu", "{kind: brelu, c: 1}", "6:75: layer 'conv1': neuron: unknown option 'c'; expected one of type, kind, "
         "a, b"),
        ("relu", "{type: conv}", "6:62: layer 'conv1': neuron.type: expected a neuron, found 'conv'"),
        ("relu", "'tanh[1.7159, 0.6667]'", None),
        ("relu", "{kind: brelu, a: 6}", None),
        ("size: 28", "size: 28, neuron: relu", "5:45: layer 'data': neuron: a data layer has no neuron"),
        ("labels]", "labels], neuron: relu", "8:49: layer 'cost': neuron: a logreg layer has no neuron"),
        ("[drop1, labels]", "[drop2, labels]", "8:24: layer 'cost': inputs: input 'drop2' does not exist; did you mean "
         "'drop1'?"),
        ("[drop1, labels]", "[drop1, label]", "8:24: layer 'cost': inputs: input 'label' does not exist; did you mean "
         "'labels'?"),
        ("keep: 0.5", "inputs: cost", "7:26: layer 'drop1': inputs: input 'cost' stands below; layers read from layers "
         "above"),
        ("keep: 0.5", "inputs: drop1", "7:26: layer 'drop1': inputs: input 'drop1' stands below; layers read from "
         "layers above"),
        ("keep: 0.5", "inputs: labels", "7:26: layer 'drop1': inputs: only a cost layer reads the labels"),
        ("keep: 0.5", "inputs: 3", "7:26: layer 'drop1': inputs: expected the name of a layer, or a list of names, "
         "found 3"),
        ("keep: 0.5", "inputs:", "7:26: layer 'drop1': inputs: expected the name of a layer, or a list of names, "
         "found nothing"),
        ("  data: {type: data, channels: 1, size: 28}\n", "", "5:3: layer 'conv1': the first layer has none before it "
         "to read; expected a data layer"),
        ("drop1: {", "labels: {", "7:3: layer 'labels': that name stands for the labels of a batch; expected another"),
        ("drop1: {", "drop 1: {", "7:3: layer 'drop 1': expected a name of letters, digits, '_', '-' and '.'"),
        ("drop1: {", "conv1.relu: {", "7:3: layer 'conv1.relu': a layer and the neuron of another are both called "
         "'conv1.relu'"),
        ("drop1: {", "conv1: {", "7:3: duplicate key 'conv1'; the first is at c.yaml:6:3"),
        ("drop1: {", "1: {", "7:3: expected a name before ':', found 1; a name like that needs quotes"),
    ],
)  # fmt: skip
def test_messages(old: str, new: str, expected: str | None) -> None:
    assert LENET.count(old) >= 1
    text = LENET.replace(old, new, 1)
    if expected is None:
        Path("c.yaml").write_text(text)
        load_config("c.yaml")
    else:
        assert message(text) == f"c.yaml:{expected}"


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("layers:", "layers: expected a mapping of names to layers, found nothing"),
        ("layers: {}", "layers: expected a mapping of names to layers, found an empty mapping"),
        ("layers: [conv]", "layers: expected a mapping of names to layers, found ['conv']"),
        ("name: x", "section 'layers' is missing; expected a mapping of names to layers"),
    ],
)
def test_a_config_needs_layers(section: str, expected: str) -> None:
    assert message(section) == f"c.yaml:1:1: {expected}"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("solver.lr=x", "solver.lr: expected a number >= 0, found 'x'"),
        ("solver.lrr=1", "solver: unknown option 'lrr'; did you mean 'lr'? "
         "(type, lr, lr_bias, momentum, weight_decay, schedule, schedule_bias, nesterov, clip_norm, ema)"),
        ("layers.con1.filters=3", f"layer 'con1': option 'type' is missing; expected one of {LAYER_TYPES} "
         "(did you mean 'conv1'?)"),
        ("layers.drop1.keep=2", "layer 'drop1': keep: expected a number > 0 and <= 1, found 2"),
        ("include=b.yaml", f"unknown option 'include'; expected one of {SECTIONS}"),
    ],
)  # fmt: skip
def test_messages_about_overrides(override: str, expected: str) -> None:
    assert message(LENET, override) == f"command line: {override}: {expected}"


def test_aliases_of_aliases_are_counted() -> None:
    laughs = "".join(f"k{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    expected = "expected at most 100000 values in a file, aliases written out"
    assert message(f"k0: &a0 [lol]\n{laughs}") == f"c.yaml:6:5: {expected}"
    assert "at most" not in message(f"k0: &a0 [lol]\n{''.join(laughs.splitlines(True)[:3])}")


def test_a_long_list_is_not_quoted_whole() -> None:
    assert message(LENET, f"solver.lr={[*range(1000)]}").endswith("found [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]")


def test_messages_about_included_files_name_them() -> None:
    Path("net.yaml").write_text(LENET.replace("filters: 32", "filters: none"))
    assert (
        message("include: net.yaml") == "net.yaml:6:23: layer 'conv1': filters: expected an integer >= 1, found 'none'"
    )
