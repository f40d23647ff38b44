"""The operations before and after an exchange, and their CUDA variants."""

from typing import Any

from kernels.op import Call, Launch, Op
from kernels.wire import reference
from kernels.wire.geometry import Clear, Halve, Scale

NARROW = Op("wire.narrow", reference.narrow, writes=("y",))
WIDEN = Op("wire.widen", reference.widen, writes=("y",))
SCALE = Op("wire.scale", reference.scale, writes=("x",))
CLEAR = Op("wire.clear", reference.clear, writes=("x",))


@NARROW.variant("halve.cu")
@WIDEN.variant("halve.cu")
def halves(g: Halve) -> Launch:
    return Launch((g.blocks,), (256,))


@SCALE.variant("scale.cu")
def blocks(g: Scale) -> Launch:
    return Launch((g.blocks,), (256,))


@CLEAR.variant()
def memset(g: Clear) -> Call:
    return Call(_memset)


def _memset(stream: Any, g: Clear, x: Any) -> None:
    x.data.memset_async(0, x.nbytes, stream)
