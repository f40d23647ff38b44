"""Layers that join several maps: weighted sum, maximum and concatenation."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

from kernels import eltwise
from layers.base import Emit, Layer, Shape, axes
from layers.options import ConfigError, layer, option


@layer("eltsum")
@dataclass(frozen=True)
class Eltsum(Layer):
    """y = sum over i of coefficients[i] x_i, element by element. All shapes are equal.

    With coefficients of 1 it is the join of a residual connection (He et al. 2016).
    """

    arity: ClassVar[tuple[int, int | None]] = (2, None)

    coefficients: tuple[float, ...] = option((), doc="one factor for each input; default: all 1")

    def output(self, *inputs: Shape) -> Shape:
        if self.coefficients and len(self.coefficients) != len(inputs):
            found = f"expected {len(inputs)} numbers, one for each input, found {len(self.coefficients)}"
            raise ConfigError(found, ("coefficients",))
        _agree(inputs, inputs)
        return inputs[0]

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        for i, (x, coeff) in enumerate(zip(xs, self._factors(xs), strict=True)):
            emit(eltwise.SUM, eltwise.Sum(**axes(y), coeff=coeff), x=x, y=y, beta=float(i > 0))

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        for dx, coeff in zip(dxs, self._factors(xs), strict=True):
            if dx is not None:
                emit(eltwise.SUM, eltwise.Sum(**axes(y), coeff=coeff), x=dy, y=dx)

    def _factors(self, xs: Sequence[Any]) -> tuple[float, ...]:
        return self.coefficients or (1.0,) * len(xs)


@layer("eltmax")
@dataclass(frozen=True)
class Eltmax(Layer):
    """y = the maximum of all inputs, element by element. All shapes are equal.

    Of equal inputs the first gets the gradient; cuda-convnet2 gives it to all of them.
    """

    arity: ClassVar[tuple[int, int | None]] = (2, 255)

    def output(self, *inputs: Shape) -> Shape:
        _agree(inputs, inputs)
        return inputs[0]

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        for i, x in enumerate(xs):
            emit(eltwise.MAXIMUM, eltwise.Maximum(**axes(y), index=i), x=x, y=y, winner=self._winner(emit, y))

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        for i, dx in enumerate(dxs):
            if dx is not None:
                g = eltwise.Maximum(**axes(y), index=i)
                emit(eltwise.MAXIMUM_BACKWARD, g, dy=dy, winner=self._winner(emit, y), dx=dx)

    def _winner(self, emit: Emit, y: Any) -> Any:
        """Which input each maximum was taken of."""
        return emit.keep("winner", y.shape, "uint8", layout="hcwn")


@layer("concat")
@dataclass(frozen=True)
class Concat(Layer):
    """The channels of all inputs, one input after the other: x_i [C_i, H, W, N] -> y [sum of C_i, H, W, N]."""

    arity: ClassVar[tuple[int, int | None]] = (2, None)

    def output(self, *inputs: Shape) -> Shape:
        _agree(inputs, [(x.height, x.width) for x in inputs])
        return Shape(sum(x.channels for x in inputs), inputs[0].height, inputs[0].width)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        for x, offset in zip(xs, _offsets(xs), strict=True):
            emit(eltwise.COPY, eltwise.Copy(**axes(x), y_offset=offset), x=x, y=y, beta=0.0)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        for dx, offset in zip(dxs, _offsets(xs), strict=True):
            if dx is not None:
                emit(eltwise.COPY, eltwise.Copy(**axes(dx), x_offset=offset), x=dy, y=dx)


@layer("pass")
@dataclass(frozen=True)
class Pass(Concat):
    """The channels of all inputs, one input after the other, as concat; a single input is passed on as it is.

    The layer type by which networks of cuda-convnet2 join the towers of several GPUs.
    """

    arity: ClassVar[tuple[int, int | None]] = (1, None)


def _offsets(xs: Sequence[Any]) -> list[int]:
    """First channel of each input in the concatenation."""
    return list(accumulate((x.shape[0] for x in xs[:-1]), initial=0))


def _agree(inputs: Sequence[Shape], shapes: Sequence[Any]) -> None:
    """Raise ConfigError unless all `shapes` are equal; the message shows the inputs'."""
    if len(set(shapes)) > 1:
        what = "equal shapes" if shapes is inputs else "equal heights and widths"
        raise ConfigError(f"expected inputs of {what}, found {', '.join(map(str, inputs))}", key="inputs")
