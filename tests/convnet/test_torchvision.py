"""torchvision's weights to a run of ours and back."""

import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from convnet import cli, session
from convnet.config import load_config
from convnet.errors import UserError
from convnet.formats.export import format_of
from convnet.formats.files import writing
from convnet.formats.torchvision import ARCHITECTURES, default_config, names
from convnet.run import find_checkpoint
from kernels.backend import NumPy
from tests.convnet.pickles import save_zip, state
from tests.convnet.toy import ROOT, convnet, signalled, write_images

# Entries of torchvision's state dicts, without num_batches_tracked, and some pairs of ours and theirs.
ENTRIES = {"alexnet": 16, "vgg16": 32, "resnet18": 102, "resnet50": 267, "resnet152": 777, "squeezenet1_1": 52}
PAIRS = {
    "alexnet": {"conv3.bias": "features.6.bias", "fc8.weight": "classifier.6.weight"},
    "vgg16": {"stage3.2.conv.weight": "features.14.weight", "hidden.1.fc.bias": "classifier.3.bias"},
    "resnet18": {"layer2.0.downsample.1.running_var": "layer2.0.downsample.1.running_var", "fc.bias": "fc.bias"},
    "resnet152": {"layer3.35.conv3.weight": "layer3.35.conv3.weight"},
    "squeezenet1_1": {"fire5.expand3x3.weight": "features.7.expand3x3.weight", "conv10.bias": "classifier.1.bias"},
}


def network(arch):
    return session.make_network(load_config(default_config(arch)))


@pytest.fixture(scope="module")
def weights():
    """Random weights of squeezenet1_1 under torchvision's names."""
    net, rng = network("squeezenet1_1"), np.random.default_rng(1)
    theirs = names(net, "squeezenet1_1")
    return {theirs[n]: rng.normal(size=p.shape).astype(np.float32) / 8 for n, p in net.params.items()}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_names(arch):
    found = names(network(arch), arch)
    assert len(set(found.values())) == len(found) == ENTRIES[arch]
    assert PAIRS.get(arch, {}).items() <= found.items()


def test_another_network_has_no_such_names():
    with pytest.raises(UserError) as caught:
        names(network("alexnet"), "squeezenet1_1")
    lines = str(caught.value).splitlines()
    assert lines[0] == "the network is not squeezenet1_1 as torchvision has it:"
    assert "  conv2: not a layer of squeezenet1_1" in lines and "  fire2.squeeze: missing" in lines


@pytest.mark.parametrize(
    "save, name", [(save_file, "w.safetensors"), (lambda a, path: save_zip(path, state(a)), "w.pth")]
)
def test_import_and_export(save, name, weights, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save({**weights, "x.num_batches_tracked": np.array(3, np.int64)}, tmp_path / name)
    command = ["import", "torchvision", name, "--arch", "squeezenet1_1", "-o", "run", "train.batch_size=1"]
    assert cli.main(command) == 0
    assert "run: " + name in capsys.readouterr().out
    found = find_checkpoint("run", pytest.fail)
    assert found.state["classes"][:2] == ["0000"[1:], "001"] and len(found.state["classes"]) == 1000
    config, engine = session.open_checkpoint(found, NumPy())
    assert config.train.batch_size == 1
    for ours, theirs in names(engine.network, "squeezenet1_1").items():
        assert np.array_equal(engine.tensors()[ours], weights[theirs])
    again = ["export", "run", "-o", "again.safetensors", "--names", "torchvision", "--arch", "squeezenet1_1"]
    assert cli.main(again) == 0
    back = load_file("again.safetensors")
    assert back.keys() == weights.keys() and all(np.array_equal(back[n], weights[n]) for n in weights)
    assert cli.main(["export", "run", "-o", "ours.npz"]) == 0  # as the name ends
    with np.load("ours.npz") as arrays:
        assert set(arrays) == set(engine.parameters)
        assert np.array_equal(arrays["fire2.squeeze.weight"], weights["features.3.squeeze.weight"])
    capsys.readouterr()
    assert cli.main(["export", "run", "-o", "x.onnx", "--names", "torchvision", "--arch", "squeezenet1_1"]) == 1
    assert "expected --format safetensors or npz, found onnx" in capsys.readouterr().err
    for kind, target, expected in [
        ("safetensors", "run", "run: is a folder; expected the name of a file"),
        ("npz", "run", "run: is a folder; expected the name of a file"),
        ("npz", "none/x.npz", "none/x.npz: there is no folder 'none'"),
    ]:
        assert cli.main(["export", "run", "-o", target, "--format", kind]) == 1
        assert capsys.readouterr().err == f"error: {expected}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "run", "again.safetensors", "ours.npz"])


@pytest.mark.parametrize(
    "target, given, expected",
    [("a.onnx", None, "onnx"), ("a.NPZ", None, "npz"), ("a", "npz", "npz"), ("a.pt", "safetensors", "safetensors"),
     ("a.npz", "npz", "npz")],
)  # fmt: skip
def test_the_format_is_given_or_as_the_name_ends(target, given, expected):
    assert format_of(Path(target), given) == expected


def test_a_file_of_another_kind_is_not_replaced(tmp_path):
    for name in ("a.yaml", "a", "a.npz"):
        (tmp_path / name).write_text("mine")
    for name, given, expected in [
        ("a.yaml", None, "expected a name that ends in one of .safetensors, .npz, .onnx, or --format"),
        ("b", None, "expected a name that ends in one of"),
        ("b.npz", "onnx", "ends as npz, found --format onnx"),
        ("a.yaml", "npz", "exists already; expected a new file, or one that ends in .npz"),
        ("a", "safetensors", "exists already; expected a new file, or one that ends in .safetensors"),
    ]:
        with pytest.raises(UserError, match=f"{name}: {expected}"):
            format_of(tmp_path / name, given)
    assert format_of(tmp_path / "a.npz", None) == "npz"  # an earlier export


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    target = tmp_path / f"{'x' * 245}.npz"  # too long with the prefix of a file that is not complete
    with pytest.raises(OSError) as caught, writing(target) as partial:
        partial.write_bytes(b"")
    assert caught.value.filename == str(target)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)]
)
@pytest.mark.parametrize("call", [1, 4])
def test_an_import_that_was_interrupted_can_be_repeated(call, number, code, few, tmp_path):
    place = "convnet.checkpoint:flush"
    assert signalled(place, number, call, *few, "-o", "a", cwd=tmp_path).returncode == code
    assert (tmp_path / "a").exists() == (code < 0)  # Ctrl-C leaves nothing behind
    convnet(*few, "-o", "a", cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "a/checkpoints").iterdir()) == ["step-00000000"]


