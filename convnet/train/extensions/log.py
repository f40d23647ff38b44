"""The log: metrics.jsonl, one JSON object a line, and the same on the console.

    {"event": "run", ...}     the first line: version, device, config fingerprint, seed, sizes
    {"event": "train", ...}   over the steps since the row before: the results of the cost, such as loss, top1_accuracy
                              and top5_accuracy (0..1), of several costs also with their names: "aux.loss",
                              gradient_norm (mean, before clipping; where solver.clip_norm is set),
                              learning_rate, images_per_second, wait_share (of the time, spent waiting for data; of
                              several ranks that of the one that waited longest), in weights, for each parameter,
                              mean_abs (mean |w|) and update_ratio (mean |update| to it), and of several ranks in
                              ranks both images_per_second and wait_share of each
    {"event": "eval", ...}    the same results, images, skipped, seconds
    {"event": "resume", ...}  the run was continued after this step
    {"event": "end", ...}     seconds of training, best evaluation

Every row but the first has step (updates done) and epoch (passes done, with a fraction).
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convnet.console import Console, duration, json_line
from convnet.data.advice import MUCH
from convnet.errors import naming
from convnet.formats.files import writing
from convnet.results import Results
from convnet.train.extension import Extension, Trigger
from convnet.train.trainer import Trainer

Row = dict[str, Any]


class Log(Extension):
    """run: the first row. learning_rate: the solver's at an update counted from 0. results: what rows report.

    advice: makes a sentence of the share of time spent waiting for data; said once, where that is much.
    All ranks make the rows together; the first writes them.
    """

    name = "log"

    def __init__(
        self,
        path: Path,
        console: Console,
        *,
        due: Trigger,
        run: Row,
        learning_rate: Callable[[int], float],
        results: Results,
        advice: Callable[[float], str] | None = None,
    ):
        super().__init__(lambda trainer: bool(trainer.rows) or due(trainer))
        self.path, self.console, self.run, self.results = path, console, run, results
        self.log_due, self.learning_rate, self.advice = due, learning_rate, advice
        self._last = (0.0, 0.0, 0)  # seconds, seconds waited and images at the last row
        self._began = time.perf_counter(), 0
        self._rows = 0  # of training, so far

    def start(self, trainer: Trainer) -> None:
        if trainer.control.rank == 0:
            self._continue(trainer)
        self.flush(trainer)
        self._last = trainer.lap(), 0.0, 0
        self._began = time.perf_counter(), trainer.step

    def _continue(self, trainer: Trainer) -> None:
        """Bring the file to the step from which the run goes on."""
        kept = rows_until(self.path, trainer.step) if self.path.exists() else []
        rewrite(self.path, kept or [{"event": "run", **self.run}])
        if kept:
            again = {key: self.run[key] for key in ("version", "device", "config")}
            self.write({"event": "resume", **_where(trainer), **again})
        written = {(row["event"], row.get("step")) for row in kept}
        trainer.rows = [row for row in trainer.rows if (row["event"], row["step"]) not in written]

    def __call__(self, trainer: Trainer) -> None:
        if self.log_due(trainer):
            trainer.rows.insert(0, self.train_row(trainer))
            trainer.window = type(trainer.window)()
        self.flush(trainer)

    def advise(self, waited: float, seconds: float) -> None:
        """Not of less than a second, nor after the first row of this process, in whose time everything starts."""
        if self._rows and self.advice and waited > max(1.0, MUCH * seconds):
            self.console.warn(self.advice(min(waited / seconds, 1.0)))
            self.advice = None
        self._rows += 1

    def flush(self, trainer: Trainer) -> None:
        """Write, then print, what waits."""
        for row in trainer.rows if trainer.control.rank == 0 else ():
            self.write(row)
            self.console.say(self.line(trainer, row))
        trainer.rows = []

    def rescue(self, trainer: Trainer) -> None:
        # Of a step whose evaluation failed, which comes before the log.
        if trainer.whole and self.log_due(trainer) and trainer.window.images:
            self(trainer)

    def finish(self, trainer: Trainer) -> None:
        if trainer.finished and not trainer.rows and trainer.control.rank == 0:
            self.write({"event": "end", **_where(trainer), "seconds": trainer.lap(), "best": trainer.best or None})

    def train_row(self, trainer: Trainer) -> Row:
        seconds, waited, images = self._span(trainer)
        speeds, waits = zip(*trainer.control.exchange([images / seconds, min(waited / seconds, 1.0)]), strict=True)
        ranks = {"ranks": {"images_per_second": speeds, "wait_share": waits}} if len(speeds) > 1 else {}
        self.advise(waited, seconds)
        return {
            "event": "train",
            **_where(trainer),
            **trainer.window.means(self.results),
            "learning_rate": self.learning_rate(trainer.step - 1 + trainer.shift),
            "images_per_second": sum(speeds),
            "wait_share": max(waits),
            **ranks,
            "weights": {
                name: {"mean_abs": weight, "update_ratio": update / weight if weight else None}
                for name, (weight, update) in trainer.engine.magnitudes().items()
            },
        }

    def _span(self, trainer: Trainer) -> tuple[float, float, int]:
        """Seconds, seconds waited and images since the last row of this process."""
        now = trainer.lap(), trainer.waited, trainer.images
        span = tuple(new - old for new, old in zip(now, self._last, strict=True))
        self._last = now
        return max(span[0], 1e-9), span[1], int(span[2])

    def line(self, trainer: Trainer, row: Row) -> str:
        """A row as a person reads it."""
        width = len(str(trainer.steps_total))
        where = f"epoch {row['epoch']:6.2f}/{trainer.epochs}  step {row['step']:{width}}/{trainer.steps_total}"
        results = "  ".join(self.results.phrases(row, self.run["classes"], width=7))
        if row["event"] == "eval":
            skipped = f"  {row['skipped']} skipped" if row["skipped"] else ""
            return f"{where}  eval   {results}  {row['images']} images{skipped}"
        speed = f"lr {row['learning_rate']:.3g}  {row['images_per_second']:.0f} images/s  wait {row['wait_share']:.0%}"
        return f"{where}  train  {results}  {speed}  eta {self.eta(trainer)}"

    def eta(self, trainer: Trainer) -> str:
        """Time left, from all of this process, evaluations and checkpoints included."""
        began, first = self._began
        each = (time.perf_counter() - began) / max(trainer.step - first, 1)
        return duration(each * (trainer.steps_total - trainer.step))

    def write(self, row: Row) -> None:
        with naming(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json_line(row) + "\n")


def rows_until(path: Path, step: int) -> list[Row]:
    """The rows of a metrics file up to a step: what came later will be done again. A line cut short is left out."""
    rows = []
    for line in path.read_text("utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row.get("step", 0) <= step and row["event"] != "end":
            rows.append(row)
    return rows


def rewrite(path: Path, rows: list[Row]) -> None:
    """Replace the file by these rows, in one move."""
    with writing(path) as partial:
        partial.write_text("".join(json_line(row) + "\n" for row in rows), "utf-8")


def _where(trainer: Trainer) -> Row:
    return {"step": trainer.step, "epoch": round(trainer.epochs_done, 6)}
