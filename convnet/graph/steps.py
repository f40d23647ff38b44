"""The step list: what a network does, as plain data.

A layer's forward and backward are called once with symbolic values; each `emit` appends a Step.  Everything else
(memory plan, execution, capture, summary) reads this list.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from convnet.parallel.collectives import Collective, Transfer
from kernels.op import Op


@dataclass(eq=False)
class Value:
    """A symbolic array: a map with the axes C, H, W, N where `layout` is set, else any array.

    arena: lives in the arena for part of the step; otherwise it persists and the engine owns it under `name`, where it
    is the whole array or, along the first axis, the part from `begin` on.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    layout: str = ""
    arena: bool = True
    begin: int = 0

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def part(self, begin: int, end: int) -> "Value":
        """These elements of a persistent 1-d value."""
        return Value(self.name, (end - begin,), self.dtype, arena=False, begin=self.begin + begin)

    def __repr__(self) -> str:
        place = f"[{self.begin}:]" if self.begin else ""
        return f"{self.name}{place}{list(self.shape)}"


@dataclass(eq=False)
class Step:
    """One operation on symbolic values; `phase` is forward, backward, exchange (of what ranks share) or update."""

    layer: str
    phase: str
    op: Op | Collective
    geometry: Any
    arguments: dict[str, Any]

    def values(self) -> Iterable[Value]:
        """Every array that the step touches."""
        return (value for value in self.arguments.values() if isinstance(value, Value))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.layer}.{self.phase}: {self.op}({arguments})"


def exchange(
    layer: str, phase: str, kind: str, source: Value | None, target: Value | None, **options: Any
) -> tuple[Step, Step]:
    """The steps that start a transfer and wait for its end; options: root and function, see parallel/collectives.py."""
    transfer, arguments = Transfer(**options), {"source": source, "target": target}
    start, wait = (Step(layer, phase, Collective(kind, half), transfer, arguments) for half in ("start", "wait"))
    return start, wait


@dataclass
class Recorder:
    """Collects the steps of one program and the values they name.

    dtype: of maps and parameters. parameters, states, inputs: persistent values by full name ("conv1.weight").
    gradients: the value to write each trainable parameter's gradient to; frozen parameters have none.
    accumulate: parameter gradients already hold something that is to be added to.
    total: samples of the step at all ranks together.
    """

    dtype: np.dtype
    training: bool = True
    nominal_batch: int = 1
    ranks: int = 1
    total: int = 1
    parameters: Mapping[str, Value] = field(default_factory=dict)
    gradients: Mapping[str, Value] = field(default_factory=dict)
    states: Mapping[str, Value] = field(default_factory=dict)
    inputs: Mapping[str, Value] = field(default_factory=dict)
    accumulate: bool = False
    steps: list[Step] = field(default_factory=list)
    kept: dict[tuple[str, str], Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._written = set(self.gradients.values()) if self.accumulate else set()

    def at(self, layer: str, phase: str) -> "LayerEmit":
        """The `emit` that a layer's forward or backward writes to."""
        return LayerEmit(self, layer, phase)

    def written(self, value: Value) -> bool:
        """Whether a step has written to a value, so that the next one adds to it."""
        return value in self._written

    def append(self, layer: str, phase: str, op: Op, geometry: Any, arguments: dict[str, Any]) -> None:
        """Append an operation; `beta` is supplied where it is missing."""
        written = [arguments[name] for name in op.writes if arguments[name] is not None]
        if op.accumulates and "beta" not in arguments:
            held = {value in self._written for value in written}
            if len(held) != 1:
                raise ValueError(f"layer '{layer}': {op} would overwrite some of {written} and add to others")
            arguments = {**arguments, "beta": float(held.pop())}
        if arguments.keys() != op.arguments.keys():
            raise TypeError(f"layer '{layer}': {op} takes {list(op.arguments)}, got {list(arguments)}")
        self.add(Step(layer, phase, op, geometry, arguments))

    def add(self, step: Step) -> None:
        """Append a step that is complete."""
        self._written.update(step.arguments[name] for name in step.op.writes if step.arguments[name] is not None)
        self.steps.append(step)


class LayerEmit:
    """Implements layers.base.Emit for one layer."""

    def __init__(self, recorder: Recorder, layer: str, phase: str):
        self._recorder, self._layer, self._phase = recorder, layer, phase
        self.training, self.nominal_batch = recorder.training, recorder.nominal_batch
        self.ranks, self.total = recorder.ranks, recorder.total
        self.key = zlib.crc32(layer.encode()) & 0x7FFFFFFF

    def __call__(self, op: Op, geometry: Any, **arguments: Any) -> None:
        self._recorder.append(self._layer, self._phase, op, geometry, arguments)

    def start(self, kind: str, source: Value | None, target: Value | None, **options: Any) -> Callable[[], None]:
        """Append the start of a transfer, as `exchange`; the function returned appends the wait for its end."""
        start, wait = exchange(self._layer, self._phase, kind, source, target, **options)
        self._recorder.add(start)
        return partial(self._recorder.add, wait)

    def all_reduce(self, *values: Any) -> None:
        for wait in [self.start("all_reduce", value, value) for value in values]:
            wait()

    def param(self, name: str) -> Value:
        return self._recorder.parameters[f"{self._layer}.{name}"]

    def grad(self, name: str) -> Value | None:
        return self._recorder.gradients.get(f"{self._layer}.{name}")

    def state(self, name: str) -> Value:
        return self._recorder.states[f"{self._layer}.{name}"]

    def keep(self, name: str, shape: tuple[int, ...], dtype: str = "", layout: str = "") -> Value:
        key = (self._layer, name)
        if key not in self._recorder.kept:
            kind = np.dtype(dtype or self._recorder.dtype)
            self._recorder.kept[key] = Value(f"{self._layer}.{name}", shape, kind, layout)
        return self._recorder.kept[key]

    def input(self, name: str) -> Value:
        return self._recorder.inputs[name]

    def optional(self, name: str) -> Value | None:
        return self._recorder.inputs.get(name)
