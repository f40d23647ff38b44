"""Convolution: y = b + w * x, its input gradient, weight gradient and bias gradient."""

from kernels.conv.geometry import Conv
from kernels.conv.launch import BGRAD, DGRAD, FORWARD, WGRAD

__all__ = ["BGRAD", "DGRAD", "FORWARD", "WGRAD", "Conv"]
