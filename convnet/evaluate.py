"""How good a network is: the results of its costs; of a classifier the accuracy of each class, and what it confuses."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convnet import session
from convnet.checkpoint import Checkpoint
from convnet.config import leaves
from convnet.data import Pipeline
from convnet.errors import UserError
from convnet.parallel.communicator import Communicator
from convnet.parallel.control import Control
from convnet.parallel.join import same
from convnet.results import TOP, Results

MATRIX_MOST = 25  # classes up to which the whole confusion matrix is printed
CONFUSIONS = 20  # pairs listed where there are more


@dataclass(frozen=True)
class Evaluation:
    """Results over the labelled images that could be read; NaN where there was none.

    results: means by name, as in the log: "loss", the mean of the cost of each image, accuracies in 0..1, and so on.
    phrases: the same for people. confusion: int64 [true class, predicted]; None where the network is no classifier.
    views: over how many crops of an image the results were averaged.
    """

    classes: Sequence[str]
    results: dict[str, Any]
    phrases: Sequence[str]
    images: int
    views: int
    confusion: np.ndarray | None
    skipped: int
    seconds: float

    def per_class(self) -> list[tuple[str, int, float]]:
        """Name, images and accuracy of each class, NaN without images; nothing where there is no confusion matrix."""
        if self.confusion is None:
            return []
        counts, right = self.confusion.sum(1), self.confusion.diagonal()
        shares = np.divide(right, counts, out=np.full(len(counts), np.nan), where=counts > 0)
        return [(name, int(n), float(s)) for name, n, s in zip(self.classes, counts, shares, strict=True)]

    def row(self) -> dict[str, Any]:
        """The results in numbers, for the log."""
        return {**self.results, "images": self.images, "skipped": self.skipped, "seconds": self.seconds}

    def as_json(self) -> dict[str, Any]:
        """Everything, for other programs."""
        found = {**self.row(), "views": self.views}
        if self.confusion is None:
            return found
        per_class = [{"class": c, "images": n, "accuracy": a if n else None} for c, n, a in self.per_class()]
        return {**found, "per_class": per_class, "confusion": self.confusion.tolist()}

    def summary(self) -> str:
        """One line, accuracies first."""
        parts = sorted(self.phrases, key=lambda phrase: "loss" in phrase)
        if self.confusion is None:
            parts.append(f"{self.images} images")
        else:
            right = f" ({int(self.confusion.trace())} of {self.images})"
            parts = [phrase + right if phrase.startswith("top-1 ") else phrase for phrase in parts]
        return ", ".join(parts + [f"{self.skipped} skipped"] * bool(self.skipped))

    def text(self) -> str:
        """The summary, the accuracy of each class, and the confusions."""
        if self.confusion is None:
            return self.summary()
        confusions = _confusion_lines(self.classes, self.confusion)
        return "\n".join([self.summary(), "", *_class_lines(self), "", *confusions])


def evaluate(
    engine: Any,
    batches: Iterable[Any],
    classes: Sequence[str],
    *,
    views: int = 1,
    broken: Callable[[], int] = lambda: 0,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], object] = lambda images: None,
    control: Control | None = None,
) -> Evaluation | None:
    """Run the network over `batches`, each of which comes once per view; None when `stop` says so in between.

    control: of ranks that do so together, each with its share of the batches; all get the results of the whole.
    With several views the probabilities of a classifier are averaged, and loss and errors follow from the mean; other
    results are averaged themselves.
    """
    began, before, tally = time.perf_counter(), engine.counts(evaluated=True), _Tally(engine, len(classes), views)
    control, sizes = control or Control(), set[int]()
    for batch in control.reading(batches):
        if stop():
            return None
        with control.busy(batch.total not in sizes):  # kernels of a new size are compiled
            window = batch.mirror, batch.corner
            tally.add(batch, *engine.evaluate(batch.pixels, batch.labels, *window, total=batch.total))
        sizes.add(batch.total)
        control.progress()
        if batch.view == views - 1:
            progress(batch.total)
    tally.join(control)
    tables = engine.counts(evaluated=True).items()
    counts = {name: control.sum(table - before[name]) for name, table in tables}
    skipped = int(control.sum(np.array([broken()]))[0])
    results = Results(engine.results, engine.network.main.name)
    means = results.means(dict(zip(engine.results, tally.sums.tolist(), strict=True)), tally.images, counts)
    phrases = results.phrases(means, len(classes))
    seconds = time.perf_counter() - began
    return Evaluation(classes, means, phrases, tally.images, views, tally.confusion, skipped, seconds)


class _Tally:
    """The sums of an evaluation."""

    def __init__(self, engine: Any, classes: int, views: int):
        classifier = engine.network.classifier
        self.views, self.sums, self.images = views, np.zeros(len(engine.results)), 0
        self.confusion = np.zeros((classes, classes), np.int64) if classifier else None
        of_main = [i for i, name in enumerate(engine.results) if classifier and name.startswith(f"{classifier.name}.")]
        found = [TOP.fullmatch(engine.results[i].rpartition(".")[2]) for i in of_main[1:]]
        self.ks = [int(top[1]) for top in found if top]
        self.scored = of_main if len(self.ks) == len(of_main) - 1 else []  # rows that the mean probabilities give
        self._results: Any = 0.0
        self._probabilities: Any = 0.0

    def add(self, batch: Any, probabilities: np.ndarray | None, results: np.ndarray) -> None:
        """One view of a batch."""
        self._results = results.astype(np.float64) + (self._results if batch.view else 0.0)
        if probabilities is not None:
            self._probabilities = probabilities.astype(np.float64) + (self._probabilities if batch.view else 0.0)
        if batch.view == self.views - 1:
            self._finish(batch.labels)

    def join(self, control: Control) -> None:
        """Add up what the ranks have."""
        self.sums = control.sum(self.sums)
        self.images = int(control.sum(np.array([self.images]))[0])
        if self.confusion is not None:
            self.confusion = control.sum(self.confusion)

    def _finish(self, labels: np.ndarray) -> None:
        """After the last view."""
        known, results = labels >= 0, self._results / self.views
        if self.views > 1 and self.scored:
            results[self.scored] = score(self._probabilities / self.views, labels, self.ks)
        self.sums += results[:, known].sum(1)
        self.images += int(known.sum())
        if self.confusion is not None:
            np.add.at(self.confusion, (labels[known], self._probabilities.argmax(0)[known]), 1)


def evaluate_images(
    engine: Any, pipeline: Pipeline, classes: Sequence[str], *, control: Control, **options: Any
) -> Evaluation | None:
    """`evaluate` over all images of a pipeline; raises DataError where none of them can be read.

    None also where the pipeline of a rank has a fault.
    """
    options |= {"broken": lambda: len(pipeline.broken), "control": control}
    found = evaluate(engine, pipeline.batches(), classes, **options)
    if any(control.exchange(pipeline.fault is not None)):
        return None
    if found is not None and not found.images:
        raise pipeline.unreadable("validation")
    return found


def evaluate_checkpoint(
    found: Checkpoint,
    backend: Any,
    overrides: Sequence[str] = (),
    *,
    views: int = 1,
    bar: Callable[..., Any],
    control: Control | None = None,
    communicator: Communicator | None = None,
) -> Evaluation:
    """Evaluate a trained network on the validation images of its config, in the class order of the checkpoint.

    control, communicator: of the ranks that share the images; default: this process alone.
    """
    control = control or Control()
    config, engine = session.open_checkpoint(found, backend, overrides, communicator)
    same(control, "config", leaves(config))
    if config.data.val is None:
        raise UserError(
            f"{found.path}: its config has no data.val; name one: data.val.type=folder data.val.path=FOLDER"
        )
    classes = found.state["classes"]
    source = session.make_source(config, "val", classes)
    options: dict[str, Any] = {"views": views, "cache": "off", "control": control}
    with (
        session.make_pipeline(config, engine.network, config.data.val, source, backend, **options) as pipeline,
        bar(total=len(source), unit="image", desc="eval") as shown,
        control.watched(config.parallel.timeout),
    ):

        def stop() -> bool:
            code, _ = control.agree(int(pipeline.fault is not None), 0.0)
            return code > 0

        options = {"views": views, "progress": shown.update, "control": control, "stop": stop}
        result = evaluate_images(engine, pipeline, classes, **options)
        control.settle(pipeline.fault)
    assert result is not None  # only a fault stops it
    return result


def score(probabilities: np.ndarray, labels: np.ndarray, ks: Sequence[int]) -> np.ndarray:
    """Loss and top-k errors of each sample [1 + ks, N] from probabilities [K, N]; of equal ones the first wins."""
    samples = np.arange(len(labels))
    own = probabilities[np.maximum(labels, 0), samples]
    before = np.arange(len(probabilities))[:, None] < labels
    rank = ((probabilities > own) | ((probabilities == own) & before)).sum(0)
    loss = -np.log(np.maximum(own, np.finfo(np.float32).tiny))
    return np.stack([loss, *(rank >= k for k in ks)])


def _class_lines(found: Evaluation) -> list[str]:
    rows = found.per_class()
    width = max(len("class"), *(len(name) for name, *_ in rows))
    lines = [f"{'class':{width}}  images  accuracy"]
    return lines + [f"{name:{width}}  {n:6}  {f'{share:8.2%}' if n else '       -'}" for name, n, share in rows]


def _confusion_lines(classes: Sequence[str], confusion: np.ndarray) -> list[str]:
    if len(classes) <= MATRIX_MOST:
        head = "confusion matrix (a row for each true class, a column for each prediction)"
        return [head, *_matrix_lines(classes, confusion)]
    off = confusion - np.diag(confusion.diagonal())
    order = np.argsort(-off, axis=None, kind="stable")[:CONFUSIONS]
    pairs = [divmod(int(i), len(classes)) for i in order if off.flat[i]]
    lines = [f"{off[i, j]:6}  {classes[i]} taken for {classes[j]}" for i, j in pairs]
    return ["commonest confusions", *lines] if lines else ["no confusions"]


def _matrix_lines(classes: Sequence[str], confusion: np.ndarray) -> list[str]:
    """Columns are numbered, since names would not fit."""
    name = max(len(c) for c in classes) + len(str(len(classes))) + 1
    cell = max(len(str(confusion.max())), len(str(len(classes)))) + 1
    head = " " * name + "".join(f"{j:{cell}}" for j in range(len(classes)))
    return [head] + [
        f"{f'{label} {i}':>{name}}" + "".join(f"{n or '.':>{cell}}" for n in row)
        for i, (label, row) in enumerate(zip(classes, confusion.tolist(), strict=True))
    ]
