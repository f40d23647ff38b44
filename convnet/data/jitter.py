"""Random brightness, contrast, saturation and hue, as one linear map of the colours of each image."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convnet.data.draws import uniform

Floats = NDArray[np.float64]
LUMA = np.array([0.299, 0.587, 0.114])  # of red, green, blue: BT.601, as Pillow makes grey
YIQ = np.array([LUMA, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


@dataclass(frozen=True)
class Jitter:
    """torchvision's ColorJitter, cut to 0..255 once, at its end: the order of the four then makes no difference.

    Factors of brightness, contrast and saturation are from [max(0, 1 - x), 1 + x]; hue is from [-x, x] turns of the
    plane of I and Q, which keeps greys and the luma.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __bool__(self) -> bool:
        return any((self.brightness, self.contrast, self.saturation, self.hue))

    def maps(self, draws: NDArray[np.uint32], channels: int) -> tuple[Floats, Floats]:
        """Matrices [n, C, C] of colours, and weights [n, C] of the image's mean colour, which add to all channels.

        draws: words [n, 4]. Grey images have no saturation and no hue.
        """
        luma = LUMA if channels == 3 else np.ones(1)
        amounts = np.array([self.brightness, self.contrast, self.saturation])
        brightness, contrast, saturation = uniform(draws[:, :3], np.maximum(0, 1 - amounts), 1 + amounts).T
        matrix = saturation[:, None, None] * np.eye(channels) + (1 - saturation[:, None, None]) * luma
        if self.hue and channels == 3:
            matrix = _turned(2 * np.pi * uniform(draws[:, 3], -self.hue, self.hue)) @ matrix
        matrix *= (brightness * contrast)[:, None, None]
        return matrix, (brightness * (1 - contrast))[:, None] * luma


NONE = Jitter()


def _turned(angle: Floats) -> Floats:
    """The matrices [n, 3, 3] of RGB that turn I and Q."""
    turn = np.tile(np.eye(3), (len(angle), 1, 1))
    turn[:, 1, 1] = turn[:, 2, 2] = np.cos(angle)
    turn[:, 2, 1], turn[:, 1, 2] = np.sin(angle), -np.sin(angle)
    return np.linalg.inv(YIQ) @ turn @ YIQ
