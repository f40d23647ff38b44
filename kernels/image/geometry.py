"""Geometry of image preparation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prepare:
    """`batch` images of `height` x `width` x `channels` bytes, to a map of the same axes."""

    channels: int
    height: int
    width: int
    batch: int
