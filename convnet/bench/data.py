"""`convnet bench data`: images/s of each stage between the files and the network, alone and together."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from convnet import session
from convnet.config import Config
from convnet.data import Batch, DecodeError, Pipeline
from convnet.data.sources import EncodedSource
from convnet.graph.engine import Engine

SAMPLE = 512  # images that the stages are measured with, one after the other
PIECE = 16  # images a task
IN_FLIGHT = 8  # batches given to a GPU before it is waited for
Rate = tuple[str, float]


def bench_data(config: Config, backend: Any, *, seconds: float = 3.0) -> Iterator[Rate]:
    """Name and images/s of each stage of the training images; each is run for about `seconds`.

    Reading, decoding and cropping are by threads, as many as there are CPUs unless `data.threads` says otherwise.
    "batches" is the pipeline as training uses it; "upload" and "input kernel" are of a batch that is there already;
    "together" is all of it, without the network behind.
    """
    network = session.make_network(config)
    source = session.make_source(config, "train", least=1)
    forms = session.make_forms(config, network, backend, source)
    options: dict[str, Any] = {"train": True, "cache": "off", "form": forms[0]}
    options["drop_last"] = len(source) >= config.train.batch_size  # which has programs of its own: they take time
    with session.make_pipeline(config, network, config.data.train, source, backend, **options) as pipeline:
        if isinstance(source, EncodedSource):
            yield from _decoding(pipeline, seconds)
        yield "batches", _rate((len(batch) for batch in _endless(pipeline)), seconds)
        yield from _device(session.make_engine(config, network, backend, forms=forms), pipeline, seconds)


def _decoding(pipeline: Pipeline, seconds: float) -> Iterator[Rate]:
    """Read, decode (with the resizing before the crop), and what is left: crop and resized crop."""
    source, transform = pipeline.source, pipeline.transform
    assert isinstance(source, EncodedSource)
    indices = np.random.default_rng(0).permutation(len(source))[:SAMPLE]
    draws = transform.draw(pipeline.seed, 0, indices)
    data: list[tuple[int, bytes]] = []
    images = []
    for index in indices.tolist():
        try:
            encoded = source.read(index)
            images.append(transform.load(encoded, source.where(index)))
            data.append((index, encoded))
        except DecodeError:  # which training tells
            continue

    def read(k: int) -> None:
        source.read(data[k % len(data)][0])

    def decode(k: int) -> None:
        transform.load(data[k % len(data)][1], "")

    def cut(k: int) -> None:
        out = np.empty(pipeline.shape, np.uint8)
        transform.cut(images[k % len(images)], draws[k % len(images)], out)

    stages: dict[str, Callable[[int], None]] = {"read": read, f"decode ({transform.decoder})": decode, "crop": cut}
    for name, act in stages.items() if images else ():
        with ThreadPoolExecutor(pipeline.threads) as pool:
            yield name, _rate(_pieces(pool, pipeline.threads, act), seconds)


def _pieces(pool: ThreadPoolExecutor, threads: int, act: Callable[[int], None]) -> Iterator[int]:
    """Sizes of pieces of work as they are done, `threads` or a few more at a time."""

    def piece(first: int) -> int:
        for k in range(first, first + PIECE):
            act(k)
        return PIECE

    waiting = [pool.submit(piece, k * PIECE) for k in range(2 * threads)]
    try:
        for number in range(len(waiting), 1 << 40):
            yield waiting.pop(0).result()
            waiting.append(pool.submit(piece, number * PIECE))
    finally:
        for task in waiting:
            task.cancel()


def _device(engine: Engine, pipeline: Pipeline, seconds: float) -> Iterator[Rate]:
    """Upload, the kernel that makes the network's input, and both behind the pipeline."""
    first = next(pipeline.batches()).inputs
    kept = {name: np.copy(array[: engine.micro]) for name, array in first.items()}
    pinned = {name: engine.backend.host(array.shape, array.dtype) for name, array in kept.items()}
    for name, array in kept.items():
        pinned[name][...] = array
    count = len(kept["labels"])

    def repeated(act: Callable[[], object]) -> Iterator[int]:
        while True:
            for _ in range(IN_FLIGHT):
                act()
            engine.backend.synchronize()
            yield IN_FLIGHT * count

    def together() -> Iterator[int]:
        for batch in _endless(pipeline):
            for begin in range(0, len(batch), engine.micro):
                part = {name: array[begin : begin + engine.micro] for name, array in batch.inputs.items()}
                engine.feed(step=0, offset=begin, **part)
                session.make_input(engine, len(part["labels"]))
            batch.fence = engine.backend.fence()
            yield len(batch)

    yield "upload", _rate(repeated(lambda: engine.feed(step=0, offset=0, **pinned)), seconds)
    yield "input kernel", _rate(repeated(lambda: session.make_input(engine, count)), seconds)
    yield "together", _rate(together(), seconds)
    engine.backend.synchronize()


def _endless(pipeline: Pipeline) -> Iterator[Batch]:
    """Epoch after epoch; the first has come to know the files."""
    for epoch in itertools.count():
        yield from pipeline.batches(epoch)


def _rate(counts: Iterable[int], seconds: float) -> float:
    """Items/s of a stream of counts, after the first."""
    stream = iter(counts)
    next(stream)
    begin, total = time.perf_counter(), 0
    for count in stream:
        total += count
        if time.perf_counter() - begin > seconds:
            break
    return total / (time.perf_counter() - begin)


def report(rates: Iterable[Rate]) -> Iterator[str]:
    """One line a stage."""
    for name, rate in rates:
        yield f"{name:22}{rate:12,.0f} images/s"
