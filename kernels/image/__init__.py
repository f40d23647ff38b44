"""From decoded pixels to the input map of a network; flips, blurs, resizes and colour spaces of maps."""

from kernels.image.geometry import HEAD, MOST, Augment, Blur, Colour, Flip, Prepare, Resample, Resize, Rscale
from kernels.image.launch import AUGMENT, BLUR, FLIP, PREPARE, RESAMPLE, RESIZE, RGB2LAB, RGB2YUV, RSCALE

__all__ = [
    "AUGMENT", "BLUR", "FLIP", "HEAD", "MOST", "PREPARE", "RESAMPLE", "RESIZE", "RGB2LAB", "RGB2YUV", "RSCALE",
    "Augment", "Blur", "Colour", "Flip", "Prepare", "Resample", "Resize", "Rscale",
]  # fmt: skip
