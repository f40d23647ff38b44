"""The operations of pooling across maps and their CUDA variants."""

from kernels.cmpool import reference
from kernels.cmpool.geometry import Cmpool
from kernels.op import Launch, Op
from kernels.rows import VECTOR, map_launch, row_launch, whole_vectors

FORWARD = Op("cmpool.forward", reference.forward, writes=("y",))
BACKWARD = Op("cmpool.backward", reference.backward, writes=("dx",))


@FORWARD.variant("max.cu")
def single(g: Cmpool) -> Launch:
    return row_launch(g.outputs, g.height, g.width * g.batch)


@FORWARD.variant("max.cu", fits=whole_vectors)
def vec4(g: Cmpool) -> Launch:
    return row_launch(g.outputs, g.height, g.width * g.batch, VECTOR)


@BACKWARD.variant("max.cu")
def single_backward(g: Cmpool) -> Launch:
    return map_launch(g)


@BACKWARD.variant("max.cu", fits=whole_vectors)
def vec4_backward(g: Cmpool) -> Launch:
    return map_launch(g, VECTOR)
