"""Small networks for tests, wired without a config file."""

from typing import Any

import numpy as np

from convnet.config.build import build_layers
from convnet.graph.engine import Engine
from convnet.graph.net import Network


def wire(**layers: dict[str, Any]) -> Network:
    """A network from the sections of its layers."""
    return Network(build_layers(layers))


def small(**replace: dict[str, Any]) -> Network:
    """Convolution, batch norm, two branches that meet, pooling, dropout: every kind of wiring in little."""
    layers: dict[str, dict[str, Any]] = {
        "data": {"type": "data", "channels": 3, "size": [10, 12]},
        "conv1": {"type": "conv", "filters": 8, "size": 3, "pad": 1, "bias": False},
        "bn1": {"type": "batch_norm"},
        "relu1": {"type": "neuron", "kind": "relu"},
        "conv2": {"type": "conv", "filters": 8, "size": 3, "pad": 1},
        "tanh2": {"type": "neuron", "kind": "tanh"},
        "sum": {"type": "eltsum", "inputs": ["relu1", "tanh2"]},
        "pool": {"type": "pool", "mode": "max", "size": 2, "stride": 2},
        "norm": {"type": "cmrnorm", "size": 5},
        "drop": {"type": "dropout", "keep": 0.8},
        "fc1": {"type": "fc", "outputs": 20},
        "logistic": {"type": "neuron", "kind": "logistic"},
        "fc2": {"type": "fc", "outputs": 4},
        "cost": {"type": "logreg", "inputs": ["fc2", "labels"], "topk": 2},
    }
    return wire(**{**layers, **replace})


def batch(n: int, network: Network, seed: int = 0) -> dict[str, np.ndarray]:
    """Random pixels, mirror flags and labels."""
    rng = np.random.default_rng(seed)
    shape = network.data[0].shape
    return {
        "pixels": rng.integers(0, 256, (n, shape.height, shape.width, shape.channels), np.uint8),
        "mirror": rng.integers(0, 2, n).astype(np.uint8),
        "labels": rng.integers(0, network.outputs or 2, n).astype(np.int32),
    }


def rates(engine: Engine, lr: float = 0.01, momentum: float = 0.9, decay: float = 5e-4) -> np.ndarray:
    """The same learning rate, momentum and weight decay for every parameter, which moves at each step."""
    return np.tile(np.array([lr, momentum, decay, 1], np.float32), (len(engine.parameters), 1))
