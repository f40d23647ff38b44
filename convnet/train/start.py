"""`convnet train`: a run from its config, or from where it stopped."""

import contextlib
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convnet import __version__, checkpoint, device, session
from convnet.checkpoint import Checkpoint
from convnet.config import Config, ConfigError, dump, fingerprint
from convnet.console import Console, duration
from convnet.data import Pipeline
from convnet.evaluate import Evaluation, evaluate
from convnet.graph.engine import Engine
from convnet.graph.program import RING
from convnet.results import Results
from convnet.run import Run, fresh, newest
from convnet.train import loop
from convnet.train.extension import Extension, Trigger, any_of, every_epochs, every_steps, stopping
from convnet.train.extensions.checkpoint import SaveCheckpoint
from convnet.train.extensions.evaluate import Evaluate
from convnet.train.extensions.log import Log
from convnet.train.extensions.progress import Progress
from convnet.train.extensions.rates import SetRates
from convnet.train.extensions.watch import Watch
from convnet.train.rates import RateTable
from convnet.train.resume import check_resume
from convnet.train.signals import StopRequest, stop_request
from convnet.train.trainer import Trainer
from layers.options import Options

SHORT_EPOCH = 50  # steps; of such an epoch the log has one row, where the config does not say
LOG_ROWS = 10  # rows of a longer one...
LOG_MOST = 100  # ... but at least one in this many steps


@dataclass
class Job:
    """The parts of a run before its first step."""

    config: Config
    run: Run
    console: Console
    request: StopRequest
    engine: Engine
    train: Pipeline
    val: Pipeline | None
    found: Checkpoint | None  # what it continues from


def train(config: Config, backend: Any, console: Console, *, resume: str | None = None, explain: bool = False) -> int:
    """Train; the exit status is 0, or 128 + the signal that stopped it.

    resume: None to begin anew, "" for the newest run of the config, or the folder of a run.
    """
    with ExitStack() as stack:
        request = stack.enter_context(stop_request(console.warn))
        network = session.make_network(config)
        source = session.make_source(config.data.train)
        session.check_classes(config, network, source.classes, where_from(config.data.train))
        check_length(config, len(source))
        run, found = find_run(config, resume, console)
        engine = session.make_engine(config, network, backend)
        if not found:
            session.initialize(config, engine)  # before there is a folder: what cannot start leaves none behind
        run = run or fresh(Path(config.run.dir or ""))
        stack.enter_context(run.lock())
        stack.callback(console.close)
        console.open(run.log)
        if found:
            check_resume(config, found, source.classes, len(source), console.warn)
        drop = config.train.last_batch == "drop"
        batches = session.make_pipeline(config, network, config.data.train, source, backend, train=True, drop_last=drop)
        stack.enter_context(batches)
        val = None
        if config.data.val:
            val_source = session.make_source(config.data.val, source.classes)
            val = stack.enter_context(session.make_pipeline(config, network, config.data.val, val_source, backend))
        return execute(Job(config, run, console, request, engine, batches, val, found), explain)
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


def find_run(config: Config, resume: str | None, console: Console) -> tuple[Run | None, Checkpoint | None]:
    """The folder to work in, None for a new one, and the checkpoint to continue from."""
    base = Path(config.run.dir or "")
    run = None if resume is None else newest(base) if resume == "" else Run(Path(resume))
    if resume and run and not run.config.is_file():
        raise checkpoint.CheckpointError(f"{run.path}: not the folder of a run; it has no {run.config.name}")
    if run is None:
        if resume is not None:
            console.say(f"nothing to resume in {base}: a new run begins")
        return None, None
    found = checkpoint.newest(run.checkpoints, console.warn)
    if not found:
        console.say(f"{run.path} has no checkpoint: it begins from the start")
    return run, found


def execute(job: Job, explain: bool) -> int:
    """Run the loop."""
    trainer, extensions = assemble(job)
    evaluation = next((e for e in extensions if isinstance(e, Evaluate)), None)
    job.console.say(opening(job, trainer))
    if explain:
        from convnet.summary import explain as explained

        job.console.say(explained(job.engine))
    if trainer.finished and not (evaluation and evaluation.owed):
        job.console.say(f"{job.run.path} is finished; a larger train.epochs continues it")
        return 0
    job.run.config.write_text(dump(job.config), "utf-8")
    with contextlib.closing(trainer.batches):
        loop.run(trainer, extensions)
    job.console.say(closing(job, trainer))
    return 0 if trainer.finished and not (evaluation and evaluation.owed) else job.request.code


