"""An operation: its NumPy reference, and every CUDA variant that computes the same.

An operation is a function `reference(g, x, ..., y)` that writes its results in place.  `g` is a frozen
dataclass of numbers (the geometry); then come arrays and scalars, in the order in which every kernel of the
operation takes them.  A variant says when it fits a geometry and how it is launched; nothing here knows CUDA.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

FOLDER = Path(__file__).parent
REGISTRY: dict[str, "Op"] = {}


def ceil_div(a: int, b: int) -> int:
    """The least integer not below a / b."""
    return -(-a // b)


@dataclass(frozen=True)
class Launch:
    """One kernel start: everything the driver needs, and nothing about which operation it is."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int = 0  # dynamic shared memory, bytes
    define: tuple[tuple[str, int | str], ...] = ()  # compile-time constants
    kernel: str = ""  # entry point; default: the last part of the operation's name


@dataclass(frozen=True)
class Call:
    """A host function in place of a kernel (a library call): function(stream, g, *arguments)."""

    function: Callable[..., None]


@dataclass(frozen=True)
class Plan:
    """The launches of a variant, in stream order; all take the operation's arguments.

    With a workspace (bytes), each takes it as one more, last argument: a kernel its pointer, a call the array.
    """

    launches: tuple[Launch | Call, ...]
    workspace: int = 0


@dataclass(frozen=True)
class Variant:
    """One way to compute an operation on a GPU."""

    op: "Op"
    name: str
    source: str  # file in kernels/<family>/; "" for a library call
    fits: Callable[[Any], bool | str]
    arch: int  # least compute capability, 80 for sm_80
    tune: dict[str, tuple]
    plan: Callable[..., Plan | Launch | Call]

    @property
    def path(self) -> Path:
        return FOLDER / self.op.family / self.source

    def misfit(self, geometry: Any, arch: int) -> str:
        """Why this variant cannot run `geometry` on `arch`; empty when it can."""
        if arch < self.arch:
            return f"needs sm_{self.arch}, this is sm_{arch}"
        fits = self.fits(geometry)
        if isinstance(fits, str):
            return fits
        return "" if fits else "does not fit the geometry"

    def plans(self, geometry: Any) -> Iterator[Plan]:
        """One plan per combination of the tunables, the default combination first."""
        for values in product(*self.tune.values()):
            plan = self.plan(geometry, **dict(zip(self.tune, values, strict=True)))
            yield plan if isinstance(plan, Plan) else Plan((plan,))


def _signature(reference: Callable[..., None]) -> tuple[type, dict[str, str]]:
    """The geometry type, and the kind of each further argument: map, array, memory, int or float."""
    hints = get_type_hints(reference, include_extras=True)
    names = list(inspect.signature(reference).parameters)
    kinds = {}
    for name in names[1:]:
        hint = hints[name]
        options = [a for a in get_args(hint) if a is not NoneType] if get_origin(hint) in (Union, UnionType) else [hint]
        kinds[name] = getattr(options[0], "__metadata__", (getattr(options[0], "__name__", ""),))[0]
    return hints[names[0]], kinds


class Op:
    """One operation.

    reference: `(g: Geometry, x: Map, w: Array, b: Array | None, ..., y: Map, beta: float)`, each argument annotated.
    writes: arguments that the operation writes; all others are only read.  An operation with a `beta`
    argument computes out = beta * out + result for all it writes, without reading `out` when beta is 0.
    inplace: pairs (read, written) that may share one buffer of equal shape and strides.
    """

    def __init__(
        self,
        name: str,
        reference: Callable[..., None],
        *,
        writes: tuple[str, ...],
        inplace: tuple[tuple[str, str], ...] = (),
    ):
        if name in REGISTRY:
            raise ValueError(f"operation '{name}' is declared twice")
        self.name, self.reference, self.writes, self.inplace = name, reference, writes, inplace
        self.family, self.entry = name.split(".")
        self.geometry, self.arguments = _signature(reference)
        self.variants: dict[str, Variant] = {}
        unknown = set(writes) - self.arguments.keys()
        if unknown:
            raise ValueError(f"operation '{name}' writes {sorted(unknown)}, which it does not take")
        REGISTRY[name] = self

    def __repr__(self) -> str:
        return self.name

    @property
    def accumulates(self) -> bool:
        return "beta" in self.arguments

    def variant(
        self, source: str = "", *, fits: Callable[[Any], bool | str] = lambda g: True, arch: int = 70, **tune: tuple
    ) -> Callable:
        """Register the decorated function `plan(g, **tunables)` as a variant; declare the best last."""

        def register(plan: Callable[..., Plan | Launch | Call]) -> Callable:
            name = plan.__name__
            if name in self.variants:
                raise ValueError(f"{self.name}: variant '{name}' is declared twice")
            self.variants[name] = Variant(self, name, source, fits, arch, tune, plan)
            return plan

        return register

    def candidates(self, geometry: Any, arch: int) -> Iterator[tuple[Variant, Plan]]:
        """Every variant that fits, once per combination of its tunables, the preferred variant first."""
        for variant in reversed(self.variants.values()):
            if not variant.misfit(geometry, arch):
                for plan in variant.plans(geometry):
                    yield variant, plan

    def choose(self, geometry: Any, arch: int) -> tuple[Variant, Plan]:
        """The preferred variant that fits: the last one declared, with its first tunables."""
        for candidate in self.candidates(geometry, arch):
            return candidate
        reasons = "; ".join(f"{v.name} {v.misfit(geometry, arch)}" for v in self.variants.values())
        raise LookupError(f"no CUDA variant of {self.name} fits {geometry}: {reasons or 'none is declared'}")
