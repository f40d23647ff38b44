"""Pooling across maps: the maximum of groups of channels, as maxout takes."""

from kernels.cmpool.geometry import Cmpool
from kernels.cmpool.launch import BACKWARD, FORWARD

__all__ = ["BACKWARD", "FORWARD", "Cmpool"]
