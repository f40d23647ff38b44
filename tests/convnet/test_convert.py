"""`convnet convert`: the new network computes what the old one did, and goes on training."""

import shutil

import numpy as np
import pytest

from convnet import checkpoint, session
from convnet.cli import main
from convnet.config import load_config
from convnet.run import find_checkpoint
from kernels.backend import NumPy
from tests.convnet.networks import batch
from tests.convnet.toy import CONFIG, write_toy

SHARED = CONFIG.replace(
    "  pool1:", "  conv2: {type: conv, filters: 4, size: 3, pad: 1, stride: [1, 2]}\n"
    "  conv3: {type: conv, filters: 4, size: 3, pad: 1, bias: false, share: conv2, neuron: relu}\n  pool1:"
).replace("momentum: 0.9,", "momentum: 0.9, ema: 0.9,")  # fmt: skip


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """The folder of a run of one epoch, with a layer of each kind that can be converted."""
    monkeypatch.chdir(tmp_path)
    write_toy(tmp_path, SHARED)
    assert main(["train", "toy.yaml", "--device", "cpu"]) == 0
    return "runs/toy"


def found(run):
    return find_checkpoint(run, pytest.fail)


def results(run):
    """Of the averaged network on a random batch; and a checkpoint to look into."""
    opened = found(run)
    _, engine = session.open_checkpoint(opened, NumPy())
    data = batch(5, engine.network)
    return (*engine.evaluate(data["pixels"], data["labels"]), opened)


def convert(*arguments):
    return main(["convert", *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--local", "conv1"),
        ("--unshare", "conv3"),
        ("--local", "conv3", "--unshare", "conv3"),
        ("--local", "conv1", "conv2", "--unshare", "conv3"),
    ],
    ids=" ".join,
)
def test_outputs_stay_and_training_goes_on(trained, arguments):
    assert convert(trained, *arguments, "-o", "runs/freer") == 0
    for before, after in zip(results(trained)[:2], results("runs/freer")[:2], strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    config = "runs/freer/config.yaml"
    assert load_config(config).run.dir == "runs/freer"
    assert main(["train", config, "train.epochs=4", "--device", "cpu", "--resume", "runs/freer"]) == 0
    assert found("runs/freer").state["epoch"] == 4


def test_weights_are_repeated_and_their_momentum_is_zero(trained):
    assert convert(trained, "--local", "conv1", "-o", "runs/freer") == 0
    old, new = found(trained), found("runs/freer")
    assert load_config("runs/freer/config.yaml").layers[1].layer.type == "local"
    for before, after in ((old.weights, new.weights), (old.ema, new.ema)):
        w, b = after["conv1.weight"], after["conv1.bias"]
        assert w.shape == (10, 10, 4, 1, 3, 3) and b.shape == (4, 10, 10)
        assert (w == before["conv1.weight"]).all() and (b == before["conv1.bias"][:, None, None]).all()
    assert not new.momentum["conv1.weight"].any() and not new.momentum["conv1.bias"].any()
    for name in old.momentum.keys() - {"conv1.weight", "conv1.bias"}:
        np.testing.assert_array_equal(new.momentum[name], old.momentum[name])
    assert {k: v for k, v in new.state.items() if k != "files"} == {k: v for k, v in old.state.items() if k != "files"}


def test_an_unshared_weight_is_a_copy(trained):
    assert convert(trained, "--unshare", "conv3", "-o", "runs/freer") == 0
    old, new = found(trained), found("runs/freer")
    assert "conv3.weight" not in old.weights
    np.testing.assert_array_equal(new.weights["conv3.weight"], old.weights["conv2.weight"])
    np.testing.assert_array_equal(new.momentum["conv2.weight"], old.momentum["conv2.weight"])
    assert not new.momentum["conv3.weight"].any()
    made = session.make_network(load_config("runs/freer/config.yaml"))
    assert list(new.weights) == [*made.params, *made.states]


def test_the_best_checkpoint_stays_the_best(trained):
    folder = found(trained).path.parent
    chosen = checkpoint.best(folder)
    assert convert(str(chosen), "--unshare", "conv3", "-o", "runs/freer") == 0
    assert checkpoint.best(found("runs/freer").path.parent).name == chosen.name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "step-00000012: nothing to convert; name layers with --local or --unshare"),
        (("--local", "cnov1"), "step-00000012: there is no layer 'cnov1'; did you mean 'conv1'?"),
        (("--local", "pool1"), "step-00000012: layer 'pool1': expected a conv layer, found a pool "
         "layer; such are here: conv1, conv2, conv3"),
        (("--unshare", "conv2"), "step-00000012: layer 'conv2': expected a layer with 'share', found a conv "
         "layer; such are here: conv3"),
        (
            ("--local", "conv2"),
            "step-00000012: layer 'conv3': share: expected a layer of type conv, found 'conv2' of type local; --unshar",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_leaves_nothing_behind(trained, tmp_path, capsys, arguments, message):
    assert convert(trained, *arguments, "-o", "runs/freer") == 1
    assert f"error: runs/toy/checkpoints/{message}" in capsys.readouterr().err
    assert not (tmp_path / "runs/freer").exists()


@pytest.mark.parametrize("there", [False, True])
def test_a_failure_takes_back_what_was_begun(there, trained, tmp_path, monkeypatch):
    """Also what was written after the checkpoint; a folder that was there before stays, empty."""
    if there:
        (tmp_path / "runs/freer").mkdir()

    def keep(self, config, overrides):
        self.config.write_text(config)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("convnet.run.Run.keep", keep)
        assert convert(trained, "--local", "conv1", "-o", "runs/freer") == 130
    assert (tmp_path / "runs/freer").exists() == there and not list(tmp_path.glob("runs/freer/*"))
    assert convert(trained, "--local", "conv1", "-o", "runs/freer") == 0


def test_only_remains_of_a_writer_are_overwritten(trained, tmp_path, capsys):
    """What was put aside for a newer checkpoint, a config or any other file is not."""
    target = tmp_path / "runs/freer/checkpoints"
    for kept in (
        "checkpoints/.writing-step-00000003-replaced",
        "checkpoints/step-00000003",
        "config.yaml",
        "notes.txt",
    ):
        (target / ".writing-step-00000012").mkdir(parents=True)
        (target.parent / kept).mkdir()
        assert convert(trained, "--local", "conv1", "-o", "runs/freer") == 1
        assert "runs/freer: exists already" in capsys.readouterr().err
        assert (target.parent / kept).exists()
        shutil.rmtree(target.parent)


def test_a_folder_in_use_is_not_written_to(trained, capsys):
    assert convert(trained, "--local", "conv1", "-o", trained) == 1
    assert "runs/toy: exists already; expected the folder of a new run" in capsys.readouterr().err
