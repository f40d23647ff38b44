"""The networks that cuda-convnet and cuda-convnet2 came with, in their format: converted, and trained a little."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from convnet.checkpoint import listing, load
from convnet.cli import main
from convnet.config import load_config
from convnet.graph.net import describe
from convnet.session import make_network
from convnet.train.rates import RateTable
from tests.convnet.toy import ROOT, rows

DATA = "data type=data dataIdx=0\nlabels type=data dataIdx=1\n"
CONV = "type=conv padding=2 stride=1 filterSize=5 partialSum=4 sharedBiases=1"
POOL = "type=pool sizeX=3 stride=2 start=0 outputsX=0"
LOCAL = "type=local channels=64 padding=1 stride=1 filterSize=3 initW=0.04 neuron=relu"
END = "probs type=softmax\nlogprob type=cost.logreg inputs=labels,probs\n"
FIRST = f"conv1 {CONV} channels=3 filters=32 initW=0.0001\npool1 {POOL} pool=max channels=32 neuron=relu\n"
SECOND = f"conv2 {CONV} channels=32 filters=32 initW=0.01 neuron=relu\npool2 {POOL} pool=avg channels=32\n"
THIRD = f"conv3 {CONV} channels=32 filters=64 initW=0.01 neuron=relu\npool3 {POOL} pool=avg channels=64\n"
WIDE = [
    f"conv1 {CONV} channels=3 filters=64 initW=0.0001 neuron=relu\npool1 {POOL} pool=max channels=64\n",
    f"conv2 {CONV} channels=64 filters=64 initW=0.01 neuron=relu\n",
    f"pool2 {POOL} pool=max channels=64\n",
]
# By our config: the side of its images, its layers, and the weight decay of each that has weights.
CIFAR = {
    "26pct": (32, FIRST + SECOND + THIRD + "fc64 type=fc outputs=64 initW=0.1 neuron=relu\n"
              "fc10 type=fc outputs=10 initW=0.1\n",
              {"conv1": 0.004, "conv2": 0.004, "conv3": 0.004, "fc64": 0.03, "fc10": 0.03}),
    "18pct": (32, FIRST + "rnorm1 type=rnorm channels=32 size=3\n" + SECOND + "rnorm2 type=rnorm channels=32 size=3\n"
              + THIRD + "fc10 type=fc outputs=10 initW=0.01\n",
              {"conv1": 0.004, "conv2": 0.004, "conv3": 0.004, "fc10": 1}),
    "13pct": (24, "".join(WIDE) + f"local3 {LOCAL} filters=32\n"
              f"local4 {LOCAL.replace('64', '32')} filters=32\nfc10 type=fc outputs=10 initW=0.01\n",
              {"conv1": 0, "conv2": 0, "local3": 0.004, "local4": 0.004, "fc10": 0.004}),
    "11pct": (24, WIDE[0] + "rnorm1 type=cmrnorm channels=64 size=9\n" + WIDE[1]
              + "rnorm2 type=cmrnorm channels=64 size=9\n" + WIDE[2] + f"local3 {LOCAL} filters=64\n"
              f"local4 {LOCAL} filters=32\nfc10 type=fc outputs=10 initW=0.01\n",
              {"conv1": 0, "conv2": 0, "local3": 0.004, "local4": 0.004, "fc10": 0.01}),
}  # fmt: skip
CONVOLUTIONAL = ("conv", "norm", "pool")  # beginnings of names of layers for ImageNet
NORMS = {"18pct": "scale=0.00005 pow=.75", "11pct": "scale=0.001 pow=0.75"}


def sections(lines, *, chained):
    """A .cfg of lines such as `conv1 type=conv filters=64`; if `chained`, a layer reads the one before by default."""
    text, before = "", ""
    for name, *options in map(str.split, lines.splitlines()):
        if chained and not any(option.startswith(("inputs=", "dataIdx=")) for option in options):
            options.append(f"inputs={before}")
        before = name if name != "labels" else before
        text += "\n".join([f"[{name}]", *options, "", ""])
    return text


def learned(decays, rates="epsW=0.001 epsB=0.002"):
    lines = "".join(f"{name} {rates} momW=0.9 momB=0.9 wc={decay}\n" for name, decay in decays.items())
    return lines + "logprob coeff=1\n"


def write_images(folder, size, classes=10, each=2):
    """Class folders of JPEGs, each class of a colour with some noise."""
    rng = np.random.default_rng(1)
    for rank in range(classes):
        target = folder / f"train/{rank}"
        target.mkdir(parents=True)
        colour = rng.uniform(40, 215, 3)
        for i in range(each):
            pixels = colour + rng.uniform(-40, 40, (size, size, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(target / f"{i}.png")


def converted(layers, params, size):
    """net.yaml, made on the command line."""
    Path("l.cfg").write_text(sections(layers, chained=True))
    Path("p.cfg").write_text(sections(params, chained=False))
    command = ["import", "cuda-convnet2", "l.cfg", "p.cfg", "-o", "net.yaml", "--size", str(size), "--data", "images"]
    assert main([*command, "--epochs", "3"]) == 0
    return load_config("net.yaml")


def cifar(name):
    size, layers, decays = CIFAR[name]
    norms = "".join(f"rnorm{i} {NORMS[name]}\n" for i in (1, 2) if f"rnorm{i}" in layers)
    return converted(DATA + layers + END, norms + learned(decays), size)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def table(config):
    """A network up to its scores, how its parameters start, and their rates."""
    network = make_network(config)
    rates = RateTable(network, config.solver, steps_total=1, steps_per_epoch=1).base
    starts = [(param.shape, param.init) for param in network.params.values()]
    keys = ("type", "output", "parameters", "multiply_adds")
    rows = [[row[key] for key in keys] for row in describe(network) if row["type"] not in ("softmax", "logreg")]
    return rows, starts, rates.tolist()


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_networks_are_our_configs(name):
    assert table(cifar(name)) == table(load_config(ROOT / f"configs/cifar10/{name}.yaml"))


def trained(*overrides):
    """Losses of a run of net.yaml on the command line; every parameter is finite, and has moved."""
    data = ["data.train.resize=none", "data.val=null", "train.log_every=1", "run.dir=run"]
    assert main(["train", "net.yaml", "--device", "cpu", *data, *overrides]) == 0
    found = load(listing(Path("run/checkpoints"))[-1])
    network = make_network(load_config("run/config.yaml"))
    assert found.weights.keys() == found.momentum.keys() == network.params.keys()
    assert all(np.isfinite(array).all() for array in found.weights.values())
    assert not [name for name, array in found.momentum.items() if not array.any()]
    return [row["loss"] for row in rows("run", "train")]


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_networks_train(name):
    cifar(name)
    write_images(Path("images"), 32)
    losses = trained("train.batch_size=5", "train.epochs=10")
    assert len(losses) == 40 and np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])


def imagenet(towers=1, halves=1, replicas=1, narrow=1, classes=1000):
    """A network for ImageNet: convolutions in `towers`, of which the third reads all, fully connected layers in
    `halves`, which read all of the one before. A layer has `replicas`, a half only where there is no other. All are
    `narrow` times narrower.
    """
    layers, convs, fcs = [DATA.rstrip()], "abcd"[:towers], "abcd"[:halves]
    width = {name: size // narrow // towers for name, size in [(1, 64), (2, 192), (3, 384), (4, 256), (5, 256)]}

    def add(name, letter, options, *inputs):
        count = 1 if halves > 1 and not name.startswith(CONVOLUTIONAL) else replicas
        gpus = ",".join(str("abcd".index(letter) * count + i) for i in range(count))
        layers.append(f"{name}{letter} {options} inputs={','.join(inputs)} gpu={gpus}")

    def conv(number, letter, size, more, *inputs):
        channels = width.get(number - 1, 3)
        options = f"type=conv filters={width[number]} filterSize={size} channels={channels} {more}"
        add(f"conv{number}", letter, options, *inputs)

    def pool(number, letter, before, more=""):
        options = f"type=pool pool=max sizeX=3 stride=2 channels={width[number]} {more}"
        add(f"pool{number}", letter, options, f"{before}{number}{letter}")

    for t in convs:
        conv(1, t, 11, "stride=4 initW=0.01", "data")
        add("norm1", t, f"type=cmrnorm size=5 channels={width[1]}", f"conv1{t}")
        pool(1, t, "norm", "neuron=relu")
        conv(2, t, 5, "padding=2 initW=0.01 initB=1 neuron=relu", f"pool1{t}")
        add("norm2", t, f"type=cmrnorm size=5 channels={width[2]}", f"conv2{t}")
        pool(2, t, "norm")
    for t in convs:
        conv(3, t, 3, "padding=1 initW=0.03 neuron=relu", *(f"pool2{letter}" for letter in convs))
        conv(4, t, 3, "padding=1 initW=0.03 initB=1 neuron=relu", f"conv3{t}")
        conv(5, t, 3, "padding=1 initW=0.03 initB=1", f"conv4{t}")
        pool(5, t, "conv", "neuron=relu")
    outputs = 4096 // narrow // halves
    for number, before, letters in (6, "pool5", convs), (7, "drop6", fcs):
        for t in fcs:
            add(f"pass{number}", t, "type=pass", *(f"{before}{letter}" for letter in letters))
            add(f"fc{number}", t, f"type=fc outputs={outputs} initW=0.01 initB=1 neuron=relu", f"pass{number}{t}")
            add(f"drop{number}", t, "type=dropout2", f"fc{number}{t}")
    add("fc8", "a", f"type=fc outputs={classes} initW=0.01 initB=-7", *(f"drop7{letter}" for letter in fcs))
    text = "\n".join(layers) + "\n" + END
    names = [line.split()[0] for line in layers[1:]]
    norms = "".join(f"{name} scale=0.0001 pow=0.75 minDiv=2\n" for name in names if name.startswith("norm"))
    decays = {name: 0.0005 for name in names if name.startswith(("conv", "fc"))}
    rates = "epsW=dexp[base=0.01;tgtFactor=250;numSteps=4] epsB=dexp[base=0.02;tgtFactor=10;numSteps=2]"
    return text, norms + learned(decays, rates)


def test_the_network_for_one_gpu_is_our_config():
    found = converted(*imagenet(), 224)
    expected = load_config(ROOT / "configs/imagenet/cuda-convnet2-1gpu.yaml")
    assert found.solver == expected.solver
    rows, *learning = table(found)
    assert ([row for row in rows if row[0] != "pass"], *learning) == table(expected)


@pytest.mark.parametrize(
    ("towers", "halves", "replicas"), [(1, 1, 1), (1, 1, 2), (2, 2, 1), (1, 1, 4), (1, 4, 4), (4, 4, 1)]
)
def test_imagenet_networks_train(towers, halves, replicas):
    """Of one, two and four GPUs: data, models, and both in parallel."""
    converted(*imagenet(towers, halves, replicas, narrow=16, classes=10), 64)
    gpus = max(towers, halves, replicas)
    assert (f"# it ran on {gpus} GPUs" in Path("net.yaml").read_text()) == (gpus > 1)
    write_images(Path("images"), 64)
    losses = trained("train.batch_size=2", "train.epochs=1")
    assert len(losses) == 10 and np.isfinite(losses).all()


@pytest.mark.slow
def test_a_network_of_full_width_trains():
    converted(*imagenet(), 64)
    write_images(Path("images"), 64)
    losses = trained("train.batch_size=2", "train.epochs=1", "layers.fc8a.outputs=10")
    assert len(losses) == 10 and np.isfinite(losses).all()
