"""A batch, the buffers it lies in, and which samples of an epoch are in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.parallel import shares

Allocate = Callable[[tuple[int, ...], Any], NDArray[Any]]  # shape, dtype -> array; pinned memory, for example
VIEWS = {1: (1, 1), 9: (9, 1), 10: (5, 2)}  # windows of an image, and in how many ways each is mirrored


@dataclass
class Batch:
    """Samples, as the pipeline delivers them. The arrays are rewritten later: see `Pipeline.batches`.

    pixels: uint8 [n, H, W, C], of which the network sees the part that begins at `corner`, int32 [n, 2]: row, column;
    or cells, uint8 [n, bytes], of parts that image.resample resizes.
    mirror: uint8 [n], 1 where left and right are to be exchanged.
    labels: int32 [n], -1 for a sample without a label, and for one that could not be decoded (its pixels are 0).
    indices: int64 [n], the samples' places in the source.
    epoch, position: of the batch: its global first sample's place in the order of the epoch.
    total: samples of the batch over all ranks, of which these are this rank's.
    view: which of the evaluation views of these samples this is.
    extras: what augmentation adds, by name (`convnet.data.augment`).
    fence: called before the arrays are rewritten; a consumer that copies them asynchronously sets it to a function
    that waits for the copy (an event's `synchronize`).
    """

    pixels: NDArray[np.uint8]
    corner: NDArray[np.int32]
    mirror: NDArray[np.uint8]
    labels: NDArray[np.int32]
    indices: NDArray[np.int64]
    epoch: int
    position: int
    total: int
    view: int = 0
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)
    fence: Callable[[], object] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def inputs(self) -> dict[str, Any]:
        """What the engine is fed, by name."""
        given = {"corner": self.corner, "mirror": self.mirror, "labels": self.labels}
        return {"cells" if self.pixels.ndim == 2 else "pixels": self.pixels, **given, **self.extras}


@dataclass
class Slot:
    """The buffers of one batch, used in turn."""

    pixels: NDArray[np.uint8]  # [windows, samples, H, W, C], or [1, samples, bytes] of cells
    corner: NDArray[np.int32]  # [windows, samples, 2]
    mirror: NDArray[np.uint8]  # [1 or 2, samples]
    labels: NDArray[np.int32]
    indices: NDArray[np.int64]
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)  # [samples, ...], of training
    delivered: list[Batch] = field(default_factory=list)

    @classmethod
    def new(
        cls,
        samples: int,
        views: int,
        shape: tuple[int, ...],
        allocate: Allocate,
        share: Allocate,
        extras: dict[str, tuple[tuple[int, ...], str]],
    ) -> "Slot":
        """For `samples` images of `shape`, (H, W, C) or bytes of a cell, in 1, 9 or 10 views.

        share: allocates the pixels. extras: shape and type of what augmentation adds, by name.
        """
        windows, mirrors = VIEWS[views]
        slot = cls(
            share((windows, samples, *shape), np.uint8),
            allocate((windows, samples, 2), np.int32),
            allocate((mirrors, samples), np.uint8),
            allocate((samples,), np.int32),
            allocate((samples,), np.int64),
            {name: allocate((samples, *of_one), kind or np.float32) for name, (of_one, kind) in extras.items()},
        )
        slot.mirror[:] = np.arange(mirrors, dtype=np.uint8)[:, None]
        return slot

    def batches(self, count: int, epoch: int, position: int, total: int) -> Iterator[Batch]:
        """The batch of the first `count` samples, once per view: each window, then its mirror image."""
        extras = {name: array[:count] for name, array in self.extras.items()}
        for view in range(len(self.pixels) * len(self.mirror)):
            window, mirror = divmod(view, len(self.mirror))
            part = self.pixels[window, :count], self.corner[window, :count], self.mirror[mirror, :count]
            batch = Batch(*part, self.labels[:count], self.indices[:count], epoch, position, total, view, extras)
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


def share(first: int, end: int, rank: int, world: int, unit: int = 1) -> tuple[int, int]:
    """The part of a global batch that is a rank's; see convnet/parallel/shares.py."""
    begin, stop = shares.share(end - first, world, rank, unit)
    return first + begin, first + stop
