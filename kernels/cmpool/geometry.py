"""Geometry of pooling across maps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cmpool:
    """x [channels, height, width, batch] -> y [outputs, height, width, batch].

    Output o covers the channels from start + o * stride on, `size` of them, that exist: at least one.
    """

    channels: int
    height: int
    width: int
    batch: int
    size: int
    stride: int
    start: int
    outputs: int
