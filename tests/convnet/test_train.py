"""The loop, its extensions, the rates, run folders, and what is refused before the first step."""

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import termios
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from convnet.checkpoint import load
from convnet.cli import main
from convnet.config import load_config
from convnet.errors import UserError
from convnet.results import Results
from convnet.run import Run, find_checkpoint, fresh, newest
from convnet.session import make_network
from convnet.train import loop
from convnet.train.extension import EDITOR, READER, WRITER, Extension, any_of, every_epochs, every_minutes, every_steps
from convnet.train.rates import RateTable, trainable
from convnet.train.trainer import Trainer, Window
from tests.convnet.toy import command, convnet, environment, last_files, results, rows, write_toy
from tests.parallel.watched import Watched

METRICS, CHECKPOINTS = Path("runs/toy/metrics.jsonl"), Path("runs/toy/checkpoints")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train")
    write_toy(folder)
    return folder


@pytest.fixture
def toy(images, tmp_path, monkeypatch):
    """Train the toy in a folder of its own, with overrides; the exit status."""
    (tmp_path / "images").symlink_to(images / "images")
    (tmp_path / "toy.yaml").write_bytes((images / "toy.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    return lambda *overrides: main(["train", "toy.yaml", "--device", "cpu", *overrides])


class FakeEngine:
    """Counts steps; the loss of step i is i for each sample."""

    batch_size = micro = 2
    parameters = ("w",)
    results = ("cost.loss", "cost.top1_error", "cost.top5_error")
    backend = SimpleNamespace(name="fake", fence=lambda: lambda: None)

    def __init__(self):
        self.losses = []

    def train(self, labels, *, step, rates, total):
        self.losses.append(float(step * np.count_nonzero(labels >= 0)))

    def history(self, begin, end):
        return np.array([self.losses[begin:end], [0.0] * (end - begin), [0.0] * (end - begin)])

    def counts(self):
        return {"cost": len(self.losses) * np.arange(6).reshape(3, 2)}

    def norms(self, begin, end):
        return np.zeros(0)


def batches(samples=6, size=2, labels=0):
    epoch = 0
    while True:
        for position in range(0, samples, size):
            n = min(size, samples - position)
            given = np.full(n, labels)
            yield Fake(labels=given, epoch=epoch, position=position, total=n, inputs={"labels": given})
        epoch += 1


RESULTS = Results(FakeEngine.results, "cost")


class Fake(SimpleNamespace):
    def __len__(self):
        return len(self.labels)


def trainer(**options):
    return Trainer(FakeEngine(), batches(), **{"epochs": 2, "steps_per_epoch": 3, **options})


class Note(Extension):
    """Writes down when it is called."""

    def __init__(self, notes, name, priority, due=lambda trainer: True):
        super().__init__(due)
        self.notes, self.name, self.priority = notes, name, priority

    def start(self, trainer):
        self.notes.append((self.name, "start"))

    def __call__(self, trainer):
        self.notes.append((self.name, trainer.step))

    def finish(self, trainer):
        self.notes.append((self.name, "finish"))


def test_writers_run_before_editors_before_readers():
    notes = []
    extensions = [
        Note(notes, "r1", READER),
        Note(notes, "e", EDITOR),
        Note(notes, "r2", READER),
        Note(notes, "w", WRITER),
    ]
    loop.run(trainer(epochs=1, steps_per_epoch=1), extensions)
    assert [name for name, when in notes if when == 1] == ["w", "e", "r1", "r2"]


def test_triggers():
    notes = []
    loop.run(
        trainer(),
        [
            Note(notes, "steps", READER, every_steps(4)),
            Note(notes, "epochs", READER, every_epochs(1)),
            Note(notes, "even", READER, every_epochs(2)),
            Note(notes, "any", READER, any_of(every_steps(5), every_epochs(1))),
        ],
    )
    called = {name: [when for n, when in notes if n == name and isinstance(when, int)] for name, _ in notes}
    assert called == {"steps": [4, 6], "epochs": [3, 6], "even": [6], "any": [3, 5, 6]}


def test_minutes_are_of_training_since_the_last_checkpoint(monkeypatch):
    """Steps of a minute; what is done while training pauses does not count, nor what came before the checkpoint."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("convnet.train.trainer.time", SimpleNamespace(perf_counter=lambda: clock.now))
    run = trainer(epochs=4)
    due, saved = every_minutes(2.5), []
    for _ in range(9):
        clock.now += 60
        run.update()
        with run.paused():
            clock.now += 1000
        if due(run):
            run.saved()
            saved.append(run.step)
    assert saved == [3, 6, 9]
    assert run.state()["seconds"] == 9 * 60


def test_images_may_take_long_but_not_the_device():
    """A batch is read when the device is done with one before it, which it is not where ranks wait for each other."""
    control, engine, before = Watched(), FakeEngine(), []

    def read():
        for batch in control.noting("images", batches()):
            for earlier in before:
                earlier.fence()
            before[:] = [batch]
            yield batch

    engine.backend = SimpleNamespace(name="fake", fence=lambda: lambda: control.note("device"))
    run = Trainer(engine, read(), epochs=2, steps_per_epoch=3, control=control)
    run.update()
    run.update()
    assert control.seen == [("images", True), ("images", True), ("device", False)]


def test_extensions_are_finished_when_one_fails():
    class Fails(Extension):
        def __call__(self, trainer):
            raise UserError("enough")

    notes = []
    with pytest.raises(UserError, match="enough"):
        loop.run(trainer(), [Fails(), Note(notes, "n", WRITER)])
    assert notes == [("n", "start"), ("n", 1), ("n", "finish")]


def test_counters_and_sums():
    run = trainer()
    for _ in range(4):
        run.update()
    assert (run.step, run.epoch, run.position, run.images) == (4, 1, 2, 8)
    run.collect()
    means = run.window.means(RESULTS)
    assert means["loss"] == (0 + 1 + 2 + 3) * 2 / 8
    assert means["precision"] == [None, 20 / 4] and means["recall"] == [16 / 8, 20 / 12]
    copy = trainer()
    copy.load(json.loads(json.dumps(run.state())))
    assert (copy.step, copy.epoch, copy.position, vars(copy.window)) == (4, 1, 2, vars(run.window))


def test_images_without_a_label_are_not_counted():
    run = Trainer(FakeEngine(), batches(labels=-1), epochs=1, steps_per_epoch=3)
    run.update()
    run.collect()
    assert run.window.images == 0
    means = run.window.means(RESULTS)
    assert all(np.isnan(means[name]) for name in ("loss", "top1_accuracy", "top5_accuracy"))


def test_window_sums_do_not_depend_on_how_often_the_device_is_asked():
    rng = np.random.default_rng(0)
    results = rng.random((3, 50)) * 10.0 ** rng.integers(-8, 8, 50)
    whole, parts = Window(), Window()
    whole.add("abc", results, [1] * 50)
    for i in range(0, 50, 7):
        parts.add("abc", results[:, i : i + 7], [1] * len(results[0, i : i + 7]))
    assert vars(whole) == vars(parts)


RATES = """
data: {train: {type: folder, path: x}}
layers:
  data: {type: data, channels: 1, size: 8}
  conv1: {type: conv, filters: 2, size: 3, solver: {lr: 0.3, lr_bias: 0.6, momentum: 0.5, weight_decay: 0.1}}
  bn1: {type: batch_norm}
  fc0: {type: fc, outputs: 4, solver: {lr: 0}}
  fc1: {type: fc, outputs: 2}
  cost: {type: logreg, inputs: [fc1, labels]}
solver: {lr: 0.1, lr_bias: 0.2, momentum: 0.9, weight_decay: 0.01, schedule: {type: multistep, milestones: [2, 4]}}
train: {epochs: 6}
"""


def rate_table(tmp_path):
    (tmp_path / "rates.yaml").write_text(RATES)
    config = load_config(tmp_path / "rates.yaml")
    network = make_network(config)
    return network, config.solver, RateTable(network, config.solver, steps_total=60, steps_per_epoch=10)


def test_rates_of_each_parameter(tmp_path):
    """The layer's own values; biases and normalisation do not decay."""
    network, solver, table = rate_table(tmp_path)
    found = dict(zip(network.params, table.base.tolist(), strict=True))
    assert found == {
        "conv1.weight": [0.3, 0.5, 0.1],
        "conv1.bias": [0.6, 0.5, 0.0],
        "bn1.weight": [0.1, 0.9, 0.0],
        "bn1.bias": [0.2, 0.9, 0.0],
        "fc0.weight": [0.0, 0.9, 0.01],
        "fc0.bias": [0.0, 0.9, 0.0],
        "fc1.weight": [0.1, 0.9, 0.01],
        "fc1.bias": [0.2, 0.9, 0.0],
    }
    assert set(network.params) - set(trainable(network, solver)) == {"fc0.weight", "fc0.bias"}


def test_the_schedule_moves_the_rate_alone(tmp_path):
    _, _, table = rate_table(tmp_path)
    assert [table.learning_rate(10 * epoch + 9) for epoch in range(6)] == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3]
    )
    for step in (0, 19, 20, 59):
        rates = table.at(step)
        assert rates.dtype == np.float32
        np.testing.assert_allclose(rates[:, 0], table.base[:, 0] * table.factor(step), rtol=1e-6)
        np.testing.assert_allclose(rates[:, 1:3], table.base[:, 1:], rtol=1e-6)
        assert (rates[:, 3] == 1).all()  # all move at every step