def test_batch_norm_counts_batches(tmp_path):
    net, rng = network("resnet18"), np.random.default_rng(1)
    arrays = {n: rng.random(a.shape, np.float32) for n, a in (net.params | net.states).items()}
    save_file(arrays, tmp_path / "w.safetensors")
    convnet("import", "torchvision", "w.safetensors", "--arch", "resnet18", "-o", "run", cwd=tmp_path)
    convnet("export", "run", "-o", "r.safetensors", "--names", "torchvision", "--arch", "resnet18", cwd=tmp_path)
    with safe_open(tmp_path / "r.safetensors", "np") as file:
        assert file.metadata()["format"] == "pt"
        counter = file.get_tensor("layer2.0.downsample.1.num_batches_tracked")
        assert counter.dtype == np.int64 and counter.shape == () and counter == 0
        assert len(list(file.keys())) == 122  # of torchvision's resnet18


def test_tensors_that_do_not_fit_are_all_listed_and_nothing_is_written(weights, tmp_path):
    wrong = {n: w for n, w in weights.items() if n != "features.0.bias"}
    wrong |= {"classifier.1.weight": np.zeros((10, 512, 1, 1), np.float32), "extra": np.zeros((2, 3), np.float32)}
    save_file(wrong, tmp_path / "w.safetensors")
    _, error = convnet("import", "torchvision", "w.safetensors", "--arch", "squeezenet1_1", cwd=tmp_path, code=1)
    assert error.splitlines() == [
        "error: w.safetensors does not fit the network:",
        "  features.0.bias: missing, expected [64]",
        "  extra: [2, 3], not in the network",
        "  classifier.1.weight: expected [1000, 512, 1, 1], found [10, 512, 1, 1]",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


@pytest.fixture
def few(weights, tmp_path):
    """The command that imports weights for three classes."""
    last = {name: weights[name][:3] for name in ("classifier.1.weight", "classifier.1.bias")}
    save_file({**weights, **last}, tmp_path / "w.safetensors")
    return ["import", "torchvision", "w.safetensors", "--arch", "squeezenet1_1", "layers.conv10.filters=3"]


def test_class_names(few, tmp_path):
    for name in "bca":
        (tmp_path / "photos/val" / name).mkdir(parents=True)
    convnet(*few, "-o", "a", "data.val.path=photos/val", cwd=tmp_path)
    assert find_checkpoint(tmp_path / "a", pytest.fail).state["classes"] == ["a", "b", "c"]
    (tmp_path / "names.txt").write_text("x y\nz\n\nw\n")
    convnet(*few, "-o", "b", "--classes", "names.txt", cwd=tmp_path)
    assert find_checkpoint(tmp_path / "b", pytest.fail).state["classes"] == ["x y", "z", "w"]
    (tmp_path / "names.txt").write_text("x\nz\n")
    _, error = convnet(*few, "-o", "c", "--classes", "names.txt", cwd=tmp_path, code=1)
    assert error == "error: names.txt: expected 3 classes, one for each output, found 2\n"
    _, error = convnet(*few, "-o", "b", cwd=tmp_path, code=1)
    assert error == "error: b: is there already; nothing is written\n"


def test_training_does_not_go_on_without_momentum(few, tmp_path):
    """It says how a run starts from the weights instead, and that is right."""
    write_images(tmp_path / "photos")
    data = ["data.train.path=photos", "data.val=null", "train.batch_size=1", "--device", "cpu"]
    convnet(*few, "-o", "a", cwd=tmp_path)
    _, error = convnet("train", "a/config.yaml", "--resume", "a", *data, cwd=tmp_path, code=1)
    assert error.startswith("error: a/checkpoints/step-00000000: has weights but no momentum, as an imported network; ")
    init = error.strip().rpartition("with init: ")[2].replace("NAME", "conv10.bias")
    config = load_config(tmp_path / "a/config.yaml", [f"layers.conv10.init_bias={init}"])
    weights = {spec.name: spec.layer for spec in config.layers}["conv10"].init_bias
    assert weights.tensor == "conv10.bias" and (tmp_path / weights.path / "weights.safetensors").is_file()


def test_tensors_that_are_no_weights_are_all_listed_and_nothing_is_written(weights, tmp_path):
    wrong = {name: array.astype(np.float64) for name, array in weights.items()}
    wrong["features.0.bias"][:2] = np.nan, -np.inf
    wrong["features.3.squeeze.bias"][3] = 1e39  # infinite in float32
    wrong["classifier.1.bias"] = np.arange(1000)
    wrong["x.num_batches_tracked"] = np.array(3)
    save_file(wrong, tmp_path / "w.safetensors")
    _, error = convnet("import", "torchvision", "w.safetensors", "--arch", "squeezenet1_1", cwd=tmp_path, code=1)
    assert error.splitlines()[0] == "error: w.safetensors does not hold the weights of a network:"
    assert sorted(error.splitlines()[1:]) == [
        "  classifier.1.bias: expected floating-point numbers, found int64",
        "  features.0.bias: expected finite numbers, found 2 of 64 NaN, infinite or too large",
        "  features.3.squeeze.bias: expected finite numbers, found 1 of 16 NaN, infinite or too large",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_numbers_of_half_precision_are_weights(weights, tmp_path):
    save_file({name: array.astype(np.float16) for name, array in weights.items()}, tmp_path / "w.safetensors")
    convnet("import", "torchvision", "w.safetensors", "--arch", "squeezenet1_1", "-o", "a", cwd=tmp_path)
    found = find_checkpoint(tmp_path / "a", pytest.fail).weights["conv1.weight"]
    np.testing.assert_array_equal(found, weights["features.0.weight"].astype(np.float16).astype(np.float32))


def test_a_convnet_without_configs(few, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("convnet.formats.torchvision.CLONE", tmp_path)
    monkeypatch.setattr("convnet.formats.torchvision.metadata.files", lambda name: None)
    monkeypatch.chdir(tmp_path)
    assert cli.main([*few, "-o", "a"]) == 1
    told = f"'{tmp_path}/configs/imagenet/squeezenet1_1.yaml' does not exist; --config names the network's, configs/im"
    assert told in capsys.readouterr().err
    assert cli.main([*few, "-o", "a", "--config", str(ROOT / "configs/imagenet/squeezenet1_1.yaml")]) == 0


def test_mistakes_on_the_command_line(tmp_path):
    _, error = convnet("import", "torchvision", "x.pth", "--arch", "squeezenet1_1", cwd=tmp_path, code=1)
    assert "x.pth" in error
    (tmp_path / "x.pth").write_bytes(b"")
    _, error = convnet("import", "torchvision", "x.pth", "--arch", "squeezenet1_1", cwd=tmp_path, code=1)
    assert error == "error: x.pth: is empty; expected a safetensors file, or one of PyTorch\n"
    (tmp_path / "x.pth").write_bytes(b"\0" * 8 + b"{")
    _, error = convnet("import", "torchvision", "x.pth", "--arch", "squeezenet1_1", cwd=tmp_path, code=1)
    assert error.startswith("error: x.pth: not a readable safetensors file: ")
    _, error = convnet("export", "x", "-o", "y", "--names", "torchvision", cwd=tmp_path, code=1)
    assert error == "error: --names torchvision and --arch go together\n"
    assert not Path(tmp_path / "y").exists()
