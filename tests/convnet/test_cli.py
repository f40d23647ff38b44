"""The command line: arguments, exit statuses, and the commands that only print."""

import subprocess
import sys

import numpy as np
import pytest

from convnet import __version__, session
from convnet.cli import main, parse
from convnet.config import load_config
from convnet.device import Planner, open_device, open_planner
from convnet.errors import UserError
from convnet.graph.check_grads import Checker, report
from convnet.summary import explain, memory_table, summarize
from kernels.backend import NumPy
from tests.convnet.networks import batch, rates
from tests.convnet.toy import CONFIG, command, convnet, environment, write_toy


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy's config, without images."""
    (tmp_path / "toy.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return load_config("toy.yaml")


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"convnet {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        "train c.yaml a.b=1 c=2 --resume --device cpu",
        "train c.yaml --resume a.b=1 c=2 --device cpu",
        "train c.yaml --device cpu a.b=1 --resume c=2",
    ],
)
def test_overrides_stand_anywhere(words):
    args = parse(words.split())
    assert (args.config, args.resume, args.device) == ("c.yaml", "", "cpu")
    assert sorted(args.overrides) == ["a.b=1", "c=2"]


@pytest.mark.parametrize("words", ["--resume c.yaml", "--resume file", "--resume c.yaml a=1", "--resume"])
def test_a_config_behind_resume_is_the_config(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    args = parse(["train", *words.split(), *(["c.yaml"] if words == "--resume" else [])])
    assert (args.config, args.resume) == ("file" if "file" in words else "c.yaml", "")


def test_a_run_to_resume():
    assert parse(["train", "c.yaml"]).resume is None
    assert parse(["train", "c.yaml", "--resume", "runs/x", "a=1"]).resume == "runs/x"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train", "the following arguments are required: CFG\n"),
        ("train --resume runs/x", "the following arguments are required: CFG\n"),
        ("trian c.yaml", "invalid choice: 'trian'"),
        ("train c.yaml solver.lr 0.1", "unrecognized argument 'solver.lr'; an override is key=value"),
        ("train c.yaml --lr=0.1", "unrecognized arguments: --lr=0.1"),
        ("eval runs/x --views 3", "invalid choice: 3"),
        ("doctor x=1", "unrecognized arguments: x=1"),
    ],
)
def test_wrong_usage(words, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad.yaml: the file is empty"),
        ("a:\n\tb: 1\n", "bad.yaml:2:1: tab character; use spaces"),
        (CONFIG.replace("filters: 4", "filter: 4"), "layer 'conv1': unknown option 'filter'; did you mean 'filters'?"),
        (CONFIG.replace("size: 3, pad: 1", "size: 30"), "layer 'conv1'"),
        (CONFIG.replace("[fc1, labels]", "[fc2, labels]"), "layer 'cost': inputs: input 'fc2' does not exist"),
    ],
)
def test_config_errors_are_one_line_and_status_2(text, message, tmp_path):
    (tmp_path / "bad.yaml").write_text(text)
    out, err = convnet("summary", "bad.yaml", cwd=tmp_path, code=2)
    assert out == ""
    assert len(err.splitlines()) == 1 and err.startswith("bad.yaml")
    assert message in err


def test_what_is_missing_is_status_1_or_2(tmp_path):
    assert "none.yaml" in convnet("train", "none.yaml", cwd=tmp_path, code=2)[1]
    (tmp_path / "toy.yaml").write_text(CONFIG)
    _, err = convnet("train", "toy.yaml", "--device", "cpu", cwd=tmp_path, code=1)
    told = "'images/train' does not exist; expected a folder with one folder of images per class"
    assert err == f"error: toy.yaml:8:25: data.train.path: {told}; 'images/train' is relative to {tmp_path}\n"
    assert "runs/none: no such run" in convnet("eval", "runs/none", cwd=tmp_path, code=1)[1]


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "sm_9", ""])
def test_unknown_devices(name):
    with pytest.raises(UserError, match=f"--device {name}: expected auto"):
        open_device(name)


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr("convnet.device.cuda_fault", lambda index=0: "no driver")
    with pytest.raises(UserError, match="--device cuda:7: no driver"):
        open_device("cuda:7")
    assert isinstance(open_device("auto"), NumPy)


def test_layers(capsys):
    assert main(["layers"]) == 0
    assert "conv " in capsys.readouterr().out
    assert main(["layers", "conv"]) == 0
    assert "filters" in capsys.readouterr().out
    assert main(["options"]) == 0
    assert "checkpoint" not in capsys.readouterr().out
    assert main(["options", "train"]) == 0
    assert "\n  checkpoint: " in capsys.readouterr().out
    assert main(["layers", "conf"]) == 2
    assert "did you mean 'conv'" in capsys.readouterr().err


def numbers(text, label):
    (line,) = (line for line in text.splitlines() if line.startswith(label))
    return [int(word.replace(",", "")) for word in line.split() if word.replace(",", "").isdigit()]


def test_summary_counts(toy):
    """Multiply-adds of one image: conv1 4x10x10 outputs of 9 inputs, fc1 3 outputs of 4x5x5."""
    text = summarize(toy, NumPy())
    assert numbers(text, "conv1") == [4 * 9 + 4, 4 * 100 * 9]
    assert numbers(text, "fc1") == [3 * 100 + 3, 300]
    assert numbers(text.split("memory")[0], "total")[0] == 40 + 8 + 303


