"""`convnet train`: a run from its config, or from where it stopped."""

import contextlib
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from convnet import __version__, checkpoint, session
from convnet.checkpoint import Checkpoint
from convnet.config import Config, ConfigError, dump, load_config
from convnet.console import Console
from convnet.data import Pipeline
from convnet.errors import reason
from convnet.evaluate import Evaluation, evaluate_images
from convnet.graph.engine import Engine
from convnet.graph.program import RING
from convnet.results import Results
from convnet.run import Run, fresh, newest
from convnet.train import loop
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
from convnet.train.job import Job, closing, opening, run_row
from convnet.train.rates import RateTable
from convnet.train.resume import check_resume, joined
from convnet.train.signals import stop_request
from convnet.train.trainer import Trainer

SHORT_EPOCH = 50  # steps; of such an epoch the log has one row, where the config does not say
LOG_ROWS = 10  # rows of a longer one...
LOG_MOST = 100  # ... but at least one in this many steps


def train(
    file: str,
    overrides: Sequence[str],
    backend: Any,
    console: Console,
    *,
    resume: str | None = None,
    explain: bool = False,
) -> int:
    """Train by a config file; the exit status is 0, or 128 + the signal that stopped it.

    overrides: of the file's options; those of the run that is resumed come before them.
    resume: None to begin anew, "" for the newest run of the config, or the folder of a run.
    """
    run = find_run(file, overrides, resume, console)
    overrides = joined(run.overrides() if run else (), overrides)
    config = load_config(file, overrides)
    with ExitStack() as stack:
        request = stack.enter_context(stop_request(console.warn))
        network = session.make_network(config)
        source = session.make_source(config, "train", least=2 if network.classifier else 1)
        session.check_classes(config, network, source.classes, where_from(config.data.train))
        check_length(config, len(source))
        val_source = session.make_source(config, "val", source.classes) if config.data.val else None
        engine = session.make_engine(config, network, backend)
        check_learning(config, engine)
        resumed = run is not None
        if not resumed:
            session.initialize(config, engine)  # before there is a folder: what cannot start leaves none behind
        run = run or new_run(config)
        stack.enter_context(run.lock())
        stack.callback(console.close)
        console.open(run.log)
        warn_of_schedules(config, console)
        if found := last_checkpoint(run, console):
            check_resume(config, found, source.classes, len(source), console.warn)
        elif resumed:
            session.initialize(config, engine)
        drop = config.train.last_batch == "drop"
        batches = session.make_pipeline(config, network, config.data.train, source, backend, train=True, drop_last=drop)
        stack.enter_context(batches)
        val = None
        if val_source is not None:
            val = stack.enter_context(session.make_pipeline(config, network, config.data.val, val_source, backend))
        return execute(Job(config, overrides, run, console, request, engine, batches, val, found), explain)
    raise AssertionError  # unreachable: the exit stack passes errors on


def where_from(split: Any) -> str:
    """What a split is called in a message."""
    return f"'{split.path}'" if hasattr(split, "path") else f"the {split.type} data"


def check_length(config: Config, samples: int) -> None:
    """Raise ConfigError where no batch can be filled."""
    if samples < config.train.batch_size and config.train.last_batch == "drop":
        message = f"expected at most {samples}, the number of training images, found {config.train.batch_size}"
        hint = "; or train.last_batch: keep, which trains on what there is"
        raise config.locate(ConfigError(message + hint, ("train", "batch_size")))


def check_learning(config: Config, engine: Engine) -> None:
    """Raise ConfigError where no parameter would move."""
    if not engine.trainable:
        message = "nothing learns: the learning rates of all layers, or the coefficients of all costs, are 0"
        raise config.locate(ConfigError(message, ("solver",)))


def warn_of_schedules(config: Config, console: Console) -> None:
    """Tell what of the schedules the training does not come to."""
    for key in ("schedule", "schedule_bias"):
        schedule, epochs = getattr(config.solver, key), config.train.epochs
        for what in schedule.beyond(epochs) if schedule else ():
            console.warn(f"solver.{key}: {what}")


def find_run(file: str, overrides: Sequence[str], resume: str | None, console: Console) -> Run | None:
    """The run to continue; None to begin a new one."""
    if resume is None:
        return None
    if resume:
        run = Run(Path(resume))
        if not run.config.is_file():
            raise checkpoint.CheckpointError(f"{run.path}: not the folder of a run; it has no {run.config.name}")
        return run
    base = Path(load_config(file, overrides).run.dir or "")
    found = newest(base)
    if found is None:
        console.say(f"nothing to resume in {base}: a new run begins")
    return found


def new_run(config: Config) -> Run:
    """An empty folder to work in."""
    try:
        return fresh(Path(config.run.dir or ""))
    except OSError as error:
        raise config.locate(ConfigError(f"cannot be made: {reason(error)}", ("run", "dir"))) from None


