"""TrivialAugment and RandAugment, by Pillow: random operations on the cut image, before it goes to the device.

Operations and their strengths are those of torchvision's `TrivialAugmentWide` and `RandAugment`; geometry is bilinear
and leaves black behind.  TrivialAugment: Müller and Hutter 2021; RandAugment: Cubuk et al. 2020.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from convnet.data.draws import below
from convnet.data.pixels import image_of

POLICIES = ("trivial", "rand")
STRENGTHS = 31  # steps from nothing to the most
Operation = Callable[[Image.Image, float], Image.Image]  # at a strength, signed where the operation has two directions


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def _enhanced(kind: type) -> Operation:
    return lambda image, x: kind(image).enhance(1 + x)


OPERATIONS: dict[str, Operation] = {
    "identity": lambda image, x: image,
    "shear_x": lambda image, x: _affine(image, 1, x, 0, 0, 1, 0),
    "shear_y": lambda image, x: _affine(image, 1, 0, 0, x, 1, 0),
    "translate_x": lambda image, x: _affine(image, 1, 0, -int(x), 0, 1, 0),
    "translate_y": lambda image, x: _affine(image, 1, 0, 0, 0, 1, -int(x)),
    "rotate": lambda image, x: image.rotate(x, Image.Resampling.BILINEAR),
    "brightness": _enhanced(ImageEnhance.Brightness),
    "color": _enhanced(ImageEnhance.Color),
    "contrast": _enhanced(ImageEnhance.Contrast),
    "sharpness": _enhanced(ImageEnhance.Sharpness),
    "posterize": lambda image, x: ImageOps.posterize(image, 8 - round(x)),
    "solarize": lambda image, x: ImageOps.solarize(image, round(255 - x)),
    "autocontrast": lambda image, x: ImageOps.autocontrast(image),
    "equalize": lambda image, x: ImageOps.equalize(image),
}
SIGNED = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate", "brightness", "color", "contrast", "sharpness")
MOST = {  # strength at the last step; of rand, translations are a share of the side
    "trivial": {
        **dict.fromkeys(SIGNED, 0.99), "translate_x": 32.0, "translate_y": 32.0, "rotate": 135.0, "posterize": 6.0,
        "solarize": 255.0,
    },
    "rand": {
        **dict.fromkeys(SIGNED, 0.9), "shear_x": 0.3, "shear_y": 0.3, "translate_x": 150 / 331,
        "translate_y": 150 / 331, "rotate": 30.0, "posterize": 4.0, "solarize": 255.0,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """name: one of POLICIES. operations, magnitude (of STRENGTHS - 1): of rand; trivial has one of random strength."""

    name: str
    operations: int = 2
    magnitude: int = 9

    @property
    def words(self) -> int:
        """Draws that an image takes."""
        return self.operations if self.name == "rand" else 1

    def apply(self, pixels: NDArray[np.uint8], draws: NDArray[np.uint32]) -> None:
        """Change an image [H, W, C] in place. draws: words [self.words, 4]: operation, strength, sign."""
        image = before = image_of(pixels)
        for which, how, sign, _ in draws.tolist():
            name = list(OPERATIONS)[below(which, len(OPERATIONS))]
            step = self.magnitude if self.name == "rand" else below(how, STRENGTHS)
            strength = self._most(name, image.size) * step / (STRENGTHS - 1)
            image = OPERATIONS[name](image, -strength if name in SIGNED and sign >> 31 else strength)
        if image is not before:
            pixels[...] = np.asarray(image).reshape(pixels.shape)

    def _most(self, name: str, size: tuple[int, int]) -> float:
        """The strength of an operation at the last step."""
        share = self.name == "rand" and name.startswith("translate")
        return MOST[self.name].get(name, 0.0) * (size[name == "translate_y"] if share else 1)
