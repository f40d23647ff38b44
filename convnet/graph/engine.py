"""The engine: a network's memory and programs on one device, and the few things a trainer asks of it."""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from convnet.graph import program, update
from convnet.graph.executor import Executor, front
from convnet.graph.feed import Feed
from convnet.graph.net import Network
from convnet.graph.plan import ProgramPlan, plan_program
from convnet.graph.program import Program, Undivided
from convnet.graph.steps import Step, Value
from convnet.graph.store import OF_PARAMETERS, Store
from convnet.graph.update import Rule, Updating
from convnet.parallel.communicator import Communicator, Solo
from convnet.parallel.data import Exchange, Sharing, idle
from convnet.parallel.division import Division
from convnet.parallel.shares import longest, share
from convnet.parallel.whole import Whole
from layers.options import ConfigError

NORMALISATION = ("mean", "std")


class Engine:
    """One network on one backend: that of this rank, of those that share a batch.

    batch_size: samples of a step, of all ranks; `accumulate` cuts it in that many micro-batches. trainable: full names
    of the parameters that learn (default: all), by `rule`; with none, nothing that only training needs is held. mean,
    std: per channel, of pixels 0..255; mean may be an image [C, H, W]; kept: they are part of the state of a run, since
    no config holds them. feeds: what the batches of training and those of evaluation bring. capture: replay steps as
    CUDA graphs. communicator: of the ranks, default: this one alone; exchange: how they share gradients; division: what
    is divided among them besides the samples.
    Arrays by full name: `parameters`, `velocity`, `gradients` and `states` are views of flat arrays; so are
    `averages`, of parameters and states, where the rule has them, and `pending`, gradients that wait for an update.
    """

    def __init__(
        self,
        network: Network,
        backend: Any,
        *,
        batch_size: int,
        accumulate: int = 1,
        eval_batch: int | None = None,
        dtype: Any = np.float32,
        trainable: Iterable[str] | None = None,
        rule: Rule | None = None,
        mean: np.ndarray | float = 0.0,
        std: np.ndarray | float = 1.0,
        kept: bool = False,
        feeds: tuple[Feed, Feed] = (Feed(), Feed()),
        seed: int = 1,
        capture: bool = True,
        communicator: Communicator | None = None,
        exchange: Exchange | None = None,
        division: Division | None = None,
    ):
        self.network, self.backend, self.seed = network, backend, seed
        self.communicator, self.exchange, self.division = communicator or Solo(), exchange or Exchange(), division
        self._unit, self._kept = feeds[0].unit, kept
        self.batch_size, self.micro = batch_size, self._longest(batch_size // accumulate)
        self.eval_batch = eval_batch or self.micro
        self.capture = capture and hasattr(backend, "capture")
        asked, learnable = network.params if trainable is None else trainable, network.learnable
        self.trainable = tuple(name for name in asked if name in learnable)
        self.results = network.results
        self.rule = rule or Rule()
        self._learns = np.array([[name in self.trainable] for name in network.params], np.float32).reshape(-1, 1)
        self._rates = np.zeros((0, 4), np.float32)  # that are uploaded
        self._waiting = set(self.trainable) & set(update.waiting(network))
        self.store = self._make_store(dtype, feeds, np.ndim(mean) == 3)
        self._name_arrays()
        self._updating = self._make_updating()
        self._sharing = self._make_sharing()
        if backend.name != "planner":
            self.store.fill(mean, std)
        self.plans: dict[tuple[str, int, int, int], tuple[Program, ProgramPlan]] = {}
        self._executors: dict[tuple, Executor] = {}
        self._arena = backend.zeros(0)
        self._distance = self._longest(batch_size)  # between the first samples of neighbouring ranks
        self._plan_all()

    # Memory

    def _make_store(self, dtype: Any, feeds: tuple[Feed, Feed], mean_image: bool) -> Store:
        ranks = self.communicator.size
        return Store(
            self.network,
            self.division.placement.params if self.division else self.network.params,
            self.backend,
            dtype=dtype,
            nominal_batch=self.batch_size,
            longest=max(self.micro, self.eval_batch),
            feeds=feeds,
            mean_image=mean_image,
            trainable=self.trainable,
            waiting=self._waiting,
            rule=self.rule,
            ranks=ranks,
            grain=self.exchange.grain(ranks),
        )

    def _name_arrays(self) -> None:
        views = self.store.views
        self.arrays = self.store.arrays
        self.parameters, self.velocity, self.gradients = views("weights"), views("velocity"), views("gradients")
        self.states = views("states")
        self.averages = views("weight averages") | views("state averages")
        self.pending = {name: array for name, array in views("pending").items() if name in self._waiting}

    def _make_updating(self) -> Updating:
        values = self.store.values
        return Updating(self.network, {n: values.parameters[n] for n in self.trainable}, values.flat, self.rule)

    def _make_sharing(self) -> Sharing | None:
        """What the ranks share, where there are several."""
        if self.communicator.size == 1 or not self.trainable:
            return None
        shared = self.division.shared(self.exchange, self.rule) if self.division else set(self.trainable)
        gradients = {name: self.store.values.gradients[name] for name in self.trainable if name in shared}
        own = self.network.params.keys() - self.division.placement.exchanged if self.division else set()
        return Sharing(self.communicator, self.exchange, self._updating, gradients, self.store.spans, own)

    @cached_property
    def _whole(self) -> Whole | None:
        """What joins the parameters of which each rank has a part."""
        return Whole(self.division.placement, self.communicator, self.backend) if self.division else None

    def _cut(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return self._whole.cut(arrays) if self._whole else arrays

    def _join(self, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Host copies, whole."""
        found = self.store.download(arrays)
        return self._whole.join(found) if self._whole else found

    def initialize(self) -> None:
        """Fill all parameters by their initialisers; each draws from its own generator, keyed by (seed, name)."""
        for name, param in self.network.params.items():
            key = np.array([self.seed, zlib.crc32(name.encode())], np.uint64)  # a list of both would become floats
            rng = np.random.Generator(np.random.Philox(key=key))
            try:
                filled = param.init.fill(rng, param.shape, param.fan_in)
                self.store.set(name, self._cut({name: filled})[name])
            except ConfigError as error:
                layer, _, kind = name.rpartition(".")
                raise error.under("layers", layer, "init_bias" if kind == "bias" else "init") from error
        self._begin_averages()

    def _begin_averages(self) -> None:
        """The averages of what there is now."""
        for name, array in self.averages.items():
            self.backend.upload(array, self.backend.download(self.arrays[name]))

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of device memory: the arena, parameters with gradients, momentum and averages, and everything else."""
        held = self.store.flat
        flat = sum(held[name].nbytes for name in OF_PARAMETERS if name in held)
        other = sum(array.nbytes for array in held.values()) - flat
        return {"arena": self._arena.nbytes, "parameters": flat, "other": other}

    @property
    def planned(self) -> int:
        """Bytes of the arena: what the largest of the programs planned so far needs."""
        return max(plan.peak for _, plan in self.plans.values())

    # Programs

    def _plan_all(self) -> None:
        """What a run will need, so that its memory is known."""
        if self.trainable:
            self.plan("measure", self.micro)
            for program in self.programs(self.batch_size):
                self.plan(*program)
        self.plan("eval", self.eval_batch)

    def share(self, total: int) -> tuple[int, int]:
        """The samples [begin, end) of this rank in a training batch of `total`."""
        return share(total, self.communicator.size, self.communicator.rank, self._unit)

    def _longest(self, total: int) -> int:
        """Those of the first rank."""
        return longest(total, self.communicator.size, self._unit)

    def parts(self, total: int) -> list[tuple[int, int]]:
        """The micro-batches of a step on `total` samples: of each those of this rank, and of all.

        Every rank has as many, of which some may be empty; the n-th begins at the rank's sample n * micro.
        """
        size = self.communicator.size
        lengths = [end - begin for begin, end in (share(total, size, rank, self._unit) for rank in range(size))]
        found = []
        for begin in range(0, lengths[0], self.micro):
            counts = [min(max(length - begin, 0), self.micro) for length in lengths]
            found.append((counts[self.communicator.rank], sum(counts)))
        return found

    def programs(self, total: int) -> list[tuple[str, int, int]]:
        """What a step on `total` samples consists of, in order: kinds of programs (see `plan`), samples of this rank,
        and of all."""
        parts = self.parts(total)
        if len(parts) <= 1:
            return [("train", *part) for part in parts]
        begin, end = self.share(total)
        update = (end - begin, total) if self._sharing else (self.micro, self.micro)  # alone, it is one for any number
        return [("more" if n else "first", *part) for n, part in enumerate(parts)] + [("apply", *update)]

    def plan(self, kind: str, batch: int, total: int | None = None) -> tuple[Program, ProgramPlan]:
        """A program at a batch size, planned; total: samples of all ranks, default: all have `batch`.

        kind: train (forward, backward, update), first and more (forward and backward of the first and of later
        micro-batches), apply (update), measure (mean magnitudes of parameters and updates), gather (make whole what
        each rank has a part of), loss (forward as in training), eval (forward as in evaluation).
        """
        key = self._key(kind, batch, total)
        if key not in self.plans:
            recorded = self._record(*key)
            outputs = recorded.outputs if kind in ("eval", "loss") else ()
            self.plans[key] = recorded, plan_program(recorded.steps, outputs, self.backend.choose)
        return self.plans[key]

    def _key(self, kind: str, batch: int, total: int | None) -> tuple[str, int, int, int]:
        """With a division, layers that see the samples of all ranks must know how far apart these are."""
        distance = self._distance if self.division and kind != "eval" else 0
        return kind, batch, batch * self.communicator.size if total is None else total, distance

    def _record(self, kind: str, batch: int, total: int, distance: int) -> Program:
        gathering = self._sharing.gathering() if self._sharing else []
        if kind == "apply":
            return Program(self._with_update([], batch / total))
        if kind == "measure":
            return Program([*gathering, *update.measuring(self.store.values.flat)])
        return Program(gathering) if kind == "gather" else self._record_pass(kind, batch, total, distance)

    def _record_pass(self, kind: str, batch: int, total: int, distance: int) -> Program:
        """A rank without samples takes part in what all do together, in the place and order of the others."""
        made, values, samples = self.division or Undivided(self.network), self.store.values, (max(batch, 1), total)
        if kind == "eval":
            recorded = made.evaluation(self.store.averaged() if self.averages else values, *samples)
        elif kind == "loss":
            recorded = made.loss(values, *samples, distance)
        else:
            recorded = made.training(values, *samples, distance, accumulate=kind == "more")
        steps = self._with_update(recorded.steps, batch / total) if kind == "train" else recorded.steps
        if batch:
            return replace(recorded, steps=steps)
        cleared = (values.flat["gradients"],) if kind in ("train", "first") else ()
        return Program(idle(steps, cleared, made.joint))

    def _with_update(self, steps: list[Step], weight: float) -> list[Step]:
        """Steps, and the update by the gradients that they leave; weight: this rank's part of all samples."""
        if self._sharing:
            return self._sharing.training(steps, weight)
        return [*steps, *self._updating.all()]

    def executor(self, kind: str, batch: int, total: int | None = None) -> Executor:
        """The program bound to memory; the arena grows when a program needs more than any before it."""
        _, plan = self.plan(kind, batch, total)
        if self._arena.nbytes < self.planned:
            self._grow()
        key = self._key(kind, batch, total)
        if key not in self._executors:
            self._executors[key] = self.bound(plan, self.communicator)
        return self._executors[key]

    def _grow(self) -> None:
        """A larger arena. Alone, a rank binds all its programs to it anew.

        Among others it leaves those that it has in the old one: it may be the only one that needs more, and NCCL wants
        all ranks to capture a transfer, and to replay it, together.
        """
        if self.communicator.size == 1:
            self._executors.clear()
            self._arena = self.backend.zeros(0)
        _, largest = max(self.plans.values(), key=lambda planned: planned[1].peak)
        self._arena = self.store.zeros(Value("arena", (self.planned,), np.dtype(np.uint8)), largest.offsets)

    def bound(self, plan: ProgramPlan, communicator: Communicator) -> Executor:
        """A plan bound to the memory as it is now."""
        return Executor(self.backend, plan, self._arena, self.arrays, capture=self.capture, communicator=communicator)

    # What a trainer asks for

    def train(self, *, step: int, rates: np.ndarray, total: int | None = None, **inputs: Any) -> None:
        """One step on up to `batch_size` samples, of which these are this rank's; total: the number of all, default:
        of these.

        inputs: see `feed`.
        rates: float32 [parameters, 4], learning rate, momentum, weight decay and share in the order of `parameters`;
        those of parameters that are not trainable are not used. share: what the gradients since the last update of a
        parameter are multiplied by in this one, 0 where it does not move at this step.
        On a GPU this returns before the step has run; `history` waits for it.
        """
        count = len(inputs["labels"])
        total = count if total is None else total
        first, end = self.share(total)
        if end - first != count:
            raise ValueError(f"rank {self.communicator.rank}: expected {end - first} of {total} samples, found {count}")
        self._set_rates(rates * self._learns)
        self._distance = self._longest(total)
        for n, (kind, samples, of_all) in enumerate(self.programs(total)):
            if kind != "apply":
                begin = n * self.micro
                part = {name: array[begin : begin + samples] for name, array in inputs.items()}
                place = self.communicator.rank * self._distance + begin  # that of an empty share, too
                self.feed(step=step, offset=place, **part)
            self.executor(kind, samples, of_all).run()

    def _set_rates(self, rates: np.ndarray) -> None:
        """Upload them where they are not those of the step before; nothing else writes to them."""
        if not np.array_equal(rates, self._rates):
            self.store.set("rates", rates)
            self._rates = rates

    def blank(self) -> dict[str, np.ndarray]:
        """Inputs without content: this rank's part of a whole batch of training."""
        begin, end = self.share(self.batch_size)
        fed = self.store.fed(end - begin, evaluated=False)
        return {name: np.zeros(value.shape, value.dtype) for name, value in fed.items()}

    def feed(self, *, step: int, offset: int, evaluated: bool = False, **inputs: Any) -> None:
        """Bring in a batch of n samples, of which `offset` come before in this step.

        inputs: pixels uint8 [n, H, W, C], or cells uint8 [n, bytes]; labels int32 [n]; where the network's input is not
        the whole, upright image, corner int32 [n, 2] and mirror uint8 [n]; and in training what its feed adds
        (`layers.data.per_sample`).
        """
        feed = self.store.fed(len(inputs["labels"]), evaluated=evaluated)
        given = {name: np.zeros(feed[name].shape) for name in ("corner", "mirror")} | inputs
        if given.keys() != feed.keys():
            raise ValueError(f"expected batches with {', '.join(feed)}, found {', '.join(given)}")
        for name, value in feed.items():
            if np.shape(given[name]) != value.shape:
                raise ValueError(f"{name}: expected the shape {list(value.shape)}, found {list(np.shape(given[name]))}")
            self.backend.feed(front(self.arrays[name], value.shape), np.ascontiguousarray(given[name], value.dtype))
        self.store.set("clock", np.array([self.seed & 0xFFFFFFFF, self.seed >> 32, step, offset], np.uint32))

    def evaluate(
        self,
        pixels: np.ndarray,
        labels: np.ndarray,
        mirror: np.ndarray | None = None,
        corner: np.ndarray | None = None,
        *,
        total: int | None = None,
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Class probabilities [K, n], of a classifier, and of each sample the results [results, n]; label -1: none.

        Of the averaged parameters and states, where there are averages. total: samples of all ranks, of which these
        are this rank's, perhaps none.
        """
        if not len(labels):
            if self.division and total:  # layers that this rank computes for others
                self.executor("eval", 0, total).run()
            width = self.network.classifier.in_shapes[0].features if self.network.classifier else None
            return None if width is None else np.zeros((width, 0), np.float32), np.zeros((len(self.results), 0))
        window = {name: array for name, array in (("mirror", mirror), ("corner", corner)) if array is not None}
        self.feed(step=0, offset=0, evaluated=True, pixels=pixels, labels=labels, **window)
        size = len(labels), total if self.division else None
        executor = self.executor("eval", *size)
        executor.run()
        recorded, _ = self.plan("eval", *size)
        found = [self.backend.download(executor.array(value))[:, 0, 0, :] for value in recorded.outputs]
        count = len(recorded.results)
        return found[count] if recorded.probabilities else None, np.concatenate(found[:count])

    def history(self, begin: int, end: int) -> np.ndarray:
        """Sums over the samples of each step in [begin, end), [results, end - begin], in the order of `results`."""
        if end - begin > program.RING:
            raise ValueError(f"results of {end - begin} steps are asked for, {program.RING} are kept")
        return self.backend.download(self.arrays["history"])[:, np.arange(begin, end) % program.RING]

    def counts(self, *, evaluated: bool = False) -> dict[str, np.ndarray]:
        """What costs have counted of each class in training or evaluation: int64 [3, K], declared, present, and both.

        By cost, since the engine was made.
        """
        kind = program.EVALUATED if evaluated else program.COUNTS
        counting = [node.name for node in self.network.costs if node.counted]
        return {name: self.backend.download(self.arrays[f"{kind} {name}"]) for name in counting}

    def magnitudes(self) -> dict[str, tuple[float, float]]:
        """Per parameter: mean |w|, and mean |last update|; with a sharded update, all ranks ask together."""
        self.executor("measure", self.micro).run()
        found = self.backend.download(self.arrays["magnitudes"])
        found = self._whole.means(found) if self._whole else found
        return {name: (float(w), float(v)) for name, (w, v) in zip(self.parameters, found, strict=True)}

    def first_nonfinite(self, batch: int, total: int | None = None) -> tuple[str, str] | None:
        """Run the training forward pass on the inputs of the last step: the first layer and array with a NaN or inf.

        All ranks do so together, each for its own samples; total: those of all.
        """
        executor = self.executor("loss", batch, total)
        found = None
        for step in executor.run_stepwise():  # to the end: others may wait for what comes later
            if found is None and (bad := executor.nonfinite(step)):
                found = step.layer, bad[0]
        return found

    def norms(self, begin: int, end: int) -> np.ndarray:
        """The norm of all gradients at each step in [begin, end), before clipping; empty where nothing is clipped."""
        if "norms" not in self.store.flat:
            return np.zeros(0)
        return self.backend.download(self.store.flat["norms"])[np.arange(begin, end) % program.RING]

    def tensors(self) -> dict[str, np.ndarray]:
        """Host copies of all parameters and states, by PyTorch's names; all ranks ask together."""
        return self._join({**self.parameters, **self.states})

    def momentum(self) -> dict[str, np.ndarray]:
        """Host copies of the last updates, by parameter; with a sharded update, all ranks ask together."""
        self._gather()
        return self._join(self.velocity)

    def extras(self) -> dict[str, dict[str, np.ndarray]]:
        """Host copies of what else a run goes on with: "ema", averages; "gradients", those that wait for an update;
        "inputs", mean and std, where they are kept.

        With a sharded update, all ranks ask together.
        """
        self._gather()
        found = {"ema": self._join(self.averages), "gradients": self._join(self.pending)}
        found["inputs"] = self.store.download({name: self.arrays[name] for name in NORMALISATION if self._kept})
        return {key: arrays for key, arrays in found.items() if arrays}

    def _gather(self) -> None:
        """Make whole what each rank has a part of."""
        if self._sharing and self._sharing.sharded:
            self.executor("gather", self.micro).run()

    def load(
        self,
        tensors: Mapping[str, np.ndarray],
        momentum: Mapping[str, np.ndarray] | None = None,
        extras: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    ) -> None:
        """Set parameters and states, and where given the last updates and extras; shapes must agree (checkpoint.py).

        Averages that are not given begin with the values.
        """
        self.store.upload(self.arrays, self._cut({name: tensors[name] for name in (*self.parameters, *self.states)}))
        self.store.upload(self.velocity, self._cut(momentum or {}))
        self._begin_averages()
        self.store.upload(self.averages, self._cut((extras or {}).get("ema", {})))
        self.store.upload(self.pending, self._cut((extras or {}).get("gradients", {})))
        if self._kept:
            self.store.upload(self.arrays, (extras or {}).get("inputs", {}))
