"""Geometries of sums, copies and maxima of maps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sum:
    """Maps of `channels` x `height` x `width` x `batch`; `coeff` multiplies x."""

    channels: int
    height: int
    width: int
    batch: int
    coeff: float = 1.0


@dataclass(frozen=True)
class Copy:
    """`channels` channels, from `x_offset` on in x, to those from `y_offset` on in y. Both maps may have more."""

    channels: int
    height: int
    width: int
    batch: int
    x_offset: int = 0
    y_offset: int = 0


@dataclass(frozen=True)
class Maximum:
    """The `index`-th of several maps of `channels` x `height` x `width` x `batch` (0 to 254) in their maximum."""

    channels: int
    height: int
    width: int
    batch: int
    index: int
