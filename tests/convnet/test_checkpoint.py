"""Checkpoint folders: whole or not there, chosen by number, checked when read."""

import json
import os

import numpy as np
import pytest
from safetensors import safe_open

from convnet import checkpoint
from convnet.checkpoint import CheckpointError, check_tensors, load, save
from convnet.run import find_checkpoint

WEIGHTS = {
    "conv1.weight": np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3),
    "bn1.running_mean": np.zeros(2, np.float32),
}
MOMENTUM = {"conv1.weight": np.full((2, 3, 3, 3), -0.5, np.float32)}


def write(folder, step, **state):
    return save(folder, WEIGHTS, MOMENTUM, "name: x\n", {"step": step, "classes": ["a", "é"], **state})


def names(folder):
    return sorted(os.listdir(folder))


def test_what_is_saved_is_loaded(tmp_path):
    path = write(tmp_path, 12, position=3)
    found = load(path)
    assert path.name == "step-00000012"
    for expected, got in ((WEIGHTS, found.weights), (MOMENTUM, found.momentum)):
        assert got.keys() == expected.keys()
        for name, tensor in expected.items():
            np.testing.assert_array_equal(got[name], tensor)
            assert got[name].dtype == tensor.dtype
    assert (found.state["step"], found.state["position"], found.state["classes"]) == (12, 3, ["a", "é"])
    assert (path / "config.yaml").read_text() == "name: x\n"


def test_other_programs_read_the_weights(tmp_path):
    """Metadata as Hugging Face's loaders want it; the data aligned."""
    path = write(tmp_path, 1) / "weights.safetensors"
    with safe_open(path, "numpy") as file:
        assert file.metadata()["format"] == "pt"
        assert json.loads(file.metadata()["classes"]) == ["a", "é"]
        assert set(file.keys()) == set(WEIGHTS)
    assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0


def test_equal_states_are_equal_files(tmp_path):
    first, second = write(tmp_path / "a", 5), write(tmp_path / "b", 5)
    for name in names(first):
        assert (first / name).read_bytes() == (second / name).read_bytes()


