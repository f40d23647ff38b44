"""Neurons: an activation function, applied to each element."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels import eltwise, neuron
from layers.base import Emit, Layer, Shape, axes
from layers.options import ConfigError, layer, option, show
from layers.values import as_number

WRITTEN = re.compile(r"\s*(\w+)\s*\[(.*)\]\s*")  # kind and parameters: tanh[1.7159, 0.6667]


@layer("neuron")
@dataclass(frozen=True)
class Neuron(Layer):
    """y = f(x), element by element. Shapes: y is as x.

    ident: x. relu: max(0, x). brelu: min(a, max(0, x)). softrelu: log(1 + exp(x)), and x itself above 4. logistic:
    1 / (1 + exp(-x)). tanh: a tanh(b x). abs: |x|. square: x^2. sqrt: the square root of x. linear: a x + b. log:
    log(a + x). drelu: x - a tanh(x / a).

    Parameters can be written with the kind: "tanh[1.7159, 0.6667]", "brelu[6]"; they need quotes inside of braces. tanh
    without any has a = b = 1; the others need theirs. The slope of relu at 0 is 0, that of abs is -1. `neuron: relu` on
    another layer makes a layer of this type behind it, and so does `neuron: {kind: brelu, a: 6}`.
    """

    shorthand: ClassVar[tuple[str, ...]] = ("kind",)

    kind: str = option(choices=neuron.KINDS, doc="the function")
    a: float | None = option(None, doc="the first parameter of brelu, drelu, linear, log and tanh")
    b: float | None = option(None, doc="the second parameter of linear and tanh")

    def __post_init__(self) -> None:
        if isinstance(self.kind, str) and (written := WRITTEN.fullmatch(self.kind)):
            self._read(*written.groups())
        super().__post_init__()
        wanted, given = neuron.FUNCTIONS[self.kind].parameters, [n for n in "ab" if getattr(self, n) is not None]
        if given != list(wanted) and (given or self.kind != "tanh"):
            expected = " and ".join(wanted) or "no parameters"
            raise ConfigError(f"{self.kind} takes {expected}, found {' and '.join(given) or 'none'}")
        if self.a is not None and self.kind == "brelu" and self.a <= 0:
            raise ConfigError(f"expected a number > 0, found {show(self.a)}", ("a",))
        if self.a == 0 and self.kind in ("tanh", "drelu"):
            raise ConfigError("expected a number other than 0, found 0", ("a",))

    def _read(self, kind: str, inner: str) -> None:
        """Take kind and parameters from what was written as one."""
        values = [value.strip() for value in inner.split(",")] if inner.strip() else []
        numbers = [as_number(value) for value in values]
        if len(values) > 2 or None in numbers:
            expected = "a kind and its parameters, such as tanh[1.7159, 0.6667]"
            raise ConfigError(f"expected {expected}, found {show(self.kind)}", ("kind",))
        if self.a is not None or self.b is not None:
            raise ConfigError(f"parameters stand in {show(self.kind)} and beside it; expected them once", ("kind",))
        for name, value in zip(("kind", "a", "b"), (kind, *numbers), strict=False):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        """The kind with its parameters, as it is written in a config."""
        given = [repr(value) for value in (self.a, self.b) if value is not None]
        return self.kind + (f"[{','.join(given)}]" if given else "")

    def output(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(neuron.FORWARD, self._geometry(y), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        g, dx = self._geometry(y), dxs[0]
        if dx is None:
            return
        reads = neuron.FUNCTIONS[self.kind].reads
        if reads == "y":
            emit(neuron.BACKWARD, g, y=y, dy=dy, dx=dx)
        elif reads == "x":
            emit(neuron.BACKWARD_X, g, x=xs[0], dy=dy, dx=dx)
        else:
            slope = neuron.FUNCTIONS[self.kind].derivative(g, None)
            emit(eltwise.SUM, eltwise.Sum(**axes(y), coeff=slope), x=dy, y=dx)

    def _geometry(self, y: Any) -> neuron.Neuron:
        a, b = (1.0 if value is None else value for value in (self.a, self.b))
        return neuron.Neuron(**axes(y), kind=neuron.KINDS.index(self.kind), a=a, b=b)
