"""`convnet predict`: the likeliest classes of images, in the order in which the images are given."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from convnet import session
from convnet.checkpoint import Checkpoint
from convnet.data import DataError, FileSource, Pipeline, Source
from convnet.data.sources import Files
from convnet.errors import UserError

FORMATS = ("table", "csv", "json")


@dataclass(frozen=True)
class Prediction:
    """Of one image: its likeliest classes with their probabilities, likeliest first; of all classes they sum to 1."""

    path: str
    top: tuple[tuple[str, float], ...]


def predict(
    found: Checkpoint, backend: Any, images: Sequence[str] | Source, *, top: int, fault: Callable[[str], None]
) -> Iterator[Prediction]:
    """Of images, treated as those of validation: files and what is below folders, or all of a source.

    Files are scaled as `convnet prepare` scaled the training images, where it did.
    `fault` is told of each that cannot be read; the rest go on.
    """
    config, engine = session.open_checkpoint(found, backend)
    if engine.network.classifier is None:
        raise UserError(f"{found.path}: the network is no classifier; none of its costs compares classes with labels")
    train: Any = config.data.train
    split = config.data.val or replace(train, crop="center", mirror=False, pad=0)
    if isinstance(images, Source):
        source = images
    else:
        source, side = find_images(images, fault), found.state.get("prepared_side")
        split = replace(split, resize=side) if side and split.resize == "none" else split
    if len(source):
        options: dict[str, Any] = {"on_error": "skip", "cache": "off"}
        with session.make_pipeline(config, engine.network, split, source, backend, **options) as pipeline:
            yield from _predictions(engine, pipeline, found.state["classes"], top, fault)


def find_images(paths: Iterable[str], fault: Callable[[str], None]) -> Files:
    """Files, and everything below folders; what is not there is told to `fault`."""
    found: list[str] = []
    for path in paths:
        try:
            found += FileSource([path]).paths
        except DataError as error:
            fault(str(error))
    return Files(found, np.full(len(found), -1, np.int32))


def _predictions(
    engine: Any, pipeline: Pipeline, classes: Sequence[str], top: int, fault: Callable[[str], None]
) -> Iterator[Prediction]:
    for batch in pipeline.batches():
        probabilities, _ = engine.evaluate(batch.pixels, batch.labels, batch.mirror, batch.corner)
        order = np.argsort(-probabilities, axis=0, kind="stable")[:top]
        for i, index in enumerate(batch.indices.tolist()):
            if index in pipeline.broken:
                fault(str(pipeline.broken[index]))
            else:
                best = tuple((classes[c], float(probabilities[c, i])) for c in order[:, i])
                yield Prediction(pipeline.source.where(index), best)


def formatted(predictions: Iterable[Prediction], kind: str) -> Iterator[str]:
    """Lines of a table, of CSV (path, class1, probability1, ...), or of one JSON array."""
    if kind == "json":
        rows = [{"path": p.path, "top": [{"class": c, "probability": v} for c, v in p.top]} for p in predictions]
        yield json.dumps(rows, indent=1)
        return
    for i, found in enumerate(predictions):
        if kind == "table":
            yield _one_line(f"{found.path}  " + "  ".join(f"{name} {value:.2%}" for name, value in found.top))
            continue
        if i == 0:
            yield _csv(
                ["path", *(f"{word}{k}" for k in range(1, len(found.top) + 1) for word in ("class", "probability"))]
            )
        yield _csv([found.path, *(cell for name, value in found.top for cell in (name, f"{value:.6g}"))])


def _one_line(text: str) -> str:
    """Line breaks and other control characters as escapes: a name may hold any."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _csv(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
