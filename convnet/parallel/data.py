"""Data parallelism: ranks that have different samples of one batch add up their gradients, while backward still runs.

Gradients lie in one flat array, in the order of the layers, and are cut in buckets from its end: backward makes them in
that order. As soon as the last gradient of a bucket is there, its sum over the ranks is started; it runs beside what is
left of the backward pass. Then, bucket by bucket, the step waits for the sum and updates. Every rank begins with the
same weights, gets the same sums, and so ends with the same weights.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from convnet.graph.steps import Step, Value, exchange
from convnet.graph.update import Updating
from convnet.parallel.collectives import Collective
from convnet.parallel.communicator import Communicator
from kernels import cost, norm, wire
from kernels.op import ceil_div
from kernels.update import BLOCK
from layers.options import ConfigError

SMALL = 1 << 18  # elements (1 MiB): what is smaller is not worth a transfer of its own
SHARED = (cost.REPORT, norm.BATCH_JOIN)  # operations of forward whose results all ranks have
Part = tuple[int, int]  # [begin, end) of the flat arrays, in elements


@dataclass(frozen=True)
class Exchange:
    """How ranks share gradients.

    update: replicated, each rank updates everything; sharded, each updates a part of every bucket, and all gather the
    new weights. auto is replicated: sharded, half of the transfer would come after backward, where nothing hides it.
    wire: fp32 or bf16, the numbers that are sent. bucket: MiB of gradients that are sent as one.
    """

    update: str = "auto"
    wire: str = "fp32"
    bucket: float = 25.0

    @property
    def sharded(self) -> bool:
        return self.update == "sharded"

    def grain(self, ranks: int) -> int:
        """Elements of which buckets are multiples, so that what each rank updates of one is whole blocks."""
        return BLOCK * (ranks if self.sharded else 1)


class Sharing:
    """The steps by which ranks share gradients, and what else they must agree on.

    gradients: the values of those that are to be added up, by parameter. spans: where each parameter lies in the flat
    arrays. own: parameters of which each rank has the whole gradient, for itself. Raises ConfigError where the update
    cannot be sharded.
    """

    def __init__(
        self,
        communicator: Communicator,
        how: Exchange,
        updating: Updating,
        gradients: Mapping[str, Value],
        spans: Mapping[str, Part],
        own: Set[str] = frozenset(),
    ):
        if how.sharded and updating.clipped:
            message = "expected replicated with solver.clip_norm, whose norm is that of all gradients; found sharded"
            raise ConfigError(message, ("parallel",), "update")
        self.rank, self.size, self.how = communicator.rank, communicator.size, how
        self.updating, self.flat, self.sharded = updating, updating.flat, how.sharded
        grain = how.grain(self.size)
        most = int(how.bucket * 2**20) // self.flat["gradients"].dtype.itemsize
        self.buckets = [part for run in _runs(spans, gradients, own) for part in buckets(run, most, grain)]
        alone = own & updating.trainable.keys()
        self._own_parts = [part for run in _runs(spans, alone, gradients) for part in buckets(run, most, BLOCK)]
        self._made = [
            {value for name, value in gradients.items() if _meet(_extent(spans[name]), bucket)}
            for bucket in self.buckets
        ]

    def training(self, steps: Sequence[Step], weight: float) -> list[Step]:
        """Forward and backward with the exchange begun as soon as it may, then the update.

        weight: the part of all samples that this rank has.
        """
        agreed = list(self._agree(weight))
        reduced = [self._reduce(bucket) for bucket in self.buckets]
        told = max((i for i, step in enumerate(steps) if step.op is cost.REPORT), default=-1)
        after = defaultdict(list, {told: [step for start, _ in agreed for step in start]})
        for place, (start, _) in zip(self._places(steps), reduced, strict=True):
            after[place] += start
        begun = [*after[-1], *(new for i, step in enumerate(steps) for new in (step, *after[i]))]
        return [*begun, *(step for _, end in agreed for step in end), *self._update([end for _, end in reduced])]

    def _places(self, steps: Sequence[Step]) -> Iterator[int]:
        """The step after which each bucket is complete; in the order of the buckets, which is the same at all ranks."""
        place = len(steps) - 1 if not any(step.phase == "backward" for step in steps) else -1
        for made in self._made:
            writes = (i for i, step in enumerate(steps) if any(step.arguments[name] in made for name in step.op.writes))
            yield (place := max(place, *writes, -1))

    def _agree(self, weight: float) -> Iterator[tuple[list[Step], list[Step]]]:
        """Whether all losses are finite; the means of statistics that each rank has of its own: starts and ends."""
        healthy, states = self.flat["healthy"], self.flat["states"]
        start, wait = exchange("all", "exchange", "all_reduce", healthy, healthy, function="min")
        yield [start], [wait]
        if any(node.states and not getattr(node.layer, "sync", False) for node in self.updating.network.nodes.values()):
            share = Step("all", "exchange", wire.SCALE, wire.Scale(states.size // BLOCK, weight), {"x": states})
            start, wait = exchange("all", "exchange", "all_reduce", states, states)
            yield [share, start], [wait]

    def _reduce(self, bucket: Part) -> tuple[list[Step], list[Step]]:
        """A bucket of gradients is added up over the ranks, into what this rank updates of it: start and end."""
        kind = "reduce_scatter" if self.sharded else "all_reduce"
        dw, own = self.flat["gradients"].part(*bucket), self.flat["gradients"].part(*self._own(bucket))
        if self.how.wire == "fp32":
            start, wait = exchange("all", "exchange", kind, dw, own)
            return [start], [wait]
        sent = Value(f"sent {bucket[0]}", dw.shape, np.dtype(np.uint16))
        found = Value(f"found {bucket[0]}", own.shape, np.dtype(np.uint16)) if self.sharded else sent
        halve = Step("all", "exchange", wire.NARROW, wire.Halve(dw.size // BLOCK), {"x": dw, "y": sent})
        start, wait = exchange("all", "exchange", kind, sent, found)
        widen = Step("all", "exchange", wire.WIDEN, wire.Halve(own.size // BLOCK), {"x": found, "y": own})
        return [halve, start], [wait, widen]

    def _own(self, bucket: Part) -> Part:
        """What this rank updates of a bucket."""
        begin, end = bucket
        length = (end - begin) // self.size
        return (begin + self.rank * length, begin + (self.rank + 1) * length) if self.sharded else bucket

    def _update(self, ends: Sequence[Sequence[Step]]) -> Iterator[Step]:
        """Each bucket is updated when its gradients are there; where a norm is needed, when all are."""
        updating, parts, waits = self.updating, [self._own(bucket) for bucket in self.buckets], []
        for part in self._own_parts:
            yield from (*updating.ready([part]), *updating.move(part))
        if updating.clipped:
            yield from (step for end in ends for step in end)
            yield from updating.ready(parts)
        for bucket, part, end in zip(self.buckets, parts, ends, strict=True):
            if not updating.clipped:
                yield from (*end, *updating.ready([part]))
            yield from updating.move(part)
            if self.sharded:
                start, wait = self._whole("weights", bucket)
                waits.append(wait)
                yield start
        yield from (*waits, *updating.settle())

    def _whole(self, name: str, bucket: Part) -> tuple[Step, Step]:
        """All ranks get what each has of a bucket."""
        flat = self.flat[name]
        return exchange("all", "exchange", "all_gather", flat.part(*self._own(bucket)), flat.part(*bucket))

    def gathering(self) -> list[Step]:
        """What makes whole, on every rank, the arrays of which a rank keeps a part; nothing if it keeps all."""
        names = [name for name in ("velocity", "pending") if name in self.flat] if self.sharded else []
        return [step for name in names for bucket in self.buckets for step in self._whole(name, bucket)]


def idle(steps: Sequence[Step], cleared: Iterable[Value] = (), joint: Collection[str] = ()) -> list[Step]:
    """What a rank that has no samples does of a step: nothing of its own, and everything that ranks do together.

    Its sums are 0, and so is what it adds to those of others, beginning with the `cleared`. joint: layers that it
    computes for the samples of others.
    """
    kept = [
        step
        for step in steps
        if isinstance(step.op, Collective)
        or step.op in SHARED
        or step.phase in ("exchange", "update")
        or step.layer in joint
    ]
    found, there = [_clear(value) for value in cleared], set[object]()
    for step in kept:
        missing = [v for name, v in step.arguments.items() if name not in step.op.writes and _missing(v, there)]
        found += [*map(_clear, missing), step]
        there |= {*missing, *(step.arguments[name] for name in step.op.writes)}
    return found


def _missing(value: object, there: Collection[object]) -> bool:
    return isinstance(value, Value) and value.arena and value not in there


def _clear(value: Value) -> Step:
    return Step("all", "exchange", wire.CLEAR, wire.Clear(value.size), {"x": value})


def _runs(spans: Mapping[str, Part], names: Collection[str], apart: Collection[str]) -> list[dict[str, Part]]:
    """The spans of some parameters, cut wherever one of those apart is between them, the last first.

    One apart may be empty at this rank and not at others, so that its place in the order counts, and not its span.
    """
    runs: list[dict[str, Part]] = [{}]
    for name, span in spans.items():
        if name in apart and runs[-1]:
            runs.append({})
        elif name in names:
            runs[-1][name] = span
    return runs[::-1]


def buckets(spans: Mapping[str, Part], most: int, grain: int) -> list[Part]:
    """The spans (begin, size), in order, cut in parts of at most `most` elements, the last first; gaps are left out.

    A part begins and ends at multiples of `grain`. A span that is larger than `most` is a part of its own, together
    with small ones behind it: these are ready no later, biases mostly.
    """
    pieces = reversed(list(_pieces(spans, grain)))
    with_small = _joined(pieces, lambda low, high, begin: high - low < SMALL)
    return _joined(with_small, lambda low, high, begin: high - begin <= most)


def _joined(parts: Iterable[Part], fits: Callable[[int, int, int], bool]) -> list[Part]:
    """Neighbours made one; fits: whether the part (low, high) takes in what is below it, from `begin` on."""
    found: list[Part] = []
    for begin, end in parts:
        low, high = found[-1] if found else (0, 0)
        if found and low - end < SMALL and fits(low, high, begin):
            found[-1] = begin, high
        else:
            found.append((begin, end))
    return found


def _pieces(spans: Mapping[str, Part], grain: int) -> Iterator[Part]:
    """Whole grains of each span; one that several spans share goes to the first, whose gradient comes last."""
    taken = 0
    for begin, size in spans.values():
        first, taken = max(begin // grain, taken), max(ceil_div(begin + size, grain), taken)
        if taken > first:
            yield first * grain, taken * grain


def _extent(span: Part) -> Part:
    begin, size = span
    return begin, begin + size


def _meet(a: Part, b: Part) -> bool:
    return a[0] < b[1] and b[0] < a[1]
