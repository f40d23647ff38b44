"""Response normalisation across maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import norm
from layers.base import Emit, Layer, Shape, axes
from layers.options import layer, option


@layer("cmrnorm")
@dataclass(frozen=True)
class Cmrnorm(Layer):
    """y[c] = x[c] (min_div + a S[c])^(-pow), S[c] the sum of x^2 over `size` maps from c - size // 2 on. y is as x.

    Local response normalisation (Krizhevsky et al. 2012, section 3.3). Two forms of a are in use: `scale` / `size`
    (cuda-convnet2, Caffe, PyTorch: divide true) and `scale` (the paper, TensorFlow: divide false). At the first and
    last maps fewer are summed, and the divisor stays `size`. With `blocked` the maps are cut in blocks of `size`, and
    S[c] sums over the block of c.
    """

    size: int = option(least=1, doc="number of maps that are summed")
    scale: float = option(1e-4, least=0, doc="weight of the squares (alpha)")
    pow: float = option(0.75, doc="exponent (beta)")
    min_div: float = option(1.0, above=0, doc="what the sum is added to (k); 2 in the paper")
    divide: bool = option(True, doc="divide scale by size, as cuda-convnet2, Caffe and PyTorch do")
    blocked: bool = option(False, doc="sum over aligned blocks of maps in place of the maps around each")

    def output(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        emit(norm.LRN_FORWARD, self._geometry(y), x=xs[0], y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        if dxs[0] is not None:
            emit(norm.LRN_BACKWARD, self._geometry(y), x=xs[0], dy=dy, dx=dxs[0])

    def _geometry(self, y: Any) -> norm.Lrn:
        alpha = self.scale / self.size if self.divide else self.scale
        return norm.Lrn(**axes(y), size=self.size, alpha=alpha, power=self.pow, k=self.min_div, blocked=self.blocked)
