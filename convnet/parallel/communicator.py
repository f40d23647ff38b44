"""Communicators: how the ranks of a job move arrays between them."""

import ctypes
import faulthandler
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from convnet.errors import UserError
from kernels.backend import cupy, nccl
from kernels.bfloat16 import narrow, widen

Run = Callable[[], object]
CHUNK = 1 << 20  # elements that hosts exchange at a time: every rank holds the part of each
CONNECT = 60  # seconds in which NCCL connects
FUNCTIONS = {"sum": np.add, "min": np.minimum}
NCCL_TYPES = {
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
    "int32": "NCCL_INT32",
    "int64": "NCCL_INT64",
    "uint8": "NCCL_UINT8",
    "uint16": "NCCL_BFLOAT16",
}


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


class Nccl(Communicator):
    """GPUs, one for each rank, by NCCL on a stream of its own, which waits for the backend's and is waited for.

    share: hands the bytes of rank 0 to all ranks (the broadcast of the control channel). NCCL connects at the first
    transfer; its settings are those of the environment. UserError where its library is not there.
    """

    def __init__(self, rank: int, size: int, backend: Any, share: Callable[[bytes], bytes]):
        super().__init__(rank, size)
        try:
            self._nccl = nccl()
        except RuntimeError as error:
            raise UserError(f"several GPUs need NCCL: {error}") from None
        self._share, self._compute = share, backend.stream
        # Ahead of kernels whose results are not waited for yet; a priority out of range is the nearest in it.
        self.stream = cupy().cuda.Stream(non_blocking=True, priority=-5)

    @functools.cached_property
    def _comm(self) -> Any:
        """Made when all ranks come here, with the device chosen.

        It is never destroyed: that hangs while a graph which holds its work lives, and the end of a process leaves the
        order to chance. CuPy keeps the lock of Python while it waits for the others, so that no thread of this process
        could see that one of them is gone: only a clock without that lock ends it.
        """
        key = self._share(self._nccl.get_unique_id() if self.rank == 0 else b"")
        faulthandler.dump_traceback_later(CONNECT, exit=True, file=2)
        try:
            made = self._nccl.NcclCommunicator(self.size, key, self.rank)
        finally:
            faulthandler.cancel_dump_traceback_later()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        return made

    def _type(self, array: Any) -> int:
        return getattr(self._nccl, NCCL_TYPES[array.dtype.name])

    def _reduction(self, function: str) -> int:
        return {"sum": self._nccl.NCCL_SUM, "min": self._nccl.NCCL_MIN}[function]

    def all_reduce(self, source: Any, target: Any, function: str = "sum") -> None:
        kind = self._type(source), self._reduction(function)
        self._comm.allReduce(_address(source), _address(target), source.size, *kind, self.stream.ptr)

    def reduce(self, source: Any, target: Any, root: int, function: str = "sum") -> None:
        kind, place = (self._type(source), self._reduction(function)), source if target is None else target
        self._comm.reduce(_address(source), _address(place), source.size, *kind, root, self.stream.ptr)

    def reduce_scatter(self, source: Any, target: Any) -> None:
        kind = self._type(source), self._reduction("sum")
        self._comm.reduceScatter(_address(source), _address(target), target.size, *kind, self.stream.ptr)

    def all_gather(self, source: Any, target: Any) -> None:
        self._comm.allGather(_address(source), _address(target), source.size, self._type(source), self.stream.ptr)

    def broadcast(self, source: Any, target: Any, root: int) -> None:
        place = _address(target), target.size, self._type(target)
        self._comm.broadcast(_address(target if source is None else source), *place, root, self.stream.ptr)

    def send(self, source: Any, peer: int) -> None:
        self._comm.send(_address(source), source.size, self._type(source), peer, self.stream.ptr)

    def receive(self, target: Any, peer: int) -> None:
        self._comm.recv(_address(target), target.size, self._type(target), peer, self.stream.ptr)

    def _bind(self, run: Run) -> tuple[Run, Run]:
        """Events, not synchronisation: inside a capture they draw the other stream into the graph, and back."""
        ready, done = (cupy().cuda.Event(disable_timing=True) for _ in range(2))

        def start() -> None:
            ready.record(self._compute)
            self.stream.wait_event(ready)
            run()
            done.record(self.stream)

        return start, lambda: self._compute.wait_event(done)


def _address(array: Any) -> int:
    return array.data.ptr


def _chunks(size: int) -> Iterator[slice]:
    return (slice(begin, min(begin + CHUNK, size)) for begin in range(0, size, CHUNK))


@np.errstate(all="ignore")  # like a GPU, it makes infinities and NaNs without a word
def _join(parts: Sequence[np.ndarray], function: str) -> np.ndarray:
    half = parts[0].dtype == np.uint16
    total = functools.reduce(FUNCTIONS[function], map(widen, parts) if half else parts)
    return narrow(total) if half else total
