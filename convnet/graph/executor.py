"""Runs a planned step list: plainly, a Python call a step, or captured, the whole list as one CUDA graph."""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from convnet.graph.plan import ProgramPlan
from convnet.graph.steps import Step, Value
from convnet.parallel.collectives import Collective
from convnet.parallel.communicator import Communicator, Solo
from kernels.layout import view


class Executor:
    """A step list bound to memory.

    arena: 1-d uint8 array of at least plan.peak bytes. persistent: the arrays of values outside the arena, by name;
    a value smaller than its array (of a smaller batch, of smaller images, a part) is so many elements from its `begin`
    on. communicator: of the ranks that run this list at the same time.
    """

    def __init__(
        self,
        backend: Any,
        plan: ProgramPlan,
        arena: Any,
        persistent: Mapping[str, Any],
        *,
        capture: bool,
        communicator: Communicator | None = None,
    ):
        self.backend, self.plan, self.arena, self.persistent = backend, plan, arena, persistent
        self.communicator = communicator or Solo()
        self._waits: dict[Any, Callable[[], object]] = {}
        self._starts = [self._bind(i) for i in range(len(plan.steps))]
        if self._waits:
            raise ValueError(f"{len(self._waits)} transfers are started and never waited for")
        self._capture = capture
        self._replay: Callable[[], None] | None = None
        self._runs = 0

    def array(self, value: Value) -> Any:
        """The memory of a value, in its logical shape."""
        if not value.arena:
            array = self.persistent[value.name]
            return array if array.shape == value.shape else front(array, value.shape, value.begin)
        return view(self.buffer(value), value.shape, value.layout)

    def buffer(self, value: Value) -> Any:
        """The memory of a value, 1-d."""
        if not value.arena:
            return self.array(value).reshape(-1)
        offset = self.plan.offsets[value]
        return self.arena[offset : offset + value.nbytes].view(value.dtype)

    def _bind(self, i: int) -> Callable[[], object]:
        step, choice = self.plan.steps[i], self.plan.choices[i]
        if isinstance(step.op, Collective):
            return self._transfer(step.op, step)
        arguments = {name: self.array(v) if isinstance(v, Value) else v for name, v in step.arguments.items()}
        workspace = self.arena[choice.workspace : choice.workspace + choice.plan.workspace]
        return self.backend.bind(step.op, step.geometry, arguments, workspace, (choice.variant, choice.plan))

    def _transfer(self, op: Collective, step: Step) -> Callable[[], object]:
        if not op.starts:
            return self._waits.pop(step.geometry)
        ends = [v if v is None else self.buffer(v) for v in (step.arguments["source"], step.arguments["target"])]
        options = {"root": step.geometry.root, "function": step.geometry.function}
        start, self._waits[step.geometry] = self.communicator.bind(op.kind, *ends, **options)
        return start

    def run(self) -> None:
        """Run all steps. The first run of a capturing executor is plain: it loads every module."""
        if self._replay is not None:
            self._replay()
        elif self._capture and self._runs == 1:
            self._replay = self.backend.capture(self._starts)
            self._replay()
        else:
            for start in self._starts:
                start()
        self._runs += 1

    def run_stepwise(self) -> Iterator[Step]:
        """Run plainly, and yield each step once its results stand: they may be gone after the next one."""
        for step, start in zip(self.plan.steps, self._starts, strict=True):
            start()
            yield step

    def nonfinite(self, step: Step) -> list[str]:
        """Names of the step's written floating-point values that hold a NaN or an infinity."""
        if isinstance(step.op, Collective) and step.op.starts:
            return []
        written = [step.arguments[name] for name in step.op.writes]
        floats = [v for v in written if isinstance(v, Value) and v.dtype.kind == "f"]
        return [v.name for v in floats if not np.isfinite(self.backend.download(self.array(v))).all()]


def front(array: Any, shape: tuple[int, ...], begin: int = 0) -> Any:
    """The first elements of a contiguous array, or those from `begin` on, in a shape of their own."""
    return array.reshape(-1)[begin : begin + prod(shape)].reshape(shape)
