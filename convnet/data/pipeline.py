"""The stream of batches: a seeded order, decoding by a pool of threads or processes, buffers used in turn.

What is delivered depends on the seed, the epoch and the position alone: not on threads, ranks, the cache, or where
iteration began.  The consumer's own thread hands out the work, a bounded number of batches ahead; there is no
queue that could fill up and no thread that outlives an error.
"""

import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.cpus import available_cpus
from convnet.data.augment import Augment, settle
from convnet.data.batch import VIEWS, Allocate, Batch, Slot, share, spans
from convnet.data.cache import Cache
from convnet.data.decode import take_over_pillow_limits
from convnet.data.draws import permutation
from convnet.data.errors import DataError, DecodeError
from convnet.data.fill import LEAVES_OUT, PLAIN, Broken, Filler, Form
from convnet.data.sources import UNLABELLED, PixelSource, Source
from convnet.data.transform import Transform
from convnet.data.workers import LONGEST, WORKERS, SharedArray, Workers
from convnet.parallel.shares import longest
from kernels.op import ceil_div
from layers.data import per_sample

log = logging.getLogger(__name__)
POLICIES = ("error", "skip", "defer")
TASKS_PER_THREAD = 4  # of the batches in flight, so that all have some to the end; each costs as much as an image
IN_FLIGHT = 32  # images for each thread: one of 20 megapixels takes as long as 30 others, and none waits for it
MOST_AHEAD, MOST_BYTES = 64, 1 << 30  # batches for that, and bytes of their pixels
LEAST_BYTES = 8 << 20  # of a piece that is only copied: a millisecond, beside which waking a thread is little
STALLED = 30.0  # seconds that a piece is waited for before the user hears of it
STARVED = 0.02  # of the time between two batches: with more spent waiting, one more thread is set to work
Pin = Callable[[NDArray[np.uint8]], Callable[[], object]]  # array -> function that undoes it


@dataclass
class Work:
    """A batch that is being filled."""

    slot: Slot
    count: int
    epoch: int
    position: int
    total: int
    draws: NDArray[np.uint32]
    array: int = 0  # number of the slot
    tasks: list[tuple[int, Future[Broken]]] = field(default_factory=list)  # with the place of the first sample
    cancelled: bool = False


