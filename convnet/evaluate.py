"""How good a network is: top-1 and top-k accuracy, loss, accuracy of each class, and which classes it confuses."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convnet import session
from convnet.checkpoint import Checkpoint
from convnet.data import Pipeline
from convnet.errors import UserError

MATRIX_MOST = 25  # classes up to which the whole confusion matrix is printed
CONFUSIONS = 20  # pairs listed where there are more


@dataclass(frozen=True)
class Evaluation:
    """Results over the labelled images that could be read; NaN where there was none.

    loss: mean of the cost of each image. top1, topk: accuracies in 0..1. confusion: int64 [true class, predicted].
    views: over how many crops of an image the probabilities were averaged.
    """

    classes: Sequence[str]
    loss: float
    top1: float
    topk: float
    k: int
    views: int
    confusion: np.ndarray
    skipped: int
    seconds: float

    @property
    def images(self) -> int:
        return int(self.confusion.sum())

    def per_class(self) -> list[tuple[str, int, float]]:
        """Name, images and accuracy of each class; NaN without images."""
        counts, right = self.confusion.sum(1), self.confusion.diagonal()
        shares = np.divide(right, counts, out=np.full(len(counts), np.nan), where=counts > 0)
        return [(name, int(n), float(s)) for name, n, s in zip(self.classes, counts, shares, strict=True)]

    def row(self) -> dict[str, Any]:
        """The results in numbers, for the log."""
        return {
            "loss": self.loss,
            "top1_accuracy": self.top1,
            f"top{self.k}_accuracy": self.topk,
            "images": self.images,
            "skipped": self.skipped,
            "seconds": self.seconds,
        }

    def as_json(self) -> dict[str, Any]:
        """Everything, for other programs."""
        per_class = [{"class": c, "images": n, "accuracy": a if n else None} for c, n, a in self.per_class()]
        return {**self.row(), "views": self.views, "per_class": per_class, "confusion": self.confusion.tolist()}

    def summary(self) -> str:
        """One line."""
        right = int(self.confusion.trace())
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        topk = f"top-{self.k} {self.topk:.2%}, " if 1 < self.k < len(self.classes) else ""
        return f"top-1 {self.top1:.2%} ({right} of {self.images}), {topk}loss {self.loss:.4f}{skipped}"

    def text(self) -> str:
        """The summary, the accuracy of each class, and the confusions."""
        return "\n".join([self.summary(), "", *_class_lines(self), "", *_confusion_lines(self)])


def evaluate(
    engine: Any,
    batches: Iterable[Any],
    classes: Sequence[str],
    *,
    views: int = 1,
    broken: Callable[[], int] = lambda: 0,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], object] = lambda images: None,
) -> Evaluation | None:
    """Run the network over `batches`, each of which comes once per view; None when `stop` says so in between.

    With several views the probabilities are averaged, and loss and errors follow from the mean.
    """
    began, k = time.perf_counter(), min(topk_of(engine.network), len(classes))
    sums, confusion = np.zeros(3), np.zeros((len(classes), len(classes)), np.int64)
    total: np.ndarray = np.zeros(0)
    for batch in batches:
        if stop():
            return None
        probabilities, results = engine.evaluate(batch.pixels, batch.labels, batch.mirror)
        total = probabilities.astype(np.float64) + (total if batch.view else 0.0)
        if batch.view == views - 1:
            total, labels = total / views, batch.labels
            known = labels >= 0
            found = results if views == 1 else score(total, labels, k)
            sums += found[:, known].sum(1, dtype=np.float64)
            np.add.at(confusion, (labels[known], total.argmax(0)[known]), 1)
            progress(len(labels))
    count, (loss, wrong, missed) = int(confusion.sum()), sums.tolist()
    loss, top1, topk = (number / (count or math.nan) for number in (loss, count - wrong, count - missed))
    return Evaluation(classes, loss, top1, topk, k, views, confusion, broken(), time.perf_counter() - began)


def evaluate_images(engine: Any, pipeline: Pipeline, classes: Sequence[str], **options: Any) -> Evaluation | None:
    """`evaluate` over all images of a pipeline; raises DataError where none of them can be read."""
    found = evaluate(engine, pipeline.batches(), classes, broken=lambda: len(pipeline.broken), **options)
    if found is not None and not found.images:
        raise pipeline.unreadable("validation")
    return found


def evaluate_checkpoint(
    found: Checkpoint, backend: Any, overrides: Sequence[str] = (), *, views: int = 1, bar: Callable[..., Any]
) -> Evaluation:
    """Evaluate a trained network on the validation images of its config, in the class order of the checkpoint."""
    config, engine = session.open_checkpoint(found, backend, overrides)
    if config.data.val is None:
        raise UserError(
            f"{found.path}: its config has no data.val; name one: data.val.type=folder data.val.path=FOLDER"
        )
    classes = found.state["classes"]
    source = session.make_source(config, "val", classes)
    options = {"views": views, "cache": "off"}
    with (
        session.make_pipeline(config, engine.network, config.data.val, source, backend, **options) as pipeline,
        bar(total=len(source), unit="image", desc="eval") as shown,
    ):
        result = evaluate_images(engine, pipeline, classes, views=views, progress=shown.update)
    assert result is not None  # nothing stops it
    return result


def score(probabilities: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Loss, top-1 and top-k error of each sample [3, N] from probabilities [K, N]; of equal ones the first wins."""
    samples = np.arange(len(labels))
    own = probabilities[np.maximum(labels, 0), samples]
    before = np.arange(len(probabilities))[:, None] < labels
    rank = ((probabilities > own) | ((probabilities == own) & before)).sum(0)
    loss = -np.log(np.maximum(own, np.finfo(np.float32).tiny))
    return np.stack([loss, rank >= 1, rank >= k])


def topk_of(network: Any) -> int:
    """The k of the first cost, 1 where it has none."""
    return getattr(network.costs[0].layer, "topk", 1)


def _class_lines(found: Evaluation) -> list[str]:
    rows = found.per_class()
    width = max(len("class"), *(len(name) for name, *_ in rows))
    lines = [f"{'class':{width}}  images  accuracy"]
    return lines + [f"{name:{width}}  {n:6}  {f'{share:8.2%}' if n else '       -'}" for name, n, share in rows]


def _confusion_lines(found: Evaluation) -> list[str]:
    if len(found.classes) <= MATRIX_MOST:
        return ["confusion matrix (a row for each true class, a column for each prediction)", *_matrix_lines(found)]
    off = found.confusion - np.diag(found.confusion.diagonal())
    order = np.argsort(-off, axis=None, kind="stable")[:CONFUSIONS]
    pairs = [divmod(int(i), len(found.classes)) for i in order if off.flat[i]]
    lines = [f"{off[i, j]:6}  {found.classes[i]} taken for {found.classes[j]}" for i, j in pairs]
    return ["commonest confusions", *lines] if lines else ["no confusions"]


def _matrix_lines(found: Evaluation) -> list[str]:
    """Columns are numbered, since names would not fit."""
    name = max(len(c) for c in found.classes) + len(str(len(found.classes))) + 1
    cell = max(len(str(found.confusion.max())), len(str(len(found.classes)))) + 1
    head = " " * name + "".join(f"{j:{cell}}" for j in range(len(found.classes)))
    return [head] + [
        f"{f'{label} {i}':>{name}}" + "".join(f"{n or '.':>{cell}}" for n in row)
        for i, (label, row) in enumerate(zip(found.classes, found.confusion.tolist(), strict=True))
    ]
