"""Decoding by processes: the same stream, and never a hang, whatever happens to them."""

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from convnet.data import DataError, DecodeError, FolderSource, Pipeline, Transform
from convnet.data import workers as module
from convnet.data.cache import Cache
from convnet.data.fill import Filler
from convnet.data.workers import SharedArray, Workers
from tests.convnet.pictures import write_classes

TRAIN = Transform(3, 24, 24, crop="resized", mirror=True)


@pytest.fixture
def source(tmp_path):
    return FolderSource(write_classes(tmp_path / "images", images=20))


def copied(batches):
    return [(batch.indices.copy(), batch.labels.copy(), batch.pixels.copy()) for batch in batches]


def same(some, others):
    return all(
        np.array_equal(a, b) for one, other in zip(some, others, strict=True) for a, b in zip(one, other, strict=True)
    )


def pids(pipeline):
    return [worker.process.pid for worker in pipeline._workers._all]


def alive(pid):
    """A process that has ended may still have an entry, until its parent has asked for its status."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_same_stream_as_threads(source):
    with Pipeline(source, TRAIN, 7, train=True, seed=3, cache=0) as pipeline:
        expected = [copied(pipeline.batches(epoch)) for epoch in range(3)]
    with Pipeline(source, TRAIN, 7, train=True, seed=3, threads=2, workers="processes") as pipeline:
        assert pipeline.processes
        assert all(same(copied(pipeline.batches(epoch)), expected[epoch]) for epoch in range(3))
        assert same(copied(pipeline.batches(1, start=14)), expected[1][2:])
        children = pids(pipeline)
    assert not any(alive(pid) for pid in children)


def test_pixels_lie_in_memory_that_was_pinned(source):
    pinned, undone = [], []

    def pin(array):
        pinned.append(array)
        return lambda: undone.append(array)

    with Pipeline(source, TRAIN, 8, threads=1, workers="processes", prefetch=1, pin=pin) as pipeline:
        assert all(any(np.shares_memory(batch.pixels, one) for one in pinned) for batch in pipeline.batches())
        assert len(pinned) == 3 and not undone
    assert len(undone) == 3


def memory_files():
    """Descriptors of memory that is shared."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum("memfd:convnet" in os.readlink(link) for link in links if os.path.lexists(link))


def test_no_descriptor_is_left(source):
    assert memory_files() == 0
    with Pipeline(source, TRAIN, 8, threads=1, workers="processes", prefetch=1) as pipeline:
        assert len(list(pipeline.batches())) == 5
        assert memory_files() == 3  # one for each buffer, as long as it is mapped
    del pipeline
    gc.collect()
    assert memory_files() == 0


@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_broken_image(source, on_error):
    broken = source.where(11)
    with open(broken, "wb") as file:
        file.write(b"no image")
    with Pipeline(source, TRAIN, 8, threads=2, workers="processes", on_error=on_error) as pipeline:
        if on_error == "error":
            with pytest.raises(DecodeError, match=r"cat/.*jpg': not an image") as error:
                list(pipeline.batches())
            assert error.value.path == broken
            return
        for _ in range(2):
            batches = copied(pipeline.batches())
            assert batches[1][1].tolist() == [0, 0, 0, -1, 0, 0, 0, 0] and not batches[1][2][3].any()
        assert [error.path for error in pipeline.broken.values()] == [broken]


def epochs_until_an_error(pipeline):
    for epoch in range(1000):
        for _ in pipeline.batches(epoch):
            pass


def ends_at_once(pipeline):
    begin = time.perf_counter()
    pipeline.close()
    return time.perf_counter() - begin < 2 and not any(alive(pid) for pid in pids(pipeline))


@pytest.mark.parametrize(
    "number, how",
    [(signal.SIGKILL, "SIGKILL, as when memory runs out"), (signal.SIGRTMIN + 6, f"signal {signal.SIGRTMIN + 6}")],
    ids=["named", "real-time"],
)
def test_a_killed_process_is_an_error_and_not_a_hang(source, number, how):
    pipeline = Pipeline(source, TRAIN, 8, threads=2, workers="processes", prefetch=1)
    next(pipeline.batches())
    os.kill(pids(pipeline)[0], number)
    with pytest.raises(DataError, match=f"a decoding process ended: killed by {how}$"):
        epochs_until_an_error(pipeline)
    assert ends_at_once(pipeline)