def test_a_frozen_layer_keeps_its_weights(toy):
    assert toy("layers.conv1.solver.lr=0", "train.checkpoint.keep=9", "train.checkpoint.every=1") == 0
    first, last = (load(path).weights for path in sorted(CHECKPOINTS.glob("step-*"))[::2])
    assert (first["conv1.weight"] == last["conv1.weight"]).all()
    assert (first["fc1.weight"] != last["fc1.weight"]).any()


def test_the_same_seed_gives_the_same_bits_and_another_does_not(toy):
    assert [toy(), toy("data.threads=3", "data.cache=off"), toy("seed=4")] == [0, 0, 0]
    assert last_files("runs/toy") == last_files("runs/toy-2") != last_files("runs/toy-3")
    assert results("runs/toy") == results("runs/toy-2")


def test_the_saved_config_trains_the_same(toy):
    assert toy("solver.lr=0.03") == 0
    assert main(["train", "runs/toy/config.yaml", "--device", "cpu"]) == 0
    assert last_files("runs/toy") == last_files("runs/toy-2")


def test_the_metrics(toy):
    assert toy() == 0
    lines = [json.loads(line) for line in METRICS.read_text().splitlines()]
    assert lines[0]["event"] == "run" and lines[-1]["event"] == "end"
    assert {"version", "device", "config", "seed", "parameters", "train_images"} <= lines[0].keys()
    assert [row["step"] for row in rows("runs/toy", "train")] == [2, 4, 6, 8, 10, 12]
    assert [(row["step"], row["epoch"], row["images"]) for row in rows("runs/toy", "eval")] == [
        (4, 1.0, 12),
        (8, 2.0, 12),
        (12, 3.0, 12),
    ]
    row = rows("runs/toy", "train")[0]
    assert {"loss", "top1_accuracy", "learning_rate", "images_per_second", "wait_share"} <= row.keys()
    assert set(row["weights"]) == {f"{n}.{k}" for n in ("conv1", "bn1", "fc1") for k in ("weight", "bias")}
    assert all(0 < w["mean_abs"] < 2 and 0 < w["update_ratio"] < 5 for w in row["weights"].values())
    # One mean over both steps: top-1 accuracies are tenths.
    assert row["top1_accuracy"] * 10 == pytest.approx(round(row["top1_accuracy"] * 10))


