"""Augmentation on the way to the network: what is drawn for each sample, which `image.augment` then does.

All is a function of (seed, epoch, sample), so that threads, ranks and resume points cannot change it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.data.draws import Purpose, beta, normal, uniform, words
from convnet.data.jitter import NONE, Jitter
from layers.data import COLOUR, CONTRAST, ERASED, MIXED, TARGETS, together

Arrays = dict[str, NDArray[Any]]
TRIES = 10  # to place a rectangle


@dataclass(frozen=True)
class Erasing:
    """A rectangle of the mean colour, with a probability; its share of the image's area, and its aspect."""

    probability: float
    area: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)


@dataclass(frozen=True)
class Augment:
    """What is done to training images beside crop and mirror; of nothing, `names` is empty.

    shape: channels, height and width of the network's input.
    jitter: of brightness, contrast, saturation, hue.
    noise: c of the colour noise (x - mean + c n) / (1 + c), n = sum of a_k times the column k of `pca`, a_k normal: one
    n for an image (cuda-convnet2; without the division, `rescale` false, Krizhevsky et al. 2012).
    pca: [C, C], the principal components of colours, each a column as long as its standard deviation.
    erasing: Zhong et al. 2020, the rectangle as torchvision draws it.
    mixup, cutmix: alpha of their Beta(alpha, alpha), 0 for none (Zhang et al. 2018, Yun et al. 2019); given both, one
    is chosen for each sample. The samples of a batch are taken in pairs, and each of two mixed with the other, by its
    own draw; the last of an odd number stays as it is.
    """

    shape: tuple[int, int, int]
    jitter: Jitter = NONE
    noise: float = 0.0
    rescale: bool = True
    pca: tuple[tuple[float, ...], ...] = ()
    erasing: Erasing | None = None
    mixup: float = 0.0
    cutmix: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """What batches bring for it, by the names of `layers.data.per_sample`."""
        parts = (
            (self.noise or self.jitter, COLOUR),
            (self.jitter.contrast, CONTRAST),
            (self.erasing, ERASED),
            (self.mixes, (*MIXED, *TARGETS)),
        )
        return tuple(name for wanted, names in parts if wanted for name in names)

    @property
    def mixes(self) -> bool:
        return bool(self.mixup or self.cutmix)

    @property
    def unit(self) -> int:
        """Neighbours in a batch that have to come to the same device."""
        return together(self.names)

    def draw(self, seed: int, epoch: int, indices: NDArray[np.int64]) -> Arrays:
        """The values of `names` for neighbours in a batch, the first of them at an even place."""
        drawn: Arrays = {}
        if self.noise or self.jitter:
            drawn |= self._colour(seed, epoch, indices)
        if self.erasing:
            drawn["erased"] = self._erased(self.erasing, seed, epoch, indices)
        if self.mixes:
            drawn |= self._mixed(seed, epoch, indices)
        return {name: drawn[name] for name in self.names}

    def _colour(self, seed: int, epoch: int, indices: NDArray[np.int64]) -> Arrays:
        """For each channel its matrix row, shift and gain; and what it takes of the image's mean colour."""
        channels = self.shape[0]
        matrix, pull = self.jitter.maps(words(Purpose.JITTER, seed, epoch, indices), channels)
        shift, gain = np.zeros((len(indices), channels)), np.ones((len(indices), channels))
        if self.noise:
            amounts = normal(words(Purpose.NOISE, seed, epoch, indices))[:, :channels]
            shift, gain = self.noise * amounts @ np.array(self.pca).T, gain / (1 + self.noise * self.rescale)
        return {"colour": np.concatenate([matrix, shift[..., None], gain[..., None]], axis=2), "pull": pull}

    def _erased(self, how: Erasing, seed: int, epoch: int, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Top, left, height and width of each rectangle, the first of some tries that fits; 0 where none is wanted."""
        _, height, width = self.shape
        draws = words(Purpose.ERASE, seed, epoch, indices[:, None], np.arange(1 + TRIES))
        area = uniform(draws[:, 1:, 0], *how.area) * height * width
        ratio = np.exp(uniform(draws[:, 1:, 1], *np.log(how.ratio)))
        tall, wide = np.rint(np.sqrt(area * ratio)).astype(np.int64), np.rint(np.sqrt(area / ratio)).astype(np.int64)
        fits = (tall > 0) & (tall < height) & (wide > 0) & (wide < width)
        top, left = (
            draws[:, 1:, word] * (side - extent + 1) >> 32
            for word, side, extent in ((2, height, tall), (3, width, wide))
        )
        first = np.arange(len(indices)), fits.argmax(axis=1)
        chosen = np.stack([part[first] for part in (top, left, tall, wide)], axis=1)
        return chosen * (fits[first] & (uniform(draws[:, 0, 0]) < how.probability))[:, None]

    def _mixed(self, seed: int, epoch: int, indices: NDArray[np.int64]) -> Arrays:
        """Where the partner of each sample stands; in which patch, and how much of the sample stays there; and how much
        of the loss is its own."""
        sides, place = np.array(self.shape[1:]), np.arange(len(indices))
        draws = words(Purpose.MIX, seed, epoch, indices[:, None], (0, 1))
        partner = np.where(place ^ 1 < len(place), (place ^ 1) - place, 0)
        cuts = uniform(draws[:, 0, 0]) < (0.5 if self.mixup and self.cutmix else bool(self.cutmix))
        cut, mixed = (beta(draws[:, 0, 1], draws[:, 0, 2], alpha or 1.0) for alpha in (self.cutmix, self.mixup))
        middle, half = uniform(draws[:, 1, :2]) * sides, np.sqrt(1 - cut)[:, None] * sides / 2
        low, high = np.rint(np.clip([middle - half, middle + half], 0, sides)).astype(np.int64)
        patch = np.where(cuts[:, None], np.hstack([low, high - low]), (0, 0, *sides))
        share = np.where(cuts, 1 - patch[:, 2] * patch[:, 3] / sides.prod(), mixed)
        mix = {"partner": partner, "patch": patch, "blend": np.where(cuts, 0, share)}
        return mix | {"second": np.full(len(place), -1), "share": share}


def settle(extras: Arrays, labels: NDArray[np.int32]) -> None:
    """Fill in the labels of partners, once labels stand. Where one of two has none, neither is mixed with the other:
    it may be an image that cannot be read."""
    if "partner" not in extras:
        return
    second = labels[np.arange(len(labels)) + extras["partner"]]
    apart = (labels < 0) | (second < 0) | (extras["partner"] == 0)
    extras["second"][...] = np.where(apart, -1, second)
    extras["patch"][apart], extras["share"][apart] = 0, 1