class Pipeline:
    """Batches of a source; close it, or use it in a `with` statement.

    batch_size: global, samples.  train: the order is drawn anew for each epoch; otherwise it is the source's.
    drop_last: leave out a last batch that is not full.
    threads: that decode; None: as many as it takes to keep the consumer from waiting, up to `cpus`, by default one per
    processor.
    workers: "threads"; or "processes", which do not wait for each other's Python, but each take memory and time to
    start.  They have no cache, and are not used where there is nothing to decode.
    prefetch: batches filled ahead of the consumer's; None: 2, and where images are decoded as many as keep all busy.
    on_error: "error" raises DecodeError at the first image that cannot be decoded.  "skip" keeps its place in the
    order, with pixels 0 and label -1, so that it has no loss and is not counted, and neither the other samples nor
    a resumed run shift; it is logged once and listed in `broken`.  "defer" does so without logging, for a consumer that
    looks at `fault`.
    cache: MiB of decoded images kept in memory; "off": 0; "auto": 1024 for a dataset that fits in them, otherwise 0.
    views: 1; 10: each batch is delivered ten times, the corners and the centre, each plain and mirrored; 9: nine times,
    from a grid of 3 x 3 places.
    augment: what is drawn for each sample beside its crop.
    form: what samples are delivered as (1 view, no policy): whole images of a PixelSource, all of one size, of which
    the consumer cuts what begins at `corner`; or cells of resized crops, which it resizes.
    rank, world: deliver this rank's share of each global batch; every rank has the same number of batches.
    allocate: makes the buffers.  pin: makes uploads fast from memory that processes share.

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
        cpus: int | None = None,
        workers: str = "threads",
        prefetch: int | None = None,
        on_error: str = "error",
        cache: int | str = "auto",
        views: int = 1,
        augment: Augment | None = None,
        form: Form = PLAIN,
        rank: int = 0,
        world: int = 1,
        allocate: Allocate = np.zeros,
        pin: Pin = lambda array: lambda: None,
    ):
        if on_error not in POLICIES:
            raise ValueError(f"on_error must be one of {', '.join(POLICIES)}, not '{on_error}'")
        if workers not in WORKERS:
            raise ValueError(f"workers must be one of {', '.join(WORKERS)}, not '{workers}'")
        if form != PLAIN and views > 1:
            raise ValueError("several views of an image are cut from it on the host")
        if drop_last and len(source) < batch_size:
            raise DataError(f"{len(source)} samples do not fill one batch of {batch_size}, and a last batch is dropped")
        take_over_pillow_limits()
        self.source, self.batch_size = source, batch_size
        self.seed, self.train, self.drop_last, self.on_error = seed, train, drop_last, on_error
        self.rank, self.world = rank, world
        self.threads = threads or cpus or available_cpus()
        self.processes = workers == "processes" and not isinstance(source, PixelSource)
        self.cache = Cache("off" if self.processes else cache, len(source))
        self._filler = Filler(source, transform, self.cache, skip=on_error != "error", form=form)
        self.waited = 0.0
        self.broken: dict[int, DecodeError] = {}
        self.augment = augment or Augment((transform.channels, transform.height, transform.width))
        self.transform, self.shape = self._filler.transform, self._filler.shape
        self._local = longest(batch_size, world, self.augment.unit)  # samples of a batch at this rank
        self.prefetch = self._ahead(views) if prefetch is None else prefetch
        self._shared: list[SharedArray] = []
        self._unpin: list[Callable[[], object]] = []
        self._slots = [self._new_slot(views, allocate, pin) for _ in range(self.prefetch + 2)]
        self._next = 0  # the slot whose turn it is
        self._queue: deque[Work] = deque()
        self._workers = Workers(self._filler, self._shared, self.threads) if self.processes else None
        self._pool = ThreadPoolExecutor(self.threads, "decode")
        self.active = self.threads if threads or self.processes else max(1, self.threads // 4)
        self._gate = threading.Semaphore(self.active)
        self._finished = time.perf_counter()
        self._coming: tuple[int, Future[NDArray[np.int64]] | None] = (0, None)
        self._closed = False

    def _share(self, pin: Pin, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Pixels in memory that processes can map."""
        shared = SharedArray(shape)
        self._shared.append(shared)
        self._unpin.append(pin(shared.array))
        return shared.array

    def _new_slot(self, views: int, allocate: Allocate, pin: Pin) -> Slot:
        of_sample = per_sample(*self.augment.shape)
        extras = {name: of_sample[name] for name in self.augment.names}
        of_pixels = functools.partial(self._share, pin) if self.processes else allocate
        return Slot.new(self._local, views, self.shape, allocate, of_pixels, extras)

    def _ahead(self, views: int) -> int:
        """Batches to be filled ahead."""
        if isinstance(self.source, PixelSource):
            return 2
        wanted = ceil_div(IN_FLIGHT * self.threads, self._local)
        room = MOST_BYTES // (VIEWS[views][0] * self._local * prod(self.shape))
        return max(3, min(wanted, MOST_AHEAD, room, len(self))) - 1

    def __len__(self) -> int:
        """Batches in an epoch."""
        full, rest = divmod(len(self.source), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from position `start` in its order on.

        A batch is valid until the next but one is asked for, or another iteration begins, which ends this one, as
        close() does: RuntimeError.
        """
        self._cancel()
        if self._closed:
            raise RuntimeError("the pipeline is closed")
        queue = self._queue = deque()
        ahead = spans(len(self.source), self.batch_size, self.drop_last, start)
        try:
            order = self._order(epoch)
            while True:
                self._check(queue)
                while len(queue) <= self.prefetch and (span := next(ahead, None)):
                    queue.append(self._begin(epoch, order, *span))
                if not queue:
                    return
                self._finish(queue[0])
                self._check(queue)  # a batch that was cancelled is not full
                work = queue.popleft()
                yield from work.slot.batches(work.count, epoch, work.position, work.total)
        except Exception:
            self._check(queue)  # what failed because close() ended it, on another thread, is told as that
            raise
        finally:
            if queue is self._queue:
                self._cancel()

    def _check(self, queue: deque[Work]) -> None:
        if self._closed or queue is not self._queue:
            raise RuntimeError("this iteration was ended by a newer one, or by close()") from None

    @property
    def fault(self) -> DecodeError | None:
        """What a deferred error is to be raised as; several ranks must come to an end together first."""
        first = next(iter(self.broken.values()), None) if self.on_error == "defer" else None
        return DecodeError(first.path, f"{first.reason}; {LEAVES_OUT}") if first else None

    def unreadable(self, what: str) -> DataError:
        """The error of a source of which no image can be decoded."""
        text = f"none of the {len(self.source)} {what} images can be read"
        own = sorted(self.broken.items())  # none at a rank whose shares were empty
        return DataError(f"{text}; the first: {own[0][1]}" if own else text)

    def close(self) -> None:
        """End all threads and processes, on any thread; takes no longer than the decoding of one image."""
        self._closed = True
        if self._workers:
            self._workers.close()
        self._cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for slot in self._slots:
            slot.reclaim()
        while self._unpin:
            self._unpin.pop()()

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """The order of an epoch; that of the next one is made meanwhile: it takes 0.3 s for a million samples."""
        count = len(self.source)
        if not self.train:
            return np.arange(count)
        known, coming = self._coming
        order = coming.result() if coming and known == epoch else permutation(self.seed, epoch, count)
        self._coming = epoch + 1, self._pool.submit(permutation, self.seed, epoch + 1, count)
        return order

    def _begin(self, epoch: int, order: NDArray[np.int64], first: int, end: int) -> Work:
        """Hand out the filling of one batch, in a slot whose readers are done."""
        slot, number = self._slots[self._next], self._next
        slot.reclaim()
        self._next = (number + 1) % len(self._slots)
        indices = order[slice(*share(first, end, self.rank, self.world, self.augment.unit))]
        count = len(indices)
        slot.indices[:count], slot.labels[:count] = indices, self.source.labels[indices]
        draws = self.transform.draw(self.seed, epoch, indices)
        work = Work(slot, count, epoch, first, end - first, draws, number)
        if uncut := self._filler.form.uncut:
            slot.corner[0, :count] = self.transform.corners(*uncut, work.draws)
        if len(slot.mirror) == 1:
            slot.mirror[0, :count] = self.transform.mirrored(work.draws)
        for name, values in self.augment.draw(self.seed, epoch, indices).items():
            slot.extras[name][:count] = values
        work.tasks = [(piece.start, self._submit(work, piece)) for piece in self._pieces(count)]
        return work

    def _pieces(self, count: int) -> Iterator[slice]:
        """What each task fills of a batch of `count` samples."""
        size = max(1, min(LONGEST, count * (self.prefetch + 1) // (self.threads * TASKS_PER_THREAD)))
        if self._filler.images is not None and self.transform.crop != "resized" and not self.transform.policy:
            size = max(size, LEAST_BYTES // prod(self.shape))
        return (slice(first, min(first + size, count)) for first in range(0, count, size))

    def _submit(self, work: Work, piece: slice) -> Future[Broken]:
        if self._workers:
            return self._workers.fill(work.array, piece.start, work.slot.indices[piece], work.draws[piece])
        return self._pool.submit(self._fill, work, piece)

    def _fill(self, work: Work, piece: slice) -> Broken:
        def given_up() -> bool:
            return work.cancelled or self._closed

        with self._gate:
            if given_up():
                return {}
            indices, draws, out = work.slot.indices[piece], work.draws[piece], work.slot.pixels[:, piece]
            return self._filler.fill(indices, draws, out, given_up)

    def _finish(self, work: Work) -> None:
        """Wait for a batch; raise what its decoding raised, of several errors the first in order."""
        asked, before = time.perf_counter(), self._finished
        broken = {first + place: error for first, task in work.tasks for place, error in _result(task).items()}
        self._finished = time.perf_counter()
        self.waited += self._finished - asked
        if self.active < self.threads and self._finished - asked > STARVED * (self._finished - before):
            self.active += 1
            self._gate.release()
        labels = work.slot.labels[: work.count]
        labels[list(broken)] = UNLABELLED
        settle({name: array[: work.count] for name, array in work.slot.extras.items()}, labels)
        for place, error in sorted(broken.items()):
            if (index := int(work.slot.indices[place])) not in self.broken:
                self.broken[index] = error
                if self.on_error == "skip":
                    log.warning("skipped: %s", error)

    def _cancel(self) -> None:
        """End the filling of all batches that were not delivered."""
        queue = list(self._queue)  # to which a consumer on another thread may still add
        for work in queue:
            work.cancelled = True
        # Not for those that never begin: a pool that has been shut down tells nobody that they are cancelled.
        wait([task for work in queue for _, task in work.tasks if not task.cancel()])
        self._queue = deque()


def _result(task: Future[Broken]) -> Broken:
    """What a task returns; a warning where that takes very long."""
    if wait([task], STALLED).not_done:
        log.warning("no images for %g s: does the storage answer, and is no process stopped that decodes?", STALLED)
    return task.result()
