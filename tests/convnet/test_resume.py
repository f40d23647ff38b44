"""A run that is interrupted and resumed ends with the bits, and the log, of one that was not."""

import errno
import gc
import json
import os
import shutil
import signal
from pathlib import Path
from types import GeneratorType

import pytest

from convnet import checkpoint
from convnet.cli import main
from convnet.config import load_config
from convnet.data.draws import permutation
from convnet.graph.engine import Engine
from tests.convnet.toy import convnet, last_files, results, rows, signalled, write_toy

STEPS = 12  # of the toy: 3 epochs of 4
TRAIN, EVALUATE = "convnet.graph.engine:Engine.train", "convnet.graph.engine:Engine.evaluate"


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A folder with the toy's images, and its run without interruption in `runs/straight`."""
    folder = tmp_path_factory.mktemp("resume")
    write_toy(folder)
    convnet("train", "toy.yaml", "--device", "cpu", "run.dir=runs/straight", cwd=folder)
    return folder


@pytest.fixture
def folder(straight, tmp_path, monkeypatch):
    """A folder of its own with the same images."""
    (tmp_path / "images").symlink_to(straight / "images")
    shutil.copy(straight / "toy.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_same(folder, straight):
    found, expected = folder / "runs/toy", straight / "runs/straight"
    assert last_files(found) == last_files(expected)
    assert results(found) == results(expected)
    best = [(run / "checkpoints/best").read_text() for run in (found, expected)]
    assert best[0] == best[1]


def interrupt(monkeypatch, step, number=signal.SIGTERM):
    """Send this process a signal in the step counted from 1."""
    inner = Engine.train

    def train(self, *args, **options):
        if options["step"] == step - 1:
            signal.raise_signal(number)
        inner(self, *args, **options)

    monkeypatch.setattr(Engine, "train", train)


@pytest.mark.parametrize("step", range(1, STEPS))
def test_stopped_in_any_step_and_resumed(step, folder, straight, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupt(patch, step)
        assert main(["train", "toy.yaml", "--device", "cpu"]) == 143
    state = json.loads((folder / f"runs/toy/checkpoints/step-{step:08}/state.json").read_text())
    assert (state["step"], state["epoch"], state["position"]) == (step, step // 4, step % 4 * 5)
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 0
    assert f"step-{step:08} (step {step}, epoch {step // 4 + 1}, image {step % 4 * 5})" in capsys.readouterr().out
    assert_same(folder, straight)


def test_interrupted_again_and_again(folder, straight, monkeypatch):
    for step in (2, 3, 7, 9):
        with monkeypatch.context() as patch:
            interrupt(patch, step, signal.SIGINT)
            assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 130
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 0
    assert len(rows(folder / "runs/toy", "resume")) == 4
    assert_same(folder, straight)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
@pytest.mark.parametrize("place, call", [(TRAIN, 7), (EVALUATE, 5)])
def test_signals_to_a_process(place, call, number, code, folder, straight):
    """In a step in mid-epoch, and in the middle of an evaluation."""
    stopped = signalled(place, number, call, "train", "toy.yaml", "--device", "cpu", cwd=folder)
    assert stopped.returncode == code, stopped.stderr
    assert "Traceback" not in stopped.stderr
    convnet("train", "toy.yaml", "--device", "cpu", "--resume", cwd=folder)
    assert_same(folder, straight)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_stays_so(number, folder, monkeypatch):
    """As under nohup, or in the background of a script."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        interrupt(monkeypatch, 3, number)
        assert main(["train", "toy.yaml", "--device", "cpu", "train.epochs=1"]) == 0
    finally:
        signal.signal(number, before)


def test_no_iteration_is_left_to_the_garbage_collector(folder):
    """It would end them in any order, also the outer one while it ends the inner one, which is an error."""
    assert main(["train", "toy.yaml", "--device", "cpu", "train.epochs=1"]) == 0
    gc.collect()
    gc.disable()
    try:
        assert main(["train", "toy.yaml", "--device", "cpu", "--resume", "train.epochs=2"]) == 0
        generators = [each for each in gc.get_objects() if isinstance(each, GeneratorType) and each.gi_frame]
    finally:
        gc.enable()
    assert not [each for each in generators if each.__name__ in ("endless", "batches")]


def damage(folder, straight, image):
    """Give the folder its own images, one of them cut short; a function that mends it."""
    (folder / "images").unlink()
    shutil.copytree(straight / "images", folder / "images")
    os.truncate(folder / image, 100)
    return lambda: shutil.copy(straight / image, folder / image)


@pytest.mark.parametrize(("position", "step"), [(7, 1), (17, 3)])
def test_a_training_image_that_cannot_be_read_loses_no_step(position, step, folder, straight, capsys):
    index = int(permutation(3, 0, 21)[position])
    mend = damage(folder, straight, f"images/train/{'abc'[index // 7]}/{index % 7:03}.jpg")
    assert main(["train", "toy.yaml", "--device", "cpu"]) == 1
    err = capsys.readouterr().err
    assert "on_error: skip leaves such images out" in err
    assert f"warning: the run failed; step {step} is saved, --resume continues there" in err
    mend()
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 0
    assert_same(folder, straight)


def test_a_validation_image_that_cannot_be_read_loses_no_epoch(folder, straight, capsys):
    """The evaluation is made up for when the run is resumed, and fails again as long as the image is broken."""
    mend = damage(folder, straight, "images/val/b/000.jpg")
    for _ in range(2):
        assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 1
        assert "images/val/b/000.jpg" in capsys.readouterr().err
        assert [path.name for path in checkpoint.listing(folder / "runs/toy/checkpoints")] == ["step-00000004"]
    mend()
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 0
    assert_same(folder, straight)


def test_images_that_several_ranks_have_left_out(folder, straight, capsys):
    """A run goes on, or is finished, only where they can be read, are skipped, or are gone."""
    image = "images/train/c/006.jpg"
    mend = damage(folder, straight, image)
    shutil.copytree(straight / "runs/straight", folder / "runs/toy")
    (state,) = (folder / "runs/toy/checkpoints").glob(f"step-{STEPS:08}/state.json")
    state.write_text(json.dumps(json.loads(state.read_text()) | {"left_out": [image, "images/train/c/007.jpg"]}))
    run = ["train", "toy.yaml", "--device", "cpu", "--resume"]
    told = f"the last steps before step {STEPS} lack '{image}' and 1 more, which could not be read"
    assert main(run) == 1
    assert f"error: cannot decode '{image}'" in capsys.readouterr().err
    assert main([*run, "data.train.on_error=skip"]) == 0
    assert told not in capsys.readouterr().err
    run.append("data.train.on_error=error")
    (folder / image).unlink()
    assert main(run) == 0
    assert told in capsys.readouterr().err
    mend()
    assert main(run) == 0
    assert told in capsys.readouterr().err


def test_a_step_that_failed_half_way_is_not_saved(folder, straight, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        inner = Engine.train

        def train(self, *args, **options):
            inner(self, *args, **options)
            if options["step"] == 5:
                raise MemoryError("half way")

        patch.setattr(Engine, "train", train)
        assert main(["train", "toy.yaml", "--device", "cpu"]) == 1
    err = capsys.readouterr().err
    assert "step-00000004 is good, --resume continues there" in err and "out of memory (half way)" in err
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 0
    assert_same(folder, straight)


def test_a_full_disk_names_the_file_and_the_checkpoint_that_is_good(folder, straight, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        inner, calls = checkpoint.write_tensors, iter(range(99))

        def write(path, *args):
            inner(path if next(calls) < 2 else Path("/dev/full"), *args)

        patch.setattr(checkpoint, "write_tensors", write)
        assert main(["train", "toy.yaml", "--device", "cpu"]) == 1
    assert capsys.readouterr().err == (
        "error: saving step 8 failed: /dev/full: No space left on device; "
        "runs/toy/checkpoints/step-00000004 is good, --resume continues there\n"
    )
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 0
    assert_same(folder, straight)


@pytest.mark.parametrize("call", range(8, 18))
def test_killed_while_saving(call, folder, straight):
    """At each flush of the second checkpoint: the first one stays valid, nothing half-written is taken for one."""
    stopped = signalled("convnet.checkpoint:flush", signal.SIGKILL, call, "train", "toy.yaml", cwd=folder)
    assert stopped.returncode == -signal.SIGKILL
    out, _ = convnet("train", "toy.yaml", "--resume", cwd=folder)
    assert "(step 4, " in out or "(step 8, " in out
    assert not list((folder / "runs/toy/checkpoints").glob(".writing*"))
    assert_same(folder, straight)


def test_a_signal_before_the_first_step(folder, straight):
    stopped = signalled("convnet.session:make_engine", signal.SIGTERM, 1, "train", "toy.yaml", cwd=folder)
    assert stopped.returncode == 143, stopped.stderr
    assert (folder / "runs/toy/checkpoints/step-00000000/weights.safetensors").is_file()
    convnet("train", "toy.yaml", "--resume", cwd=folder)
    assert_same(folder, straight)


def test_a_second_interrupt_aborts_at_once(folder, monkeypatch, capsys):
    inner = Engine.train

    def train(self, *args, **options):
        if options["step"] == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        inner(self, *args, **options)

    monkeypatch.setattr(Engine, "train", train)
    assert main(["train", "toy.yaml", "--device", "cpu"]) == 130
    assert [path.name for path in checkpoint.listing(folder / "runs/toy/checkpoints")] == ["step-00000004"]
    assert "interrupted" in capsys.readouterr().err


def test_a_damaged_newest_checkpoint_is_passed_over(folder, straight, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupt(patch, 10)
        assert main(["train", "toy.yaml", "--device", "cpu"]) == 143
    newest = folder / "runs/toy/checkpoints/step-00000010/weights.safetensors"
    os.truncate(newest, newest.stat().st_size // 2)
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 0
    captured = capsys.readouterr()
    assert "step-00000010/weights.safetensors: damaged" in captured.err
    assert "step-00000008 (step 8, " in captured.out
    assert_same(folder, straight)


@pytest.mark.parametrize("damage", ["cut", "denied"])
def test_checkpoints_that_cannot_be_read_are_not_overwritten(damage, folder, monkeypatch, capsys):
    assert main(["train", "toy.yaml", "--device", "cpu", "train.epochs=1"]) == 0
    (path,) = checkpoint.listing(folder / "runs/toy/checkpoints")
    if damage == "cut":
        os.truncate(path / "weights.safetensors", 100)
    else:  # what a folder without permission gives, for root too

        def listdir(path, inner=os.listdir):
            if str(path).endswith("checkpoints"):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return inner(path)

        monkeypatch.setattr("convnet.checkpoint.os.listdir", listdir)
    before = {file: file.read_bytes() for file in path.iterdir()}
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 1
    expected = {"cut": "no checkpoint in it can be read; ", "denied": "Permission denied"}[damage]
    assert f"error: runs/toy/checkpoints: {expected}" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in path.iterdir()} == before


def test_the_learning_rates_are_those_of_a_straight_run(folder, straight, monkeypatch):
    """Stopped just before the milestone, resumed behind it: multistep, after 2 epochs of 3."""
    with monkeypatch.context() as patch:
        interrupt(patch, 7)
        main(["train", "toy.yaml", "--device", "cpu"])
    main(["train", "toy.yaml", "--device", "cpu", "--resume"])
    rates = [row["learning_rate"] for row in rows(folder / "runs/toy", "train")]
    assert rates == pytest.approx([0.05] * 4 + [0.005] * 2)
    assert rates == [row["learning_rate"] for row in rows(straight / "runs/straight", "train")]


def test_an_edited_config_wins_and_is_told(folder, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        main(["train", "toy.yaml", "--device", "cpu"])
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume", "solver.lr=0.5", "train.epochs=2"]) == 0
    captured = capsys.readouterr()
    assert "solver.lr: 0.05 -> 0.5" in captured.err and "train.epochs: 3 -> 2" in captured.err
    assert "every option is the config's" in captured.out
    assert [row["learning_rate"] for row in rows(folder / "runs/toy", "train")] == [0.05, 0.5, 0.5, 0.5]
    assert "lr: 0.5" in (folder / "runs/toy/config.yaml").read_text()


def test_the_overrides_of_a_run_stay_with_it(folder, monkeypatch, capsys):
    """Those given now win; a mapping is merged; whatever the file says of other options is taken from it."""
    first = ["solver={lr: 0.02, momentum: 0.5}", "train.log_every=1", "data.train.mirror=false"]
    run = ["train", "toy.yaml", "--device", "cpu"]
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        assert main([*run, *first]) == 143
        interrupt(patch, 6)
        assert main([*run, "--resume", "train.log_every=2", "solver={lr: 0.01}"]) == 143
    capsys.readouterr()
    text = (folder / "toy.yaml").read_text()
    (folder / "toy.yaml").write_text(text.replace("epochs: 3", "epochs: 2"))
    assert main([*run, "--resume"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "warning: the config has changed, its new value is used: train.epochs: 3 -> 2\n"
    words = ["solver={lr: 0.02, momentum: 0.5}", "data.train.mirror=false", "train.log_every=2", "solver={lr: 0.01}"]
    assert f"every option is the config's, {', '.join(words)}\n" in captured.out
    assert json.loads((folder / "runs/toy/overrides.json").read_text()) == words
    config = load_config("runs/toy/config.yaml")
    assert (config.solver.lr, config.solver.momentum, config.train.log_every) == (0.01, 0.5, 2)
    assert not config.data.train.mirror


def test_an_override_that_the_config_needs_is_remembered(folder, capsys):
    (folder / "toy.yaml").write_text((folder / "toy.yaml").read_text().replace(", epochs: 3", ""))
    run = ["train", "toy.yaml", "--device", "cpu"]
    assert main([*run, "train.epochs=1"]) == 0
    assert main([*run, "--resume", "runs/toy"]) == 0
    assert "runs/toy is finished" in capsys.readouterr().out


def test_a_full_disk_spoils_no_overrides(folder, capsys):
    run = ["train", "toy.yaml", "--device", "cpu"]
    assert main([*run, "train.epochs=1"]) == 0
    (folder / "runs/toy/.writing-overrides.json").symlink_to("/dev/full")
    assert main([*run, "--resume", "train.epochs=2"]) == 1
    assert capsys.readouterr().err.endswith("error: runs/toy/overrides.json: No space left on device\n")
    assert json.loads((folder / "runs/toy/overrides.json").read_text()) == ["train.epochs=1"]


def test_overrides_that_cannot_be_read(folder, capsys):
    run = ["train", "toy.yaml", "--device", "cpu", "train.epochs=1"]
    assert main(run) == 0
    (folder / "runs/toy/overrides.json").write_text("[")
    assert main([*run, "--resume"]) == 1
    assert "runs/toy/overrides.json: expected a JSON list of overrides" in capsys.readouterr().err


def test_fewer_images_between_epochs(folder, straight, capsys):
    """12 steps in 3 epochs of 4, then epochs of 2: every count is in epochs, and rates change where they should."""
    run = ["train", "toy.yaml", "--device", "cpu", "solver.schedule.milestones=[4]"]
    assert main(run) == 0
    mend = damage(folder, straight, "images/train/a/000.jpg")
    for name in "abc":
        for i in range(3):
            (folder / f"images/train/{name}/{i:03}.jpg").unlink()
    assert mend and main([*run, "--resume", "train.epochs=5"]) == 0
    out = capsys.readouterr().out
    assert "trained 5 of 5 epochs" in out and "epoch   5.00/5  step 16/16  eval" in out
    found = rows(folder / "runs/toy", "train")[-2:]
    assert [(row["step"], row["epoch"]) for row in found] == [(14, 4.0), (16, 5.0)]
    assert [row["learning_rate"] for row in found] == pytest.approx([0.05, 0.005])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=4", "seed: cannot change in a run: it began with 3, found 4"),
        ("train.batch_size=7", "train.batch_size: cannot change in a run: it began with 5, found 7"),
        ("layers.conv1.filters=8", "conv1.weight: expected [8, 1, 3, 3], found [4, 1, 3, 3]"),
        ("layers.fc1.bias=false", "fc1.bias: [3], not in the network"),
    ],
)
def test_what_cannot_change_is_an_error(override, message, folder, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        main(["train", "toy.yaml", "--device", "cpu"])
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume", override]) in (1, 2)
    assert message in capsys.readouterr().err


def test_other_images_in_mid_epoch_are_an_error(folder, straight, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        main(["train", "toy.yaml", "--device", "cpu"])
    (folder / "images").unlink()
    shutil.copytree(straight / "images", folder / "images")
    (folder / "images/train/a/000.jpg").unlink()
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 1
    assert "21 training images when the checkpoint was written, 20 now" in capsys.readouterr().err


def test_resume_names(folder, straight, capsys):
    """The last run of the config's folder; a run by its folder; nothing there is a new run, or an error if named."""
    run = ["train", "toy.yaml", "--device", "cpu"]
    assert main([*run, "train.epochs=1", "--resume"]) == 0
    assert "nothing to resume in runs/toy: a new run begins" in capsys.readouterr().out
    assert main([*run, "train.epochs=2"]) == 0
    assert main([*run, "--resume", "train.epochs=3"]) == 0
    assert "runs/toy-2/checkpoints/step-00000008 " in capsys.readouterr().out
    assert main([*run, "--resume", "runs/toy"]) == 0
    assert "runs/toy is finished; a larger train.epochs continues it" in capsys.readouterr().out
    assert main([*run, "--resume", "runs/toy", "train.epochs=3"]) == 0
    assert "runs/toy/checkpoints/step-00000004 " in capsys.readouterr().out
    assert main([*run, "--resume", "runs/other"]) == 1
    assert "runs/other: not the folder of a run" in capsys.readouterr().err
    assert_same(folder, straight)
    assert main([*run, "--resume", "solver.lr=1"]) == 0  # an override behind the option
    assert "is finished" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.parametrize("step", [1, 2, 3, 7, 8])
def test_on_a_gpu(step, folder, straight, monkeypatch):
    """Bits are those of a straight run on the same GPU; the curve is that of the CPU, to rounding."""
    run = ["train", "toy.yaml", "--device", "cuda"]
    assert main([*run, "run.dir=runs/straight"]) == 0
    with monkeypatch.context() as patch:
        interrupt(patch, step)
        assert main(run) == 143
    assert main([*run, "--resume"]) == 0
    assert_same(folder, folder)
    losses = [[row["loss"] for row in rows(f / "runs/straight", "train")] for f in (folder, straight)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_threads_do_not_change_the_bits(folder, straight):
    convnet("train", "toy.yaml", "--device", "cpu", "data.threads=1", cwd=folder)
    assert_same(folder, straight)
