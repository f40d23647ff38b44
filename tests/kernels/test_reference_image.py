"""Image preparation, pixel by pixel."""

import numpy as np

from kernels.image import PREPARE, Prepare


def test_pixels():
    rng = np.random.default_rng(0)
    pixels, mirror = rng.integers(0, 256, (3, 4, 5, 2), np.uint8), np.array([0, 1, 1], np.uint8)
    mean, std, y = np.array([100.0, 120.0]), np.array([50.0, 60.0]), np.empty((2, 4, 5, 3))
    PREPARE.reference(Prepare(2, 4, 5, 3), pixels, mirror, mean, std, y)
    for c, h, w, n in np.ndindex(y.shape):
        source = pixels[n, h, 4 - w if mirror[n] else w, c]
        assert y[c, h, w, n] == (source - mean[c]) / std[c]
