"""What outlasts a step: the persistent values of a network, and the arrays that hold them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from convnet.errors import UserError, out_of_memory
from convnet.graph import program
from convnet.graph.feed import Feed
from convnet.graph.net import Network
from convnet.graph.program import Values
from convnet.graph.steps import Value
from convnet.graph.update import Rule
from kernels.update import BLOCK
from layers.base import Param

ALIGNMENT = 64  # elements, of a state: 256 bytes or more
LEARNING = ("gradients", "velocity")  # flat arrays that hold all parameters, as weights does, only if some are trained
OF_PARAMETERS = ("weights", *LEARNING, "pending", "weight averages")
OF_STATES = ("states", "state averages")
Spans = dict[str, tuple[int, int]]


class Store:
    """The values that programs share, and their memory.

    params: the parameters, of which this rank may hold a part, by name. longest: samples of the largest batch.
    feeds: what batches of training and of evaluation bring. mean_image: the mean is an image, not a colour.
    trainable, waiting: names of parameters that learn, and of those among them that do not move at every step.
    grain: elements; flat arrays of parameters are whole multiples of it.

    values: the symbols. spans: where each parameter lies in a flat array. flat: the arrays that are allocated, by name;
    arrays: these, and the parts of the flat ones by the names of their values.
    """

    def __init__(
        self,
        network: Network,
        params: Mapping[str, Param],
        backend: Any,
        *,
        dtype: Any,
        nominal_batch: int,
        longest: int,
        feeds: tuple[Feed, Feed],
        mean_image: bool,
        trainable: Collection[str],
        waiting: Collection[str],
        rule: Rule,
        ranks: int,
        grain: int,
    ):
        self.network, self.params, self.backend, self.dtype = network, params, backend, np.dtype(dtype)
        self.spans = _spans({name: param.shape for name, param in params.items()}, BLOCK)
        self._state_spans = _spans({name: state.shape for name, state in network.states.items()}, ALIGNMENT)
        self._lengths = padded(_end(self.spans, BLOCK), grain), padded(_end(self._state_spans, ALIGNMENT), BLOCK)
        flat = self._flat(trainable, waiting, rule, mean_image)
        parameters = {name: self._value(name, param.shape) for name, param in params.items()}
        gradients = {name: self._value(f"d {name}", params[name].shape) for name in trainable}
        states = {name: self._value(name, state.shape) for name, state in network.states.items()}
        shared = self._with_shared(parameters), self._with_shared(gradients)
        self.values = Values(self.dtype, nominal_batch, *shared, states, flat, ranks, feeds)
        self.flat = self._allocate(longest)
        self.arrays: dict[str, Any] = {**self.flat, **self.views("weights"), **self.views("states")}
        for prefix, names in ("d", ("gradients",)), ("average", ("weight averages", "state averages")):
            for name in names:
                self.arrays |= {f"{prefix} {part}": array for part, array in self.views(name).items()}

    def _value(self, name: str, shape: tuple[int, ...], dtype: Any = None) -> Value:
        return Value(name, shape, np.dtype(dtype or self.dtype), arena=False)

    def _flat(
        self, trainable: Collection[str], waiting: Collection[str], rule: Rule, mean_image: bool
    ) -> dict[str, Value]:
        """Those of the whole network."""
        network, count, image = self.network, len(self.spans), self.network.data[0].shape
        total, of_states = self._lengths
        sizes: dict[str, tuple[tuple[int, ...], Any]] = {
            **dict.fromkeys(("weights", *(LEARNING if trainable else ())), ((total,), None)),
            "states": ((of_states,), None),
            **({"pending": ((total,), None)} if waiting else {}),
            **({"norms": ((program.RING,), np.float64)} if rule.clip is not None else {}),
            **({"weight averages": ((total,), None)} if rule.decay is not None else {}),
            **({"state averages": ((of_states,), None)} if rule.decay is not None else {}),
            "owner": ((total // BLOCK,), np.int32),
            "spans": ((count, 2), np.int64),
            "rates": ((count, 4), np.float32),
            "magnitudes": ((count, 2), None),
            "healthy": ((1,), np.int32),
            "clock": ((4,), np.uint32),
            "history": ((len(network.results), program.RING), np.float64),
            "mean": ((image.channels, image.height, image.width) if mean_image else (image.channels,), None),
            "std": ((image.channels,), None),
        }
        for kind in program.COUNTS, program.EVALUATED:
            sizes |= {f"{kind} {node.name}": ((3, node.counted), np.int64) for node in network.costs if node.counted}
        return {name: self._value(name, *described) for name, described in sizes.items()}

    def _with_shared(self, values: dict[str, Value]) -> dict[str, Value]:
        """Each value also under the names by which other layers know its parameter."""
        aliases = self.network.shared.items()
        return values | {name: values[owner] for name, owner in aliases if owner in values}

    def averaged(self) -> Values:
        """The values of evaluation: averages in place of parameters and states."""

        def average(values: Mapping[str, Value]) -> dict[str, Value]:
            return {key: Value(f"average {v.name}", v.shape, v.dtype, arena=False) for key, v in values.items()}

        values = self.values
        return replace(values, parameters=average(values.parameters), states=average(values.states))

    def fed(self, batch: int, *, evaluated: bool) -> dict[str, Value]:
        """What a batch of training or of evaluation brings, by name."""
        return self.values.feeds[evaluated].values(self.network.data[0].shape, batch, self.dtype)

    def _allocate(self, longest: int) -> dict[str, Any]:
        """Flat arrays, and what is fed, in the larger of its sizes in training and evaluation."""
        fed = self.fed(longest, evaluated=True)
        for name, value in self.fed(longest, evaluated=False).items():
            fed[name] = max(value, fed.get(name, value), key=lambda v: v.size)
        values = [*self.values.flat.values(), *fed.values()]
        return {v.name: self.zeros(v, self._parts(v)).reshape(v.shape) for v in values}

    def _parts(self, value: Value) -> Iterable[Value]:
        if value.name in OF_STATES:
            return self.values.states.values()
        return self.values.parameters.values() if value.name in OF_PARAMETERS else (value,)

    def zeros(self, value: Value, parts: Iterable[Value]) -> Any:
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

    def views(self, flat: str) -> dict[str, Any]:
        """The parts of a flat array by name; none where there is no such array."""
        of_states = flat in OF_STATES
        spans = self._state_spans if of_states else self.spans
        described: Mapping[str, Any] = self.network.states if of_states else self.params
        if flat not in self.flat:
            return {}
        return {
            name: self.flat[flat][begin : begin + size].reshape(described[name].shape)
            for name, (begin, size) in spans.items()
        }

    def fill(self, mean: np.ndarray | float, std: np.ndarray | float) -> None:
        """Set what does not change."""
        spans = np.array(list(self.spans.values()), np.int64).reshape(-1, 2)
        blocks = [padded(size, BLOCK) // BLOCK for _, size in spans]
        owner = np.repeat(np.arange(len(blocks)), blocks)
        rest = self._lengths[0] // BLOCK - len(owner)
        self.set("spans", spans)
        self.set("owner", np.concatenate([owner, np.full(rest, len(blocks) - 1)]))  # the rest belongs to the last one
        self.set("mean", np.broadcast_to(mean, self.arrays["mean"].shape))
        self.set("std", np.broadcast_to(std, self.arrays["std"].shape))
        self.set("healthy", np.ones(1))
        for name, state in self.network.states.items():
            self.set(name, np.full(state.shape, state.fill))

    def set(self, name: str, source: Any) -> None:
        """Upload an array."""
        target = self.arrays[name]
        if target.size:
            self.backend.upload(target, np.ascontiguousarray(source, target.dtype))

    def download(self, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {name: self.backend.download(array) for name, array in arrays.items()}

    def upload(self, targets: Mapping[str, Any], sources: Mapping[str, np.ndarray]) -> None:
        for name in sources:
            self.backend.upload(targets[name], np.ascontiguousarray(sources[name], self.dtype))


def padded(size: int, alignment: int) -> int:
    """The least multiple of `alignment` that is not below `size`."""
    return -(-size // alignment) * alignment


def _end(spans: Spans, alignment: int) -> int:
    return sum(padded(size, alignment) for _, size in spans.values())


def _spans(shapes: Mapping[str, tuple[int, ...]], alignment: int) -> Spans:
    """Where each array lies in a flat one: (begin, size), in elements."""
    spans, begin = {}, 0
    for name, shape in shapes.items():
        spans[name] = begin, prod(shape)
        begin += padded(prod(shape), alignment)
    return spans
