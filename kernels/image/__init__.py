"""From decoded pixels to the input map of a network."""

from kernels.image.geometry import Prepare
from kernels.image.launch import PREPARE

__all__ = ["PREPARE", "Prepare"]
