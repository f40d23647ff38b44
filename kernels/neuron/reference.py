"""Neurons in NumPy."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernels.layout import Map
from kernels.neuron.geometry import Neuron

SOFT = 4.0  # softrelu is x above this


class Kind(NamedTuple):
    """One function. forward writes f(x) to y, which may be x.

    reads: what the derivative is a function of, "x" or "y"; empty where it is the constant that `derivative` gives.
    """

    forward: Callable[[Neuron, Map, Map], Any]
    reads: str
    derivative: Callable[[Neuron, Map], Any]
    parameters: str = ""


def _assign(y: Map, value: Any) -> None:
    y[...] = value


def _logistic(g: Neuron, x: Map, y: Map) -> None:
    with np.errstate(over="ignore"):  # 1 / (1 + inf) is the 0 that is meant
        np.exp(-x, out=y)
        y += 1
        np.divide(1, y, out=y)


def _softrelu(g: Neuron, x: Map, y: Map) -> None:
    y[...] = np.where(x > SOFT, x, np.log1p(np.exp(np.minimum(x, SOFT))))


FUNCTIONS = {
    "relu": Kind(lambda g, x, y: np.maximum(x, 0, out=y), "y", lambda g, y: y > 0),
    "tanh": Kind(lambda g, x, y: _assign(y, g.a * np.tanh(g.b * x)), "y", lambda g, y: g.b * (g.a - y * y / g.a), "ab"),
    "logistic": Kind(_logistic, "y", lambda g, y: y * (1 - y)),
    "ident": Kind(lambda g, x, y: _assign(y, x), "", lambda g, _: 1.0),
    "brelu": Kind(lambda g, x, y: np.minimum(np.maximum(x, 0), g.a, out=y), "y", lambda g, y: (y > 0) & (y < g.a), "a"),
    "softrelu": Kind(_softrelu, "y", lambda g, y: np.where(y > SOFT, 1, -np.expm1(-y))),
    "abs": Kind(lambda g, x, y: np.abs(x, out=y), "x", lambda g, x: np.where(x > 0, 1, -1)),
    "square": Kind(lambda g, x, y: np.square(x, out=y), "x", lambda g, x: 2 * x),
    "sqrt": Kind(lambda g, x, y: np.sqrt(x, out=y), "y", lambda g, y: 0.5 / y),
    "linear": Kind(lambda g, x, y: _assign(y, g.a * x + g.b), "", lambda g, _: g.a, "ab"),
    "log": Kind(lambda g, x, y: np.log(g.a + x, out=y), "y", lambda g, y: np.exp(-y), "a"),
    "drelu": Kind(lambda g, x, y: _assign(y, x - g.a * np.tanh(x / g.a)), "x", lambda g, x: np.tanh(x / g.a) ** 2, "a"),
}
KINDS = tuple(FUNCTIONS)


def forward(g: Neuron, x: Map, y: Map) -> None:
    """y = f(x), elementwise. NaN stays NaN.

    ident x; logistic 1 / (1 + exp(-x)); tanh a tanh(b x); relu max(x, 0); brelu min(a, max(x, 0)); softrelu
    log(1 + exp(x)), and x itself above 4; abs |x|; square x^2; sqrt x^(1/2); linear a x + b; log log(a + x);
    drelu x - a tanh(x / a).
    """
    FUNCTIONS[KINDS[g.kind]].forward(g, x, y)


def backward(g: Neuron, y: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + f'(x) dy, the derivative taken from y, of the kinds where that suffices.

    relu y > 0; brelu 0 < y < a; tanh b (a - y^2 / a); logistic y (1 - y); softrelu 1 - exp(-y), and 1 where y > 4;
    sqrt 1 / (2 y); log exp(-y).
    """
    _chain(FUNCTIONS[KINDS[g.kind]].derivative(g, y), dy, dx, beta)


def backward_x(g: Neuron, x: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + f'(x) dy, the derivative taken from x.

    abs 1 above 0, else -1; square 2 x; drelu tanh^2(x / a).
    """
    _chain(FUNCTIONS[KINDS[g.kind]].derivative(g, x), dy, dx, beta)


def _chain(derivative: Any, dy: Map, dx: Map, beta: float) -> None:
    if beta == 0:
        np.multiply(derivative, dy, out=dx)
    else:
        dx *= beta
        dx += derivative * dy
