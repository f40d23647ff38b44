"""The engine: a network's memory and programs on one device, and the few things a trainer asks of it."""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from convnet.errors import UserError, out_of_memory
from convnet.graph import program, update
from convnet.graph.executor import Executor
from convnet.graph.net import Network
from convnet.graph.plan import ProgramPlan, plan_program
from convnet.graph.program import Program, Values
from convnet.graph.steps import Step, Value
from convnet.graph.update import Rule
from kernels.update import BLOCK
from layers.options import ConfigError

ALIGNMENT = 64  # elements, of a state: 256 bytes or more
LEARNING = ("gradients", "velocity")  # flat arrays that hold all parameters, as weights does, only if some are trained
OF_PARAMETERS = ("weights", *LEARNING, "pending", "weight averages")
OF_STATES = ("states", "state averages")
Spans = dict[str, tuple[int, int]]


class Engine:
    """One network on one backend.

    batch_size: samples of a step; `accumulate` cuts it in that many micro-batches. trainable: full names of the
    parameters that learn (default: all), by `rule`; with none, nothing that only training needs is held. mean, std: per
    channel, of pixels 0..255. capture: replay steps as CUDA graphs.
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
        seed: int = 1,
        capture: bool = True,
    ):
        self.network, self.backend, self.dtype = network, backend, np.dtype(dtype)
        self.batch_size, self.micro = batch_size, batch_size // accumulate
        self.eval_batch = eval_batch or self.micro
        self.seed, self.capture = seed, capture and hasattr(backend, "capture")
        learnable = network.learnable
        self.trainable = tuple(n for n in (network.params if trainable is None else trainable) if n in learnable)
        self.results = network.results
        self.rule = rule or Rule()
        self._waiting = set(self.trainable) & set(update.waiting(network))
        self._learns = np.array([[name in self.trainable] for name in network.params], np.float32).reshape(-1, 1)
        self._spans = _spans({name: param.shape for name, param in network.params.items()}, BLOCK)
        self._state_spans = _spans({name: state.shape for name, state in network.states.items()}, ALIGNMENT)
        self.values = self._declare()
        self._owned = self._allocate()
        self.parameters = self._views("weights")
        self.velocity = self._views("velocity")
        self.gradients = self._views("gradients")
        self.states = self._views("states")
        self.averages = self._views("weight averages") | self._views("state averages")
        self.pending = {name: array for name, array in self._views("pending").items() if name in self._waiting}
        self.arrays: dict[str, Any] = {
            **self._owned,
            **self.parameters,
            **self.states,
            **{f"d {name}": array for name, array in self.gradients.items()},
            **{f"average {name}": array for name, array in self.averages.items()},
        }
        if backend.name != "planner":
            self._set_constants(mean, std)
        self.plans: dict[tuple, tuple[Program, ProgramPlan]] = {}
        self._executors: dict[tuple, Executor] = {}
        self._arena = backend.zeros(0)
        training = ("train",) if accumulate == 1 else ("first", "more", "apply")
        for kind in ("measure", *training) if self.trainable else ():
            self.plan(kind, self.micro)
        self.plan("eval", self.eval_batch)

    # Memory

    def _declare(self) -> Values:
        def persistent(name: str, shape: tuple[int, ...], dtype: Any = self.dtype) -> Value:
            return Value(name, shape, np.dtype(dtype), arena=False)

        network, count, channels = self.network, len(self._spans), self.network.data[0].shape.channels
        total, of_states = _length(self._spans, BLOCK), _length(self._state_spans, ALIGNMENT)
        flat = {name: persistent(name, (total,)) for name in ("weights", *(LEARNING if self.trainable else ()))}
        flat |= {"states": persistent("states", (of_states,))}
        flat |= {"pending": persistent("pending", (total,))} if self._waiting else {}
        flat |= {"norms": persistent("norms", (program.RING,), np.float64)} if self.rule.clip is not None else {}
        if self.rule.decay is not None:
            flat |= {"weight averages": persistent("weight averages", (total,))}
            flat |= {"state averages": persistent("state averages", (of_states,))}
        flat |= {
            "owner": persistent("owner", (total // BLOCK,), np.int32),
            "spans": persistent("spans", (count, 2), np.int64),
            "rates": persistent("rates", (count, 4), np.float32),
            "magnitudes": persistent("magnitudes", (count, 2)),
            "healthy": persistent("healthy", (1,), np.int32),
            "clock": persistent("clock", (4,), np.uint32),
            "history": persistent("history", (len(network.results), program.RING), np.float64),
            "mean": persistent("mean", (channels,)),
            "std": persistent("std", (channels,)),
        }
        flat |= {
            f"{kind} {node.name}": persistent(f"{kind} {node.name}", (3, node.counted), np.int64)
            for kind in (program.COUNTS, program.EVALUATED)
            for node in network.costs
            if node.counted
        }
        parameters = {name: persistent(name, param.shape) for name, param in network.params.items()}
        gradients = {name: persistent(f"d {name}", network.params[name].shape) for name in self.trainable}
        states = {name: persistent(name, state.shape) for name, state in network.states.items()}
        shared = self._with_shared(parameters), self._with_shared(gradients)
        return Values(self.dtype, self.batch_size, *shared, states, flat)

    def _with_shared(self, values: dict[str, Value]) -> dict[str, Value]:
        """Each value also under the names by which other layers know its parameter."""
        aliases = self.network.shared.items()
        return values | {name: values[owner] for name, owner in aliases if owner in values}

    def _averaged(self) -> Values:
        """The values of evaluation: averages in place of parameters and states."""

        def average(values: Mapping[str, Value]) -> dict[str, Value]:
            return {key: Value(f"average {v.name}", v.shape, v.dtype, arena=False) for key, v in values.items()}

        values = self.values
        return replace(values, parameters=average(values.parameters), states=average(values.states))

    def _allocate(self) -> dict[str, Any]:
        shape = self.network.data[0].shape
        longest = max(self.micro, self.eval_batch)
        values = [
            *self.values.flat.values(),
            Value("pixels", (longest, shape.height, shape.width, shape.channels), np.dtype(np.uint8)),
            Value("mirror", (longest,), np.dtype(np.uint8)),
            Value("labels", (longest,), np.dtype(np.int32)),
        ]
        return {v.name: self._zeros(v, self._parts(v)).reshape(v.shape) for v in values}

    def _parts(self, value: Value) -> Iterable[Value]:
        if value.name in OF_STATES:
            return self.values.states.values()
        return self.values.parameters.values() if value.name in OF_PARAMETERS else (value,)

    def _zeros(self, value: Value, parts: Iterable[Value]) -> Any:
        """Its memory; where there is not enough, the error names it and the largest of its parts."""
        try:
            return self.backend.zeros(value.size, value.dtype)
        except Exception as error:
            if not out_of_memory(error):
                raise
            largest = max(parts, key=lambda part: part.nbytes)
            most = "" if largest is value else f", '{largest.name}' in it {largest.nbytes:,}"
            told = f"'{value.name}' needs {value.nbytes:,} bytes{most}"
            if value.name in OF_PARAMETERS:
                raise UserError(f"out of memory ({told}): the network does not fit, whatever the batch") from error
            raise MemoryError(told) from error

    def _views(self, flat: str) -> dict[str, Any]:
        """The parts of a flat array by name; none where there is no such array."""
        of_states = flat in OF_STATES
        spans = self._state_spans if of_states else self._spans
        described: Mapping[str, Any] = self.network.states if of_states else self.network.params
        if flat not in self._owned:
            return {}
        return {
            name: self._owned[flat][begin : begin + size].reshape(described[name].shape)
            for name, (begin, size) in spans.items()
        }

    def _set_constants(self, mean: np.ndarray | float, std: np.ndarray | float) -> None:
        spans = np.array(list(self._spans.values()), np.int64).reshape(-1, 2)
        blocks = [_padded(size, BLOCK) // BLOCK for _, size in spans]
        self._set("spans", spans)
        self._set("owner", np.repeat(np.arange(len(blocks)), blocks))
        self._set("mean", np.broadcast_to(mean, self.arrays["mean"].shape))
        self._set("std", np.broadcast_to(std, self.arrays["std"].shape))
        self._set("healthy", np.ones(1))
        for name, state in self.network.states.items():
            self._set(name, np.full(state.shape, state.fill))

    def _set(self, name: str, source: Any, count: int | None = None) -> None:
        target = self.arrays[name] if count is None else self.arrays[name][:count]
        self.backend.upload(target, np.ascontiguousarray(source, target.dtype))

    def initialize(self) -> None:
        """Fill all parameters by their initialisers; each draws from its own generator, keyed by (seed, name)."""
        for name, param in self.network.params.items():
            key = np.array([self.seed, zlib.crc32(name.encode())], np.uint64)  # a list of both would become floats
            rng = np.random.Generator(np.random.Philox(key=key))
            try:
                self._set(name, param.init.fill(rng, param.shape, param.fan_in))
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
        flat = sum(self._owned[name].nbytes for name in OF_PARAMETERS if name in self._owned)
        other = sum(array.nbytes for array in self._owned.values()) - flat
        return {"arena": self._arena.nbytes, "parameters": flat, "other": other}

    @property
    def planned(self) -> int:
        """Bytes of the arena: what the largest of the programs planned so far needs."""
        return max(plan.peak for _, plan in self.plans.values())

    # Programs

    def plan(self, kind: str, batch: int) -> tuple[Program, ProgramPlan]:
        """A program at a batch size, planned.

        kind: train (forward, backward, update), first and more (forward and backward of the first and of later
        micro-batches), apply (update), measure (mean magnitudes of parameters and updates), loss (forward as in
        training), eval (forward as in evaluation).
        """
        key = (kind, batch)
        if key not in self.plans:
            recorded = self._record(kind, batch)
            outputs = recorded.outputs if kind in ("eval", "loss") else ()
            self.plans[key] = recorded, plan_program(recorded.steps, outputs, self.backend.choose)
        return self.plans[key]

    def _record(self, kind: str, batch: int) -> Program:
        if kind == "eval":
            values = self._averaged() if self.averages else self.values
            return program.evaluation(self.network, values, batch)
        if kind == "loss":
            return program.loss(self.network, self.values, batch)
        if kind == "apply":
            return Program(self._updating())
        if kind == "measure":
            return Program(update.measuring(self.values.flat))
        recorded = program.training(self.network, self.values, batch, accumulate=kind == "more")
        if kind == "train":
            recorded.steps.extend(self._updating())
        return recorded

    def _updating(self) -> list[Step]:
        moving = {name: self.values.parameters[name] for name in self.trainable}
        return update.updating(self.network, moving, self.values.flat, self.rule)

    def executor(self, kind: str, batch: int) -> Executor:
        """The program bound to memory; the arena grows when a program needs more than any before it."""
        key = (kind, batch)
        _, plan = self.plan(*key)
        if self._arena.nbytes < self.planned:
            self._executors.clear()  # they hold the old arena
            self._arena = self.backend.zeros(0)
            _, largest = max(self.plans.values(), key=lambda planned: planned[1].peak)
            self._arena = self._zeros(Value("arena", (self.planned,), np.dtype(np.uint8)), largest.offsets)
        if key not in self._executors:
            self._executors[key] = Executor(self.backend, plan, self._arena, self.arrays, capture=self.capture)
        return self._executors[key]

    # What a trainer asks for

    def train(
        self, pixels: np.ndarray, mirror: np.ndarray, labels: np.ndarray, *, step: int, rates: np.ndarray
    ) -> None:
        """One step on up to `batch_size` samples: uint8 [n, H, W, C], uint8 [n], int32 [n].

        rates: float32 [parameters, 4], learning rate, momentum, weight decay and share in the order of `parameters`;
        those of parameters that are not trainable are not used. share: what the gradients since the last update of a
        parameter are multiplied by in this one, 0 where it does not move at this step.
        On a GPU this returns before the step has run; `history` waits for it.
        """
        self._set("rates", rates * self._learns)
        whole = len(labels) <= self.micro
        for begin in range(0, len(labels), self.micro):
            part = slice(begin, begin + self.micro)
            self.feed(pixels[part], mirror[part], labels[part], step=step, offset=begin)
            kind = "train" if whole else "more" if begin else "first"
            self.executor(kind, len(labels[part])).run()
        if not whole:
            self.executor("apply", self.micro).run()

    def feed(self, pixels: np.ndarray, mirror: np.ndarray, labels: np.ndarray, *, step: int, offset: int) -> None:
        for name, source in (("pixels", pixels), ("mirror", mirror), ("labels", labels)):
            self._set(name, source, len(source))
        self._set("clock", np.array([self.seed & 0xFFFFFFFF, self.seed >> 32, step, offset], np.uint32))

    def evaluate(
        self, pixels: np.ndarray, labels: np.ndarray, mirror: np.ndarray | None = None
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Class probabilities [K, n], of a classifier, and of each sample the results [results, n]; label -1: none.

        Of the averaged parameters and states, where there are averages.
        """
        mirror = np.zeros(len(labels), np.uint8) if mirror is None else mirror
        self.feed(pixels, mirror, labels, step=0, offset=0)
        executor = self.executor("eval", len(labels))
        executor.run()
        recorded, _ = self.plan("eval", len(labels))
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
        """Per parameter: mean |w|, and mean |last update|."""
        self.executor("measure", self.micro).run()
        found = self.backend.download(self.arrays["magnitudes"])
        return {name: (float(w), float(v)) for name, (w, v) in zip(self.parameters, found, strict=True)}

    def first_nonfinite(self, batch: int) -> tuple[str, str] | None:
        """Run the training forward pass on the inputs of the last step: the first layer and array with a NaN or inf."""
        executor = self.executor("loss", batch)
        for step in executor.run_stepwise():
            bad = executor.nonfinite(step)
            if bad:
                return step.layer, bad[0]
        return None

    def norms(self, begin: int, end: int) -> np.ndarray:
        """The norm of all gradients at each step in [begin, end), before clipping; empty where nothing is clipped."""
        if "norms" not in self._owned:
            return np.zeros(0)
        return self.backend.download(self._owned["norms"])[np.arange(begin, end) % program.RING]

    def tensors(self) -> dict[str, np.ndarray]:
        """Host copies of all parameters and states, by PyTorch's names."""
        return self._download({**self.parameters, **self.states})

    def momentum(self) -> dict[str, np.ndarray]:
        """Host copies of the last updates, by parameter."""
        return self._download(self.velocity)

    def extras(self) -> dict[str, dict[str, np.ndarray]]:
        """Host copies of what else a run goes on with: "ema", averages; "gradients", those that wait for an update."""
        found = {"ema": self._download(self.averages), "gradients": self._download(self.pending)}
        return {key: arrays for key, arrays in found.items() if arrays}

    def _download(self, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {name: self.backend.download(array) for name, array in arrays.items()}

    def load(
        self,
        tensors: Mapping[str, np.ndarray],
        momentum: Mapping[str, np.ndarray] | None = None,
        extras: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    ) -> None:
        """Set parameters and states, and where given the last updates and extras; shapes must agree (checkpoint.py).

        Averages that are not given begin with the values.
        """
        self._upload(self.arrays, {name: tensors[name] for name in (*self.parameters, *self.states)})
        self._upload(self.velocity, momentum or {})
        self._begin_averages()
        self._upload(self.averages, (extras or {}).get("ema", {}))
        self._upload(self.pending, (extras or {}).get("gradients", {}))

    def _upload(self, targets: Mapping[str, Any], sources: Mapping[str, np.ndarray]) -> None:
        for name in sources:
            self.backend.upload(targets[name], np.ascontiguousarray(sources[name], self.dtype))


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _length(spans: Spans, alignment: int) -> int:
    """Elements of a flat array with these spans: whole blocks."""
    return _padded(sum(_padded(size, alignment) for _, size in spans.values()), BLOCK)


def _spans(shapes: Mapping[str, tuple[int, ...]], alignment: int) -> Spans:
    """Where each array lies in a flat one: (begin, size), in elements."""
    spans, begin = {}, 0
    for name, shape in shapes.items():
        spans[name] = begin, prod(shape)
        begin += _padded(prod(shape), alignment)
    return spans
