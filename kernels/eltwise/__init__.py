"""Weighted sums and copies of maps: element-wise sum and concatenation, forward and backward."""

from kernels.eltwise.geometry import Copy, Sum
from kernels.eltwise.launch import COPY, SUM

__all__ = ["COPY", "SUM", "Copy", "Sum"]
