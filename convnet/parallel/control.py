"""The control channel: what the ranks of a job say to each other besides the arrays of the network.

One implementation for all devices and launchers: connections of multiprocessing.connection from every rank to rank 0
(see hub.py and spoke.py), for small things on the host. Nothing is ever unpickled. Each method marked "together" is to
be called by all ranks in the same order; that one of them calls another is an error which names both.

    control.rank, control.size, control.world
    control.exchange(value)         together; JSON values -> those of all ranks, by rank
    control.sum(array)              together; float64 or int64 arrays -> their sum, added in the order of ranks
    control.broadcast(data)         together; bytes of rank 0 -> to all
    control.barrier()               together
    control.first(function)         together; the JSON value of `function`, which rank 0 alone calls
    control.settle(error)           together; an error that a rank has kept until all could come here, or None
    control.agree(code, seconds)    together, without waiting; see below
    control.progress()              a step, or a batch of an evaluation, is done: the job is alive
    with control.busy():            what may take long in here is no hang: files, compilation, waiting for images
    with control.waiting():         within that, what may be one: the device
    control.warn(text)              a warning of another rank than 0, which that shows

A rank that fails, dies or hangs ends all: see watch.py.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn, TypeVar

import numpy as np

from convnet.parallel.spoke import End
from convnet.parallel.world import World

T = TypeVar("T")


class Control:
    """A world of one, and the base of the channel."""

    def __init__(self, world: World | None = None):
        self.world = world or World()
        self.rank, self.size = self.world.rank, self.world.size

    def exchange(self, value: Any) -> list[Any]:
        """A JSON value of each rank, by rank."""
        return [value]

    def sum(self, array: np.ndarray) -> np.ndarray:
        """Of float64 or int64 arrays of one shape: added in the order of the ranks."""
        return array

    def broadcast(self, data: bytes) -> bytes:
        """What rank 0 gives; what others give does not matter."""
        return data

    def barrier(self) -> None:
        """Wait for all ranks."""

    def first(self, function: Callable[[], Any]) -> Any:
        """The JSON value that `function` returns at rank 0, which alone calls it."""
        return function()

    def settle(self, error: Exception | None) -> None:
        """Raise the error of the first rank that has one, there; the others end with it."""
        faulty = [rank for rank, found in enumerate(self.exchange(error is not None)) if found]
        if error and faulty[0] == self.rank:
            raise error
        if faulty:
            self.barrier()

    def agree(self, code: int, seconds: float) -> tuple[int, float]:
        """What all ranks take for the present stop code and seconds of training.

        The code is the largest of all ranks', the seconds are rank 0's, both as they were a call or some calls ago:
        posted at one call, they return at a later one, the same at every rank, so that nobody waits for anybody.
        """
        return code, seconds

    def progress(self) -> None:
        """A step is done."""

    @contextmanager
    def busy(self, really: bool = True) -> Iterator[None]:
        """Within, nothing that this rank waits for is taken for a hang."""
        yield

    @contextmanager
    def watched(self, timeout: float) -> Iterator[None]:
        """Within, progress is expected: where no rank makes any for so many seconds, the job ends."""
        yield

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within `busy`, what may be a hang after all: the device runs what it does together with others."""
        yield

    def reading(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches; waiting for images is no hang."""
        source = iter(batches)
        while True:
            with self.busy():
                found = next(source, None)
            if found is None:
                return
            yield found

    def warn(self, text: str) -> None:
        """Have rank 0 show a warning of another rank."""


class Joined(Control):
    """One rank of several. end: of the channel at this rank."""

    def __init__(self, world: World, end: End):
        super().__init__(world)
        self._end, self._calls = end, 0
        self._agreements, self._due = 0, 1  # calls of agree, and the one that is the next to post and to take
        self._posts, self._posted = 0, ""
        self._agreed = 0, 0.0

    def exchange(self, value: Any) -> list[Any]:
        _, body = self._together("exchange", json.dumps(value).encode())
        found: list[Any] = json.loads(body)
        return found

    def sum(self, array: np.ndarray) -> np.ndarray:
        array = np.ascontiguousarray(array)
        _, body = self._together("sum", array.tobytes(), dtype=array.dtype.name, shape=list(array.shape))
        return np.frombuffer(body, array.dtype).reshape(array.shape).copy()

    def broadcast(self, data: bytes) -> bytes:
        return self._together("broadcast", data if self.rank == 0 else b"")[1]

    def barrier(self) -> None:
        self._together("barrier")

    def first(self, function: Callable[[], Any]) -> Any:
        own = json.dumps(function()).encode() if self.rank == 0 else b""
        return json.loads(self.broadcast(own))

    def agree(self, code: int, seconds: float) -> tuple[int, float]:
        self._agreements += 1
        if self._agreements < self._due:
            return self._agreed
        if not self._posted:  # the first time they wait
            self._post_agreement(code, seconds)
        result, _ = self._end.take(self._posted)
        self._agreed = result["code"], result["seconds"]
        self._post_agreement(code, seconds)
        self._due = self._agreements + result["every"]
        return self._agreed

    def _post_agreement(self, code: int, seconds: float) -> None:
        self._posts += 1
        self._posted = f"agreement {self._posts}"
        self._end.post({"kind": "part", "ticket": self._posted, "what": "agreement", "code": code, "seconds": seconds})

    def _together(self, what: str, body: bytes = b"", **head: Any) -> tuple[dict[str, Any], bytes]:
        self._calls += 1
        ticket = str(self._calls)
        self._end.post({"kind": "part", "ticket": ticket, "what": what, **head}, body)
        return self._end.take(ticket)

    def progress(self) -> None:
        self._end.pulse.step()

    @contextmanager
    def busy(self, really: bool = True) -> Iterator[None]:
        with self._end.pulse.occupied() if really else nullcontext():
            yield

    @contextmanager
    def waiting(self) -> Iterator[None]:
        with self._end.pulse.waiting():
            yield

    @contextmanager
    def watched(self, timeout: float) -> Iterator[None]:
        self._end.watch(timeout)
        yield
        self._end.watch(0)

    def warn(self, text: str) -> None:
        self._end.post({"kind": "warning", "text": text})

    def fail(self, text: str, code: int) -> NoReturn:
        """This rank cannot go on: all end, and one of them says why."""
        self._end.fail(text, code)

    def close(self) -> None:
        """Wait until all ranks have come to their end: a launcher may take the first exit for a failure."""
        self._end.post({"kind": "bye"})
        self._end.over.wait()
