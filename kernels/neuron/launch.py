"""The neuron operations and their CUDA variants."""

from kernels.neuron import reference
from kernels.neuron.geometry import Neuron
from kernels.op import Launch, Op
from kernels.rows import VECTOR, map_launch, whole_vectors

FORWARD = Op("neuron.forward", reference.forward, writes=("y",), inplace=(("x", "y"),))
BACKWARD = Op("neuron.backward", reference.backward, writes=("dx",), inplace=(("dy", "dx"),))
BACKWARD_X = Op("neuron.backward_x", reference.backward_x, writes=("dx",), inplace=(("dy", "dx"),))


@FORWARD.variant("elementwise.cu")
@BACKWARD.variant("elementwise.cu")
@BACKWARD_X.variant("elementwise.cu")
def single(g: Neuron) -> Launch:
    return map_launch(g, KIND=g.kind)


@FORWARD.variant("elementwise.cu", fits=whole_vectors)
@BACKWARD.variant("elementwise.cu", fits=whole_vectors)
@BACKWARD_X.variant("elementwise.cu", fits=whole_vectors)
def vec4(g: Neuron) -> Launch:
    return map_launch(g, VECTOR, KIND=g.kind)
