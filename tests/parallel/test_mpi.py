"""`mpirun -n 2 convnet train` on CPUs: what one process does, to rounding; and faults, which end all ranks."""

import json
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from convnet.parallel.launch import launch
from tests.convnet.test_inputs import OF_FILE, STATISTICS
from tests.convnet.toy import CONFIG, ROOT, convnet, environment, results, rows, write_toy

pytest.importorskip("mpi4py")
MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}") or shutil.which("mpirun")
pytestmark = pytest.mark.skipif(MPIRUN is None, reason="needs mpirun")
PYTHON = [sys.executable, "-W", "error"]
CONVNET = [*PYTHON, "-m", "convnet"]
UPDATE = "convnet.train.trainer:Trainer.update"
SILENCE = 5  # seconds after which a rank is given up: a machine that is busy otherwise must not cause as many
BANNER = ("=", "YOUR APPLICATION", "This typically", "Please see", "[mpiexec", "[proxy")  # of mpirun's own


def mpirun(*words, cwd, code=0, within=60.0, **env):
    """Run to the end: (stdout, stderr without mpirun's own words).

    code: of the ranks; None stands for any but 0. When the first rank has failed, mpirun kills those that have not yet
    ended themselves, and returns the status of one, or joins both.
    """
    began = time.monotonic()
    env = environment(OPENBLAS_NUM_THREADS="1", **env)
    done = subprocess.run([MPIRUN, *map(str, words)], cwd=cwd, env=env, capture_output=True, text=True, timeout=90)
    assert time.monotonic() - began < within
    expected = {code, code | signal.SIGKILL, signal.SIGKILL} if code else {code}
    assert done.returncode if code is None else done.returncode in expected, done
    err = [line for line in done.stderr.splitlines() if line and not line.startswith(BANNER)]
    return done.stdout, "\n".join(err)


def train(ranks, *words, cwd, **options):
    return mpirun("-n", ranks, *CONVNET, "train", "toy.yaml", "--device", "cpu", *words, cwd=cwd, **options)


