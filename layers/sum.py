"""The sum of each map."""

from dataclasses import dataclass
from typing import Any

from layers.base import Shape
from layers.options import Size, layer
from layers.pool import Pooling, Windows, windows


@layer("sum")
@dataclass(frozen=True)
class Sum(Pooling):
    """y[c] = the sum over all pixels of x[c]. x: [C, H, W, N] -> y: [C, 1, 1, N]. Over windows: pool, mode sum."""

    def output(self, *inputs: Shape) -> Shape:
        return Shape(inputs[0].channels)

    def windows(self, x: Any, y: Any) -> Windows:
        whole = Size(*x.shape[1:3])
        return windows("sum", x, y, whole, whole, Size(0, 0))
