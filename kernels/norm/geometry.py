"""Geometries of the normalisations."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lrn:
    """Response normalisation across maps: y_c = x_c * (k + alpha * S_c) ^ -power.

    S_c sums x^2 over the channels c - size // 2, ..., `size` of them, that exist. `alpha` multiplies the sum as it is:
    a layer that divides it by `size` (cuda-convnet, Caffe, PyTorch) does so before.
    """

    channels: int
    height: int
    width: int
    batch: int
    size: int
    alpha: float
    power: float
    k: float


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalisation of each channel over height, width and batch.

    `momentum` is the weight of the new value in a running statistic, as in PyTorch.
    """

    channels: int
    height: int
    width: int
    batch: int
    eps: float
    momentum: float

    @property
    def count(self) -> int:
        """Values of a channel."""
        return self.height * self.width * self.batch
