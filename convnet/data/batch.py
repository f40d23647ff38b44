"""A batch, the buffers it lies in, and which samples of an epoch are in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.parallel import shares

Allocate = Callable[[tuple[int, ...], Any], NDArray[Any]]  # shape, dtype -> array; pinned memory, for example


@dataclass
class Batch:
    """Samples, as the pipeline delivers them. The arrays are rewritten later: see `Pipeline.batches`.

    pixels: uint8 [n, H, W, C].  mirror: uint8 [n], 1 where left and right are to be exchanged.
    labels: int32 [n], -1 for a sample without a label, and for one that could not be decoded (its pixels are 0).
    indices: int64 [n], the samples' places in the source.
    epoch, position: of the batch: its global first sample's place in the order of the epoch.
    total: samples of the batch over all ranks, of which these are this rank's.
    view: which of the evaluation views of these samples this is.
    fence: called before the arrays are rewritten; a consumer that copies them asynchronously sets it to a function
    that waits for the copy (an event's `synchronize`).
    """

    pixels: NDArray[np.uint8]
    mirror: NDArray[np.uint8]
    labels: NDArray[np.int32]
    indices: NDArray[np.int64]
    epoch: int
    position: int
    total: int
    view: int = 0
    fence: Callable[[], object] | None = None

    def __len__(self) -> int:
        return len(self.indices)


@dataclass
class Slot:
    """The buffers of one batch, used in turn."""

    pixels: NDArray[np.uint8]  # [windows, samples, H, W, C]
    mirror: NDArray[np.uint8]  # [1 or 2, samples]
    labels: NDArray[np.int32]
    indices: NDArray[np.int64]
    delivered: list[Batch] = field(default_factory=list)

    @classmethod
    def new(cls, samples: int, views: int, shape: tuple[int, int, int], allocate: Allocate) -> "Slot":
        """For `samples` images of `shape` (H, W, C) in 1 or 10 views: 5 windows, plain and mirrored."""
        windows, mirrors = (1, 1) if views == 1 else (views // 2, 2)
        slot = cls(
            allocate((windows, samples, *shape), np.uint8),
            allocate((mirrors, samples), np.uint8),
            allocate((samples,), np.int32),
            allocate((samples,), np.int64),
        )
        slot.mirror[:] = np.arange(mirrors, dtype=np.uint8)[:, None]
        return slot

    def batches(self, count: int, epoch: int, position: int, total: int) -> Iterator[Batch]:
        """The batch of the first `count` samples, once per view: each window, then its mirror image."""
        for view in range(len(self.pixels) * len(self.mirror)):
            window, mirror = divmod(view, len(self.mirror))
            arrays = self.pixels[window, :count], self.mirror[mirror, :count], self.labels[:count], self.indices[:count]
            batch = Batch(*arrays, epoch, position, total, view)
            self.delivered.append(batch)
            yield batch

    def reclaim(self) -> None:
        """Wait until nobody reads the buffers any more."""
        for batch in self.delivered:
            if batch.fence:
                batch.fence()
        self.delivered.clear()


def spans(count: int, batch_size: int, drop_last: bool, start: int = 0) -> Iterator[tuple[int, int]]:
    """First and end position of each global batch of an epoch of `count` samples, from position `start` on."""
    for first in range(start, count, batch_size):
        if first + batch_size <= count or not drop_last:
            yield first, min(first + batch_size, count)


def share(first: int, end: int, rank: int, world: int) -> tuple[int, int]:
    """The part of a global batch that is a rank's; see convnet/parallel/shares.py."""
    begin, stop = shares.share(end - first, world, rank)
    return first + begin, first + stop
