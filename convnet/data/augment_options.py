"""Sections below `data.train`: what is done to images in training alone."""

from dataclasses import dataclass
from typing import ClassVar

from convnet.data.augment import Erasing
from convnet.data.jitter import Jitter
from convnet.data.policy import POLICIES
from layers.options import ConfigError, Options, option


@dataclass(frozen=True)
class ColorNoise(Options):
    """Along the principal components of the colours of `data.statistics`, one draw for an image: with n = the sum of
    the components times standard normal numbers, x = (pixel - mean + strength n) / (1 + strength), as cuda-convnet2."""

    shorthand: ClassVar[tuple[str, ...]] = ("strength",)

    strength: float = option(least=0, doc="of the noise; 0.1 in published recipes")
    rescale: bool = option(True, doc="divide by 1 + strength; false: as Krizhevsky, Sutskever, Hinton 2012")


@dataclass(frozen=True)
class ColorJitter(Options):
    """Random brightness, contrast, saturation and hue; one number sets the first three."""

    shorthand: ClassVar[tuple[str, ...]] = ("brightness", "contrast", "saturation")

    brightness: float = option(0.0, least=0, doc="x: a factor between max(0, 1 - x) and 1 + x, 0 being black")
    contrast: float = option(0.0, least=0, doc="the same, 0 being the mean grey of the image")
    saturation: float = option(0.0, least=0, doc="the same, 0 being grey")
    hue: float = option(0.0, least=0, most=0.5, doc="x: turned by -x to x of a full turn")

    def jitter(self) -> Jitter:
        return Jitter(self.brightness, self.contrast, self.saturation, self.hue)


@dataclass(frozen=True)
class RandomErasing(Options):
    """A rectangle in the image takes the mean colour (Zhong et al. 2020)."""

    shorthand: ClassVar[tuple[str, ...]] = ("probability",)

    probability: float = option(0.5, least=0, most=1, doc="of an image to lose a part")
    area: tuple[float, ...] = option((0.02, 0.33), above=0, most=1, doc="share of the image: least and most")
    ratio: tuple[float, ...] = option((0.3, 3.3), above=0, doc="height to width: least and most")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("area", "ratio"):
            found = getattr(self, name)
            if len(found) != 2 or found[0] > found[1]:
                raise ConfigError(f"expected the least and the most, found {list(found)}", (name,))

    def erasing(self) -> Erasing:
        (small, large), (low, high) = self.area, self.ratio
        return Erasing(self.probability, (small, large), (low, high))


@dataclass(frozen=True)
class AutoAugment(Options):
    """Random operations of Pillow on the cut image, as torchvision has them: rotations, shears, colours, ..."""

    shorthand: ClassVar[tuple[str, ...]] = ("policy",)

    policy: str = option(
        choices=POLICIES,
        doc="trivial: one operation of random strength (Müller, Hutter 2021); rand: several of one strength (Cubuk et "
        "al. 2020)",
    )
    operations: int = option(2, least=1, doc="of rand: how many")
    magnitude: int = option(9, least=0, most=30, doc="of rand: their strength; 30 is the most")
