"""Geometry of a convolution with unshared filters."""

from dataclasses import dataclass

from kernels.conv.geometry import Conv


@dataclass(frozen=True)
class Local(Conv):
    """A convolution whose filters differ from position to position.

    w [out_h, out_w, filters, channels/groups, rows, cols]: at each position what a convolution has as its weights.
    b [filters, out_h, out_w]: one bias for each output unit.
    """


@dataclass(frozen=True)
class Units:
    """A map each of whose units has a bias of its own: b [channels, height, width]."""

    channels: int
    height: int
    width: int
    batch: int
