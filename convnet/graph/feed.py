"""What a step is fed of each sample."""

from dataclasses import dataclass

import numpy as np

from convnet.graph.steps import Value
from layers.base import LABELS, Shape
from layers.data import WINDOW, per_sample, together


@dataclass(frozen=True)
class Feed:
    """What the batches of training, or of evaluation, bring.

    source: height and width of the images; None: those of the network's input, which is cut from them.
    cell: bytes of a cell, where there are parts of images that are resized here, rather than images.
    extras: what augmentation adds, by the names of `layers.data.per_sample`.
    """

    source: tuple[int, int] | None = None
    extras: tuple[str, ...] = ()
    cell: int = 0

    @property
    def unit(self) -> int:
        """Neighbours in a batch that have to come to the same device."""
        return together(self.extras)

    def values(self, shape: Shape, batch: int, dtype: np.dtype) -> dict[str, Value]:
        """By name. shape: of the network's input. dtype: of real numbers."""
        kinds = per_sample(shape.channels, *(self.source or (shape.height, shape.width)), self.cell)
        window = ("cells" if self.cell else "pixels", *WINDOW)
        return {
            name: Value(name, (batch, *kinds[name][0]), np.dtype(kinds[name][1] or dtype), arena=False)
            for name in (*window, LABELS, *self.extras)
        }
