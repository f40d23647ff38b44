"""Local layer: a convolution whose filters differ from position to position."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kernels import local
from layers.base import Emit, Param, Shape, axes
from layers.conv import Convolution
from layers.options import layer


@layer("local")
@dataclass(frozen=True)
class Local(Convolution):
    """y[f, p, q] = b[f, p, q] + sum over c, r, s of w[p, q, f, c, r, s] x[c, p stride + r - pad, q stride + s - pad].

    Locally connected: as a convolution, but each output position has filters of its own (LeCun 1989; the last layers of
    the CIFAR-10 networks of cuda-convnet). x: [C, H, W, N]. weight: [P, Q, filters, C / groups, R, S], that is, at each
    position what a convolution has; bias: [filters, P, Q]. y: [filters, P, Q, N], P and Q as in a convolution.
    A convolution becomes a local layer of equal outputs by repeating its weights P Q times and each bias likewise.
    """

    ball_shrinks: ClassVar[bool] = True

    def params(self, *inputs: Shape) -> dict[str, Param]:
        y, weight = self.output(*inputs), super().params(*inputs)["weight"]
        own = replace(weight, shape=(y.height, y.width, *weight.shape))
        return {"weight": own} | self.unshared_bias(*inputs)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        b = emit.param("bias") if self.bias else None
        emit(local.FORWARD, self._geometry(xs[0], y), x=xs[0], w=emit.param("weight"), b=b, y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        g = self._geometry(xs[0], y)
        if (dw := emit.grad("weight")) is not None:
            emit(local.WGRAD, g, x=xs[0], dy=dy, dw=dw)
        if (db := emit.grad("bias")) is not None:
            emit(local.BGRAD, local.Units(**axes(y)), dy=dy, db=db)
        if dxs[0] is not None:
            emit(local.DGRAD, g, dy=dy, w=emit.param("weight"), dx=dxs[0])

    def _geometry(self, x: Any, y: Any) -> local.Local:
        return local.Local(**self.window(x, y))