def test_the_first_loss_is_that_of_chance(toy):
    assert toy("train.epochs=1", "train.log_every=1", "layers.fc1.init={type: constant}") == 0
    assert rows("runs/toy", "train")[0]["loss"] == pytest.approx(np.log(3), rel=1e-6)


def test_the_update_ratio_is_of_the_last_update(toy):
    """After one step without momentum, |update| = lr |gradient|: with twice the rate it is twice as large."""
    for lr in (0.01, 0.02):
        assert (
            toy(
                "train.epochs=1",
                "train.log_every=1",
                f"solver.lr={lr}",
                "layers.fc1.init_bias={type: constant, value: 1}",
            )
            == 0
        )
    found = [rows(run, "train")[0]["weights"]["fc1.bias"] for run in ("runs/toy", "runs/toy-2")]
    steps = [w["mean_abs"] * w["update_ratio"] for w in found]
    assert steps[1] == pytest.approx(2 * steps[0], rel=1e-4)


def test_accumulated_batches_give_the_same_curve(toy):
    """Batch normalisation sees the parts, dropout does not: without the former the curves agree to rounding."""
    overrides = (
        "layers.bn1={type: neuron, kind: relu}",
        "layers.conv1.init={type: gaussian, std: 0.1}",
        "train.batch_size=6",
    )
    assert toy(*overrides) == 0 and toy(*overrides, "train.accumulate=3") == 0
    losses = [[row["loss"] for row in rows(run, "train")] for run in ("runs/toy", "runs/toy-2")]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_a_last_batch_of_one_with_batch_norm(toy):
    """21 images in batches of 5: the last batch has one image, and is trained on or left out as the config says."""
    assert toy("train.last_batch=keep", "train.log_every=1") == 0
    found = rows("runs/toy", "train")
    assert [row["step"] for row in found] == list(range(1, 16))
    assert all(np.isfinite(row["loss"]) for row in found)
    assert all(np.isfinite(tensor).all() for tensor in find_checkpoint("runs/toy", pytest.fail).weights.values())


