"""A run with clipping, averages and layers that wait: files, log, evaluation, and that it resumes to the bit."""

import json

import numpy as np
import pytest

from convnet.cli import main
from convnet.run import find_checkpoint
from tests.convnet.toy import results, rows, write_toy

OPTIONS = (
    "solver.ema=0.9", "solver.clip_norm=0.5", "solver.nesterov=true", "layers.fc1.solver.update_every=3",
    "layers.conv1.solver.wball=1",
)  # fmt: skip


@pytest.fixture
def toy(tmp_path, monkeypatch, capsys):
    """A function that runs `convnet COMMAND`; its exit status."""
    monkeypatch.chdir(tmp_path)
    write_toy(tmp_path)
    return lambda *arguments: main([*arguments, "--device", "cpu"])


def train(toy, name, *arguments):
    assert toy("train", "toy.yaml", f"run.dir=runs/{name}", *OPTIONS, *arguments) == 0
    return find_checkpoint(f"runs/{name}", pytest.fail)


def files(found):
    return {path.name: path.read_bytes() for path in found.path.glob("*.safetensors")}


def test_a_resumed_run_ends_with_the_same_bits(toy):
    """An epoch has 4 steps, so that it ends between two updates of the layer that moves at every third."""
    straight = train(toy, "straight")
    half = train(toy, "parts", "train.epochs=1")
    assert half.state["step"] == 4 and half.gradients["fc1.weight"].any()
    parts = train(toy, "parts", "--resume", "train.epochs=3")
    assert files(parts) == files(straight)
    assert set(files(parts)) == {f"{name}.safetensors" for name in ("weights", "momentum", "ema", "gradients")}
    assert results("runs/parts") == results("runs/straight")


def test_the_log_has_the_norm_of_the_gradients_before_clipping(toy):
    train(toy, "a")
    norms = [row["gradient_norm"] for row in rows("runs/a", "train")]
    assert len(norms) == 6 and all(0 < norm < 100 for norm in norms) and max(norms) > 0.5
    assert toy("train", "toy.yaml", "run.dir=runs/b") == 0
    assert not any("gradient_norm" in row for row in rows("runs/b", "train"))


def test_evaluations_are_of_the_averages(toy, capsys):
    found = train(toy, "a")
    assert (found.ema["conv1.weight"] != found.weights["conv1.weight"]).any()
    assert found.trained is found.ema
    last = rows("runs/a", "eval")[-1]
    capsys.readouterr()
    losses = []
    for override in ([], ["solver.ema=null"]):
        assert toy("eval", "runs/a", "--json", *override) == 0
        losses.append(json.loads(capsys.readouterr().out)["loss"])
    assert losses[0] == pytest.approx(last["loss"], rel=1e-6) and losses[1] != losses[0]


def test_averages_begun_in_a_resumed_run_begin_with_its_weights(toy):
    assert toy("train", "toy.yaml", "run.dir=runs/a", "train.epochs=1") == 0
    assert not find_checkpoint("runs/a", pytest.fail).ema
    found = train(toy, "a", "--resume", "train.epochs=3")
    assert np.isfinite(found.ema["conv1.weight"]).all() and found.ema["bn1.running_var"].all()


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("{type: function, name: no_such.f}", "layer 'conv1': init.name: cannot import 'no_such'"),
        (
            "{type: checkpoint, path: a.safetensors, tensor: w}",
            "layer 'conv1': init.path: 'a.safetensors' does not exist",
        ),
    ],
)
def test_a_network_that_cannot_start_leaves_no_folder(toy, tmp_path, capsys, init, message):
    assert toy("train", "toy.yaml", f"layers.conv1.init={init}") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_weights_that_come_from_another_run(toy):
    train(toy, "a", "train.epochs=1")
    path = find_checkpoint("runs/a", pytest.fail).path
    init = f"layers.conv1.init={{type: checkpoint, path: {path}, tensor: conv1.weight}}"
    other = train(toy, "b", "train.epochs=1", init, "layers.conv1.solver.lr=0")
    np.testing.assert_array_equal(
        other.weights["conv1.weight"], find_checkpoint("runs/a", pytest.fail).weights["conv1.weight"]
    )
