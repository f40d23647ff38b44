"""The engine: a network's memory and programs on one device, and the few things a trainer asks of it."""

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from convnet.errors import out_of_memory
from convnet.graph import program
from convnet.graph.executor import Executor
from convnet.graph.net import Network
from convnet.graph.plan import ProgramPlan, plan_program
from convnet.graph.program import Program, Values
from convnet.graph.steps import Value

FLAT = ("weights", "gradients", "velocity")  # arrays that hold all parameters; the last two only if some are trained
PARAM_ALIGNMENT = 1024  # elements: what one block of the update kernel handles


class Engine:
    """One network on one backend.

    batch_size: samples of a step; `accumulate` cuts it in that many micro-batches. trainable: full names of the
    parameters that learn (default: all); with none, nothing that only training needs is held. mean, std: per channel,
    of pixels 0..255. capture: replay steps as CUDA graphs.
    Arrays by full name: `parameters`, `velocity`, `gradients` (views of flat arrays) and `states`.
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
        mean: np.ndarray | float = 0.0,
        std: np.ndarray | float = 1.0,
        seed: int = 1,
        capture: bool = True,
    ):
        self.network, self.backend, self.dtype = network, backend, np.dtype(dtype)
        self.batch_size, self.micro = batch_size, batch_size // accumulate
        self.eval_batch = eval_batch or self.micro
        self.seed, self.capture = seed, capture and hasattr(backend, "capture")
        self.trainable = tuple(network.params if trainable is None else trainable)
        self._learns = np.array([[name in self.trainable] for name in network.params], np.float32).reshape(-1, 1)
        self._spans = _spans(network)
        self.values = self._declare()
        self.arrays: dict[str, Any] = self._allocate()
        self.parameters = self._views("weights")
        self.velocity = self._views("velocity")
        self.gradients = self._views("gradients")
        self.states = {name: self.arrays[name] for name in network.states}
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

        network, total = self.network, sum(_padded(size) for _, size in self._spans.values())
        count, channels = len(self._spans), network.data[0].shape.channels
        flat = {name: persistent(name, (total,)) for name in (FLAT if self.trainable else FLAT[:1])}
        flat |= {
            "owner": persistent("owner", (total // PARAM_ALIGNMENT,), np.int32),
            "spans": persistent("spans", (count, 2), np.int64),
            "rates": persistent("rates", (count, 3), np.float32),
            "magnitudes": persistent("magnitudes", (count, 2)),
            "healthy": persistent("healthy", (1,), np.int32),
            "clock": persistent("clock", (4,), np.uint32),
            "mean": persistent("mean", (channels,)),
            "std": persistent("std", (channels,)),
        }
        histories = (program.history_of(node.name) for node in network.costs)
        flat |= {name: persistent(name, (program.RESULTS, program.RING), np.float64) for name in histories}
        parameters = {name: persistent(name, param.shape) for name, param in network.params.items()}
        gradients = {name: persistent(f"d {name}", network.params[name].shape) for name in self.trainable}
        states = {name: persistent(name, state.shape) for name, state in network.states.items()}
        return Values(self.dtype, self.batch_size, parameters, gradients, states, flat)

    def _allocate(self) -> dict[str, Any]:
        shape = self.network.data[0].shape
        longest = max(self.micro, self.eval_batch)
        values = [*self.values.flat.values(), *self.values.states.values()]
        values += [
            Value("pixels", (longest, shape.height, shape.width, shape.channels), np.dtype(np.uint8)),
            Value("mirror", (longest,), np.dtype(np.uint8)),
            Value("labels", (longest,), np.dtype(np.int32)),
        ]
        arrays = {v.name: self._zeros(v, self._parts(v)).reshape(v.shape) for v in values}
        for name, (begin, size) in self._spans.items():
            of = self.network.params[name].shape
            arrays[name] = arrays["weights"][begin : begin + size].reshape(of)
            if self.trainable:
                arrays[f"d {name}"] = arrays["gradients"][begin : begin + size].reshape(of)
        return arrays

    def _parts(self, value: Value) -> Iterable[Value]:
        return self.values.parameters.values() if value.name in FLAT else (value,)

    def _zeros(self, value: Value, parts: Iterable[Value]) -> Any:
        """Its memory; where there is not enough, the error names it and the largest of its parts."""
        try:
            return self.backend.zeros(value.size, value.dtype)
        except Exception as error:
            if not out_of_memory(error):
                raise
            largest = max(parts, key=lambda part: part.nbytes)
            most = "" if largest is value else f", '{largest.name}' in it {largest.nbytes:,}"
            raise MemoryError(f"'{value.name}' needs {value.nbytes:,} bytes{most}") from error

    def _views(self, flat: str) -> dict[str, Any]:
        if flat not in self.arrays:
            return {}
        return {
            name: self.arrays[flat][begin : begin + size].reshape(self.network.params[name].shape)
            for name, (begin, size) in self._spans.items()
        }

    def _set_constants(self, mean: np.ndarray | float, std: np.ndarray | float) -> None:
        spans = np.array(list(self._spans.values()), np.int64).reshape(-1, 2)
        blocks = [_padded(size) // PARAM_ALIGNMENT for _, size in spans]
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
            self._set(name, param.init.fill(rng, param.shape, param.fan_in))

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of device memory: the arena, parameters with gradients and momentum, and everything else."""
        flat = sum(self.arrays[name].nbytes for name in FLAT if name in self.arrays)
        owned = [a for name, a in self.arrays.items() if name not in self.network.params and not name.startswith("d ")]
        other = sum(array.nbytes for array in owned) - flat
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
            return program.evaluation(self.network, self.values, batch)
        if kind == "loss":
            return program.loss(self.network, self.values, batch)
        if kind == "apply":
            return Program(program.updating(self.values))
        if kind == "measure":
            return Program(program.measuring(self.values))
        recorded = program.training(self.network, self.values, batch, accumulate=kind == "more")
        if kind == "train":
            recorded.steps.extend(program.updating(self.values))
        return recorded

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

        rates: float32 [parameters, 3], learning rate, momentum and weight decay in the order of `parameters`; those
        of parameters that are not trainable are not used.
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
    ) -> tuple[np.ndarray, np.ndarray]:
        """Class probabilities [K, n] and per-sample results [3, n] (loss, top-1 error, top-k error); label -1: none."""
        mirror = np.zeros(len(labels), np.uint8) if mirror is None else mirror
        self.feed(pixels, mirror, labels, step=0, offset=0)
        executor = self.executor("eval", len(labels))
        executor.run()
        recorded, _ = self.plan("eval", len(labels))
        found = (self.backend.download(executor.array(value))[:, 0, 0, :] for value in recorded.outputs)
        results, probabilities = found
        return probabilities, results

    def history(self, begin: int, end: int) -> np.ndarray:
        """Sums over the samples of each step in [begin, end): loss, top-1 errors, top-k errors; [3, end - begin].

        Of the first cost; but its loss is given as NaN where that of another is not finite, since updates stop there.
        """
        if end - begin > program.RING:
            raise ValueError(f"results of {end - begin} steps are asked for, {program.RING} are kept")
        slots = np.arange(begin, end) % program.RING
        rings = (self.arrays[program.history_of(node.name)] for node in self.network.costs)
        results, *others = (self.backend.download(ring)[:, slots] for ring in rings)
        for other in others:
            results[0, ~np.isfinite(other[0])] = np.nan
        return results

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

    def tensors(self) -> dict[str, np.ndarray]:
        """Host copies of all parameters and states, by PyTorch's names."""
        return {name: self.backend.download(self.arrays[name]) for name in (*self.parameters, *self.states)}

    def momentum(self) -> dict[str, np.ndarray]:
        """Host copies of the last updates, by parameter."""
        return {name: self.backend.download(array) for name, array in self.velocity.items()}

    def load(self, tensors: dict[str, np.ndarray], momentum: dict[str, np.ndarray] | None = None) -> None:
        """Set parameters and states, and the last updates where given; shapes must agree (see checkpoint.py)."""
        for name in (*self.parameters, *self.states):
            self._set(name, tensors[name])
        for name, source in (momentum or {}).items():
            self.backend.upload(self.velocity[name], np.ascontiguousarray(source, self.dtype))


def _padded(size: int) -> int:
    return -(-size // PARAM_ALIGNMENT) * PARAM_ALIGNMENT


def _spans(network: Network) -> dict[str, tuple[int, int]]:
    """Where each parameter lies in the flat arrays: (begin, size), in elements."""
    spans, begin = {}, 0
    for name, param in network.params.items():
        size = int(np.prod(param.shape))
        spans[name] = begin, size
        begin += _padded(size)
    return spans
