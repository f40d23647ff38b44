"""What a step of several ranks takes: a model of links and devices, and the time line that follows. Pure.

A step list is run by two queues, as on a GPU: one computes, step by step; the other moves arrays, transfer by transfer
in the order in which they are started. A wait holds up the first until the second has come to the transfer's end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from convnet.graph.steps import Step, Value
from convnet.parallel.collectives import Collective
from convnet.parallel.communicator import Communicator
from kernels import conv, fc, local


@dataclass(frozen=True)
class Links:
    """`nodes` machines of `gpus` ranks each.

    bandwidth: bytes/s that a rank sends, and at the same time receives, within its machine. between: the same of a
    whole machine, to others. latency, latency_between: seconds of a transfer of nothing. contention: the part of its
    speed that computation loses while a transfer runs, to the multiprocessors and the memory that it takes (0.15 to 0.3
    between two H200).
    """

    nodes: int = 1
    gpus: int = 1
    bandwidth: float = 300e9
    between: float = 50e9
    latency: float = 12e-6
    latency_between: float = 30e-6
    contention: float = 0.25

    @property
    def size(self) -> int:
        """Ranks of all."""
        return self.nodes * self.gpus

    def seconds(self, kind: str, nbytes: float) -> float:
        """Of one transfer; nbytes: of its larger side.

        Of n ranks in a ring each sends (n - 1) / n of the bytes to gather or to scatter them, and twice as much to do
        both, which is all_reduce. Between machines each does so with its part of what is joined within its machine.
        """
        if self.size == 1:
            return 0.0
        trips = 2 if kind == "all_reduce" else 1
        within, across = self.gpus, self.nodes
        if kind in ("broadcast", "reduce", "send", "receive"):
            inner, outer = float(within > 1), float(across > 1)
        else:
            inner, outer = trips * (within - 1) / within, trips * (across - 1) / across
        steps = self.latency * (within > 1) + self.latency_between * trips * (across > 1)
        return steps + nbytes * (inner / self.bandwidth + outer / self.between)

    def fitted(self, measured: Mapping[int, float]) -> "Links":
        """With the latency and the bandwidth of measured all-reduces within one machine: bytes to seconds."""
        sizes = sorted(measured)
        latency = min(measured.values())
        factor = 2 * (self.gpus - 1) / self.gpus
        bandwidth = factor * sizes[-1] / max(measured[sizes[-1]] - latency, 1e-12)
        return replace(self, latency=latency, bandwidth=bandwidth)


@dataclass(frozen=True)
class Machine:
    """A device: operations a second (a multiply-add is two), bytes a second of its memory, seconds to start a step."""

    flops: float
    memory: float
    start: float

    def seconds(self, step: Step) -> float:
        """An estimate for a step that computes: by its arithmetic, or by the bytes that it touches."""
        nbytes = sum(value.nbytes for value in step.values())
        return self.start + max(operations(step) / self.flops, nbytes / self.memory)


CPU = Machine(5e10, 1e10, 1e-5)
GPUS = {70: Machine(12e12, 0.8e12, 3e-6), 80: Machine(15e12, 1.4e12, 3e-6), 90: Machine(45e12, 3.6e12, 2.5e-6)}


def machine(arch: int | None) -> Machine:
    """A device of an architecture, such as 90; None: the CPU."""
    return CPU if arch is None else GPUS[max((known for known in GPUS if known <= arch), default=70)]


def links(arch: int | None, communicator: Communicator) -> Links:
    """Between such devices: NVLink between GPUs of one machine, memory that processes share between CPUs."""
    gpus = communicator.local or communicator.size
    found = Links(nodes=-(-communicator.size // gpus), gpus=gpus)
    return found if arch is not None else replace(found, bandwidth=2e9, latency=5e-5)


def operations(step: Step) -> float:
    """Of the products of a step's layer; 0 where it has none."""
    g: Any = step.geometry
    if isinstance(g, fc.Fc) and step.op is not fc.BGRAD:
        return 2.0 * g.part_features * g.outputs * g.batch
    if step.op in (conv.FORWARD, conv.DGRAD, conv.WGRAD, local.FORWARD, local.DGRAD, local.WGRAD):
        taps = g.channels // g.groups * g.rows * g.cols
        return 2.0 * prod((g.filters, g.out_h, g.out_w, g.batch, taps))
    return 0.0


def moves(step: Step) -> bool:
    """Whether a step is a half of a transfer."""
    return isinstance(step.op, Collective)


def starts(step: Step) -> bool:
    """Whether a step starts a transfer."""
    return isinstance(step.op, Collective) and step.op.starts


def size_of(step: Step) -> int:
    """Bytes of the larger side of a transfer."""
    return max(value.nbytes for value in step.arguments.values() if isinstance(value, Value))


@dataclass(frozen=True)
class Times:
    """Of a step, in seconds: all of it; computing alone; transfers alone; and how much longer it is for them."""

    total: float
    compute: float
    exchange: float

    @property
    def exposed(self) -> float:
        return self.total - self.compute


def simulate(steps: Sequence[Step], seconds: Sequence[float], links: Links) -> Times:
    """The time line of a step list. seconds: of each step that computes; those of transfers are not read."""
    now = free = compute = exchange = 0.0
    ends: dict[Any, float] = {}
    for step, own in zip(steps, seconds, strict=True):
        if not moves(step):
            compute += own
            now = _advance(now, own, free, 1 - links.contention)
        elif starts(step):
            taken = links.seconds(step.op.name.partition(".")[0], size_of(step))
            free = ends[step.geometry] = max(free, now) + taken
            exchange += taken
        else:
            now = max(now, ends.pop(step.geometry))
    return Times(now, compute, exchange)


def _advance(now: float, own: float, free: float, speed: float) -> float:
    """When a step ends that begins now and would take `own` if nothing moved; something does until `free`."""
    slow = max(free - now, 0.0) * speed  # of its work, done by then
    return now + own / speed if own <= slow else max(now, free) + own - slow


def predicted(steps: Sequence[Step], links: Links, seconds: Callable[[Step], float]) -> Times:
    """The same, with a function for the steps that compute."""
    return simulate(steps, [0.0 if moves(step) else seconds(step) for step in steps], links)
