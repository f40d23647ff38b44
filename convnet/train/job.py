"""The parts of a run, and what it says of itself: the first row of its log, its first and its last words."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from convnet import __version__, device
from convnet.checkpoint import Checkpoint
from convnet.config import Config, fingerprint
from convnet.console import Console, duration
from convnet.data import DecodeError, Pipeline
from convnet.graph.engine import Engine
from convnet.parallel.control import Control
from convnet.run import Run
from convnet.signals import StopRequest
from convnet.train.trainer import Trainer
from layers.options import Options


@dataclass
class Job:
    """The parts of a run before its first step."""

    config: Config
    overrides: Sequence[str]  # of the config's file
    run: Run
    console: Console
    request: StopRequest
    engine: Engine
    train: Pipeline
    val: Pipeline | None
    found: Checkpoint | None  # what it continues from
    control: Control  # of the ranks that do it

    @property
    def fault(self) -> DecodeError | None:
        """An image that cannot be read: all ranks finish the step, without it, and save before they end."""
        return self.train.fault or (self.val.fault if self.val else None)

    def heed(self) -> None:
        """Ask all ranks to stop, where there is a fault."""
        self.request.failed = self.fault is not None

    def left_out(self) -> list[str]:
        """The training images that a fault of any rank has left out; all ranks ask together."""
        own = [self.train.source.where(index) for index in self.train.broken] if self.train.fault else []
        return sorted(set().union(*self.control.exchange(own)))


def run_row(job: Job, per_epoch: int) -> dict[str, Any]:
    """The first row of the log: what runs, on what."""
    val: Options | None = job.config.data.val
    return {
        "version": __version__,
        "name": job.config.name,
        "device": device.describe(job.engine.backend),
        "ranks": job.control.size,
        "config": fingerprint(job.config),
        "seed": job.config.seed,
        "precision": job.config.precision,
        "batch_size": job.config.train.batch_size,
        "epochs": job.config.train.epochs,
        "steps_per_epoch": per_epoch,
        "classes": len(job.train.source.classes),
        "train_images": len(job.train.source),
        "val_images": len(job.val.source) if val and job.val else 0,
        "decoder": job.train.transform.decoder,
        "parameters": parameters(job.engine),
    }


def parameters(engine: Engine) -> int:
    """Numbers that are learned or could be, at whatever rank."""
    return sum(prod(param.shape) for param in engine.network.params.values())


def opening(job: Job, trainer: Trainer) -> str:
    """What the run says first: where it runs, on what, and what comes from where."""
    row = run_row(job, trainer.steps_per_epoch)
    classes = job.train.source.classes
    world = job.control.world
    ranks = f", {world.size} ranks (started by {world.launcher})" if world.size > 1 else ""
    shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    lines = [
        f"convnet {__version__}, {row['device']}{ranks}, run folder {job.run.path}",
        f"{row['train_images']} training and {row['val_images']} validation images of {len(classes)} classes: {shown}",
        f"{row['parameters']:,} parameters, {trainer.epochs} epochs of {trainer.steps_per_epoch} steps of "
        f"{row['batch_size']} images",
    ]
    if job.found:
        where = f"step {trainer.step}, epoch {trainer.epoch + 1}, image {trainer.position}"
        options = "every option is the config's" + "".join(f", {override}" for override in job.overrides)
        lines.append(
            f"resumed from {job.found.path} ({where}): weights, momentum and counters are the checkpoint's, {options}"
        )
    return "\n".join(lines)


def closing(job: Job, trainer: Trainer, broken: int) -> str:
    """What the run says last. broken: training images that could not be read."""
    done = f"{trainer.epochs_done:.4g} of {trainer.epochs} epochs in {duration(trainer.lap())}"
    best = f"; {best_text(trainer.best)}" if trainer.best else ""
    if not trainer.finished:
        return f"stopped after step {trainer.step}, saved in {job.run.path}; --resume continues it"
    skipped = f"; {broken} training images could not be read" if broken else ""
    return f"trained {done}{best}{skipped}; {job.run.path}"


def best_text(best: dict[str, Any]) -> str:
    """The best evaluation."""
    result = f"top-1 {best['top1_accuracy']:.2%}" if "top1_accuracy" in best else f"loss {best['loss']:.4f}"
    return f"best {result} at step {best['step']}"