def test_an_answer_that_cannot_be_read_is_an_error_of_all_pieces(source, monkeypatch):
    """Of those under way, those that wait, and all later ones."""
    with open(source.where(11), "wb") as file:
        file.write(b"no image")

    def loads(answer):
        raise MemoryError("no room")

    pipeline = Pipeline(source, TRAIN, 8, threads=2, workers="processes", on_error="skip")
    monkeypatch.setattr(module.pickle, "loads", loads)
    for _ in range(2):
        with pytest.raises(DataError, match="decoding by processes failed: MemoryError: no room") as error:
            epochs_until_an_error(pipeline)
        assert isinstance(error.value.__cause__, MemoryError)
    assert ends_at_once(pipeline)


def test_closed_by_another_thread(source):
    """While a batch is awaited, of which nothing can come."""
    pipeline = Pipeline(source, TRAIN, 8, threads=2, workers="processes", prefetch=1)
    next(pipeline.batches())
    for pid in pids(pipeline):
        os.kill(pid, signal.SIGSTOP)
    piece = pipeline._workers.fill(0, 0, np.arange(8), TRAIN.draw(0, 0, np.arange(8)))
    timer = threading.Timer(0.5, pipeline.close)
    timer.start()
    with pytest.raises(RuntimeError, match=r"this iteration was ended by a newer one, or by close\(\)"):
        epochs_until_an_error(pipeline)
    timer.join()
    with pytest.raises(DataError, match="the pipeline is closed"):
        piece.result()
    assert ends_at_once(pipeline)


def test_the_last_reference_may_go_on_the_thread_that_serves_them(source):
    filler = Filler(source, TRAIN, Cache("off", len(source)))
    held, threads = [Workers(filler, [SharedArray((1, 8, 24, 24, 3))], 2)], []
    desk = held[0]._desk

    def drop(_):
        held.clear()
        threads.append(threading.current_thread())

    held[0].fill(0, 0, np.arange(8), TRAIN.draw(0, 0, np.arange(8))).add_done_callback(drop)
    desk.join(20)
    assert threads == [desk] and not desk.is_alive()
    assert all(worker.process.exitcode == -signal.SIGKILL and worker.pipe.closed for worker in desk.workers)


def test_signals_of_the_group_are_left_to_the_parent(source):
    with Pipeline(source, TRAIN, 8, threads=2, workers="processes", prefetch=0) as pipeline:
        batches = pipeline.batches()
        first = next(batches).pixels.copy()
        for pid in pids(pipeline):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(pid, number)
        assert len(list(batches)) == 4 and first.any()


def test_closed_at_once_while_much_is_under_way(source):
    pipeline = Pipeline(source, Transform(3, 2000, 2000, crop="resized"), 20, threads=2, workers="processes")
    batches = pipeline.batches()
    next(batches)
    assert ends_at_once(pipeline)


def test_in_a_fresh_process_signals_are_ignored_and_none_outlives_a_killed_parent(source, tmp_path):
    program = f"""
import os, signal, time
from convnet.data import FolderSource, Pipeline, Transform
if __name__ == "__main__":
    source = FolderSource({str(tmp_path / "images")!r})
    pipeline = Pipeline(source, Transform(3, 8, 8), 8, threads=2, workers="processes")
    children = [worker.process.pid for worker in pipeline._workers._all]
    for child in children:  # at once: they are still being started
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(child, number)
    assert len(list(pipeline.batches())) == 5
    print(*children, flush=True)
    time.sleep(60)
"""
    file = tmp_path / "program.py"
    file.write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 2 and all(alive(pid) for pid in children)
        parent.kill()
    assert wait_until(lambda: not any(alive(pid) for pid in children))


def test_a_pipeline_that_was_never_closed_does_not_hold_up_the_end_of_python(source, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(f"""
from convnet.data import FolderSource, Pipeline, Transform
if __name__ == "__main__":
    source = FolderSource({str(tmp_path / "images")!r})
    pipeline = Pipeline(source, Transform(3, 8, 8), 8, threads=2, workers="processes")
    next(pipeline.batches())
    raise SystemExit(7)
""")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, file], env=environment, timeout=30).returncode == 7


def test_memory_that_is_not_there_is_told_before_it_is_written(monkeypatch):
    def full(file, begin, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(MemoryError, match="600 bytes of shared memory for decoded images: No space left on device"):
        SharedArray((10, 20, 3))


def test_bad_kind(source):
    with pytest.raises(ValueError, match="threads, processes, not 'fibres'"):
        Pipeline(source, TRAIN, 8, workers="fibres")
