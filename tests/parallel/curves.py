"""Training on threads as ranks, and what must be the same on every rank and for any number of them."""

import functools

import numpy as np

from convnet.graph.engine import Engine
from convnet.graph.update import Rule
from convnet.parallel.data import Exchange
from convnet.parallel.shares import share
from kernels.backend import NumPy
from tests.convnet.networks import batch, rates, small, wire
from tests.parallel.threads import together

EPOCH = (6, 6, 6, 5)  # samples of each step: the last batch is short
RELU = {"type": "neuron", "kind": "relu"}


def cut(**options):
    """An exchange in buckets small enough for these networks."""
    return Exchange(bucket=0.001, **options)


def tiny(**replace):
    """Two convolutions with batch norm over all ranks between them, dropout, two fully connected layers."""
    layers = {
        "data": {"type": "data", "channels": 2, "size": [5, 6]},
        "conv1": {"type": "conv", "filters": 4, "size": 3, "pad": 1, "bias": False},
        "bn1": {"type": "batch_norm", "sync": True, "neuron": "relu"},
        "conv2": {"type": "conv", "filters": 4, "size": 3, "pad": 1, "neuron": "tanh"},
        "pool": {"type": "pool", "mode": "avg", "size": 2, "stride": 2},
        "drop": {"type": "dropout", "keep": 0.7},
        "fc1": {"type": "fc", "outputs": 10, "neuron": "tanh"},
        "fc2": {"type": "fc", "outputs": 4},
        "cost": {"type": "logreg", "inputs": ["fc2", "labels"], "topk": 2},
    }
    return wire(**{**layers, **replace})


def shared():
    """The second convolution is the first one again, run twice over its own output."""
    conv = {"type": "conv", "filters": 2, "size": 3, "pad": 1}
    return tiny(conv1=conv, conv2={**conv, "share": "conv1", "neuron": "tanh"})


def slow():
    """A convolution that moves at every third step."""
    return tiny(conv2={"type": "conv", "filters": 4, "size": 3, "pad": 1, "solver": {"update_every": 3}})


def bounded():
    """Weights whose norms are bounded."""
    return tiny(fc1={"type": "fc", "outputs": 10, "solver": {"wball": 0.5}})


NETWORKS = {"tiny": tiny, "shared": shared, "slow": slow, "bounded": bounded, "small": lambda: small(bn1=RELU)}
HEAD = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
OPTIONS = {
    "plain": {"exchange": cut()},
    "accumulate": {"accumulate": 3},
    "clip": {"rule": Rule(clip=0.3)},
    "ema": {"rule": Rule(decay=0.9, nesterov=True)},
    "frozen": {"trainable": ("conv1.weight", *HEAD)},
    "head": {"trainable": HEAD},
    "sharded": {"exchange": cut(update="sharded")},
    "sharded ema": {"exchange": cut(update="sharded"), "rule": Rule(decay=0.9)},
    "sharded accumulate": {"exchange": cut(update="sharded"), "accumulate": 2},
    "bf16": {"exchange": cut(wire="bf16")},
    "sharded bf16": {"exchange": cut(update="sharded", wire="bf16")},
}


def engine(ranks, network="tiny", options="plain", backend=None, **more):
    settings = {"batch_size": 6, "mean": 127.5, "std": 60.0, "seed": 3, "dtype": np.float64}
    settings |= OPTIONS["plain"] | OPTIONS[options] | more
    made = Engine(NETWORKS[network](), backend or NumPy(), communicator=ranks, **settings)
    made.initialize()
    return made


def advance(made, begin, end, epoch=EPOCH):
    """The steps from `begin` to `end`, each on this rank's share of its batch; every epoch has the same ones."""
    for step in range(begin, end):
        total = epoch[step % len(epoch)]
        part = slice(*share(total, made.communicator.size, made.communicator.rank))
        data = {name: array[part] for name, array in batch(total, made.network, step % len(epoch)).items()}
        made.train(**data, step=step, rates=table(made, step), total=total)
    return made


def table(made, step):
    """Rates of a step; a parameter with a longer period moves at the end of it, by the mean."""
    found = rates(made, lr=0.02)
    for row, name in enumerate(made.parameters):
        period = getattr(getattr(made.network[name.rpartition(".")[0]].layer, "solver", None), "update_every", 1)
        found[row, 3] = (1 / period) * ((step + 1) % period == 0)
    return found


def state(made):
    """All that a checkpoint holds."""
    return {"weights": made.tensors(), "momentum": made.momentum(), **made.extras()}


def curve(size, steps, network="tiny", options="plain", epoch=EPOCH, **more):
    """Of each rank: its sums of results at each step, and its state after the last."""

    def train(ranks):
        made = advance(engine(ranks, network, options, **more), 0, steps, epoch)
        return made.history(0, steps), state(made)

    return together(size, train)


@functools.cache
def alone(steps, network="tiny", options="plain"):
    """The curve of one rank."""
    return curve(1, steps, network, options)[0]


def bits(found):
    return {(kind, name): array.tobytes() for kind, arrays in found.items() for name, array in arrays.items()}
