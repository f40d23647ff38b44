"""Communicators: how the ranks of a job move arrays between them."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kernels.bfloat16 import narrow, widen

Run = Callable[[], object]
CHUNK = 1 << 20  # elements that hosts exchange at a time: every rank holds the part of each
FUNCTIONS = {"sum": np.add, "min": np.minimum}


class Communicator:
    """`size` ranks, of which this is `rank`, that call the same methods in the same order.

    Arrays are contiguous and 1-d, of the backend's kind; uint16 is bfloat16. Which sizes belong together, and what is
    None at which rank, stands in collectives.py. On a GPU a method returns when the transfer is queued. local: ranks of
    one machine; 0: all of them.
    """

    local = 0

    def __init__(self, rank: int = 0, size: int = 1):
        self.rank, self.size = rank, size

    def all_reduce(self, source: Any, target: Any, function: str = "sum") -> None:
        raise NotImplementedError

    def reduce(self, source: Any, target: Any, root: int, function: str = "sum") -> None:
        raise NotImplementedError

    def reduce_scatter(self, source: Any, target: Any) -> None:
        raise NotImplementedError

    def all_gather(self, source: Any, target: Any) -> None:
        raise NotImplementedError

    def broadcast(self, source: Any, target: Any, root: int) -> None:
        raise NotImplementedError

    def send(self, source: Any, peer: int) -> None:
        raise NotImplementedError

    def receive(self, target: Any, peer: int) -> None:
        raise NotImplementedError

    def bind(self, kind: str, source: Any, target: Any, *, root: int = 0, function: str = "sum") -> tuple[Run, Run]:
        """Two functions of no arguments: one starts the transfer, the other makes later operations wait for it.

        ValueError where the sizes do not belong together.
        """
        self._check(kind, source, target)
        run: dict[str, Run] = {
            "all_reduce": lambda: self.all_reduce(source, target, function),
            "reduce": lambda: self.reduce(source, target, root, function),
            "reduce_scatter": lambda: self.reduce_scatter(source, target),
            "all_gather": lambda: self.all_gather(source, target),
            "broadcast": lambda: self.broadcast(source, target, root),
            "send": lambda: self.send(source, root),
            "receive": lambda: self.receive(target, root),
        }
        return self._bind(run[kind])

    def move(self, kind: str, source: Any, target: Any, **options: Any) -> None:
        """A transfer by `bind`, from its start to its end."""
        for run in self.bind(kind, source, target, **options):
            run()

    def _bind(self, run: Run) -> tuple[Run, Run]:
        return run, lambda: None

    def _check(self, kind: str, source: Any, target: Any) -> None:
        if source is None or target is None:
            return
        shares = {"reduce_scatter": (1, self.size), "all_gather": (self.size, 1)}
        of_source, of_target = shares.get(kind, (1, 1))
        if source.dtype != target.dtype or source.size * of_source != target.size * of_target:
            found = f"{source.size} {source.dtype} to {target.size} {target.dtype}"
            raise ValueError(f"{kind} over {self.size} ranks: {found} do not belong together")


class Silent(Communicator):
    """Ranks that pack and wait but move nothing: what a step costs without its transfers. Results are meaningless."""

    def _bind(self, run: Run) -> tuple[Run, Run]:
        return lambda: None, lambda: None


class Host(Communicator):
    """NumPy arrays. Every reduction is by rank, in order: all ranks get the same bits, in every run."""

    def gather(self, part: np.ndarray) -> Sequence[np.ndarray]:
        """The part of each rank, by rank; all are equally long. The one thing that a subclass must do."""
        raise NotImplementedError

    def all_reduce(self, source: Any, target: Any, function: str = "sum") -> None:
        for part in _chunks(source.size):
            target[part] = _join(self.gather(source[part]), function)

    def reduce(self, source: Any, target: Any, root: int, function: str = "sum") -> None:
        for part in _chunks(source.size):
            parts = self.gather(source[part])
            if self.rank == root:
                target[part] = _join(parts, function)

    def reduce_scatter(self, source: Any, target: Any) -> None:
        for owner, whole in enumerate(source.reshape(self.size, -1)):
            for part in _chunks(target.size):
                parts = self.gather(whole[part])
                if self.rank == owner:
                    target[part] = _join(parts, "sum")

    def all_gather(self, source: Any, target: Any) -> None:
        for part in _chunks(source.size):
            target.reshape(self.size, -1)[:, part] = self.gather(source[part])

    def broadcast(self, source: Any, target: Any, root: int) -> None:
        for part in _chunks(target.size):
            target[part] = self.gather((source if self.rank == root else target)[part])[root]


class Solo(Host):
    """One rank."""

    def gather(self, part: np.ndarray) -> Sequence[np.ndarray]:
        return [part]


class Mpi(Host):
    """Ranks that MPI started, on hosts. comm: an mpi4py communicator; default: of all ranks."""

    def __init__(self, comm: Any = None):
        if comm is None:
            from mpi4py import MPI

            comm = MPI.COMM_WORLD
        super().__init__(comm.Get_rank(), comm.Get_size())
        self._comm = comm

    def gather(self, part: np.ndarray) -> Sequence[np.ndarray]:
        parts = np.empty((self.size, part.size), part.dtype)
        self._comm.Allgather(part, parts)
        return list(parts)

    def send(self, source: Any, peer: int) -> None:
        self._comm.Send(source, peer)

    def receive(self, target: Any, peer: int) -> None:
        self._comm.Recv(target, peer)


def _chunks(size: int) -> Iterator[slice]:
    return (slice(begin, min(begin + CHUNK, size)) for begin in range(0, size, CHUNK))


@np.errstate(all="ignore")  # like a GPU, it makes infinities and NaNs without a word
def _join(parts: Sequence[np.ndarray], function: str) -> np.ndarray:
    half = parts[0].dtype == np.uint16
    total = functools.reduce(FUNCTIONS[function], map(widen, parts) if half else parts)
    return narrow(total) if half else total
