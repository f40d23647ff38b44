"""Geometry of dropout."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dropout:
    """A map of `channels` x `height` x `width` x `batch`, of which the share `keep` in (0, 1] is kept.

    `key`, in [0, 2^31), tells the layers of a network apart: each draws its own numbers. scaled: what is kept is
    divided by `keep`.

    The map may be a part of a larger one, of which it draws the numbers: channels from `channel` on, and samples at
    places of the batch that come in runs: sample n is at first + n // run * stride + n % run. A run of 0 is the whole
    batch.
    """

    channels: int
    height: int
    width: int
    batch: int
    keep: float
    key: int
    scaled: bool = True
    channel: int = 0
    first: int = 0
    run: int = 0
    stride: int = 0
