"""From decoded pixels to the input map of a network; flips, blurs, resizes and colour spaces of maps."""

from kernels.image.geometry import Blur, Colour, Flip, Prepare, Resize, Rscale
from kernels.image.launch import BLUR, FLIP, PREPARE, RESIZE, RGB2LAB, RGB2YUV, RSCALE

__all__ = [
    "BLUR", "FLIP", "PREPARE", "RESIZE", "RGB2LAB", "RGB2YUV", "RSCALE",
    "Blur", "Colour", "Flip", "Prepare", "Resize", "Rscale",
]  # fmt: skip
