"""Image preparation in NumPy."""

import numpy as np

from kernels.image.geometry import Prepare
from kernels.layout import Array, Map


def prepare(g: Prepare, pixels: Array, mirror: Array, mean: Array, std: Array, y: Map) -> None:
    """y[c, h, w, n] = (pixels[n, h, w', c] - mean[c]) / std[c]; w' counts from the right where mirror[n] is not 0.

    pixels: uint8 [N, H, W, C]. mirror: uint8 [N]. mean, std: [C], in units of a pixel, 0 to 255.
    """
    np.subtract(pixels.transpose(3, 1, 2, 0), mean[:, None, None, None], out=y)
    y /= std[:, None, None, None]
    flipped = np.flatnonzero(mirror)
    y[..., flipped] = y[:, :, ::-1, flipped]
