"""Pooling: the maximum, the mean or the sum of each window of a map."""

from kernels.pool.geometry import Pool
from kernels.pool.launch import AVG_BACKWARD, AVG_FORWARD, MAX_BACKWARD, MAX_FORWARD

__all__ = ["AVG_BACKWARD", "AVG_FORWARD", "MAX_BACKWARD", "MAX_FORWARD", "Pool"]
