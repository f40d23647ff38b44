"""Convolution: each filter slides over the map and gives one map of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels import conv, local
from layers.base import Emit, Param, Shape, axes
from layers.options import ConfigError, Size, layer, option
from layers.weights import Weighted
from layers.window import ROUNDING, ROUNDING_DOC, positions


@dataclass(frozen=True)
class Convolution(Weighted):
    """Filters at positions of a map: what convolution and local layers have in common."""

    filters: int = option(least=1, doc="number of filters, which is the number of output channels (of all groups)")
    size: Size = option(least=1, doc="size of a filter, pixels")
    stride: Size = option(1, least=1, doc="distance between the positions of a filter, pixels")
    pad: Size = option(0, least=0, doc="border of zeros on each side, pixels")
    groups: int = option(1, least=1, doc="blocks of channels that are convolved apart; divides channels and filters")
    rounding: str = option("floor", choices=ROUNDING, doc=ROUNDING_DOC)

    def output(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        for count, name in (x.channels, "channels of the input"), (self.filters, "filters"):
            if count % self.groups:
                raise ConfigError(f"groups {self.groups} does not divide the {count} {name}", key="groups")
        return Shape(self.filters, *positions(x, self.size, self.stride, self.pad, self.rounding))

    def params(self, *inputs: Shape) -> dict[str, Param]:
        """Of one filter a channel, for all positions."""
        return self.weights((self.filters, inputs[0].channels // self.groups, *self.size))

    def unshared_bias(self, *inputs: Shape) -> dict[str, Param]:
        """The bias, if there is one, for each output unit: [F, P, Q]."""
        y = self.output(*inputs)
        biases = {key: param for key, param in Convolution.params(self, *inputs).items() if key == "bias"}
        return {key: replace(param, shape=(y.channels, y.height, y.width)) for key, param in biases.items()}

    def multiply_adds(self, *inputs: Shape) -> int:
        y = self.output(*inputs)
        return y.features * (inputs[0].channels // self.groups) * self.size.height * self.size.width

    def window(self, x: Any, y: Any) -> dict[str, int]:
        """The fields of the geometry."""
        return axes(x) | {
            "filters": self.filters,
            "rows": self.size.height,
            "cols": self.size.width,
            "stride_h": self.stride.height,
            "stride_w": self.stride.width,
            "pad_top": self.pad.height,
            "pad_left": self.pad.width,
            "out_h": y.shape[1],
            "out_w": y.shape[2],
            "groups": self.groups,
        }


@layer("conv")
@dataclass(frozen=True)
class Conv(Convolution):
    """y[f, p, q] = b[f] + sum over c, r, s of w[f, c, r, s] x[c, p stride + r - pad, q stride + s - pad].

    x: [C, H, W, N]. weight: [filters, C / groups, R, S]. bias: [filters], or [filters, P, Q] where it is not shared.
    y: [filters, P, Q, N] with P = 1 + (H + 2 pad - R) / stride, rounded by `rounding`, and Q likewise.
    The filter is not flipped (correlation), and what lies outside of the map is 0. With groups, filters and channels
    are cut in equal blocks, and each block of filters sees one block of channels (Krizhevsky et al. 2012).
    """

    shared_biases: bool = option(True, doc="one bias for each filter; false: one for each filter and position")

    def params(self, *inputs: Shape) -> dict[str, Param]:
        params = super().params(*inputs)
        return params if self.shared_biases else params | self.unshared_bias(*inputs)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        b = emit.param("bias") if self.bias else None
        shared = b if self.shared_biases else None
        emit(conv.FORWARD, self._geometry(xs[0], y), x=xs[0], w=emit.param("weight"), b=shared, y=y)
        if b is not shared:
            emit(local.BIAS, local.Units(**axes(y)), b=b, y=y, beta=1.0)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        g = self._geometry(xs[0], y)
        if (dw := emit.grad("weight")) is not None:
            emit(conv.WGRAD, g, x=xs[0], dy=dy, dw=dw)
        if (db := emit.grad("bias")) is not None:
            if self.shared_biases:
                emit(conv.BGRAD, g, dy=dy, db=db)
            else:
                emit(local.BGRAD, local.Units(**axes(y)), dy=dy, db=db)
        if dxs[0] is not None:
            emit(conv.DGRAD, g, dy=dy, w=emit.param("weight"), dx=dxs[0])

    def _geometry(self, x: Any, y: Any) -> conv.Conv:
        return conv.Conv(**self.window(x, y))
