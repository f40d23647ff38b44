"""The trainer of a run, and all that hangs on it, from its parts."""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

from convnet import __version__, session
from convnet.config import dump
from convnet.data.advice import advice
from convnet.data.sources.index import prepared_side
from convnet.evaluate import Evaluation, evaluate_images
from convnet.graph.program import RING
from convnet.results import Results
from convnet.train.extension import (
    Extension,
    Trigger,
    any_of,
    every_epochs,
    every_minutes,
    every_steps,
    improved,
    stopping,
)
from convnet.train.extensions.checkpoint import SaveCheckpoint
from convnet.train.extensions.evaluate import Evaluate
from convnet.train.extensions.log import Log
from convnet.train.extensions.progress import Progress
from convnet.train.extensions.rates import SetRates
from convnet.train.extensions.watch import Watch
from convnet.train.job import Job, run_row
from convnet.train.rates import RateTable
from convnet.train.trainer import Trainer

SHORT_EPOCH = 50  # steps; of such an epoch the log has one row, where the config does not say
LOG_ROWS = 10  # rows of a longer one...
LOG_MOST = 100  # ... but at least one in this many steps


@contextlib.contextmanager
def assembled(job: Job) -> Iterator[tuple[Trainer, list[Extension]]]:
    """The trainer and its extensions, in the state of the checkpoint where there is one."""
    epoch, position = (job.found.state["epoch"], job.found.state["position"]) if job.found else (0, 0)
    # Closed by hand: a batch knows its trainer and the trainer its batches, which would leave the order to chance.
    with contextlib.closing(endless(job, epoch, position)) as batches:
        yield assemble(job, batches)


def assemble(job: Job, batches: Iterator[Any]) -> tuple[Trainer, list[Extension]]:
    """The same, with batches from where it begins."""
    config, engine, per_epoch = job.config, job.engine, len(job.train)
    epochs = config.train.epochs
    counts = {"epochs": epochs, "steps_per_epoch": per_epoch}
    trainer = Trainer(engine, batches, **counts, request=job.request, control=job.control)
    table = RateTable(engine.network, config.solver, steps_total=epochs * per_epoch, steps_per_epoch=per_epoch)
    extensions = make_extensions(job, trainer, table)
    if job.found:
        session.load_weights(engine, job.found, momentum=True)
        trainer.load(job.found.state)
        for extension in extensions:
            extension.load(job.found.state["extensions"].get(extension.name, extension.state()))
    return trainer, extensions


def make_extensions(job: Job, trainer: Trainer, table: RateTable) -> list[Extension]:
    """All extensions of a run."""
    options, classes, per_epoch = job.config.train, job.train.source.classes, trainer.steps_per_epoch
    automatic = per_epoch if per_epoch <= SHORT_EPOCH else min(per_epoch // LOG_ROWS, LOG_MOST)
    log_due = every_steps(options.log_every or automatic)
    eval_due: Trigger = every_epochs(options.eval_every) if job.val else lambda trainer: False
    saves = options.checkpoint
    save_due = any_of(every_epochs(saves.every), every_minutes(saves.minutes or math.inf), improved, stopping)
    # Looking costs nothing on the CPU; on a GPU it waits for the device.
    look = every_steps(1 if job.engine.backend.name == "numpy" else RING // 2)
    extensions = [
        Watch(any_of(look, log_due, eval_due, save_due), table),
        *([Evaluate(evaluator(job, trainer), eval_due)] if job.val else []),
        SetRates(table),
        Progress(job.console),
        Log(
            job.run.metrics,
            job.console,
            due=log_due,
            run=run_row(job, per_epoch),
            learning_rate=table.learning_rate,
            results=Results(job.engine.results, job.engine.network.main.name),
            advice=functools.partial(advice, job.train),
        ),
    ]
    save = SaveCheckpoint(
        job.run.checkpoints,
        due=save_due,
        keep=saves.keep,
        config=dump(job.config),
        constants={
            "version": __version__,
            "classes": list(classes),
            "samples": len(job.train.source),
            "decoder": job.train.transform.decoder,
            "prepared_side": prepared_side(os.path.expanduser(getattr(job.config.data.train, "path", ""))),
        },
        states=lambda: {e.name: e.state() for e in extensions},
        left_out=job.left_out,
        warn=job.console.warn,
    )
    return [*extensions, save]


def evaluator(job: Job, trainer: Trainer) -> Callable[[], Evaluation | None]:
    """A function that runs over the validation images, until a signal comes or there is a fault."""
    val = job.val
    assert val is not None

    def stop() -> bool:
        job.heed()
        return trainer.interrupted()

    options: dict[str, Any] = {"stop": stop, "control": job.control}

    def run() -> Evaluation | None:
        with job.console.bar(total=len(val.source), unit="image", desc="eval") as bar:
            return evaluate_images(job.engine, val, job.train.source.classes, progress=bar.update, **options)

    return run


def endless(job: Job, epoch: int, position: int) -> Generator[Any, None, None]:
    """The batches from a sample on, epoch after epoch; a whole one in which no image can be read is an error."""
    while True:
        readable = position > 0
        for batch in job.train.batches(epoch, position):
            job.heed()
            readable |= bool((batch.labels >= 0).any())
            last = batch.position + job.train.batch_size >= len(job.train) * job.train.batch_size
            if last and not any(job.control.exchange(readable)):
                raise job.train.unreadable("training")
            yield batch
        epoch, position = epoch + 1, 0