def test_the_last_epoch_is_always_saved_and_evaluated(toy):
    assert toy("train.eval_every=2", "train.checkpoint.every=2") == 0
    assert [row["step"] for row in rows("runs/toy", "eval")] == [8, 12]
    assert sorted(path.name[-2:] for path in CHECKPOINTS.glob("step-*")) == ["08", "12"]


def test_the_best_checkpoint_is_kept(toy):
    """At a rate of nothing all evaluations are equal: the first one stays the best, though only one more is kept."""
    assert toy("solver.lr=1e-30", "layers.bn1={type: neuron, kind: relu}", "train.checkpoint.keep=1") == 0
    assert (CHECKPOINTS / "best").read_text() == "step-00000004\n"
    assert sorted(path.name[-2:] for path in CHECKPOINTS.glob("step-*")) == ["04", "12"]


def test_the_best_checkpoint_is_kept_whatever_the_interval(toy):
    """Evaluated in every epoch, saved in every third: the best is saved nevertheless, and --best means it."""
    assert toy("solver.lr=1e-30", "layers.bn1={type: neuron, kind: relu}", "train.checkpoint.every=3") == 0
    assert sorted(path.name[-2:] for path in CHECKPOINTS.glob("step-*")) == ["04", "12"]
    assert find_checkpoint("runs/toy", pytest.fail, best=True).state["step"] == 4


@pytest.mark.parametrize(("minutes", "steps"), [(1e-9, ["01", "02", "03", "04"]), (1000, ["04"]), ("null", ["04"])])
def test_a_long_epoch_has_checkpoints(minutes, steps, toy):
    assert toy("train.epochs=1", f"train.checkpoint.minutes={minutes}", "train.checkpoint.keep=9") == 0
    assert sorted(path.name[-2:] for path in CHECKPOINTS.glob("step-*")) == steps


def test_fewer_images_than_a_batch(toy, capsys):
    assert toy("train.batch_size=22") == 2
    assert "train.batch_size: expected at most 21, the number of training images, found 22" in capsys.readouterr().err
    assert toy("train.batch_size=22", "train.last_batch=keep") == 0


def test_classes_that_are_not_the_outputs(toy, capsys):
    assert toy("layers.fc1.outputs=4") == 2
    error = capsys.readouterr().err
    assert "layer 'fc1': expected 3 outputs, one for each class of 'images/train', found 4" in error
    assert toy("layers.fc1={type: fc, outputs: 2}") == 2
    assert not CHECKPOINTS.parent.exists()


