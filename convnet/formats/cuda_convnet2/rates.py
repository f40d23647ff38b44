"""Learning rates of cuda-convnet2's layers, to a solver section and what differs from it in single layers."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from layers.values import as_integer, as_number

T = TypeVar("T")
WRITTEN = re.compile(r"(\w+)\s*\[(.*)\]")
ARGUMENTS = {
    "const": ("base",),
    "linear": ("base", "tgtfactor"),
    "exp": ("base", "tgtfactor"),
    "dexp": ("base", "tgtfactor", "numsteps"),
}
EXPECTED = "a number, or const, linear, exp or dexp such as dexp[base=0.01;tgtFactor=250;numSteps=4]"


@dataclass(frozen=True)
class Rate:
    """A rate at the start, and how it changes."""

    base: float
    kind: str = "const"
    factor: float = 1.0
    steps: int = 1

    @property
    def numbers(self) -> tuple[float, ...]:
        return self.base, self.factor, self.steps

    @property
    def schedule(self) -> dict[str, Any]:
        """The section of our schedule."""
        if self.kind == "const":
            return {"type": "constant"}
        steps = {"steps": self.steps} if self.kind == "dexp" else {}
        return {"type": self.kind, "factor": self.factor, **steps}


@dataclass
class Learned:
    """How a layer learns: its weights, or None where they are another layer's; its biases, or None without."""

    layer: str
    weights: Rate | None
    biases: Rate | None
    momentum: float
    bias_momentum: float
    decay: float
    more: dict[str, Any] = field(default_factory=dict)  # further options of the layer's solver section


def read_rate(text: str) -> Rate | None:
    """0.01, or dexp[base=0.01;tgtFactor=250;numSteps=4]; None for anything else."""
    if (number := as_number(text)) is not None:
        return Rate(number)
    match = WRITTEN.fullmatch(text.strip())
    if not match or match[1].lower() not in ARGUMENTS:
        return None
    kind = match[1].lower()
    pairs = [part.partition("=") for part in match[2].split(";")]
    given = {name.strip().lower(): value.strip() for name, _, value in pairs}
    numbers = [as_number(given.get(name, "")) for name in ("base", *(["tgtfactor"] if kind != "const" else []))]
    steps = as_integer(given.get("numsteps", "")) if kind == "dexp" else 1
    if set(given) != set(ARGUMENTS[kind]) or len(pairs) != len(given) or None in numbers or steps is None:
        return None
    base, factor = (*numbers, 1.0)[:2]
    return Rate(base or 0.0, kind, factor, steps) if factor and factor > 0 and steps > 0 else None


def solver_section(learned: list[Learned]) -> tuple[dict[str, Any], dict[str, dict[str, Any]], list[str]]:
    """The solver, what each layer has of its own, and notes on what cannot be said: most layers decide for all."""
    weights = [one.weights for one in learned if one.weights]
    biases = [one.biases for one in learned if one.biases]
    lr, lr_bias = _commonest((rate.base for rate in weights), 0.01), _commonest((rate.base for rate in biases), 0.01)
    momentum = _commonest((one.momentum for one in learned), 0.9)
    decay = _commonest((one.decay for one in learned if one.weights), 0.0)
    schedules = [_commonest((_shape(rate) for rate in rates if rate.base), Rate(1)) for rates in (weights, biases)]
    solver: dict[str, Any] = {"lr": lr, "lr_bias": lr_bias, "momentum": momentum, "weight_decay": decay}
    solver["schedule"] = schedules[0].schedule
    if schedules[1] != schedules[0]:
        solver["schedule_bias"] = schedules[1].schedule
    own: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    for one in learned:
        own[one.layer] = _own(one, lr, lr_bias, momentum, decay) | one.more
        for rate, common, what in ((one.weights, schedules[0], "weights"), (one.biases, schedules[1], "biases")):
            if rate and rate.base and _shape(rate) != common:
                notes.append(f"{one.layer}: its {what} follow {_told(rate)} there, {_told(common)} here")
        if one.biases and one.bias_momentum != one.momentum:
            notes.append(
                f"{one.layer}: biases have the momentum of weights, {one.momentum:g}, not {one.bias_momentum:g}"
            )
    return solver, own, notes


def _shape(rate: Rate) -> Rate:
    return Rate(1, rate.kind, rate.factor, rate.steps)


def _told(rate: Rate) -> str:
    """A schedule in words: dexp with factor 250, steps 4."""
    kind, *options = [f"{name} {value:g}" if name != "type" else value for name, value in rate.schedule.items()]
    return f"{kind} with {', '.join(options)}" if options else str(kind)


def _own(one: Learned, lr: float, lr_bias: float, momentum: float, decay: float) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if one.weights and one.weights.base != lr:
        own["lr"] = one.weights.base
    if one.biases and (one.biases.base != lr_bias or "lr" in own):  # a layer's lr holds for its biases too
        own["lr_bias"] = one.biases.base
    if one.weights and one.decay != decay:
        own["weight_decay"] = one.decay
    return own | ({"momentum": one.momentum} if one.momentum != momentum else {})


def _commonest(values: Iterable[T], default: T) -> T:
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else default
