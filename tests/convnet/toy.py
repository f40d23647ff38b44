"""A small network on small images, and the command line as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from convnet.cli import main

ROOT = Path(__file__).parents[2]

CONFIG = """
name: toy
seed: 3
run: {dir: runs/toy}
data:
  mean: 100
  std: 60
  train: {type: folder, path: images/train, resize: none, crop: random, mirror: true}
  val: {type: folder, path: images/val, resize: none}
layers:
  data: {type: data, channels: 1, size: 10}
  conv1: {type: conv, filters: 4, size: 3, pad: 1}
  bn1: {type: batch_norm, neuron: relu}
  pool1: {type: pool, mode: max, size: 2, stride: 2}
  drop1: {type: dropout, keep: 0.8}
  fc1: {type: fc, outputs: 3}
  cost: {type: logreg, inputs: [fc1, labels]}
solver: {lr: 0.05, momentum: 0.9, weight_decay: 1e-3, schedule: {type: multistep, milestones: [2]}}
train: {batch_size: 5, epochs: 3, log_every: 2}
"""


def write_images(folder, *, classes=("a", "b", "c"), each=7, size=12, seed=0):
    """Class folders of gray JPEGs: noise over a ramp whose direction is the class."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    ramps = (x, y, (x + y) / 2)
    for rank, name in enumerate(classes):
        target = Path(folder) / name
        target.mkdir(parents=True, exist_ok=True)
        for i in range(each):
            noisy = 160 * ramps[rank % 3] + rng.uniform(0, 90, (size, size))
            Image.fromarray(noisy.astype(np.uint8)).save(target / f"{i:03}.jpg", quality=95)


def write_toy(folder, config=CONFIG, **options):
    """The images and the config toy.yaml; 21 for training: 4 steps an epoch, and one image left over."""
    write_images(folder / "images/train", **options)
    write_images(folder / "images/val", seed=1, **{"each": 4, **options})
    (folder / "toy.yaml").write_text(config)


def train_toy(folder, *overrides):
    """The toy in `folder`, and a run of it in runs/toy."""
    write_toy(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "toy.yaml", "--device", "cpu", *overrides]) == 0
    return folder


def command(*args):
    """What starts convnet with this Python."""
    return [sys.executable, "-W", "error", "-m", "convnet.cli", *map(str, args)]


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **more}


def convnet(*args, cwd, code=0, **env):
    """Run to the end; (stdout, stderr). A traceback is never right."""
    done = subprocess.run(command(*args), cwd=cwd, env=environment(**env), capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def rows(run, event):
    """The rows of one kind in a run's metrics."""
    lines = (Path(run) / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["event"] == event]


def last_files(run):
    """Bytes of the weights and the momentum of a run's last checkpoint."""
    folder = sorted((Path(run) / "checkpoints").glob("step-*"))[-1]
    return {name: (folder / f"{name}.safetensors").read_bytes() for name in ("weights", "momentum")}


# A program that sends itself a signal in the n-th call of a function, then runs convnet.
SIGNALLED = """
import importlib, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job would ignore
place, number, count, *arguments = sys.argv[1:]
module, _, name = place.partition(":")
owner = importlib.import_module(module)
*path, name = name.split(".")
for part in path:
    owner = getattr(owner, part)
inner, calls = getattr(owner, name), 0
def outer(*args, **options):
    global calls
    calls += 1
    if calls == int(count):
        os.kill(os.getpid(), int(number))
    return inner(*args, **options)
setattr(owner, name, outer)
from convnet.cli import main
sys.exit(main(arguments))
"""


def signalled(place, number, count, *args, cwd):
    """Run convnet with a signal in the `count`-th call of `place`, "module:name"; the finished process."""
    line = [sys.executable, "-W", "error", "-c", SIGNALLED, place, str(int(number)), str(count), *map(str, args)]
    return subprocess.run(line, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120)


def results(run):
    """The rows of training and evaluation, without what depends on the clock."""
    clock = ("seconds", "images_per_second", "wait_share", "ranks")
    kept = [row for event in ("train", "eval") for row in rows(run, event)]
    return [{key: value for key, value in row.items() if key not in clock} for row in kept]
