"""Geometry of dropout."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dropout:
    """A map of `channels` x `height` x `width` x `batch`, of which the share `keep` in (0, 1] is kept.

    `key`, in [0, 2^31), tells the layers of a network apart: each draws its own numbers. scaled: what is kept is
    divided by `keep`.
    """

    channels: int
    height: int
    width: int
    batch: int
    keep: float
    key: int
    scaled: bool = True
