"""The sum, copy and maximum operations and their CUDA variants."""

from kernels.eltwise import reference
from kernels.eltwise.geometry import Copy, Maximum, Sum
from kernels.op import Launch, Op
from kernels.rows import VECTOR, map_launch, whole_vectors

SUM = Op("eltwise.sum", reference.sum, writes=("y",), inplace=(("x", "y"),))
COPY = Op("eltwise.copy", reference.copy, writes=("y",))
MAXIMUM = Op("eltwise.maximum", reference.maximum, writes=("y", "winner"))
MAXIMUM_BACKWARD = Op("eltwise.maximum_backward", reference.maximum_backward, writes=("dx",), inplace=(("dy", "dx"),))


@SUM.variant("sum.cu")
@COPY.variant("copy.cu")
@MAXIMUM.variant("maximum.cu")
@MAXIMUM_BACKWARD.variant("maximum.cu")
def single(g: Sum | Copy | Maximum) -> Launch:
    return map_launch(g)


@SUM.variant("sum.cu", fits=whole_vectors)
@COPY.variant("copy.cu", fits=whole_vectors)
@MAXIMUM.variant("maximum.cu", fits=whole_vectors)
@MAXIMUM_BACKWARD.variant("maximum.cu", fits=whole_vectors)
def vec4(g: Sum | Copy | Maximum) -> Launch:
    return map_launch(g, VECTOR)
