"""Processes that decode, in place of threads: for decoders whose Python part keeps threads waiting for each other.

Each is sent pieces of batches, and writes the pixels to memory that both have mapped; one thread of this process takes
what they answer and sends them more.  A process that dies is an error of all that is under way, and none outlives this
process: with the pipe that leads to it, it ends.
"""

import mmap
import multiprocessing
import os
import pickle
import selectors
import signal
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
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
LONGEST = 16  # samples of a piece: what a thread is waited for when its batch is cancelled; a process, AHEAD times
AHEAD = 2  # pieces that a process is sent: one to work on, and one so that it need not wait for this process
PIECE = struct.Struct("=iii")  # number of the array, first sample, samples
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
        self._all: list[_Worker] = []
        self._desk = _Desk(self._all)
        # Also at the end of Python, which would otherwise wait for processes to which its signal means nothing.
        self.close = util.Finalize(self, _end, (self._desk,), exitpriority=1)
        for _ in range(count):
            self._all.append(_Worker(filler, [*arrays, whole]))
        for array in (*arrays, whole):
            array.close()
        self._desk.start()

    def fill(self, array: int, begin: int, indices: NDArray[np.int64], draws: NDArray[np.uint32]) -> Future[Broken]:
        """Filler.fill with out = arrays[array][:, begin : begin + n], by one of the processes."""
        head = PIECE.pack(array, begin, len(indices))
        return self._desk.take(head + indices.tobytes() + draws.tobytes())


class _Worker:
    def __init__(self, filler: Filler, arrays: list[SharedArray]):
        context = multiprocessing.get_context("spawn")  # a fork of a process that uses CUDA, or threads, is not safe
        self.pipe, theirs = context.Pipe()
        self.under_way: deque[Future[Broken]] = deque()
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


class _Desk(threading.Thread):
    """Hands out pieces to processes, in order, and takes their answers."""

    def __init__(self, workers: list[_Worker]):
        super().__init__(name="decode", daemon=True)
        self.workers = workers
        self.closing = False
        self._free: deque[_Worker] = deque()  # each as often as it may be sent another piece
        self._waiting: deque[tuple[Future[Broken], bytes]] = deque()
        self._fault: DataError | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        self._free.extend(self.workers * AHEAD)
        super().start()

    def take(self, message: bytes) -> Future[Broken]:
        """Have a piece done."""
        future: Future[Broken] = Future()
        with self._lock:
            self._waiting.append((future, message))
            self._hand_out()
        return future

    def _hand_out(self) -> None:
        """With the lock held."""
        while self._waiting and (self._free or self._fault):
            future, message = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            if self._fault:
                future.set_exception(self._fault)
                continue
            worker = self._free.popleft()
            worker.under_way.append(future)
            try:
                worker.pipe.send_bytes(message)
            except OSError:  # it has ended, as `run` will see
                continue

    def run(self) -> None:
        """Until all processes have ended; whatever fails here is an error of all pieces, which would wait for ever."""
        try:
            self._listen()
        except Exception as error:
            fault = DataError(f"decoding by processes failed: {type(error).__name__}: {error}")
            fault.__cause__ = error
            self._fail(fault)
        for worker in self.workers:
            worker.pipe.close()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                selector.register(worker.pipe, selectors.EVENT_READ, worker)
            while selector.get_map():
                for key, _ in selector.select():
                    try:
                        answer = key.data.pipe.recv_bytes()
                    except (EOFError, OSError):
                        selector.unregister(key.fd)
                        self._lost(key.data)
                    else:
                        self._answered(key.data, answer)

    def _answered(self, worker: _Worker, answer: bytes) -> None:
        found = pickle.loads(answer) if answer else {}  # first: what fails here is told to the futures under way
        with self._lock:
            if self._fault:  # of which all futures have heard
                return
            future = worker.under_way.popleft()
        if isinstance(found, Exception):
            future.set_exception(found)
        else:
            future.set_result(found)
        with self._lock:
            self._free.append(worker)
            self._hand_out()

    def _lost(self, ended: _Worker) -> None:
        if not self.closing:
            ended.process.join(1)
        how = f"a decoding process ended: {_how(ended.process.exitcode)}"  # unknown where close() has asked before
        self._fail(DataError("the pipeline is closed" if self.closing else how))

    def _fail(self, fault: DataError) -> None:
        """Nothing more is done, and nothing is sent."""
        with self._lock:
            self._fault = self._fault or fault
            for worker in self.workers:
                while worker.under_way:
                    worker.under_way.popleft().set_exception(self._fault)
            self._hand_out()


def _end(desk: _Desk) -> None:
    """End processes, whatever they do; and with them the desk, which may be the thread that this is called on."""
    desk.closing = True
    for worker in desk.workers:
        worker.process.kill()
    for worker in desk.workers:
        worker.process.join()
    if desk.ident and desk is not threading.current_thread():
        desk.join()


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
            piece = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        array, begin, count = PIECE.unpack_from(piece)
        indices = np.frombuffer(piece, np.int64, count, PIECE.size)
        draws = np.frombuffer(piece, np.uint32, offset=PIECE.size + indices.nbytes).reshape(count, -1, 4)
        answer: Any
        try:
            answer = filler.fill(indices, draws, arrays[array][:, begin : begin + count])
        except DataError as error:
            answer = error
        try:
            pipe.send_bytes(pickle.dumps(answer) if answer else b"")
        except OSError:  # nobody waits for it any more
            return


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit status {code}"
    known = -code in set(signal.Signals)  # real-time ones have no name
    name = signal.Signals(-code).name if known else f"signal {-code}"
    return f"killed by {name}" + (", as when memory runs out" if name == "SIGKILL" else "")
