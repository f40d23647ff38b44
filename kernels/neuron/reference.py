"""Neurons in NumPy."""

from collections.abc import Callable

import numpy as np

from kernels.layout import Map
from kernels.neuron.geometry import Neuron


def _logistic(x: Map, y: Map) -> None:
    with np.errstate(over="ignore"):  # 1 / (1 + inf) is the 0 that is meant
        np.exp(-x, out=y)
        y += 1
        np.divide(1, y, out=y)


# name: (y = f(x) written to y, f'(x) as a function of y)
FUNCTIONS: dict[str, tuple[Callable, Callable]] = {
    "relu": (lambda x, y: np.maximum(x, 0, out=y), lambda y: y > 0),
    "tanh": (lambda x, y: np.tanh(x, out=y), lambda y: 1 - y * y),
    "logistic": (_logistic, lambda y: y * (1 - y)),
}
KINDS = tuple(FUNCTIONS)


def forward(g: Neuron, x: Map, y: Map) -> None:
    """y = f(x), elementwise: relu max(x, 0); tanh; logistic 1 / (1 + exp(-x)). NaN stays NaN."""
    FUNCTIONS[KINDS[g.kind]][0](x, y)


def backward(g: Neuron, y: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + f'(x) dy, the derivative taken from y. Relu's at 0 is 0."""
    derivative = FUNCTIONS[KINDS[g.kind]][1](y)
    if beta == 0:
        np.multiply(derivative, dy, out=dx)
    else:
        dx *= beta
        dx += derivative * dy
