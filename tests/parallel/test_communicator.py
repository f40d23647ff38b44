"""Communicators: what each collective leaves at each rank, and that all ranks get the same bits."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from convnet.errors import UserError
from convnet.parallel import communicator, nccl
from convnet.parallel.communicator import Silent, Solo
from convnet.parallel.nccl import Nccl
from kernels.bfloat16 import narrow, widen
from tests.convnet.toy import ROOT, environment
from tests.parallel.threads import together

DTYPES = ("float32", "float64", "int32", "uint16")


def parts(size, count, dtype="float32"):
    """What each rank begins with; bfloat16 as uint16."""
    rng = np.random.default_rng(size)
    values = [rng.standard_normal(count) * 100 for _ in range(size)]
    return [narrow(v) if dtype == "uint16" else v.astype(dtype) for v in values]


def total(sources, function=np.add):
    """By rank, in order."""
    half = sources[0].dtype == np.uint16
    found = widen(sources[0]) if half else sources[0]
    for source in sources[1:]:
        found = function(found, widen(source) if half else source)
    return narrow(found) if half else found


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """So that the arrays here are exchanged in several pieces, the last of them short."""
    monkeypatch.setattr(communicator, "CHUNK", 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_reduce(size, dtype):
    sources = parts(size, 11, dtype)

    def reduce(ranks):
        target = np.zeros_like(sources[0])
        ranks.all_reduce(sources[ranks.rank], target)
        return target

    for found in together(size, reduce):
        np.testing.assert_array_equal(found, total(sources))


@pytest.mark.parametrize("function", ["sum", "min"])
def test_all_reduce_in_place(function):
    sources = parts(3, 9)
    expected = total(sources, {"sum": np.add, "min": np.minimum}[function])

    def reduce(ranks):
        array = sources[ranks.rank].copy()
        ranks.all_reduce(array, array, function)
        return array

    for found in together(3, reduce):
        np.testing.assert_array_equal(found, expected)


def test_reduce_to_one_rank():
    sources = parts(3, 9)

    def reduce(ranks):
        target = np.zeros(9, np.float32) if ranks.rank == 1 else None
        ranks.reduce(sources[ranks.rank], target, root=1)
        return target

    first, found, last = together(3, reduce)
    np.testing.assert_array_equal(found, total(sources))
    assert first is None and last is None


@pytest.mark.parametrize("in_place", [False, True])
def test_reduce_scatter_then_all_gather_is_all_reduce(in_place):
    sources = parts(3, 27)

    def both(ranks):
        source = sources[ranks.rank].copy()
        own = source.reshape(3, 9)[ranks.rank] if in_place else np.zeros(9, np.float32)
        ranks.reduce_scatter(source, own)
        whole = source if in_place else np.zeros(27, np.float32)
        ranks.all_gather(own, whole)
        return own.copy(), whole

    for rank, (own, whole) in enumerate(together(3, both)):
        np.testing.assert_array_equal(own, total(sources)[9 * rank : 9 * rank + 9])
        np.testing.assert_array_equal(whole, total(sources))


def test_broadcast():
    sources = parts(3, 10)

    def cast(ranks):
        target = np.zeros(10, np.float32)
        ranks.broadcast(sources[2] if ranks.rank == 2 else None, target, root=2)
        return target

    for found in together(3, cast):
        np.testing.assert_array_equal(found, sources[2])


def test_send_and_receive():
    sources = parts(3, 10)

    def ring(ranks):
        target = np.zeros(10, np.float32)
        ranks.send(sources[ranks.rank], (ranks.rank + 1) % 3)
        ranks.receive(target, (ranks.rank - 1) % 3)
        return target

    for rank, found in enumerate(together(3, ring)):
        np.testing.assert_array_equal(found, sources[rank - 1])


def test_sizes_that_do_not_belong_together():
    a, b = np.zeros(4, np.float32), np.zeros(8, np.float32)
    Silent(0, 2).bind("all_gather", a, b)
    for kind, source, target in ("all_reduce", a, b), ("all_gather", b, a), ("reduce_scatter", a, b):
        with pytest.raises(ValueError, match=rf"{kind} over 2 ranks: \d float32 to \d float32 do not belong"):
            Silent(0, 2).bind(kind, source, target)
    with pytest.raises(ValueError, match="4 float32 to 4 float64"):
        Solo().bind("all_reduce", a, a.astype(np.float64))


def test_silent_ranks_move_nothing():
    array = np.ones(4, np.float32)
    for kind in ("all_reduce", "reduce", "broadcast", "send", "receive"):
        start, wait = Silent(0, 2).bind(kind, array, array)
        start(), wait()
    assert array.tolist() == [1, 1, 1, 1]


class Log:
    """Stands for CuPy's streams and events and NCCL's communicator; what is asked of them, in order."""

    def __init__(self):
        self.lines, self.events = [], 0
        self.cuda = SimpleNamespace(Stream=lambda **options: self.stream("exchange"), Event=self.event)
        self.nccl = SimpleNamespace(
            NCCL_FLOAT32=7,
            NCCL_SUM=0,
            NCCL_MIN=3,
            get_unique_id=lambda: b"id",
            NcclCommunicator=self.comm,
        )

    def stream(self, name):
        return SimpleNamespace(ptr=name, wait_event=lambda event: self.lines.append(f"{name} waits for {event.name}"))

    def event(self, disable_timing):
        self.events += 1
        name = f"event {self.events}"
        return SimpleNamespace(name=name, record=lambda stream: self.lines.append(f"{name} on {stream.ptr}"))

    def comm(self, *given):
        self.lines.append(f"connect {given}")
        return SimpleNamespace(allReduce=lambda *arguments: self.lines.append(f"allReduce {arguments}"))


def test_nccl_is_queued_behind_the_computation_and_waited_for(monkeypatch):
    """By events alone, so that a capture takes it in; the ranks connect when there is something to send."""
    log = Log()
    monkeypatch.setattr(nccl, "cupy", lambda: log)
    monkeypatch.setattr(nccl, "nccl", lambda: log.nccl)
    ranks = Nccl(1, 2, SimpleNamespace(stream=log.stream("compute")), lambda own: own or b"id of rank 0")
    array = SimpleNamespace(data=SimpleNamespace(ptr=64), size=5, dtype=np.dtype("float32"))
    start, wait = ranks.bind("all_reduce", array, array)
    assert log.lines == []
    for _ in range(2):
        start()
        log.lines.append("computation")
        wait()
    once = [
        "event 1 on compute",
        "exchange waits for event 1",
        "allReduce (64, 64, 5, 7, 0, 'exchange')",
        "event 2 on exchange",
        "computation",
        "compute waits for event 2",
    ]
    assert log.lines == [*once[:2], "connect (2, b'id of rank 0', 1)", *once[2:], *once]


def test_without_nccl_several_gpus_are_refused(monkeypatch):
    def missing():
        raise RuntimeError("no libnccl.so.2")

    monkeypatch.setattr(nccl, "nccl", missing)
    with pytest.raises(UserError, match=r"several GPUs need NCCL: no libnccl\.so\.2"):
        Nccl(0, 2, SimpleNamespace(stream=None), lambda own: own)


def test_an_error_of_one_rank_reaches_the_caller():
    def fail(ranks):
        if ranks.rank == 1:
            raise ZeroDivisionError
        ranks.all_reduce(np.ones(1), np.ones(1))

    with pytest.raises(ZeroDivisionError):
        together(3, fail)


STUCK = """
import ctypes
from types import SimpleNamespace
from convnet.parallel import nccl

def connect(*_):
    ctypes.PyDLL(None).sleep(100)  # with the lock of Python, as in CuPy

nccl.CONNECT = 1
nccl.nccl = lambda: SimpleNamespace(get_unique_id=tuple, NcclCommunicator=connect)
nccl.cupy = lambda: SimpleNamespace(cuda=SimpleNamespace(Stream=lambda **_: None))
nccl.Nccl(0, 2, SimpleNamespace(stream=None), lambda key: key)._comm
"""


def test_connecting_by_nccl_comes_to_an_end():
    command = [sys.executable, "-W", "error", "-c", STUCK]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "Timeout" in done.stderr and "nccl.py" in done.stderr