def last_checkpoint(run: Run, console: Console) -> Checkpoint | None:
    """The checkpoint to continue from, in a folder that nobody else writes to."""
    checkpoint.clean(run.checkpoints)
    found = checkpoint.newest(run.checkpoints, console.warn)
    if not found and checkpoint.listing(run.checkpoints):
        raise checkpoint.CheckpointError(
            f"{run.checkpoints}: no checkpoint in it can be read; a run that began anew would write over them"
        )
    if not found and run.config.is_file():  # which a new run has not yet
        console.say(f"{run.path} has no checkpoint: it begins from the start")
    return found


def execute(job: Job, explain: bool) -> int:
    """Run the loop."""
    epoch, position = (job.found.state["epoch"], job.found.state["position"]) if job.found else (0, 0)
    # Closed by hand: a batch knows its trainer and the trainer its batches, which would leave the order to chance.
    with contextlib.closing(endless(job.train, epoch, position)) as batches:
        return train_on(batches, job, explain)


def train_on(batches: Iterator[Any], job: Job, explain: bool) -> int:
    """From the first word to the last."""
    trainer, extensions = assemble(job, batches)
    evaluation = next((e for e in extensions if isinstance(e, Evaluate)), None)
    job.console.say(opening(job, trainer))
    if explain:
        from convnet.summary import explain as explained

        job.console.say(explained(job.engine))
    if trainer.finished and not (evaluation and evaluation.owed):
        job.console.say(f"{job.run.path} is finished; a larger train.epochs continues it")
        return 0
    job.run.keep(dump(job.config), job.overrides)
    loop.run(trainer, extensions)
    job.console.say(closing(job, trainer))
    return 0 if trainer.finished and not (evaluation and evaluation.owed) else job.request.code


def assemble(job: Job, batches: Iterator[Any]) -> tuple[Trainer, list[Extension]]:
    """The trainer and its extensions, in the state of the checkpoint where there is one."""
    config, engine, per_epoch = job.config, job.engine, len(job.train)
    epochs = config.train.epochs
    trainer = Trainer(engine, batches, epochs=epochs, steps_per_epoch=per_epoch, interrupted=job.request)
    table = RateTable(engine.network, config.solver, steps_total=epochs * per_epoch, steps_per_epoch=per_epoch)
    extensions = make_extensions(job, table, per_epoch)
    if job.found:
        session.load_weights(engine, job.found, momentum=True)
        trainer.load(job.found.state)
        for extension in extensions:
            extension.load(job.found.state["extensions"].get(extension.name, extension.state()))
    return trainer, extensions


def make_extensions(job: Job, table: RateTable, per_epoch: int) -> list[Extension]:
    """All extensions of a run."""
    options, classes = job.config.train, job.train.source.classes
    automatic = per_epoch if per_epoch <= SHORT_EPOCH else min(per_epoch // LOG_ROWS, LOG_MOST)
    log_due = every_steps(options.log_every or automatic)
    eval_due: Trigger = every_epochs(options.eval_every) if job.val else lambda trainer: False
    saves = options.checkpoint
    save_due = any_of(every_epochs(saves.every), every_minutes(saves.minutes or math.inf), improved, stopping)
    # Looking costs nothing on the CPU; on a GPU it waits for the device.
    look = every_steps(1 if job.engine.backend.name == "numpy" else RING // 2)
    extensions = [
        Watch(any_of(look, log_due, eval_due, save_due), table),
        *([Evaluate(evaluator(job), eval_due)] if job.val else []),
        SetRates(table),
        Progress(job.console),
        Log(
            job.run.metrics,
            job.console,
            due=log_due,
            run=run_row(job, per_epoch),
            learning_rate=table.learning_rate,
            results=Results(job.engine.results, job.engine.network.main.name),
        ),
    ]
    save = SaveCheckpoint(
        job.run.checkpoints,
        due=save_due,
        keep=saves.keep,
        config=dump(job.config),
        constants={"version": __version__, "classes": list(classes), "samples": len(job.train.source)},
        states=lambda: {e.name: e.state() for e in extensions},
        warn=job.console.warn,
    )
    return [*extensions, save]


def evaluator(job: Job) -> Callable[[], Evaluation | None]:
    """A function that runs over the validation images, until a signal comes."""
    val = job.val
    assert val is not None

    def run() -> Evaluation | None:
        with job.console.bar(total=len(val.source), unit="image", desc="eval") as bar:
            return evaluate_images(job.engine, val, job.train.source.classes, stop=job.request, progress=bar.update)

    return run


def endless(pipeline: Pipeline, epoch: int, position: int) -> Generator[Any, None, None]:
    """The batches from a sample on, epoch after epoch; a whole one in which no image can be read is an error."""
    while True:
        readable = position > 0
        for batch in pipeline.batches(epoch, position):
            readable |= bool((batch.labels >= 0).any())
            if not readable and batch.position + pipeline.batch_size >= len(pipeline) * pipeline.batch_size:
                raise pipeline.unreadable("training")
            yield batch
        epoch, position = epoch + 1, 0
