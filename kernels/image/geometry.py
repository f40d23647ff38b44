"""Geometry of image preparation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prepare:
    """`batch` images of `height` x `width` x `channels` bytes, to a map of `channels` x `height` x `width` x `batch`."""

    channels: int
    height: int
    width: int
    batch: int
