"""Parameter updates over flat buffers that hold every parameter of a network."""

from kernels.update.geometry import BLOCK, Magnitude, Sgd
from kernels.update.launch import MAGNITUDE, SGD

__all__ = ["BLOCK", "MAGNITUDE", "SGD", "Magnitude", "Sgd"]
