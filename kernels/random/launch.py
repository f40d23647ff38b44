"""The dropout operations and their CUDA variants."""

from kernels.op import Launch, Op
from kernels.random import reference
from kernels.random.geometry import Dropout
from kernels.rows import VECTOR, map_launch, whole_batch_vectors

DROPOUT = Op("random.dropout", reference.dropout, writes=("y",), inplace=(("x", "y"),))
DROPOUT_BACKWARD = Op("random.dropout_backward", reference.dropout_backward, writes=("dx",), inplace=(("dy", "dx"),))


@DROPOUT.variant("dropout.cu")
@DROPOUT_BACKWARD.variant("dropout.cu")
def single(g: Dropout) -> Launch:
    return map_launch(g)


@DROPOUT.variant("dropout.cu", fits=whole_batch_vectors)
@DROPOUT_BACKWARD.variant("dropout.cu", fits=whole_batch_vectors)
def vec4(g: Dropout) -> Launch:
    return map_launch(g, VECTOR)