@pytest.mark.parametrize("step", ["write_tensors", "_fingerprint", "flush"])
def test_a_writer_that_fails_leaves_what_was_there(step, tmp_path, monkeypatch):
    write(tmp_path, 9)

    def fail(path, *args):
        path.write_bytes(b"half") if path.suffix else None
        raise OSError("no space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(checkpoint, step, fail)
        write(tmp_path, 10)
    assert [path.name for path in checkpoint.listing(tmp_path)] == ["step-00000009"]
    load(tmp_path / "step-00000009")
    checkpoint.clean(tmp_path)
    assert names(tmp_path) == ["step-00000009"]
    write(tmp_path, 10)
    assert checkpoint.newest(tmp_path, pytest.fail).state["step"] == 10


def test_saving_the_same_step_again_replaces_it(tmp_path):
    write(tmp_path, 3, position=1)
    write(tmp_path, 3, position=2)
    assert load(tmp_path / "step-00000003").state["position"] == 2
    assert names(tmp_path) == ["step-00000003"]


@pytest.mark.parametrize("call", [1, 2])
def test_killed_while_replacing(call, tmp_path, monkeypatch):
    """Before each of the two renames: one whole checkpoint of that step is there again, the old one or the new."""
    write(tmp_path, 3, position=1)
    inner, calls = type(tmp_path).rename, iter(range(1, 9))

    def rename(self, target):
        if next(calls) == call:
            raise KeyboardInterrupt
        return inner(self, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(tmp_path), "rename", rename)
        write(tmp_path, 3, position=2)
    checkpoint.clean(tmp_path)
    assert names(tmp_path) == ["step-00000003"]
    assert checkpoint.newest(tmp_path, pytest.fail).state["position"] == 1


def test_the_newest_is_the_largest_number(tmp_path):
    """Not the last in the order of text, nor the last written; names that do not match are nobody's checkpoint."""
    for step in (100, 9, 10):
        write(tmp_path, step)
    for name in ("step-x", "step-", "ckpt-200", "step-300.tmp", ".writing-step-00000400"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-500").write_text("a file")
    (tmp_path / "step-00000009").rename(tmp_path / "step-9")
    (tmp_path / "step-00000010").rename(tmp_path / "step-10")
    assert [path.name for path in checkpoint.listing(tmp_path)] == ["step-9", "step-10", "step-00000100"]
    assert checkpoint.newest(tmp_path, pytest.fail).state["step"] == 100


@pytest.mark.parametrize("name", ["weights.safetensors", "momentum.safetensors", "config.yaml", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "flipped"])
def test_a_damaged_newest_is_passed_over_with_a_warning(name, damage, tmp_path):
    write(tmp_path, 1)
    file = write(tmp_path, 2) / name
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "flipped":
        middle = data.index(b'"step"') + 1 if name == "state.json" else len(data) - 1
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :])
    else:
        file.write_bytes(data[: len(data) // 2 if damage == "truncated" else 0])
    warnings = []
    assert checkpoint.newest(tmp_path, warnings.append).state["step"] == 1
    assert len(warnings) == 1 and "step-00000002" in warnings[0]
    with pytest.raises(CheckpointError, match="step-00000002"):
        load(tmp_path / "step-00000002")


def test_damage_is_told_in_words(tmp_path):
    file = write(tmp_path, 1) / "weights.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match=f"damaged; expected {len(data)} bytes, found {len(data) // 2}$"):
        load(file.parent)
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"damaged; expected CRC [0-9a-f]{8}, found [0-9a-f]{8}$"):
        load(file.parent)


def test_another_format_is_refused(tmp_path):
    path = write(tmp_path, 1)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({**state, "format": 99}))
    with pytest.raises(CheckpointError, match="format 99, this version reads format 1"):
        load(path)


def test_the_last_and_the_best_are_kept(tmp_path):
    for step in range(1, 7):
        path = write(tmp_path, step)
        if step == 2:
            checkpoint.mark_best(tmp_path, path)
        checkpoint.prune(tmp_path, keep=2)
    assert [path.name[-1] for path in checkpoint.listing(tmp_path)] == ["2", "5", "6"]
    assert checkpoint.best(tmp_path).name == "step-00000002"
    checkpoint.mark_best(tmp_path, tmp_path / "step-00000006")
    checkpoint.prune(tmp_path, keep=1)
    assert names(tmp_path) == ["best", "step-00000006"]


def test_a_best_that_is_gone_is_none(tmp_path):
    assert checkpoint.best(tmp_path) is None
    checkpoint.mark_best(tmp_path, write(tmp_path, 1))
    (tmp_path / "best").write_text("../../elsewhere\n")
    assert checkpoint.best(tmp_path) is None


def test_every_tensor_that_does_not_fit_is_listed():
    found = {"a": np.zeros((2, 3)), "b": np.zeros(4), "d": np.zeros(())}
    with pytest.raises(CheckpointError) as error:
        check_tensors(found, {"a": (3, 2), "b": (4,), "c": (1, 1)}, "x.safetensors")
    assert str(error.value).splitlines() == [
        "x.safetensors does not fit the network:",
        "  c: missing, expected [1, 1]",
        "  d: [], not in the network",
        "  a: expected [3, 2], found [2, 3]",
    ]
    check_tensors(found, {"a": (2, 3), "b": (4,), "d": ()}, "x")


def test_what_a_path_means(tmp_path):
    folder = tmp_path / "run/checkpoints"
    first, second = write(folder, 1), write(folder, 2)
    with pytest.raises(CheckpointError, match="run: has no best checkpoint"):
        find_checkpoint(tmp_path / "run", pytest.fail, best=True)
    checkpoint.mark_best(folder, first)
    for path in (tmp_path / "run", folder, second, second / "weights.safetensors"):
        assert find_checkpoint(path, pytest.fail).path == second
    assert find_checkpoint(str(tmp_path / "run"), pytest.fail, best=True).path == first
    (tmp_path / "c.yaml").touch()
    with pytest.raises(CheckpointError, match=r"c.yaml: expected the folder of a run or checkpoint, found a file"):
        find_checkpoint(tmp_path / "c.yaml", pytest.fail)
    for path, message in ((tmp_path / "none", "no such run"), (tmp_path, "neither a run with checkpoints")):
        with pytest.raises(CheckpointError, match=message):
            find_checkpoint(path, pytest.fail)
