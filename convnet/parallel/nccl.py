"""Transfers between GPUs by NCCL."""

import ctypes
import faulthandler
import functools
from collections.abc import Callable
from typing import Any

from convnet.errors import UserError
from convnet.parallel.communicator import Communicator, Run
from kernels.backend import cupy, nccl

CONNECT = 60  # seconds in which NCCL connects
TYPES = {
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
    "int32": "NCCL_INT32",
    "int64": "NCCL_INT64",
    "uint8": "NCCL_UINT8",
    "uint16": "NCCL_BFLOAT16",
}


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
        return getattr(self._nccl, TYPES[array.dtype.name])

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