def test_what_is_refused_leaves_no_folder(toy, capsys):
    """Of the validation images, too: the next run is the first."""
    assert toy("data.val.path=nowhere") == 1
    assert "'nowhere' does not exist" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_class_error_names_its_place(toy, capsys):
    file = Path("toy.yaml")
    text = file.read_text().replace("outputs: 3", "outputs: 7")
    file.write_text(text)
    line = next(i for i, line in enumerate(text.splitlines(), 1) if "outputs" in line)
    column = text.splitlines()[line - 1].index("outputs") + 1
    assert toy() == 2
    assert capsys.readouterr().err.startswith(f"toy.yaml:{line}:{column}: layer 'fc1': ")


def test_skipped_images_are_counted(toy, images, tmp_path, capsys):
    (tmp_path / "images").unlink()
    shutil.copytree(images / "images", tmp_path / "images")
    (tmp_path / "images/val/b/000.jpg").write_bytes(b"")
    (tmp_path / "images/train/a/000.jpg").write_bytes(b"no image")
    assert toy() == 1
    assert "images/train/a/000.jpg" in capsys.readouterr().err
    assert toy("data.train.on_error=skip", "data.val.on_error=skip", "train.log_every=4") == 0
    captured = capsys.readouterr()
    assert captured.err.count("images/val/b/000.jpg") == captured.err.count("images/train/a/000.jpg") == 1
    assert [(row["images"], row["skipped"]) for row in rows("runs/toy-2", "eval")] == [(11, 1)] * 3
    assert "1 training images could not be read" in captured.out


def test_a_training_set_of_which_nothing_can_be_read(toy, tmp_path, capsys):
    (tmp_path / "images").unlink()
    write_toy(tmp_path)
    for path in Path("images/train").rglob("*.jpg"):
        path.write_bytes(b"no image")
    assert toy("data.train.on_error=skip") == 1
    err = capsys.readouterr().err
    assert "error: none of the 21 training images can be read; the first: cannot decode 'images/train/" in err
    assert not list(CHECKPOINTS.glob("step-*"))


def test_a_validation_set_of_which_nothing_can_be_read(toy, tmp_path, capsys):
    (tmp_path / "images").unlink()
    write_toy(tmp_path)
    for path in Path("images/val").rglob("*.jpg"):
        path.write_bytes(b"no image")
    assert toy("data.val.on_error=skip") == 1
    assert "error: none of the 12 validation images can be read; the first: " in capsys.readouterr().err
    assert [path.name for path in CHECKPOINTS.glob("step-*")] == ["step-00000004"]


def test_one_readable_image_is_enough_for_a_batch_of_others(toy, tmp_path):
    (tmp_path / "images").unlink()
    write_toy(tmp_path)
    for path in sorted(Path("images/train").rglob("*.jpg"))[:-1]:
        path.write_bytes(b"no image")
    assert toy("data.train.on_error=skip", "train.last_batch=keep") == 0


def shell(line, cwd):
    """Run `convnet train toy.yaml` in a bash that does `line` with it; the finished process."""
    train = " ".join(command("train", "toy.yaml", "--device", "cpu"))
    line = line.replace("TRAIN", train)
    return subprocess.run(["bash", "-c", line], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("(TRAIN; echo rc=$? >&2) | head -1", "Broken pipe"),
        ("TRAIN >/dev/full; echo rc=$? >&2", "No space left on device"),
        ("TRAIN >/dev/full 2>/dev/full; echo rc=$? >&2", ""),
        ("TRAIN >&- 2>&-; echo rc=$? >&2", ""),
    ],
)
def test_a_run_outlives_its_terminal(line, reason, toy, tmp_path):
    done = shell(line, tmp_path)
    *warnings, status = done.stderr.splitlines()
    assert status == "rc=0"
    told = f"warning: stdout: {reason}; what the run says from here on is in runs/toy/log.txt"
    assert warnings == ([told] if reason else [])
    assert "trained 3 of 3 epochs" in Path("runs/toy/log.txt").read_text()
    assert rows("runs/toy", "end")


