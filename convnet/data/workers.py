"""Processes that decode, in place of threads: for decoders whose Python part keeps threads waiting for each other.

Each serves one thread of this process, which sends it a piece of a batch and waits; the pixels are written to memory
that both have mapped.  A process that dies is an error of the batch it was filling, and none outlives this process:
with the pipe that leads to it, it ends.
"""

import mmap
import multiprocessing
import os
import queue
import signal
import weakref
from collections.abc import Callable
from math import prod
from multiprocessing import resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError
from convnet.data.fill import Broken, Filler

WORKERS = ("threads", "processes")  # what a pipeline may decode with
LONGEST = 16  # samples of a piece: what a cancelled batch is still waited for
OURS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # sent to the whole group, they are for the parent to answer


class SharedArray:
    """A uint8 array in memory that other processes can map: an anonymous file, so that /dev/shm may be small."""

    def __init__(self, shape: tuple[int, ...]):
        size = prod(shape)
        self.shape, self.file = shape, os.memfd_create("convnet batch")
        self.close = weakref.finalize(self, os.close, self.file)  # once all have mapped it; the memory stays
        try:
            os.posix_fallocate(self.file, 0, size)  # else memory that is not there ends the process that writes
            self.array = mapped(self.file, shape)
        except OSError as error:
            self.close()
            raise MemoryError(f"{size:,} bytes of shared memory for decoded images: {error.strerror}") from error


def mapped(file: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The memory of an open file as an array."""
    return np.frombuffer(mmap.mmap(file, prod(shape)), np.uint8).reshape(shape)


class Workers:
    """`count` processes that fill arrays, which are known to them by number.

    The cache of images stays empty, because each process would need its own.  close() ends them, whatever they do.
    """

    def __init__(self, filler: Filler, arrays: list[SharedArray], count: int):
        whole = SharedArray((len(filler.whole),))  # what one has seen to be without a fault, none checks again
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._all: list[_Worker] = []
        # Also at the end of Python, which would otherwise wait for processes to which its signal means nothing.
        self.close = util.Finalize(self, _end, (self._all,), exitpriority=1)
        for _ in range(count):
            self._all.append(_Worker(filler, [*arrays, whole]))
            self._idle.put(self._all[-1])
        for array in (*arrays, whole):
            array.close()

    def fill(self, array: int, begin: int, indices: NDArray[np.int64], draws: NDArray[np.uint32]) -> Broken:
        """Filler.fill with out = arrays[array][:, begin : begin + n].

        May be called by as many threads as there are processes.
        """
        worker = self._idle.get()
        try:
            return worker.ask(array, begin, indices, draws)
        finally:
            self._idle.put(worker)


class _Worker:
    def __init__(self, filler: Filler, arrays: list[SharedArray]):
        context = multiprocessing.get_context("spawn")  # a fork of a process that uses CUDA, or threads, is not safe
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, filler, _Files(arrays)), daemon=True, name="convnet decode"
        )
        resource_tracker.ensure_running()  # which `start` would do, and unblock signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OURS)  # a child inherits this
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def ask(self, *piece: Any) -> Broken:
        try:
            self.pipe.send(piece)
            answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join(1)
            raise DataError(f"a decoding process ended: {_how(self.process.exitcode)}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def _end(workers: list[_Worker]) -> None:
    """End processes, whatever they do."""
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.pipe.close()


class _Files:
    """Carries open files to a process that is being started."""

    def __init__(self, arrays: list[SharedArray]):
        self.arrays = arrays

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _received, ([(DupFd(array.file), array.shape) for array in self.arrays],)


def _received(files: list[tuple[Any, tuple[int, ...]]]) -> list[NDArray[np.uint8]]:
    return [mapped(file.detach(), shape) for file, shape in files]


def _serve(pipe: Connection, filler: Filler, arrays: list[NDArray[np.uint8]]) -> None:
    """The process: until the other end of the pipe is closed."""
    filler.whole = arrays.pop()
    while True:
        try:
            array, begin, indices, draws = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Any = filler.fill(indices, draws, arrays[array][:, begin : begin + len(indices)])
        except DataError as error:
            answer = error
        try:
            pipe.send(answer)
        except OSError:  # nobody waits for it any more
            return


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}" + (", as when memory runs out" if name == "SIGKILL" else "")
    return f"exit status {code}"
