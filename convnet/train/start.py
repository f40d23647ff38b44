"""`convnet train`: a run from its config, or from where it stopped."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from convnet import checkpoint, session
from convnet.checkpoint import Checkpoint
from convnet.config import Config, ConfigError, dump, leaves, load_config
from convnet.console import Console
from convnet.data import Pipeline, Source
from convnet.device import Planner
from convnet.errors import reason
from convnet.graph.engine import Engine
from convnet.graph.net import Network
from convnet.parallel.control import Control
from convnet.parallel.devices import make_communicator
from convnet.parallel.join import same
from convnet.parallel.model import links
from convnet.run import Run, fresh, newest, read_by_all
from convnet.signals import StopRequest, stop_request
from convnet.train import loop
from convnet.train.assemble import assembled
from convnet.train.extensions.evaluate import Evaluate
from convnet.train.job import Job, closing, opening
from convnet.train.resume import check_left_out, check_resume, joined


def train(
    file: str,
    overrides: Sequence[str],
    backend: Any,
    console: Console,
    *,
    resume: str | None = None,
    explain: bool = False,
    control: Control | None = None,
) -> int:
    """Train by a config file; the exit status is 0, or 128 + the signal that stopped it.

    overrides: of the file's options; those of the run that is resumed come before them.
    resume: None to begin anew, "" for the newest run of the config, or the folder of a run.
    control: of the ranks that train together, of which the first decides on the folder and writes to it.
    """
    control = control or Control()
    folder = control.first(lambda: path_of(find_run(file, overrides, resume, console)))
    run = Run(Path(folder)) if folder else None
    overrides = joined(control.first(lambda: run.overrides() if run else []), overrides)
    config = load_config(file, overrides)
    same(control, "config", leaves(config))
    with ExitStack() as stack:
        request = stack.enter_context(stop_request(console.warn))
        return execute(prepare(stack, config, overrides, run, backend, console, request, control), explain)
    raise AssertionError  # unreachable: the exit stack passes errors on


def prepare(
    stack: ExitStack,
    config: Config,
    overrides: Sequence[str],
    run: Run | None,
    backend: Any,
    console: Console,
    request: StopRequest,
    control: Control,
) -> Job:
    """The parts of the run, which the stack closes. run: the one to continue.

    What cannot start is found before there is a folder.
    """
    network = session.make_network(config)
    source, val_source = make_sources(config, network)
    forms = session.make_forms(config, network, backend, source, val_source)
    engine = session.make_engine(config, network, backend, make_communicator(backend, control), forms=forms)
    check_learning(config, engine)
    if run is None:
        session.initialize(config, engine)
    resumed, run = run is not None, run or Run(Path(control.first(lambda: str(new_run(config).path))))
    if control.rank == 0:
        stack.enter_context(run.lock())
        stack.callback(console.close)
        console.open(run.log)
        warn_of_schedules(config, console)
    if found := read_by_all(partial(last_checkpoint, run, console), control):
        check_resume(config, found, source.classes, len(source), console.warn)
    elif resumed:
        session.initialize(config, engine)

    def pipeline(split: Any, images: Source, **options: Any) -> Pipeline:
        return stack.enter_context(session.make_pipeline(config, network, split, images, backend, control, **options))

    drop = config.train.last_batch == "drop"
    batches = pipeline(config.data.train, source, train=True, drop_last=drop, form=forms[0])
    if found:
        control.first(lambda: check_left_out(config, found, batches, console.warn))
    val = pipeline(config.data.val, val_source, form=forms[1]) if val_source else None
    return Job(config, overrides, run, console, request, engine, batches, val, found, control)


def make_sources(config: Config, network: Network) -> tuple[Source, Source | None]:
    """The images of training and, where the config has some, of validation."""
    source = session.make_source(config, "train", least=2 if network.classifier else 1)
    session.check_classes(config, network, source.classes, where_from(config.data.train))
    check_length(config, len(source))
    return source, session.make_source(config, "val", source.classes) if config.data.val else None


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


def path_of(run: Run | None) -> str | None:
    """Its folder."""
    return str(run.path) if run else None


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
    """From the first word to the last."""
    with assembled(job) as (trainer, extensions):
        evaluation = next((e for e in extensions if isinstance(e, Evaluate)), None)
        job.console.say(opening(job, trainer))
        if explain:
            from convnet.summary import explain as explained

            if job.control.size > 1:
                job.console.say(choices_of(job))
            job.console.say(explained(job.engine))
        if trainer.finished and not (evaluation and evaluation.owed):
            job.console.say(f"{job.run.path} is finished; a larger train.epochs continues it")
            return 0
        if job.control.rank == 0:
            job.run.keep(dump(job.config), job.overrides)
        with job.control.watched(job.config.parallel.timeout):
            loop.run(trainer, extensions)
        if any(job.control.exchange(job.fault is not None)):
            told = f"the run failed; step {trainer.step} is saved"
            job.console.warn(f"{told}, --resume continues there once the image can be read")
            job.control.settle(job.fault)
        broken = len(set().union(*job.control.exchange(sorted(job.train.broken))))
        job.console.say(closing(job, trainer, broken))
        return 0 if trainer.finished and not (evaluation and evaluation.owed) else trainer.code
    raise AssertionError  # unreachable: the context passes errors on


def choices_of(job: Job) -> str:
    """What a step costs for each way to divide the network among the ranks, as the model predicts."""
    from convnet.summary import choice_table

    planner = Planner(getattr(job.engine.backend, "arch", None))
    return choice_table(job.config, job.engine.network, planner, links(planner.arch, job.engine.communicator))
