"""Local (unshared) convolution: filters of its own for each output position; and a bias for each output unit."""

from kernels.local.geometry import Local, Units
from kernels.local.launch import BGRAD, BIAS, DGRAD, FORWARD, WGRAD

__all__ = ["BGRAD", "BIAS", "DGRAD", "FORWARD", "WGRAD", "Local", "Units"]
