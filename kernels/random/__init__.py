"""Counter-based random numbers: keyed by what is drawn, the same on every thread, rank and device."""

from kernels.random.geometry import Dropout
from kernels.random.launch import DROPOUT, DROPOUT_BACKWARD
from kernels.random.philox import philox4x32

__all__ = ["DROPOUT", "DROPOUT_BACKWARD", "Dropout", "philox4x32"]