@pytest.mark.parametrize("override", ["train.accumulate=1", "train.accumulate=5", "train.last_batch=keep"])
def test_the_memory_printed_is_the_memory_allocated(override, toy):
    config = load_config("toy.yaml", [override])
    network = session.make_network(config)
    engine = session.make_engine(config, network, NumPy())
    text = memory_table(engine)
    allocated = {id(a.base if a.base is not None else a): a for a in engine.arrays.values()}
    for n in (5, 3):
        engine.train(**batch(n, network), step=0, rates=rates(engine))
        engine.evaluate(batch(min(n, engine.micro), network)["pixels"], np.zeros(min(n, engine.micro), np.int32))
    assert numbers(text, "arena (")[0] == engine.memory["arena"] == engine._arena.nbytes
    held = {id(_root(a)): _root(a) for a in allocated.values()}
    assert numbers(text.split("memory")[1], "total")[0] == sum(a.nbytes for a in held.values()) + engine._arena.nbytes


def _root(array):
    while array.base is not None:
        array = array.base
    return array


def test_a_summary_takes_no_memory(toy, capsys):
    """A thousand million images of 100 bytes, and half as many filters as a map can have."""
    assert main(["summary", "toy.yaml", "--device", "cpu", "train.batch_size=1000000000"]) == 0
    out = capsys.readouterr().out
    assert numbers(out, "arena (")[0] > 10**12 and "on cpu, batches of 1000000000 images" in out
    assert main(["summary", "toy.yaml", "--device", "cpu", "layers.conv1.filters=10000000"]) == 0
    assert numbers(capsys.readouterr().out, "conv1 ") == [10 * 10**7, 900 * 10**7]


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (
            1000,
            "('weights' needs 24,576 bytes, 'fc1.weight' in it 1,200): the network does not fit, whatever the batch\n",
        ),
        (24576, "out of memory ('pixels' needs 100,000 bytes)"),
        (100000, "out of memory ('arena' needs "),
    ],
)
def test_what_memory_was_lacking_for_is_named(limit, message, toy, tmp_path, monkeypatch, capsys):
    inner = NumPy.zeros

    def zeros(self, size, dtype=np.uint8):
        if size * np.dtype(dtype).itemsize > limit:
            raise MemoryError
        return inner(self, size, dtype)

    write_toy(tmp_path)
    monkeypatch.setattr(NumPy, "zeros", zeros)
    assert main(["train", "toy.yaml", "--device", "cpu", "train.batch_size=1000", "train.last_batch=keep"]) == 1
    assert message in (err := capsys.readouterr().err)
    assert "arena" not in message or "bytes, 'conv1' in it 1,600,000)" in err


def test_a_plan_for_a_gpu_that_is_not_here(toy):
    """The kernels' workspaces and variants are the GPU's."""
    text = summarize(toy, open_planner("sm_80"), explained=True)
    assert "on sm_80 (planned, not run)" in text
    assert "NumPy reference" not in text


def test_explain_gives_reasons(toy):
    """Batches of 5 do not fit vectors of 4: the variant that would be preferred says so."""
    text = explain(session.make_engine(toy, session.make_network(toy), Planner(80)))
    line = next(line for line in text.splitlines() if "neuron.forward" in line)
    assert "single (vec4 " in line and " at " in line


def test_check_grads(toy, capsys):
    assert main(["check-grads", "toy.yaml"]) == 0
    out = capsys.readouterr().out
    assert "all right" in out
    for name in ("conv1.weight", "bn1.bias", "fc1.weight"):
        assert name in out


def test_check_grads_finds_a_wrong_gradient(toy, monkeypatch, capsys):
    from kernels import neuron

    right = neuron.BACKWARD.reference

    def wrong(g, y, dy, dx, beta):
        right(g, y, dy, dx, beta)
        dx *= 1.001

    monkeypatch.setattr(neuron.BACKWARD, "reference", wrong)
    assert main(["check-grads", "toy.yaml"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("WRONG")] == ["conv1.weight", "bn1.weight", "bn1.bias"]


def test_check_grads_of_a_tiny_gradient(toy):
    """Weights and gradients of 1e-6 are still compared, not called nothing."""
    config = load_config("toy.yaml", ["layers.fc1.init={type: gaussian, std: 1e-6}"])
    checks = Checker(session.make_network(config)).run()
    assert all(check.right for check in checks), report(checks)
    assert max(abs(check.gradient) for check in checks if check.name == "conv1.weight") < 1e-4


IMPORTING = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from convnet.__main__ import main
sys.exit(main())
"""


def test_an_interrupt_while_modules_are_imported():
    done = subprocess.run([sys.executable, "-c", IMPORTING], env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_the_package_runs_as_a_program():
    line = [sys.executable, "-m", "convnet", "--version"]
    assert subprocess.run(line, env=environment(), capture_output=True, text=True).stdout == f"convnet {__version__}\n"


def test_output_that_cannot_be_written_names_the_stream(toy):
    line = f"{' '.join(command('layers'))} >/dev/full"
    done = subprocess.run(["bash", "-c", line], env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "error: stdout: No space left on device\n")


@pytest.mark.parametrize("rank", ["0", "1", "2"])
def test_of_several_ranks_the_first_runs_a_command_for_one_process(rank, monkeypatch, capsys):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert main(["layers", "conv"]) == 0
    out, err = capsys.readouterr()
    told = "warning: convnet layers runs at rank 0 alone; the others of 3 (RANK and WORLD_SIZE) do nothing\n"
    assert bool(out) == (rank == "0") and err == told * (rank == "1")


def test_variables_that_make_no_sense_do_not_stop_a_command_for_one_process(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    assert main(["layers", "conv"]) == 0 and capsys.readouterr().out


def test_output_to_a_closed_pipe(tmp_path):
    write_toy(tmp_path)
    convnet("train", "toy.yaml", "--device", "cpu", cwd=tmp_path)
    line = " ".join(command("predict", "runs/toy", "images", "--device", "cpu"))
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -1"], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
