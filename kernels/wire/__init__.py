"""What ranks do to flat arrays before and after they exchange them: halve, widen, weigh, clear."""

from kernels.wire.geometry import Clear, Halve, Scale
from kernels.wire.launch import CLEAR, NARROW, SCALE, WIDEN

__all__ = ["CLEAR", "NARROW", "SCALE", "WIDEN", "Clear", "Halve", "Scale"]
