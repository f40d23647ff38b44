"""Ranks as processes, one for each GPU, and what tests have them do."""

import functools
import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convnet.parallel.nccl import Nccl
from kernels.backend import Cuda, cupy
from kernels.bfloat16 import narrow, widen
from tests.convnet.networks import batch
from tests.parallel.curves import advance, bits, engine, state

EPOCH = (6, 1, 6, 5)  # samples of each step: of the second one of two ranks has none
PATIENCE = 240  # seconds until all ranks have connected and compiled their kernels, and are done


def together(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(ranks, backend, *arguments)` returns at each rank; ends them all where one of them fails."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_rank, args=(rank, size, folder, pipe[1], function, arguments))
            for rank, pipe in enumerate(pipes)
        ]
        for process in processes:
            process.start()
        try:
            found = _receive(processes, [pipe[0] for pipe in pipes])
            for process in processes:
                process.join(30)
            assert [process.exitcode for process in processes] == [0] * size, "a rank does not end, or fails at its end"
            return found
        finally:
            for process in processes:
                process.kill()


def _receive(processes: Sequence[Any], pipes: Sequence[Any]) -> list[Any]:
    """The result of each rank; AssertionError at the first that fails, for whom the others may wait."""
    end, found = time.monotonic() + PATIENCE, dict[int, Any]()
    while len(found) < len(pipes):
        waiting = [rank for rank in range(len(pipes)) if rank not in found]
        assert time.monotonic() < end, f"ranks {waiting} hang"
        for rank in waiting:
            if pipes[rank].poll(0.1):
                found[rank], error = pipes[rank].recv()
                assert not error, f"rank {rank}: {error}"
            else:
                assert processes[rank].is_alive() or pipes[rank].poll(0), f"rank {rank} died"
    return [found[rank] for rank in range(len(pipes))]


def _rank(rank: int, size: int, folder: str, pipe: Any, function: Callable[..., Any], arguments: Any) -> None:
    try:
        backend = Cuda(rank)
        ranks = Nccl(rank, size, backend, functools.partial(_share, Path(folder) / "id", rank))
        pipe.send((function(ranks, backend, *arguments), ""))
    except BaseException:
        pipe.send((None, traceback.format_exc()))


def _share(path: Path, rank: int, data: bytes) -> bytes:
    """The bytes of rank 0, through a file."""
    if rank == 0:
        path.with_suffix(".new").write_bytes(data)
        path.with_suffix(".new").rename(path)
        return data
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < end, "rank 0 is not there"
        time.sleep(0.01)
    return path.read_bytes()


def sources(size: int, count: int, dtype: str) -> list[np.ndarray]:
    """What each rank has, whole numbers: their sums are exact in any order."""
    values = [np.random.default_rng(rank).integers(-8, 8, count).astype(np.float64) for rank in range(size)]
    return [narrow(v) if dtype == "uint16" else v.astype(dtype) for v in values]


def collectives(ranks: Nccl, backend: Cuda, dtype: str) -> dict[str, np.ndarray]:
    """What each kind of transfer leaves at this rank, started and waited for as a step does."""
    rank, size, count = ranks.rank, ranks.size, 1024
    found = {}

    def run(kind: str, source: Any, target: Any, **options: Any) -> np.ndarray:
        arrays = []
        for array in (source, target):
            made = None if array is None else backend.zeros(array.size, array.dtype)
            if made is not None:
                backend.upload(made, array)
            arrays.append(made)
        start, wait = ranks.bind(kind, *arrays, **options)
        start(), wait()
        return backend.download(arrays[1]) if target is not None else np.zeros(0)

    own, empty = sources(size, count, dtype)[rank], np.zeros(count, dtype)
    found["all_reduce"] = run("all_reduce", own, empty)
    found["min"] = run("all_reduce", own, empty, function="min")
    found["reduce"] = run("reduce", own, empty if rank == 1 else None, root=1)
    found["reduce_scatter"] = run("reduce_scatter", own, np.zeros(count // size, dtype))
    found["all_gather"] = run("all_gather", own, np.zeros(size * count, dtype))
    found["broadcast"] = run("broadcast", own if rank == 1 else None, empty, root=1)
    if rank == 0:
        run("send", own, None, root=1)
    found["receive"] = run("receive", None, empty, root=0) if rank == 1 else np.zeros(0)
    return found


def expected(size: int, rank: int, dtype: str, count: int = 1024) -> dict[str, np.ndarray]:
    """The same in NumPy."""
    wide = [widen(v) if dtype == "uint16" else v for v in sources(size, count, dtype)]
    back = narrow if dtype == "uint16" else (lambda v: v.astype(dtype))
    total, nothing = sum(wide), np.zeros(0)
    return {
        "all_reduce": back(total),
        "min": back(np.minimum.reduce(wide)),
        "reduce": back(total) if rank == 1 else nothing,
        "reduce_scatter": back(total.reshape(size, -1)[rank]),
        "all_gather": back(np.concatenate(wide)),
        "broadcast": back(wide[1]),
        "receive": back(wide[0]) if rank == 1 else nothing,
    }


def train(
    ranks: Nccl, backend: Cuda, network: str, options: str, steps: int, capture: bool, grow: int | None = None
) -> tuple[np.ndarray, dict[str, Any], dict[Any, bytes]]:
    """A short training; before the step `grow` the arena of rank 1 grows, and rank 1 evaluates in it."""
    made = engine(ranks, network, options, backend, dtype=np.float32, capture=capture)
    for step in range(steps):
        if step == grow and ranks.rank == 1:
            samples, before = batch(made.eval_batch, made.network), made._arena.nbytes
            longer = made.eval_batch
            while made.planned <= before:  # also where workspaces take most of it
                longer *= 2
                made.plan("eval", longer)
            made.evaluate(samples["pixels"], samples["labels"])
            assert made._arena.nbytes > before
        advance(made, step, step + 1, EPOCH)
    held = state(made)
    replayed = any(executor._replay for executor in made._executors.values())
    assert replayed == capture
    cupy().cuda.runtime.deviceSynchronize()
    return made.history(0, steps), held, bits(held)
