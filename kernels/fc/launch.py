"""The fully connected operations and their CUDA variants."""

from kernels.fc import reference
from kernels.op import Op

FORWARD = Op("fc.forward", reference.forward, writes=("y",))
DGRAD = Op("fc.dgrad", reference.dgrad, writes=("dx",))
WGRAD = Op("fc.wgrad", reference.wgrad, writes=("dw",))
BGRAD = Op("fc.bgrad", reference.bgrad, writes=("db",))
