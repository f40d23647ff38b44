"""Geometry of a convolution."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Conv:
    """x [channels, height, width, batch], w [filters, channels/groups, rows, cols] -> y [filters, out_h, out_w, batch].

    Output pixel (p, q) reads the image from row p * stride_h - pad_top and column q * stride_w - pad_left on; what lies
    outside the image is 0, so that the padding below and to the right is whatever the output size implies.  Filters of
    group i read the channels of group i alone.
    """

    channels: int
    height: int
    width: int
    batch: int
    filters: int
    rows: int
    cols: int
    stride_h: int
    stride_w: int
    pad_top: int
    pad_left: int
    out_h: int
    out_w: int
    groups: int = 1

    @property
    def depth(self) -> int:
        """Products that one output sums: channels/groups * rows * cols."""
        return self.channels // self.groups * self.rows * self.cols

    @property
    def group_filters(self) -> int:
        return self.filters // self.groups

    @property
    def group_channels(self) -> int:
        return self.channels // self.groups
