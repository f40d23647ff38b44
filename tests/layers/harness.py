"""Runs one row of the table on a backend: values by a Recorder, each in a buffer of its own, filled with NaN.

What a run leaves is a dict by name: "x0", "dx0", "a.y", "a.weight", "d a.weight", "a.running_mean" for a layer named
"a".  A feed is the part of it that is given: inputs, parameters, states, and the gradient "a.dy" of the output.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from convnet.graph.steps import Recorder, Value
from kernels.backend import NumPy
from kernels.layout import view
from tests.layers.cases import Case

Feed = dict[str, np.ndarray]
GUARD = 512  # bytes on each side of a buffer, which nothing may touch
POISON = 0xFF  # this byte repeated is a NaN of any precision
NOMINAL = 7  # the configured batch: not the batch of any row


def make_feed(case: Case, seed: int = 0, names: Sequence[str] = ("a",)) -> Feed:
    """Random values for everything that a run reads, exact in float32; all layers get the same parameters."""
    rng = np.random.default_rng([seed, case.batch])

    def normal(shape: tuple[int, ...]) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32).astype(np.float64)

    feed = {f"x{i}": normal((*extent(shape), case.batch)) for i, shape in enumerate(case.inputs)}
    if case.within:
        feed["x0"] = rng.uniform(*case.within, feed["x0"].shape).astype(np.float32).astype(np.float64)
    if case.layer.is_cost and len(case.inputs) > 1:
        labels = rng.integers(0, case.inputs[0].channels, case.batch)
        targets = labels if case.labeled else rng.random(feed["x1"].shape, np.float32).astype(np.float64)
        feed["x1"] = np.where(np.arange(case.batch) % 5 == 3, -1, targets)
    parameters = {key: normal(param.shape) for key, param in case.layer.params(*case.inputs).items()}
    states = {key: np.abs(normal(state.shape)) for key, state in case.layer.states(*case.inputs).items()}
    for name in names:
        feed |= {f"{name}.{key}": array for key, array in (parameters | states).items()}
        feed[f"{name}.dy"] = normal((*extent(case.layer.output(*case.inputs)), case.batch))
    return feed | _step_inputs(case, rng)


def _step_inputs(case: Case, rng: np.random.Generator) -> Feed:
    """What the data pipeline and the engine supply; pixels only for a layer without inputs."""
    feed = {"clock": np.array([17, 1, 3, 6])}
    if not case.inputs:
        channels, height, width = extent(case.layer.output())
        feed["pixels"] = rng.integers(0, 256, (case.batch, height, width, channels))
        feed["corner"] = np.arange(2 * case.batch).reshape(-1, 2) % 3 - 1
        feed["mirror"] = np.arange(case.batch) % 2
        feed["mean"], feed["std"] = np.float32(rng.uniform((90, 40), (130, 70), (channels, 2))).T.astype(np.float64)
    return feed


def extent(shape: Any) -> tuple[int, int, int]:
    """A sample's shape as a tuple."""
    return shape.channels, shape.height, shape.width


class Memory:
    """A buffer for each value, poisoned until it is written."""

    def __init__(self, backend: Any):
        self.backend = backend
        self.buffers: dict[Value, Any] = {}

    def __getitem__(self, value: Value) -> Any:
        """The value's array on the device."""
        if value not in self.buffers:
            self.buffers[value] = self.backend.zeros(value.nbytes + 2 * GUARD)
            self.backend.upload(self.buffers[value], np.full(value.nbytes + 2 * GUARD, POISON, np.uint8))
        return view(self._inner(value), value.shape, value.layout)

    def _inner(self, value: Value) -> Any:
        return self.buffers[value][GUARD : GUARD + value.nbytes].view(value.dtype)

    def write(self, value: Value, array: np.ndarray) -> None:
        self[value]
        flat = np.empty(value.size, value.dtype)
        view(flat, value.shape, value.layout)[...] = array
        self.backend.upload(self._inner(value), flat)

    def read(self, value: Value) -> np.ndarray:
        raw = self.backend.download(self.buffers[value])
        inner = slice(GUARD, GUARD + value.nbytes)
        assert (np.delete(raw, inner) == POISON).all(), f"written beyond the ends of {value}"
        return view(raw[inner].view(value.dtype), value.shape, value.layout).copy()


