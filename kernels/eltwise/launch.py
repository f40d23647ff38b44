"""The sum and copy operations and their CUDA variants."""

from kernels.eltwise import reference
from kernels.eltwise.geometry import Copy, Sum
from kernels.op import Launch, Op
from kernels.rows import VECTOR, map_launch, whole_vectors

SUM = Op("eltwise.sum", reference.sum, writes=("y",), inplace=(("x", "y"),))
COPY = Op("eltwise.copy", reference.copy, writes=("y",))


@SUM.variant("sum.cu")
@COPY.variant("copy.cu")
def single(g: Sum | Copy) -> Launch:
    return map_launch(g)


@SUM.variant("sum.cu", fits=whole_vectors)
@COPY.variant("copy.cu", fits=whole_vectors)
def vec4(g: Sum | Copy) -> Launch:
    return map_launch(g, VECTOR)
