"""Geometries of the normalisations."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lrn:
    """Response normalisation across maps: y_c = x_c * (k + alpha * S_c) ^ -power.

    S_c sums x^2 over the channels c - size // 2, ..., `size` of them, that exist. `alpha` multiplies the sum as it is:
    a layer that divides it by `size` (cuda-convnet, Caffe, PyTorch) does so before.
    blocked: the channels are cut in blocks of `size`, and S_c sums over the block of c.
    """

    channels: int
    height: int
    width: int
    batch: int
    size: int
    alpha: float
    power: float
    k: float
    blocked: bool = False


@dataclass(frozen=True)
class Rnorm:
    """Response normalisation within a map: y = x * (k + alpha * S) ^ -power.

    S sums x^2 over the pixels of the same channel in the `size` x `size` window from (h, w) - size // 2 on, cut off at
    the edges. `alpha` multiplies the sum as it is.
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
class Cnorm(Rnorm):
    """Contrast normalisation: S sums (x - mean)^2, each x less the mean of its own window, of the pixels that exist.

    exact: the gradient is that of the formula; else the means count as constants, as in cuda-convnet2.
    """

    exact: bool = True


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalisation of each channel over height, width and batch.

    `momentum` is the weight of the new value in a running statistic, as in PyTorch. samples: those of which the
    statistics are, where they are more than this batch (of several ranks); else 0.
    """

    channels: int
    height: int
    width: int
    batch: int
    eps: float
    momentum: float
    samples: int = 0

    @property
    def count(self) -> int:
        """Values of a channel that the statistics are of."""
        return self.height * self.width * (self.samples or self.batch)