def faulty(rank, what, count, *words, place=UPDATE, cwd, **options):
    program = [*PYTHON, "-m", "tests.parallel.faulty", rank, what, place, count]
    return mpirun("-n", 2, *program, "train", "toy.yaml", "--device", "cpu", *words, cwd=cwd, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The toy, whose batch normalisation is over all ranks, and runs/one, trained by one process."""
    made = tmp_path_factory.mktemp("mpi")
    write_toy(made, CONFIG.replace("batch_norm,", "batch_norm, sync: true,"))
    convnet("train", "toy.yaml", "--device", "cpu", "run.dir=runs/one", cwd=made)
    (made / "runs/two").symlink_to("one")
    return made


@pytest.fixture
def toy(folder, tmp_path):
    (tmp_path / "images").symlink_to(folder / "images")
    (tmp_path / "toy.yaml").write_bytes((folder / "toy.yaml").read_bytes())
    return tmp_path


def files(run):
    """Each tensor file of the last checkpoint: its header, and its tensors."""
    last = sorted((Path(run) / "checkpoints").glob("step-*"))[-1]
    found = {}
    for path in last.glob("*.safetensors"):
        data = path.read_bytes()
        found[path.name] = data[: 8 + int.from_bytes(data[:8], "little")], load_file(path)
    return found, json.loads((last / "state.json").read_text())


def assert_same_run(run, other, tolerance=1e-4):
    """The same rows of the log and the same checkpoint, to rounding."""
    for row, expected in zip(results(run), results(other), strict=True):
        assert row.keys() == expected.keys()
        for key in row.keys() - {"weights", "event"}:
            assert row[key] == pytest.approx(expected[key], rel=tolerance, abs=1e-6), (key, row)
        assert row["event"] == expected["event"]
        for name, numbers in expected.get("weights", {}).items():
            size = pytest.approx(numbers["mean_abs"], rel=tolerance, abs=1e-6)
            assert row["weights"][name]["mean_abs"] == size, (name, row["step"])
        assert row.get("weights", {}).keys() == expected.get("weights", {}).keys()
    (found, state), (wanted, old) = files(run), files(other)
    assert found.keys() == wanted.keys()
    for name, (header, tensors) in found.items():
        assert header == wanted[name][0]
        for key, tensor in tensors.items():
            np.testing.assert_allclose(tensor, wanted[name][1][key], rtol=tolerance, atol=1e-5, err_msg=key)
    counters = ("step", "epoch", "position", "classes", "samples")
    assert [state[key] for key in counters] == [old[key] for key in counters]
    assert state["files"].keys() == old["files"].keys()


@pytest.mark.parametrize(
    "ranks, parallel",
    [(2, "data"), (3, "data"), (2, "{update: sharded}"), (2, "hybrid"), (3, "{fc: model, scheme: C}"), (2, "auto")],
)
def test_ranks_train_as_one_process_does(folder, toy, ranks, parallel):
    out, err = train(ranks, "run.dir=runs/all", f"parallel={parallel}", cwd=toy)
    assert not err and f"{ranks} ranks (started by mpich)" in out
    first, expected = (rows(run, "run")[0] for run in (toy / "runs/all", folder / "runs/one"))
    assert first.pop("ranks") == ranks and expected.pop("ranks") == 1
    assert first.pop("config") != expected.pop("config") or parallel == "data"
    assert first == expected
    assert out.count("trained 3 of 3 epochs") == 1
    assert_same_run(toy / "runs/all", folder / "runs/one")
    assert sorted(path.name for path in (toy / "runs").iterdir()) == ["all"]
    for row in rows(toy / "runs/all", "train"):
        assert len(row["ranks"]["images_per_second"]) == len(row["ranks"]["wait_share"]) == ranks
        assert row["images_per_second"] == pytest.approx(sum(row["ranks"]["images_per_second"]))


def test_a_short_last_batch_that_leaves_a_rank_without_images(toy):
    convnet("train", "toy.yaml", "--device", "cpu", "train.last_batch=keep", "run.dir=runs/one", cwd=toy)
    train(3, "train.last_batch=keep", "run.dir=runs/three", cwd=toy)
    assert_same_run(toy / "runs/three", toy / "runs/one", 1e-3)


@pytest.fixture
def raw(toy):
    """The toy's images as an array of pixels, with the statistics of their colours."""
    for split in ("train", "val"):
        images = [np.asarray(Image.open(path))[..., None] for path in sorted((toy / "images" / split).glob("*/*.jpg"))]
        (toy / "raw" / split).mkdir(parents=True)
        np.save(toy / "raw" / split / "images.npy", np.stack(images))
        np.save(toy / "raw" / split / "labels.npy", np.repeat(np.arange(3), len(images) // 3))
    (toy / "classes.txt").write_text("a\nb\nc\n")
    STATISTICS.save(toy / "s.npz")
    train, val = (f"type: raw, path: raw/{split}, class_list: classes.txt" for split in ("train", "val"))
    augmented = "crop: random, mirror: true, color_noise: 0.1, random_erasing: 0.5, mixup: 0.2, cutmix: 1"
    return [f"data.train={{{train}, {augmented}}}", f"data.val={{{val}}}", *OF_FILE, "train.last_batch=keep"]


@pytest.mark.parametrize("ranks, parallel", [(2, "data"), (3, "{fc: model, scheme: B}")])
def test_raw_images_mixed_in_pairs(toy, raw, ranks, parallel):
    """A batch of 5, whose third pair is a single image, and a last one of 1; the mean image is in the checkpoint."""
    convnet("train", "toy.yaml", "--device", "cpu", *raw, "run.dir=runs/one", cwd=toy)
    _, err = train(ranks, *raw, "run.dir=runs/all", f"parallel={parallel}", cwd=toy)
    assert not err
    assert_same_run(toy / "runs/all", toy / "runs/one", 1e-3)
    kept = files(toy / "runs/all")[0]["inputs.safetensors"][1]
    np.testing.assert_array_equal(kept["mean"], STATISTICS.centre(10, 10).astype(np.float32))


def test_a_run_goes_on_with_another_number_of_ranks(folder, toy):
    """Stopped in an epoch each time, by a signal to one of the ranks."""
    _, err = faulty(1, "SIGTERM", 2, "run.dir=runs/all", cwd=toy, code=143)
    assert not err
    first = files(toy / "runs/all")[1]["step"]
    assert 2 <= first < 8
    convnet("train", "toy.yaml", "--device", "cpu", "--resume", "runs/all", "train.epochs=2", cwd=toy)
    out, err = train(3, "--resume", "runs/all", "train.epochs=3", cwd=toy)
    assert "step 8, epoch 3" in out and err.count("\n") == 0 and "train.epochs: 2 -> 3" in err
    assert_same_run(toy / "runs/all", folder / "runs/one")


def test_evaluation_counts_each_image_once(folder):
    line = ["eval", "runs/one", "--device", "cpu", "--json"]
    for ranks, views in ((2, 1), (3, 10)):
        one = json.loads(convnet(*line, "--views", views, cwd=folder)[0])
        found = json.loads(mpirun("-n", ranks, *CONVNET, *line, "--views", views, cwd=folder)[0])
        assert found["images"] == 12 and found["confusion"] == one["confusion"]
        assert found["loss"] == pytest.approx(one["loss"], rel=1e-5)


def test_an_image_that_cannot_be_read_is_told_once_by_its_rank(toy):
    images = toy / "images"
    copy = shutil.copytree(images, toy / "copy")
    for split in ("train", "val"):
        (copy / split / "b/001.jpg").write_bytes(b"no image")
    paths = [f"data.{split}={{path: copy/{split}, on_error: skip}}" for split in ("train", "val")]
    out, err = train(2, *paths, "run.dir=runs/all", "train.epochs=1", "solver.schedule=constant", cwd=toy)
    assert "1 training images could not be read" in out
    assert sorted(line.split("skipped: ")[1][:20] for line in err.splitlines()) == ["copy/train/b/001.jpg"] or (
        len(err.splitlines()) == 2 and "copy/val/b/001.jpg" in err
    ), err
    (row,) = rows(toy / "runs/all", "eval")
    assert (row["images"], row["skipped"]) == (11, 1)


@pytest.mark.parametrize("split, ranks", [("train", 2), ("val", 3)])
def test_an_image_that_must_be_read_and_cannot_stops_all_when_they_have_saved(folder, toy, split, ranks):
    shutil.copytree(toy / "images", toy / "copy")
    image = toy / f"copy/{split}/c/000.jpg"
    good, paths = image.read_bytes(), [f"data.{key}.path=copy/{key}" for key in ("train", "val")]
    image.write_bytes(b"no image")
    out, err = train(ranks, *paths, "run.dir=runs/all", cwd=toy, code=1)
    (saved, told) = err.splitlines()
    step = files(toy / "runs/all")[1]["step"]
    assert saved.startswith(f"warning: the run failed; step {step} is saved, --resume continues there once the image")
    assert told[6:].startswith(f": error: cannot decode 'copy/{split}/c/000.jpg'"), err
    assert told.endswith("on_error: skip leaves such images out") and "trained" not in out
    again = "train", "toy.yaml", "--device", "cpu", "--resume", "runs/all"
    for run in (convnet, partial(mpirun, "-n", 2, *CONVNET)):
        _, err = run(*again, cwd=toy, code=1)
        assert f"error: cannot decode 'copy/{split}/c/000.jpg'" in err
    image.write_bytes(good)
    _, err = convnet(*again, cwd=toy)
    assert (f"the last steps before step {step} lack 'copy/train/c/000.jpg', which" in err) == (split == "train")
    if split == "val":  # the evaluation is made up for; in training the step was done without the image
        assert step == 4
        assert_same_run(toy / "runs/all", folder / "runs/one")
    assert files(toy / "runs/all")[1]["step"] == 12


def test_an_evaluation_alone_ends_at_an_image_that_cannot_be_read(folder, toy):
    shutil.copytree(toy / "images", toy / "copy")
    (toy / "copy/val/c/000.jpg").write_bytes(b"no image")
    words = "eval", folder / "runs/one", "--device", "cpu", "data.val.path=copy/val"
    out, err = mpirun("-n", 2, *CONVNET, *words, cwd=toy, code=1)
    assert not out and err[6:].startswith(": error: cannot decode 'copy/val/c/000.jpg'") and "\n" not in err


def test_a_loss_that_is_no_number_stops_all_with_one_message(toy):
    _, err = train(2, "solver.lr=1e30", cwd=toy, code=1)
    assert err.startswith("rank 0: error: step 2 (epoch 1): the loss is nan; the first NaN or infinity is in"), err
    assert "\n" not in err


@pytest.mark.parametrize(
    "what, rank, code, words",
    [
        ("raise", 1, 1, "rank 1: error: it failed"),
        ("raise", 0, 1, "rank 0: error: it failed"),
        ("memory", 1, 1, "rank 1: error: out of memory ('weights' needs 10 bytes)"),
        ("hang", 1, 1, "rank 1: hangs in tests/parallel/faulty.py:"),
        ("SIGSTOP", 1, None, "rank 1: no sign of life for "),
        ("SIGSTOP", 0, None, "rank 0: no sign of life for "),
    ],
)
def test_a_fault_at_one_rank_ends_all(toy, what, rank, code, words):
    _, err = faulty(rank, what, 3, f"parallel.timeout={SILENCE}", cwd=toy, code=code, within=20.0)
    assert err.startswith(words) and "\n" not in err, err


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_stops_before_mpi_starts_ends_all(toy, rank):
    place = "convnet.parallel.join:arrange"
    env = {"CONVNET_JOIN_SECONDS": str(SILENCE)}
    _, err = faulty(rank, "SIGSTOP", 1, place=place, cwd=toy, code=None, within=20.0, **env)
    assert err.startswith(
        f"rank {1 - rank}: MPI has not started in {SILENCE} s: another rank is stopped, or did not come"
    )


def test_a_rank_that_is_killed_ends_all(toy):
    """mpirun, which tells of it, too, may end rank 0 before that can."""
    _, err = faulty(1, "SIGKILL", 3, cwd=toy, code=None, within=20.0)
    assert err in ("", "rank 1: ended without a word: killed, or crashed")


def test_a_bug_at_one_rank_shows_its_traceback_once(toy):
    _, err = faulty(1, "bug", 3, cwd=toy, code=1, within=20.0)
    assert err.startswith("rank 1: Traceback") and err.endswith("RuntimeError: a bug") and err.count("Traceback") == 1


def test_a_fault_in_the_evaluation_ends_all(toy):
    place = "convnet.graph.engine:Engine.evaluate"
    _, err = faulty(1, "hang", 2, f"parallel.timeout={SILENCE}", place=place, cwd=toy, code=1, within=20.0)
    assert err.startswith("rank 1: hangs in tests/parallel/faulty.py:"), err


def test_a_fault_in_an_evaluation_alone_ends_all(folder):
    program = [*PYTHON, "-m", "tests.parallel.faulty", 1, "hang", "convnet.graph.engine:Engine.evaluate", 2]
    words = "eval", "runs/one", "--device", "cpu", "--views", 10, f"parallel.timeout={SILENCE}"
    _, err = mpirun("-n", 2, *program, *words, cwd=folder, code=1, within=20.0)
    assert err.startswith("rank 1: hangs in tests/parallel/faulty.py:"), err


def test_a_signal_to_one_rank_in_the_evaluation_stops_all(folder, toy):
    faulty(1, "SIGTERM", 1, place="convnet.graph.engine:Engine.evaluate", cwd=toy, code=143)
    train(2, "--resume", "runs/toy", cwd=toy)
    assert_same_run(toy / "runs/toy", folder / "runs/one")


def test_ranks_with_another_config_or_other_code(toy, tmp_path):
    shared = ["train", "toy.yaml", "--device", "cpu"]
    _, err = mpirun("-n", 1, *CONVNET, *shared, ":", "-n", 1, *CONVNET, *shared, "seed=4", cwd=toy, code=1)
    assert err == "rank 0: error: the ranks do not have the same config: seed is 3 at rank 0, 4 at rank 1"
    copy = tmp_path / "other"
    for package in ("kernels", "layers", "convnet"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "layers/conv.py").open("a") as file:
        file.write("# another\n")
    own, other = (["-n", 1, "-env", "PYTHONPATH", path, *CONVNET, *shared] for path in (ROOT, copy))
    _, err = mpirun(*own, ":", *other, cwd=toy, code=1)
    assert "do not have the same version" in err and err.endswith("source code: other than at rank 0 at rank 1"), err
    assert not (toy / "runs").exists()


@pytest.mark.parametrize(
    "first, other, words",
    [
        ("train toy.yaml", "eval runs/one", "command: it is train at rank 0, eval at rank 1"),
        ("eval runs/one", "eval runs/two", "command line: model is runs/one at rank 0, runs/two at rank 1"),
        ("eval runs/one", "eval runs/one --views 9", "command line: views is 1 at rank 0, 9 at rank 1"),
        ("eval runs/one", "eval runs/one seed=4", "config: seed is 3 at rank 0, 4 at rank 1"),
    ],
)
def test_ranks_that_are_asked_for_different_things(folder, first, other, words):
    own, others = ([*CONVNET, *line.split(), "--device", "cpu"] for line in (first, other))
    _, err = mpirun("-n", 1, *own, ":", "-n", 1, *others, cwd=folder, code=1)
    assert err == f"rank 0: error: the ranks do not have the same {words}"


@pytest.mark.parametrize("command", ["predict runs/one images/val/a --device cpu", "summary toy.yaml", "doctor"])
def test_what_is_for_one_process_is_done_once(folder, command):
    words = command.split()
    out, err = mpirun("-n", 3, *CONVNET, *words, cwd=folder)
    assert err.startswith(f"warning: convnet {words[0]} runs at rank 0 alone; the others of 3") and "\n" not in err
    first = convnet(*words, cwd=folder)[0].splitlines()[0]
    assert out.count(first) == 1 and out.startswith(first)


def test_scaling_is_measured_up_to_the_ranks_there_are(toy):
    line = [*CONVNET, "bench", "scaling", "toy.yaml", "--device", "cpu"]
    out, err = mpirun("-n", 2, *line, "-o", "all.json", cwd=toy)
    found = json.loads((toy / "all.json").read_text())
    assert not err and "on 2 x cpu" in out
    assert [(row["scaling"], row["ranks"]) for row in found["scaling"]] == [
        ("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)
    ]  # fmt: skip
    out, err = mpirun("-n", 2, *line, "--gpus", 1, cwd=toy)
    assert not err and "on 1 x cpu" in out
    _, err = mpirun("-n", 2, *line, "--simulate", "nodes=no", cwd=toy, code=1)
    assert err.startswith("rank 0: error: --simulate: expected figures above 0") and "\n" not in err


def test_an_error_of_all_ranks_is_shown_once(toy):
    _, err = train(2, "solver.lrr=1", cwd=toy, code=2)
    assert err.startswith("rank 0: ") and "unknown option 'lrr'" in err and err.count("rank") == 1
    _, err = train(2, "--resume", "runs/none", cwd=toy, code=1)
    assert err.startswith("rank 0: error: runs/none: not the folder of a run") and err.count("\n") == 0


def test_cpu_ranks_without_mpi_are_told_to_use_it(toy, capfd, monkeypatch):
    monkeypatch.chdir(toy)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert launch(2, ["train", "toy.yaml", "--device", "cpu"], CONVNET) == 1
    err = capfd.readouterr().err
    assert err.startswith("rank 0: error: ranks on the CPU exchange through MPI: start them with mpirun -n 2")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_digits(tmp_path):
    pytest.importorskip("sklearn")
    subprocess.run([sys.executable, str(ROOT / "scripts/digits.py"), "data/digits"], cwd=tmp_path, check=True)
    line = ["train", ROOT / "configs/digits/lenet.yaml", "--device", "cpu", "train.epochs=2"]
    convnet(*line, "run.dir=runs/one", cwd=tmp_path)
    mpirun("-n", 2, *CONVNET, *line, "run.dir=runs/two", cwd=tmp_path)
    assert_same_run(tmp_path / "runs/two", tmp_path / "runs/one", 1e-3)
    assert rows(tmp_path / "runs/two", "eval")[-1]["top1_accuracy"] > 0.9
