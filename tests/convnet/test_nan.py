"""A loss that is no number stops the run, by name, and spoils nothing."""

import json
from pathlib import Path

import numpy as np
import pytest

from convnet.cli import main
from convnet.graph.engine import Engine
from convnet.run import find_checkpoint
from tests.convnet.toy import convnet, rows, write_toy


@pytest.fixture
def toy(tmp_path, monkeypatch):
    write_toy(tmp_path)
    monkeypatch.chdir(tmp_path)
    return lambda *overrides: main(["train", "toy.yaml", "--device", "cpu", *overrides])


def test_a_rate_that_is_too_high(tmp_path):
    """From the command line: no traceback, one line that names step, epoch, layer and rate."""
    write_toy(tmp_path)
    overrides = ["solver.lr=1e30", "layers.bn1={type: neuron, kind: relu}", "train.epochs=9"]
    _, err = convnet("train", "toy.yaml", "--device", "cpu", *overrides, cwd=tmp_path, code=1)
    error = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(error) == 1
    assert "step 2 (epoch 1): the loss is nan" in error[0] or "step 3 (epoch 1): the loss is" in error[0]
    assert "of layer 'conv1'" in error[0] or "of layer 'fc1'" in error[0]
    assert "the learning rate, that of '" in error[0] and "', is 1e+30; a lower one may help" in error[0]


def test_the_rate_is_that_of_the_layer(toy, monkeypatch, capsys):
    poison(monkeypatch, 7)
    assert toy("layers.fc1.solver={lr: 0.004}") == 1
    assert "the learning rate, that of 'fc1', is 0.004; a lower one may help" in capsys.readouterr().err


def test_no_rate_is_to_blame_before_an_update(toy, capsys):
    assert toy("layers.fc1.init={type: constant, value: 1e38}") == 1
    error = capsys.readouterr().err
    assert "error: step 1 (epoch 1): the loss is" in error and "no update has been made yet: look at" in error
    assert "learning rate" not in error


def poison(monkeypatch, step, value=np.nan):
    """Put a NaN into a weight before the step counted from 1."""
    inner = Engine.train

    def train(self, *args, **options):
        if options["step"] == step - 1:
            self.parameters["fc1.weight"][0, 0] = value
        inner(self, *args, **options)

    monkeypatch.setattr(Engine, "train", train)


def test_the_step_and_the_layer_are_named_and_the_last_checkpoint_stays(toy, monkeypatch, capsys):
    poison(monkeypatch, 7)
    assert toy() == 1
    assert (
        "step 7 (epoch 2): the loss is nan; the first NaN or infinity is in 'fc1' of layer 'fc1'"
        in capsys.readouterr().err
    )
    found = find_checkpoint("runs/toy", pytest.fail)
    assert found.state["step"] == 4
    assert Path("runs/toy/checkpoints/best").read_text() == "step-00000004\n"
    assert [row["step"] for row in rows("runs/toy", "eval")] == [4]


def test_nothing_is_learned_from_a_loss_that_is_no_number(toy, monkeypatch):
    """Looked at only at the end, as on a GPU: from the bad step on no weight has changed."""
    engines = []
    inner = Engine.__init__
    monkeypatch.setattr(Engine, "__init__", lambda self, *a, **k: (engines.append(self), inner(self, *a, **k))[1])
    monkeypatch.setattr("convnet.train.assemble.every_steps", lambda count: lambda trainer: trainer.finished)
    poison(monkeypatch, 7)
    assert toy("data.val=null", "train.checkpoint.every=99") == 1
    (engine,) = engines
    assert engine.arrays["healthy"][0] == 0
    assert np.isfinite(engine.parameters["conv1.weight"]).all()
    assert np.isnan(engine.parameters["fc1.weight"]).sum() == 1


def test_the_step_is_named_when_looked_at_later(toy, monkeypatch, capsys):
    monkeypatch.setattr("convnet.train.assemble.every_steps", lambda count: lambda trainer: trainer.finished)
    poison(monkeypatch, 6)
    assert toy("data.val=null", "train.checkpoint.every=99") == 1
    assert "step 6 (epoch 2): the loss is nan" in capsys.readouterr().err


def test_weights_that_overflow_unseen_are_not_saved(toy, monkeypatch, capsys):
    """An infinite weight that no loss has met yet: after the last step of an epoch."""
    inner = Engine.train

    def train(self, *args, **options):
        inner(self, *args, **options)
        if options["step"] == 7:
            self.parameters["fc1.bias"][2] = -np.inf

    monkeypatch.setattr(Engine, "train", train)
    assert toy("data.val=null") == 1
    assert "step 8: fc1.bias holds a NaN or infinity after the update; nothing was saved" in capsys.readouterr().err
    assert find_checkpoint("runs/toy", pytest.fail).state["step"] == 4


def test_an_evaluation_that_is_no_number_is_never_the_best(toy, monkeypatch):
    inner = Engine.evaluate

    def evaluate(self, *args, **options):
        probabilities, results = inner(self, *args, **options)
        return probabilities, results * np.nan

    monkeypatch.setattr(Engine, "evaluate", evaluate)
    assert toy("train.epochs=1") == 0
    assert not Path("runs/toy/checkpoints/best").exists()
    (row,) = rows("runs/toy", "eval")
    assert row["loss"] is None and row["top1_accuracy"] is None
    for line in Path("runs/toy/metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
