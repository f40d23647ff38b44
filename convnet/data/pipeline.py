"""The stream of batches: a seeded order, decoding by a pool of threads, buffers used in turn.

What is delivered depends on the seed, the epoch and the position alone: not on threads, ranks, the cache, or where
iteration began.  The consumer's own thread hands out the work, a bounded number of batches ahead; there is no
queue that could fill up and no thread that outlives an error.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from convnet.cpus import available_cpus
from convnet.data.batch import Allocate, Batch, Slot, share, spans
from convnet.data.cache import Cache
from convnet.data.decode import take_over_pillow_limits
from convnet.data.draws import permutation
from convnet.data.errors import DataError, DecodeError
from convnet.data.source import UNLABELLED, Source
from convnet.data.transform import Transform

log = logging.getLogger(__name__)
POLICIES = ("error", "skip")
TASKS_PER_THREAD = 4  # pieces of a batch: enough that threads end together, few enough to cost nothing


@dataclass
class Work:
    """A batch that is being filled."""

    slot: Slot
    count: int
    epoch: int
    position: int
    total: int
    draws: NDArray[np.uint32]
    tasks: list[Future[None]] = field(default_factory=list)
    broken: dict[int, DecodeError] = field(default_factory=dict)
    cancelled: bool = False


class Pipeline:
    """Batches of a source; close it, or use it in a `with` statement.

    batch_size: global, samples.  train: the order is drawn anew for each epoch; otherwise it is the source's.
    drop_last: leave out a last batch that is not full.
    threads: that decode; default: one per available processor.  prefetch: batches filled ahead of the consumer's.
    on_error: "error" raises DecodeError at the first image that cannot be decoded.  "skip" keeps its place in the
    order, with pixels 0 and label -1, so that it has no loss and is not counted, and neither the other samples nor
    a resumed run shift; it is logged once and listed in `broken`.
    cache: MiB of decoded images kept in memory; "off": 0; "auto": 1024 for a dataset that fits in them, otherwise 0.
    views: 1, or 10: each batch is delivered ten times, the corners and the centre, each plain and mirrored.
    rank, world: deliver this rank's share of each global batch; every rank has the same number of batches.
    allocate: makes the buffers.

    waited: seconds that the consumer has spent waiting for images to be decoded.
    broken: DecodeError of each image that was skipped, by its index in the source.
    """

    def __init__(
        self,
        source: Source,
        transform: Transform,
        batch_size: int,
        *,
        seed: int = 0,
        train: bool = False,
        drop_last: bool = False,
        threads: int | None = None,
        prefetch: int = 2,
        on_error: str = "error",
        cache: int | str = "auto",
        views: int = 1,
        rank: int = 0,
        world: int = 1,
        allocate: Allocate = np.zeros,
    ):
        if on_error not in POLICIES:
            raise ValueError(f"on_error must be one of {', '.join(POLICIES)}, not '{on_error}'")
        if drop_last and len(source) < batch_size:
            raise DataError(f"{len(source)} samples do not fill one batch of {batch_size}, and a last batch is dropped")
        take_over_pillow_limits()
        self.source, self.transform, self.batch_size = source, transform, batch_size
        self.seed, self.train, self.drop_last, self.on_error = seed, train, drop_last, on_error
        self.rank, self.world, self.prefetch = rank, world, prefetch
        self.threads = threads or available_cpus()
        self.cache = Cache(cache, len(source))
        self.waited = 0.0
        self.broken: dict[int, DecodeError] = {}
        shape = transform.height, transform.width, transform.channels
        local = -(-batch_size // world)
        self._slots = deque(Slot.new(local, views, shape, allocate) for _ in range(prefetch + 2))
        self._queue: deque[Work] = deque()
        self._pool = ThreadPoolExecutor(self.threads, "decode")
        self._closed = False

    def __len__(self) -> int:
        """Batches in an epoch."""
        full, rest = divmod(len(self.source), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from position `start` in its order on.

        A batch is valid until the next but one is asked for, or another iteration begins, which ends this one.
        """
        self._cancel()
        if self._closed:
            raise RuntimeError("the pipeline is closed")
        queue = self._queue = deque()
        order = self._order(epoch)
        ahead = spans(len(self.source), self.batch_size, self.drop_last, start)
        try:
            while True:
                if queue is not self._queue:
                    raise RuntimeError("this iteration was ended by a newer one, or by close()")
                while len(queue) <= self.prefetch and (span := next(ahead, None)):
                    queue.append(self._begin(epoch, order, *span))
                if not queue:
                    return
                self._finish(queue[0])
                work = queue.popleft()
                yield from work.slot.batches(work.count, epoch, work.position, work.total)
        finally:
            if queue is self._queue:
                self._cancel()

    def unreadable(self, what: str) -> DataError:
        """The error of a source of which no image can be decoded."""
        text = f"none of the {len(self.source)} {what} images can be read"
        own = sorted(self.broken.items())  # none at a rank whose shares were empty
        return DataError(f"{text}; the first: {own[0][1]}" if own else text)

    def close(self) -> None:
        """End all threads; takes no longer than the decoding of one image."""
        self._cancel()
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        for slot in self._slots:
            slot.reclaim()

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _order(self, epoch: int) -> NDArray[np.int64]:
        count = len(self.source)
        return permutation(self.seed, epoch, count) if self.train else np.arange(count)

    def _begin(self, epoch: int, order: NDArray[np.int64], first: int, end: int) -> Work:
        """Hand out the filling of one batch, in a slot whose readers are done."""
        slot = self._slots[0]
        slot.reclaim()
        self._slots.rotate(-1)
        indices = order[slice(*share(first, end, self.rank, self.world))]
        count = len(indices)
        slot.indices[:count], slot.labels[:count] = indices, self.source.labels[indices]
        work = Work(slot, count, epoch, first, end - first, self.transform.draw(self.seed, epoch, indices))
        if len(slot.mirror) == 1:
            slot.mirror[0, :count] = self.transform.mirrored(work.draws)
        size = max(1, -(-count // (self.threads * TASKS_PER_THREAD)))
        pieces = [range(i, min(i + size, count)) for i in range(0, count, size)]
        work.tasks = [self._pool.submit(self._fill, work, piece) for piece in pieces]
        return work

    def _fill(self, work: Work, samples: range) -> None:
        for sample in samples:
            if work.cancelled:
                return
            self._place(work, sample)

    def _place(self, work: Work, sample: int) -> None:
        index, out = int(work.slot.indices[sample]), work.slot.pixels[:, sample]
        try:
            image = self._image(index)
            if len(out) == 1:
                self.transform.cut(image, work.draws[sample], out[0])
            else:
                self.transform.cut_views(image, out)
        except DecodeError as error:
            if self.on_error == "error":
                raise DecodeError(error.path, f"{error.reason}; on_error: skip leaves such images out") from error
            out[...], work.slot.labels[sample], work.broken[index] = 0, UNLABELLED, error
        except Exception as error:
            raise DataError(f"'{self.source.paths[index]}': {type(error).__name__}: {error}") from error

    def _image(self, index: int) -> NDArray[np.uint8]:
        image = self.cache.get(index)
        if image is None:
            if index in self.broken:
                raise self.broken[index]
            image = self.transform.load(self.source.read(index), self.source.paths[index])
            self.cache.put(index, image)
        return image

    def _finish(self, work: Work) -> None:
        """Wait for a batch; raise what its decoding raised, of several errors the first in order."""
        asked = time.perf_counter()
        for task in work.tasks:
            task.result()
        self.waited += time.perf_counter() - asked
        for index, error in sorted(work.broken.items()):
            if index not in self.broken:
                self.broken[index] = error
                log.warning("skipped: %s", error)

    def _cancel(self) -> None:
        """End the filling of all batches that were not delivered."""
        for work in self._queue:
            work.cancelled = True
            for task in work.tasks:
                task.cancel()
        for work in self._queue:
            wait(work.tasks)
        self._queue = deque()
