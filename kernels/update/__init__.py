"""Parameter updates over flat buffers that hold every parameter of a network."""

from kernels.update.geometry import BLOCK, Average, Collect, Magnitude, Norm, Rescale, Sgd
from kernels.update.launch import AVERAGE, COLLECT, MAGNITUDE, NORM, RESCALE, SGD

__all__ = [
    "AVERAGE", "BLOCK", "COLLECT", "MAGNITUDE", "NORM", "RESCALE", "SGD",
    "Average", "Collect", "Magnitude", "Norm", "Rescale", "Sgd",
]  # fmt: skip
