"""Geometries of sums and copies of maps."""

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
