"""Weighted sums, copies and maxima of maps: element-wise sum and maximum, and concatenation, forward and backward."""

from kernels.eltwise.geometry import Copy, Maximum, Sum
from kernels.eltwise.launch import COPY, MAXIMUM, MAXIMUM_BACKWARD, SUM

__all__ = ["COPY", "MAXIMUM", "MAXIMUM_BACKWARD", "SUM", "Copy", "Maximum", "Sum"]
