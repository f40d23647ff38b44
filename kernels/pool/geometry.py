"""Geometry of pooling."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pool:
    """Windows of `size_h` x `size_w` over a map of `channels` x `height` x `width` x `batch`.

    Window (p, q) begins at row start_h + p * stride_h and column start_w + q * stride_w; a padding of n pixels is a
    start of -n. What hangs over the map is cut off. A window with nothing inside the map gives 0.

    count_pad: the mean divides by the window's area within the padded map (as many pixels beyond the far edge as
    before the near one), as PyTorch's count_include_pad does; else by the pixels that exist.
    divide: no means but sums are taken where it is false.
    absolute: the maximum is of the absolute value; what is taken keeps its sign.
    """

    channels: int
    height: int
    width: int
    batch: int
    size_h: int
    size_w: int
    stride_h: int
    stride_w: int
    start_h: int
    start_w: int
    out_h: int
    out_w: int
    count_pad: bool = False
    divide: bool = True
    absolute: bool = False
