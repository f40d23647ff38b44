"""The pooling operations and their CUDA variants."""

from kernels.op import Launch, Op
from kernels.pool import reference
from kernels.pool.geometry import Pool
from kernels.rows import VECTOR, map_launch, row_launch, whole_batch_vectors

MAX_FORWARD = Op("pool.max_forward", reference.max_forward, writes=("y",))
MAX_BACKWARD = Op("pool.max_backward", reference.max_backward, writes=("dx",))
AVG_FORWARD = Op("pool.avg_forward", reference.avg_forward, writes=("y",))
AVG_BACKWARD = Op("pool.avg_backward", reference.avg_backward, writes=("dx",))


@MAX_FORWARD.variant("max.cu")
@AVG_FORWARD.variant("avg.cu")
def single_output(g: Pool) -> Launch:
    return row_launch(g.channels, g.out_h, g.out_w * g.batch, ABSOLUTE=int(g.absolute))


@MAX_FORWARD.variant("max.cu", fits=whole_batch_vectors)
@AVG_FORWARD.variant("avg.cu", fits=whole_batch_vectors)
def vec4_output(g: Pool) -> Launch:
    return row_launch(g.channels, g.out_h, g.out_w * g.batch, VECTOR, ABSOLUTE=int(g.absolute))


@MAX_BACKWARD.variant("max.cu")
@AVG_BACKWARD.variant("avg.cu")
def single_input(g: Pool) -> Launch:
    return map_launch(g, ABSOLUTE=int(g.absolute))


@MAX_BACKWARD.variant("max.cu", fits=whole_batch_vectors)
@AVG_BACKWARD.variant("avg.cu", fits=whole_batch_vectors)
def vec4_input(g: Pool) -> Launch:
    return map_launch(g, VECTOR, ABSOLUTE=int(g.absolute))
