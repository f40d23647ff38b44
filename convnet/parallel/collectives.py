"""Collectives as operations of a step list: one step starts a transfer, a later one waits for its end.

Between the two the transfer runs beside the computation, on a GPU on a stream of its own. Whoever builds a step list
places both:

    start, wait = exchange("fc1", "forward", "all_gather", source, target)  # convnet.graph.steps
    steps += [start, *what_runs_meanwhile, wait]

    wait = emit.start("all_gather", source, target)  # the same in a layer, or wherever there is a LayerEmit
    ...
    wait()

Nothing may write the source, or touch the target, from the start to the wait. Both may be values of the arena: the
wait names them again, so that their places are theirs until then. A map counts as the contiguous buffer it lies in, in
the order of its layout. All ranks start the same transfers in the same order.

    kind            source, elements      target, elements      with world ranks
    all_reduce      n                     n                     the sum (or minimum) of all sources
    reduce          n                     n, or None            the same, at `root` alone
    reduce_scatter  world * n             n                     of the sum, the part of this rank
    all_gather      n                     world * n             the sources, by rank
    broadcast       n, or None            n                     the source of `root`
    send            n                     None                  to the rank `root`
    receive         None                  n                     from the rank `root`

Target and source may be the same value; that of reduce_scatter and all_gather may be this rank's part of the other.
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, eq=False)
class Transfer:
    """One transfer: the geometry of both of its steps. root: see above. function: sum or min, of what is reduced."""

    root: int = 0
    function: str = "sum"


@dataclass(frozen=True)
class Collective:
    """What a step list knows of an operation (see kernels.op.Op), of one half of a transfer of this kind."""

    kind: str
    half: str

    arguments: ClassVar[dict[str, str]] = {"source": "array", "target": "array"}
    writes: ClassVar[tuple[str, ...]] = ("target",)
    inplace: ClassVar[tuple[tuple[str, str], ...]] = ()
    accumulates: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.half}"

    @property
    def starts(self) -> bool:
        """Whether the target is not there yet when the step has been run."""
        return self.half == "start"

    def __repr__(self) -> str:
        return self.name
