"""Geometries of shares of a batch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shares:
    """A map of `channels` x `height` x `width` x `batch`, and `parts` shares of its samples, `share` samples each.

    The shares are one map: its channels are those of the first share, then those of the second, and so on. The first
    share begins at sample `first`. What would lie behind the last sample belongs to the shares, not to the map. The map
    of shares that are joined may have more samples, `length`; a share's begin at `offset`. A length of 0 is `share`.
    """

    channels: int
    height: int
    width: int
    batch: int
    parts: int
    share: int
    first: int = 0
    offset: int = 0
    length: int = 0


@dataclass(frozen=True)
class Labels:
    """`count` labels of a batch of `batch`, in runs: the n-th is that at first + n // run * stride + n % run.

    A run of 0 is all. Places behind the end of the batch have no label. The same of other numbers, one of each sample.
    """

    count: int
    batch: int
    first: int = 0
    run: int = 0
    stride: int = 0