def test_a_run_outlives_its_log(toy, capsys):
    """Its lines are lost, which is said; the metrics and the checkpoints are not."""
    assert toy("train.epochs=1") == 0
    Path("runs/toy/log.txt").unlink()
    Path("runs/toy/log.txt").symlink_to("/dev/full")
    assert toy("--resume", "train.epochs=3") == 0
    captured = capsys.readouterr()
    assert captured.err.count("runs/toy/log.txt: No space left on device; what the run says") == 1
    assert "trained 3 of 3 epochs" in captured.out


def test_a_folder_that_cannot_be_made_names_the_option(toy, capsys):
    place = next(i for i, line in enumerate(Path("toy.yaml").read_text().splitlines(), 1) if "runs/toy" in line)
    Path("toy.yaml").write_text(Path("toy.yaml").read_text().replace("runs/toy", "runs/" + "x" * 300))
    assert toy() == 2
    err = capsys.readouterr().err
    assert err.startswith(f"toy.yaml:{place}:7: run.dir: cannot be made: runs/xxx") and "File name too long" in err


def test_run_folders_do_not_collide(tmp_path):
    base = tmp_path / "runs/x"
    assert newest(base) is None
    assert fresh(base).path == fresh(base).path == base  # an empty folder, such as a mounted one, is nobody's
    for name in ("x", "x-2", "x-3"):
        run = fresh(base)
        assert run.path.name == name
        run.log.touch()
    for name in ("x-10", "x-y", "x-011", "xx-20"):
        (tmp_path / "runs" / name).mkdir()
    assert fresh(base).path.name == "x-11"


def test_the_newest_run_is_the_last_number(tmp_path):
    for name in ("x", "x-9", "x-10", "x-011", "x-12"):
        (tmp_path / name).mkdir()
    for name in ("x", "x-9", "x-10", "x-011"):  # x-12 is not a run
        (tmp_path / name / "config.yaml").touch()
    assert newest(tmp_path / "x").path.name == "x-10"
    assert newest(tmp_path / "x-9").path.name == "x-9"


def test_a_run_in_use_is_refused(toy, tmp_path, capsys):
    assert toy("train.epochs=1") == 0
    with Run(tmp_path / "runs/toy").lock():
        assert toy("train.epochs=2", "--resume") == 1
        assert "another process trains in this folder" in capsys.readouterr().err
    assert toy("train.epochs=2", "--resume") == 0


def test_a_bar_on_a_terminal_and_lines_elsewhere(toy):
    parent, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.set_blocking(parent, False)
    line = command("train", "toy.yaml", "--device", "cpu")
    with os.fdopen(child, "w") as terminal, os.fdopen(parent, "rb", buffering=0) as screen:
        done = subprocess.run(line, env=environment(), stdout=subprocess.PIPE, stderr=terminal, timeout=60)
        assert b"train:   0%" in screen.read(4096)
    out, err = convnet("train", "toy.yaml", "--device", "cpu", cwd=".")
    assert done.returncode == 0 and "\r" not in out + err and "%|" not in out + err
    assert re.search(r"^epoch +1\.00/3  step  4/12  eval   loss", out, re.MULTILINE)
    assert re.search(r"^epoch +1\.00/3  step  4/12  train .* images/s  wait +\d+%  eta 0:0\d$", out, re.MULTILINE)
    assert Path("runs/toy-2/log.txt").read_text() == out


def test_a_finished_run_is_left_alone(toy, capsys):
    assert toy() == 0
    before = METRICS.read_bytes()
    assert toy("--resume") == 0
    assert "is finished; a larger train.epochs continues it" in capsys.readouterr().out
    assert METRICS.read_bytes() == before


def test_what_the_training_does_not_come_to_is_told(tmp_path, monkeypatch, capsys):
    write_toy(tmp_path)
    monkeypatch.chdir(tmp_path)
    biases = "solver.schedule_bias={type: constant, warmup: 2}"
    assert main(["train", "toy.yaml", "--device", "cpu", "train.epochs=1", biases]) == 0
    assert capsys.readouterr().err == (
        "warning: solver.schedule: the training ends at epoch 1, before milestones: 2\n"
        "warning: solver.schedule_bias: the warm-up lasts 2 epochs, the training 1\n"
    )
