"""Geometries of image preparation, resizing, smoothing and colour."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prepare:
    """A part of `height` x `width` of each of `batch` images of `source_h` x `source_w` x `channels` bytes, to a map.

    mean_image: the mean is one of each pixel, not of each channel.
    """

    channels: int
    height: int
    width: int
    batch: int
    source_h: int
    source_w: int
    mean_image: bool = False


@dataclass(frozen=True)
class Augment(Prepare):
    """contrast: colours depend on the mean colour of the image."""

    contrast: bool = False


@dataclass(frozen=True)
class Resample:
    """Of `batch` cells, `cell` bytes each, an image of `channels`, of a size of its own, to `height` x `width` pixels.

    A cell begins with the height and width of its image, int32; its pixels lie from byte HEAD on. Neither side is more
    than MOST times that of the result; an image of no pixels becomes 0.
    """

    channels: int
    height: int
    width: int
    batch: int
    cell: int


HEAD = 16  # bytes, so that pixels are aligned as the cell is
MOST = 4


@dataclass(frozen=True)
class Flip:
    """A map of `channels` x `height` x `width` x `batch`, to one of the same axes."""

    channels: int
    height: int
    width: int
    batch: int


@dataclass(frozen=True)
class Blur:
    """A Gaussian of `size` taps (odd) and standard deviation `stdev`, along columns (`vertical`) or rows."""

    channels: int
    height: int
    width: int
    batch: int
    size: int
    stdev: float
    vertical: bool


@dataclass(frozen=True)
class Resize:
    """A map of `height` x `width` to one of `out_h` x `out_w`, an output pixel being `scale` input pixels."""

    channels: int
    height: int
    width: int
    batch: int
    out_h: int
    out_w: int
    scale: float


@dataclass(frozen=True)
class Rscale:
    """A map of `height` x `width`, shrunk by a random factor, to a crop of `out_h` x `out_w`, neither side larger.

    `key`, in [0, 2^31), tells the layers of a network apart: each draws its own numbers.
    """

    channels: int
    height: int
    width: int
    batch: int
    out_h: int
    out_w: int
    key: int


@dataclass(frozen=True)
class Colour:
    """A map of three `channels` to another of three. center: 50 is subtracted from L*."""

    channels: int
    height: int
    width: int
    batch: int
    center: bool