class Recording:
    """The steps of one layer, or of several equal layers named `names` that read the same inputs."""

    def __init__(
        self,
        case: Case,
        dtype: Any = np.float64,
        names: Sequence[str] = ("a",),
        *,
        training: bool = True,
        backward: bool = True,
        accumulate: bool = False,
        tied: bool = False,
        layout: str = "hcwn",
    ):
        self.case, self.dtype, self.layout = case, np.dtype(dtype), layout
        self.values: dict[str, Value] = {}
        layer, inputs, frozen = case.layer, case.inputs, case.frozen
        params = {f"{name}.{key}": param.shape for name in names for key, param in layer.params(*inputs).items()}
        states = {f"{name}.{key}": state.shape for name in names for key, state in layer.states(*inputs).items()}
        trained = {key: shape for key, shape in params.items() if key.split(".")[1] not in frozen}
        self.recorder = Recorder(
            self.dtype,
            training,
            NOMINAL,
            parameters={key: self._value(key, shape) for key, shape in params.items()},
            gradients={key: self._value(f"d {key}", shape) for key, shape in trained.items()},
            states={key: self._value(key, shape) for key, shape in states.items()},
            inputs=self._inputs(),
            accumulate=accumulate,
        )
        xs = [self._input("x", 0 if tied else i) for i in range(len(inputs))]
        dxs = [None if f"x{i}" in frozen else self._input("dx", 0 if tied else i) for i in range(len(inputs))]
        for name in names:
            self._record(name, xs, dxs if training and backward else None)

    def _record(self, name: str, xs: list[Value], dxs: list[Value | None] | None) -> None:
        shape = (*extent(self.case.layer.output(*self.case.inputs)), self.case.batch)
        y = self._value(f"{name}.y", shape, layout=self.layout)
        self.case.layer.forward(self.recorder.at(name, "forward"), xs, y)
        if dxs is not None:
            dy = None if self.case.layer.is_cost else self._value(f"{name}.dy", shape, layout=self.layout)
            self.case.layer.backward(self.recorder.at(name, "backward"), xs, y, dy, dxs)

    def _value(self, name: str, shape: tuple[int, ...], dtype: Any = None, layout: str = "") -> Value:
        if name not in self.values:
            self.values[name] = Value(name, shape, np.dtype(dtype or self.dtype), layout)
        return self.values[name]

    def _input(self, prefix: str, i: int) -> Value:
        if self.case.labeled and i == 1:
            return self._value("x1", (self.case.batch,), np.int32)
        layout = "chwn" if self.case.layer.flat_input else "hcwn"
        return self._value(f"{prefix}{i}", (*extent(self.case.inputs[i]), self.case.batch), layout=layout)

    def _inputs(self) -> dict[str, Value]:
        inputs = {"clock": self._value("clock", (4,), np.uint32)}
        if not self.case.inputs:
            channels, height, width = extent(self.case.layer.output())
            inputs["pixels"] = self._value("pixels", (self.case.batch, height, width, channels), np.uint8)
            inputs["corner"] = self._value("corner", (self.case.batch, 2), np.int32)
            inputs["mirror"] = self._value("mirror", (self.case.batch,), np.uint8)
            inputs |= {key: self._value(key, (channels,)) for key in ("mean", "std")}
        return inputs

    def execute(self, feed: Feed, backend: Any) -> Feed:
        """Run all steps; what every named value holds afterwards, those that no step touches excepted."""
        memory = Memory(backend)
        touched = {value for step in self.recorder.steps for value in step.values()}
        named = {name: value for name, value in self.values.items() if value in touched}
        for name, value in named.items():
            if name in feed:
                memory.write(value, feed[name])
        for step in self.recorder.steps:
            arguments = {key: memory[v] if isinstance(v, Value) else v for key, v in step.arguments.items()}
            _, plan = backend.choose(step.op, step.geometry)
            workspace = backend.zeros(plan.workspace) if plan.workspace else None
            backend.bind(step.op, step.geometry, arguments, workspace)()
        backend.synchronize()
        return {name: memory.read(value) for name, value in named.items()}


def run(case: Case, feed: Feed, backend: Any = None, dtype: Any = np.float64, **how: Any) -> Feed:
    """Record and execute (`how`: see Recording)."""
    return Recording(case, dtype, **how).execute(feed, backend or NumPy())


def objective(case: Case, feed: Feed) -> float:
    """The number whose gradient the layer's backward gives: the mean loss of a cost, else the sum of dy * y."""
    y = run(case, feed, backward=False)["a.y"]
    return case.layer.coeff / NOMINAL * y[0].sum() if case.layer.is_cost else (feed["a.dy"] * y).sum()


def derivative(f: Callable[[float], float], step: float = 1e-4) -> float | None:
    """f'(0) of a function that is smooth within two steps of 0, by central differences; None if it is not.

    The fourth difference tells: of a smooth f it is of the order step^4, where the slope jumps of the order step.
    """
    a, b, c, d, e = (f(k * step) for k in range(-2, 3))
    if abs(a - 4 * b + 6 * c - 4 * d + e) > 1e-7 * step * max(1, abs(c)):
        return None
    return (a - 8 * b + 8 * d - e) / (12 * step)
