"""What a training run is at any moment: its engine, its batches, and its counters."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from convnet.parallel.control import Control
from convnet.results import Results
from convnet.signals import StopRequest


class Trainer:
    """Counters of a run, and the update that moves them.

    batches: from the sample that the counters name. request: whether a signal came. control: of the ranks that train
    together, each with a trainer of its own in which all but the times and `images` is the same.
    step counts updates done, epoch passes done, position the samples taken in the present epoch.
    """

    def __init__(
        self,
        engine: Any,
        batches: Iterator[Any],
        *,
        epochs: int,
        steps_per_epoch: int,
        request: StopRequest | None = None,
        control: Control | None = None,
    ):
        self.engine, self.batches, self.epochs, self.steps_per_epoch = engine, batches, epochs, steps_per_epoch
        self.request, self.control = request or StopRequest(), control or Control()
        self.code = 0  # exit status of what stops all ranks
        self.step = self.epoch = self.position = 0
        self.stop = False  # set between steps alone, so that all extensions see the same
        self.rates: np.ndarray = np.zeros((len(engine.parameters), 4), np.float32)
        self.window = Window()
        self.rows: list[dict[str, Any]] = []  # results that wait for the log
        self.best: dict[str, Any] = {}  # step and result of the best evaluation
        self.unsaved = True  # something has changed since the last checkpoint
        self.unsaved_seconds = 0.0  # of training since then; set between steps alone
        self.whole = True  # false while a step has changed a part of the state
        self.shift = 0  # steps that the epochs done would have had at their present length, less those they had
        self.last_total = engine.batch_size  # samples of the last step, of all ranks
        self.seconds = self.waited = 0.0  # of training, and of it for data
        self.images = 0  # of this rank, trained on in this process
        self._running = time.perf_counter()
        self._clock = self._saved = 0.0  # seconds as all ranks have them, and those of the last checkpoint
        self._sizes: set[int] = set()  # of batches that there were
        self._fenced = 0.0
        self._collected = 0
        self._counts: list[int] = []
        self._totals: dict[str, np.ndarray] = {}  # what costs had counted when last collected

    @property
    def steps_total(self) -> int:
        """At the end of the run."""
        return self.epochs * self.steps_per_epoch - self.shift

    @property
    def epochs_done(self) -> float:
        """With the part done of the present epoch."""
        return (self.step + self.shift) / self.steps_per_epoch

    @property
    def finished(self) -> bool:
        return self.epoch >= self.epochs

    def heed(self) -> None:
        """Stop when all is done, or when asked to; look at the clock."""
        self.lap()
        self.stop = self.interrupted() or self.finished
        self.unsaved_seconds = self._clock - self._saved

    def interrupted(self) -> bool:
        """Whether any rank is to stop; all ranks ask together."""
        self.code, self._clock = self.control.agree(self.request.status, self.seconds)
        return self.code != 0

    def saved(self) -> None:
        """A checkpoint holds all there is."""
        self.unsaved, self._saved = False, self._clock

    def update(self) -> None:
        """One step on the next batch."""
        batch, self.whole = self._next(), False
        with self.control.busy(batch.total not in self._sizes):  # kernels of a new size are compiled
            self.engine.train(**batch.inputs, step=self.step, rates=self.rates, total=batch.total)
        self._sizes.add(batch.total)
        batch.fence = self._timed(self.engine.backend.fence())
        self._counts.append(int(np.count_nonzero(batch.labels >= 0)))
        self.images += self._counts[-1]
        self.last_total = batch.total
        self.step, self.unsaved = self.step + 1, True
        self.position = batch.position + self.engine.batch_size
        if self.position >= self.steps_per_epoch * self.engine.batch_size:
            self.epoch, self.position = batch.epoch + 1, 0
        self.whole = True
        self.control.progress()
        self.heed()

    def _next(self) -> Any:
        began, self._fenced = time.perf_counter(), 0.0
        with self.control.busy():
            batch = next(self.batches)
        self.waited += time.perf_counter() - began - self._fenced
        return batch

    def _timed(self, wait: Callable[[], object]) -> Callable[[], None]:
        """`wait`, with its time noted: the pipeline then waits for the device, not the device for data."""

        def fence() -> None:
            began = time.perf_counter()
            with self.control.waiting():
                wait()
            self._fenced += time.perf_counter() - began

        return fence

    def collect(self) -> np.ndarray:
        """Sums of the results of each step since the last call, [results, steps], over all ranks; waits for the device.

        All ranks collect together.
        """
        own = self.engine.history(self._collected, self.step)
        summed = self.control.sum(np.vstack([own, self._counts]).astype(np.float64))
        results, counts = summed[:-1], summed[-1]
        self.window.add(self.engine.results, results, counts.astype(int).tolist())
        totals = {name: self.control.sum(table) for name, table in self.engine.counts().items()}
        self.window.add_counts({name: total - self._totals.get(name, 0) for name, total in totals.items()})
        self._totals = totals
        self.window.add_norms(self.engine.norms(self._collected, self.step))
        self._collected, self._counts = self.step, []
        return results

    @property
    def collected(self) -> int:
        """Steps whose results are in the window or in rows."""
        return self._collected

    def lap(self) -> float:
        """Seconds of training so far."""
        now = time.perf_counter()
        self.seconds, self._running = self.seconds + now - self._running, now
        return self.seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done inside does not count as time of training."""
        self.lap()
        try:
            yield
        finally:
            self._running = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """Everything that a run resumed from here needs to know, the engine's arrays apart."""
        counters = {"step": self.step, "epoch": self.epoch, "position": self.position}
        return {**counters, "seconds": self.seconds, "best": self.best, "window": vars(self.window)}

    def load(self, state: dict[str, Any]) -> None:
        self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
        self.seconds, self.best, self.window = state["seconds"], state["best"], Window(**state["window"])
        self.shift = self.epoch * self.steps_per_epoch + self.position // self.engine.batch_size - self.step
        self._collected, self._clock = self.step, self.seconds
        self.saved()


class Window:
    """Sums of the results since the last row of the log.

    sums: by the names of the results. counts: of each cost that counts, three lists with a number for each class.
    norms: of gradients, and steps those at which they were taken.
    """

    def __init__(
        self,
        sums: dict[str, float] | None = None,
        images: int = 0,
        counts: dict[str, list[list[int]]] | None = None,
        norms: float = 0.0,
        steps: int = 0,
    ):
        self.sums, self.images, self.counts, self.norms, self.steps = sums or {}, images, counts or {}, norms, steps

    def add(self, names: Sequence[str], results: np.ndarray, images: list[int]) -> None:
        """results: [names, steps]. images: that counted, at each step."""
        for name, row in zip(names, results.tolist(), strict=True):
            total = self.sums.get(name, 0.0)
            for value in row:  # one step after the other: sums do not depend on how often the device was asked
                total += value
            self.sums[name] = total
        self.images += sum(images)

    def add_counts(self, counts: dict[str, np.ndarray]) -> None:
        for cost, table in counts.items():
            self.counts[cost] = (table + np.array(self.counts.get(cost, 0))).tolist()

    def add_norms(self, norms: np.ndarray) -> None:
        for norm in norms.tolist():
            self.norms += norm
        self.steps += len(norms)

    def means(self, results: Results) -> dict[str, Any]:
        """What `results` makes of the sums; where gradients are clipped, also the mean of their norm before that."""
        sums = {name: self.sums.get(name, 0.0) for name in results.names}
        means = results.means(sums, self.images, self.counts)
        return means | ({"gradient_norm": self.norms / self.steps} if self.steps else {})
