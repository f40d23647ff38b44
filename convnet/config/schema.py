"""The sections of a config file. Their declarations are the schema, the error messages and the reference."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from convnet.config.load import locate
from convnet.data.options import Data
from convnet.train.schedule import Constant, Schedule
from layers.base import Layer
from layers.data import Data as DataLayer
from layers.options import ConfigError, LayerSolver, Options, Path, Registry, option, show

SOLVERS = Registry("solver", default="sgd")


class Rates(NamedTuple):
    """What the update of one parameter uses, before the schedule's factor on `lr`."""

    lr: float
    momentum: float
    weight_decay: float


@dataclass(frozen=True)
class Run(Options):
    """Where results go."""

    dir: str | None = option(None, doc="folder of the run, made by it; ~ is your home; null: runs/NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dir is not None:
            object.__setattr__(self, "dir", os.path.expanduser(self.dir))
            if os.path.basename(os.path.normpath(self.dir)) in ("", ".", ".."):
                raise ConfigError(f"expected a folder that the run can make, found {show(self.dir)}", ("dir",))


@dataclass(frozen=True)
class Ema(Options):
    """Exponential moving average of parameters and running statistics, with which the network is evaluated:
    average = decay * average + (1 - decay) * value after each update (Polyak and Juditsky 1992)."""

    shorthand: ClassVar[tuple[str, ...]] = ("decay",)

    decay: float = option(0.9999, least=0, below=1, doc="weight of the old average")
    warmup: bool = option(True, doc="at the update t, counted from 0, the decay is at most (1 + t) / (10 + t)")


@SOLVERS.register("sgd")
@dataclass(frozen=True)
class Solver(Options):
    """Stochastic gradient descent: v = momentum * v - lr * (gradient + weight_decay * w); w = w + v.

    With `nesterov`, w = w + momentum * v - lr * (gradient + weight_decay * w), v being the new one.
    """

    registry: ClassVar[Registry | None] = SOLVERS

    lr: float = option(0.01, least=0, doc="learning rate")
    lr_bias: float | None = option(None, least=0, doc="learning rate of biases; null: lr")
    momentum: float = option(0.9, least=0, below=1, doc="momentum")
    weight_decay: float = option(0.0, least=0, doc="L2 penalty on weights; biases have none")
    schedule: Schedule = option(Constant(), doc="how the rates change in the course of training")
    schedule_bias: Schedule | None = option(None, doc="how those of biases change; null: as the others")
    nesterov: bool = option(False, doc="Nesterov's momentum, as in PyTorch")
    clip_norm: float | None = option(None, above=0, doc="L2 norm of all gradients together above which they are scaled")
    ema: Ema | None = option(None, doc="evaluate with averaged weights")

    def rates(self, override: LayerSolver | None, *, bias: bool, decays: bool) -> Rates:
        """Of one parameter of a layer: the layer's own values where it has some, for biases `lr_bias` before `lr`."""
        own = override or LayerSolver()
        lrs = (own.lr_bias, own.lr, self.lr_bias, self.lr) if bias else (own.lr, self.lr)
        decay = self.weight_decay if own.weight_decay is None else own.weight_decay
        momentum = self.momentum if own.momentum is None else own.momentum
        return Rates(next(lr for lr in lrs if lr is not None), momentum, decay if decays else 0.0)


@dataclass(frozen=True)
class Checkpoint(Options):
    """When the state of a run is saved, and how many of these files stay."""

    every: int = option(1, least=1, doc="epochs between checkpoints; the last epoch and a new best always have one")
    minutes: float | None = option(
        10.0, above=0, doc="minutes of training after which one is written within an epoch; null: never"
    )
    keep: int = option(2, least=1, doc="newest checkpoints to keep, besides the best")


@dataclass(frozen=True)
class Train(Options):
    """How long, and in what portions."""

    batch_size: int = option(128, least=1, doc="samples of one update, over all devices")
    epochs: int = option(least=1, doc="passes over the training set")
    accumulate: int = option(1, least=1, doc="parts in which a batch is computed, to save memory; divides batch_size")
    last_batch: str = option("drop", choices=("drop", "keep"), doc="the rest of an epoch that is less than a batch")
    log_every: int | None = option(None, least=1, doc="steps between log lines; null: automatic")
    eval_every: int = option(1, least=1, doc="epochs between evaluations; the last epoch always has one")
    checkpoint: Checkpoint = option(Checkpoint(), doc="when to save")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size % self.accumulate:
            raise ConfigError(
                f"expected a divisor of batch_size ({self.batch_size}), found {self.accumulate}", ("accumulate",)
            )


WORDS = {  # of `parallel: hybrid` and the like: the values of conv and fc
    "data": ("data", "data"),
    "hybrid": ("data", "model"),
    "auto": ("data", "auto"),
}


@dataclass(frozen=True)
class Parallel(Options):
    """How the work is spread over the ranks, one for each GPU. One word sets conv and fc: data, hybrid (data, model) or
    auto (data, auto).

    The schemes are those of Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks".
    """

    words: ClassVar[Mapping[str, Mapping[str, str]]] = {
        word: {"conv": conv, "fc": fc} for word, (conv, fc) in WORDS.items()
    }

    conv: str = option("data", choices=("data",), doc="convolutional part: data (each rank has its share of a batch)")
    fc: str = option(
        "data",
        choices=("data", "model", "auto"),
        doc="from the first fully connected layer on: data; model (each rank has its share of the outputs); "
        "auto: the faster one",
    )
    scheme: str = option(
        "auto",
        choices=("A", "B", "C", "auto"),
        doc="of fc: model, how it gets its inputs. A: all batches at once; B: one rank's batch after the other; "
        "C: a part of every rank's batch after the other; auto: the fastest one",
    )
    update: str = option(
        "auto",
        choices=("replicated", "sharded", "auto"),
        doc="what all ranks hold is updated by every rank; or a part by each, and gathered; auto: replicated",
    )
    wire: str = option("fp32", choices=("fp32", "bf16"), doc="numbers in which gradients are exchanged")
    bucket: float = option(25.0, above=0, doc="MiB of gradients that are exchanged together")
    timeout: float = option(
        10.0, least=2, doc="seconds without a sign of life of a rank, or without progress, after which the run ends"
    )


@dataclass(frozen=True)
class LayerSpec:
    """A layer as configured: an automatic neuron is one of its own, and its readers name it as their input.

    path: of the section that it was made from, for errors. ranks: that compute it; None: as its inputs say.
    """

    name: str
    layer: Layer
    inputs: tuple[str, ...]
    path: tuple[str, ...]
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Config(Options):
    """A whole training run. `layers` is built by convnet.config.build."""

    name: str = option(doc="what the run is called, a file name; default: that of the config")
    seed: int = option(1, least=0, most=2**64 - 1, doc="seed of every random number")
    precision: str = option("fp32", choices=("fp32", "tf32", "bf16"), doc="arithmetic of the network")
    run: Run = option(Run(), doc="where results go")
    data: Data = option(doc="images")
    layers: tuple[LayerSpec, ...] = option(doc="the network: a mapping of names to layers, in order")
    solver: Solver = option(Solver(), doc="how parameters are learned")
    train: Train = option(doc="how long training lasts")
    parallel: Parallel = option(Parallel(), doc="several devices")
    marks: dict[Path, str] = field(default_factory=dict, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name in ("", ".", "..") or not self.name.isprintable() or {"/", "\\"} & set(self.name):
            raise ConfigError(f"expected a name that a folder can have, found {show(self.name)}", ("name",))
        if self.precision != "fp32":
            raise ConfigError(f"{self.precision} is not available yet; use fp32", ("precision",))
        if self.run.dir is None:
            object.__setattr__(self, "run", replace(self.run, dir=f"runs/{self.name}"))
        for spec in self.layers:
            if isinstance(spec.layer, DataLayer):
                self._check_channels(spec.layer.channels)

    def _check_channels(self, channels: int) -> None:
        for name in ("mean", "std"):
            given = getattr(self.data, name)
            found = len(given) if isinstance(given, tuple) else channels
            if found not in (1, channels):
                raise ConfigError(
                    f"expected one number, or one for each of {channels} channels, found {found}", ("data", name)
                )

    def locate(self, error: ConfigError, path: Path = ()) -> ConfigError:
        """The error, raised below `path`, with its place in the file."""
        return locate(self.marks, error.under(*path))