def assemble(job: Job) -> tuple[Trainer, list[Extension]]:
    """The trainer and its extensions, in the state of the checkpoint where there is one."""
    config, engine, per_epoch = job.config, job.engine, len(job.train)
    epoch, position = (job.found.state["epoch"], job.found.state["position"]) if job.found else (0, 0)
    trainer = Trainer(
        engine,
        endless(job.train, epoch, position),
        epochs=config.train.epochs,
        steps_per_epoch=per_epoch,
        interrupted=job.request,
    )
    table = RateTable(engine.network, config.solver, steps_total=trainer.steps_total, steps_per_epoch=per_epoch)
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
    save_due = any_of(every_epochs(options.checkpoint.every), stopping)
    # Looking costs nothing on the CPU; on a GPU it waits for the device.
    look = every_steps(1 if job.engine.backend.name == "numpy" else RING // 2)
    extensions = [
        Watch(any_of(look, log_due, eval_due, save_due), table.learning_rate),
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
        keep=options.checkpoint.keep,
        config=dump(job.config),
        constants={"version": __version__, "classes": list(classes), "samples": len(job.train.source)},
        states=lambda: {e.name: e.state() for e in extensions},
    )
    return [*extensions, save]


def evaluator(job: Job) -> Callable[[], Evaluation | None]:
    """A function that runs over the validation images, until a signal comes."""
    val = job.val
    assert val is not None

    def run() -> Evaluation | None:
        with job.console.bar(total=len(val.source), unit="image", desc="eval") as bar:
            return evaluate(
                job.engine,
                val.batches(),
                job.train.source.classes,
                broken=lambda: len(val.broken),
                stop=job.request,
                progress=bar.update,
            )

    return run


def endless(pipeline: Pipeline, epoch: int, position: int) -> Generator[Any, None, None]:
    """The batches from a sample on, epoch after epoch."""
    while True:
        yield from pipeline.batches(epoch, position)
        epoch, position = epoch + 1, 0


def run_row(job: Job, per_epoch: int) -> dict[str, Any]:
    """The first row of the log: what runs, on what."""
    val: Options | None = job.config.data.val
    return {
        "version": __version__,
        "name": job.config.name,
        "device": device.describe(job.engine.backend),
        "config": fingerprint(job.config),
        "seed": job.config.seed,
        "precision": job.config.precision,
        "batch_size": job.config.train.batch_size,
        "epochs": job.config.train.epochs,
        "steps_per_epoch": per_epoch,
        "classes": len(job.train.source.classes),
        "train_images": len(job.train.source),
        "val_images": len(job.val.source) if val and job.val else 0,
        "parameters": parameters(job.engine),
    }


def parameters(engine: Engine) -> int:
    """Numbers that are learned or could be."""
    return sum(array.size for array in engine.parameters.values())


def opening(job: Job, trainer: Trainer) -> str:
    """What the run says first: where it runs, on what, and what comes from where."""
    row = run_row(job, trainer.steps_per_epoch)
    classes = job.train.source.classes
    shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    lines = [
        f"convnet {__version__}, {row['device']}, run folder {job.run.path}",
        f"{row['train_images']} training and {row['val_images']} validation images of {len(classes)} classes: {shown}",
        f"{row['parameters']:,} parameters, {trainer.epochs} epochs of {trainer.steps_per_epoch} steps of "
        f"{row['batch_size']} images",
    ]
    if job.found:
        where = f"step {trainer.step}, epoch {trainer.epoch + 1}, image {trainer.position}"
        lines.append(
            f"resumed from {job.found.path} ({where}): weights, momentum and counters are the checkpoint's, "
            "every option is the config's"
        )
    return "\n".join(lines)


def closing(job: Job, trainer: Trainer) -> str:
    """What the run says last."""
    done = f"{trainer.epochs_done:.4g} of {trainer.epochs} epochs in {duration(trainer.lap())}"
    best = f"; {best_text(trainer.best)}" if trainer.best else ""
    if not trainer.finished:
        return f"stopped after step {trainer.step}, saved in {job.run.path}; --resume continues it"
    skipped = f"; {len(job.train.broken)} training images could not be read" if job.train.broken else ""
    return f"trained {done}{best}{skipped}; {job.run.path}"


def best_text(best: dict[str, Any]) -> str:
    """The best evaluation."""
    result = f"top-1 {best['top1_accuracy']:.2%}" if "top1_accuracy" in best else f"loss {best['loss']:.4f}"
    return f"best {result} at step {best['step']}"
