"""From a decoded image to the pixels of a sample: resize, pad, crop.

Evaluation is torchvision's, bit for bit: shorter side to `resize` by Pillow's bilinear filter (which is antialiased),
longer side int(resize * long / short); crop at the centre, rounding half to even, zeros where the image is too small.
Mirroring is only drawn here; image.prepare does it.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convnet.data.decode import MAX_PIXELS, over
from convnet.data.decoders import DECODERS
from convnet.data.draws import Purpose, Words, below, words
from convnet.data.errors import DecodeError
from convnet.data.pixels import Pixels, copy, fitted, pack, resize
from convnet.data.policy import Policy
from kernels.image import HEAD, MOST

CROPS = ("center", "random", "resized")
AREA, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10  # of a resized crop: Szegedy et al. 2015, as torchvision does it
GRID = 9  # windows of a grid of views
REDUCING_GAP = 2  # a JPEG is decoded at least this much larger than it will be: what is lost then cannot be seen


@dataclass(frozen=True)
class Transform:
    """What becomes of an image.

    channels, height, width: of the result.
    resize: shorter side before the crop, pixels; None keeps the image's size.
    pad: zeros added on each side before the crop, pixels.
    crop: "center", "random" (a random place), "resized" (a random place, area and aspect, scaled to the result).
    mirror: left and right are exchanged in half of the samples, drawn anew in each epoch.
    policy: random operations on the cut image; none with several views.
    cells: samples of a resized crop are packed as they are, to be resized by image.resample.
    exif_orientation, max_pixels: see `decode`.  decoder: one of DECODERS; they differ in speed alone.
    """

    channels: int
    height: int
    width: int
    resize: int | None = None
    pad: int = 0
    crop: str = "center"
    mirror: bool = False
    policy: Policy | None = None
    cells: bool = False
    exif_orientation: bool = False
    max_pixels: int = MAX_PIXELS
    decoder: str = "pillow"

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ValueError(f"images have 1 or 3 channels, not {self.channels}")
        if self.crop not in CROPS:
            raise ValueError(f"crop must be one of {', '.join(CROPS)}, not '{self.crop}'")

    def load(self, data: bytes, path: str) -> Pixels:
        """The decoded image before the crop [H, W, channels]: what does not change from epoch to epoch.

        At reduced scale only where crops are random: one at the centre must be exact.
        """
        return self.scaled(self._decode(data, path), path)

    @property
    def least_side(self) -> int | None:
        """Below this no JPEG is reduced in decoding: then even the smallest part has all the pixels of the result."""
        if self.crop == "resized" and self.resize is None:
            return math.ceil(max(self.height, self.width) / math.sqrt(AREA[0] * RATIO[0]))
        return self.resize * REDUCING_GAP if self.resize and self.crop == "random" else None

    @functools.cached_property
    def _decode(self) -> Callable[..., Pixels]:
        """The decoder with the options that are the same for all images."""
        return functools.partial(
            DECODERS[self.decoder],
            channels=self.channels,
            exif_orientation=self.exif_orientation,
            max_pixels=self.max_pixels,
            least_side=self.least_side,
            wide=self.resize is not None or (self.crop == "resized" and not self.cells),
        )

    @property
    def partial(self) -> bool:
        """Whether a sample may need a part of its image alone: `sample` then saves time."""
        return self.crop == "resized" and self.resize is None

    def sample(self, data: bytes, path: str, draws: NDArray[np.uint32], out: Pixels) -> None:
        """As `load` and `cut`, but what is not needed may be left undecoded, and damage there goes unnoticed."""
        tries, part = draws[1 : 1 + TRIES], list[int]()

        def rows(height: int, width: int) -> int:
            part[:] = resized_crop(height, width, tries)
            return part[0] + part[2]

        pixels = self._decode(data, path, rows=rows)
        top, left, height, width = part or resized_crop(pixels.shape[0], pixels.shape[1], tries)
        self._fit(pixels[top : top + height, left : left + width], draws, out)

    def scaled(self, pixels: Pixels, path: str) -> Pixels:
        """An image in the size that is cut from."""
        height, width, _ = pixels.shape
        size = (width, height) if self.resize is None else resized(width, height, self.resize)
        if size == (width, height):
            return pixels
        if size[0] * size[1] > self.max_pixels:
            raise DecodeError(path, f"after resize: {self.resize}, {over(size, self.max_pixels)}")
        return resize(pixels, size)

    def keeps(self, width: int, height: int) -> bool:
        """Whether images of this size are left as they are before the crop."""
        return self.resize is None or resized(width, height, self.resize) == (width, height)

    def draw(self, seed: int, epoch: int, indices: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The random words [samples, 1 or more, 4] that `cut`, `finish` and `mirrored` take."""
        numbers = np.arange(1 + TRIES if self.crop == "resized" else 1)
        drawn = words(Purpose.AUGMENT, seed, epoch, indices[:, None], numbers)
        if self.policy is None:
            return drawn
        more = words(Purpose.POLICY, seed, epoch, indices[:, None], np.arange(self.policy.words))
        return np.concatenate([drawn, more], axis=1)

    def mirrored(self, draws: NDArray[np.uint32]) -> Pixels:
        """1 for each sample that is to be mirrored."""
        return (draws[:, 0, 2] >> 31 if self.mirror else np.zeros(len(draws))).astype(np.uint8)

    def cut(self, image: Pixels, draws: NDArray[np.uint32], out: Pixels) -> None:
        """One sample from an image; draws: its random words; out: [height, width, channels], or a cell."""
        if self.crop == "resized":
            top, left, height, width = resized_crop(image.shape[0], image.shape[1], draws[1 : 1 + TRIES])
            self._fit(image[top : top + height, left : left + width], draws, out)
            return
        top = self._start(image.shape[0], self.height, int(draws[0, 0]))
        place(image, top, self._start(image.shape[1], self.width, int(draws[0, 1])), out)
        self.finish(out, draws)

    def _fit(self, window: Pixels, draws: NDArray[np.uint32], out: NDArray[np.uint8]) -> None:
        """A sample of a part of an image; into a cell as it is, unless that is too large."""
        height, width, _ = window.shape
        small = height <= MOST * self.height and width <= MOST * self.width and window.size <= len(out) - HEAD
        if not (self.cells and small):
            window = fitted(window, (self.width, self.height))
        if self.cells:
            pack(window, out)
        else:
            copy(window, out)
            self.finish(out, draws)

    def finish(self, out: Pixels, draws: NDArray[np.uint32]) -> None:
        """What is done to a sample once it is cut."""
        if self.policy:
            self.policy.apply(out, draws[-self.policy.words :])

    def corners(self, height: int, width: int, draws: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Where samples of images of one size begin, [n, 2]: row and column, negative in the padding.

        draws: the random words of each.  Not for a resized crop.
        """
        corners = np.empty((len(draws), 2), np.int64)
        corners[:, 0] = self._start(height, self.height, draws[:, 0, 0].astype(np.int64))
        corners[:, 1] = self._start(width, self.width, draws[:, 0, 1].astype(np.int64))
        return corners

    def _start(self, extent: int, window: int, words: Words) -> Words | int:
        """Along one axis: where the window begins, by a random word, or where it begins in each of some samples."""
        whole = extent + 2 * self.pad
        random = self.crop == "random" and whole > window
        return (below(words, whole - window + 1) if random else centred(whole, window)) - self.pad

    def cut_views(self, image: Pixels, out: Pixels) -> None:
        """The corners, row by row, and the centre, or a grid of 3 x 3; out: [5 or 9, height, width, channels]."""
        tall, wide = (side + 2 * self.pad for side in image.shape[:2])
        height, width = self.height, self.width
        top, left = centred(tall, height), centred(wide, width)
        rows = (0, tall - height) if tall > height else (top, top)
        columns = (0, wide - width) if wide > width else (left, left)
        if len(out) == GRID:
            starts = [(row, column) for row in (rows[0], top, rows[1]) for column in (columns[0], left, columns[1])]
        else:
            starts = [*[(row, column) for row in rows for column in columns], (top, left)]
        for window, (row, column) in zip(out, starts, strict=True):
            place(image, row - self.pad, column - self.pad, window)


def resized(width: int, height: int, short: int) -> tuple[int, int]:
    """Width and height when the shorter side is `short`, as torchvision's Resize has them."""
    long = int(short * max(width, height) / min(width, height))
    return (short, long) if width <= height else (long, short)


def centred(extent: int, size: int) -> int:
    """Where a window starts that torchvision's CenterCrop takes; negative when it is the larger one."""
    return -((size - extent) // 2) if size > extent else round((extent - size) / 2)


def place(image: Pixels, top: int, left: int, out: Pixels) -> None:
    """Copy the window of `image` at (top, left) to `out`, with zeros where it hangs over the edges."""
    height, width, _ = out.shape
    if 0 <= top <= image.shape[0] - height and 0 <= left <= image.shape[1] - width:
        copy(image[top : top + height, left : left + width], out)
        return
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = max(y0, min(top + height, image.shape[0])), max(x0, min(left + width, image.shape[1]))
    out[...] = 0
    copy(image[y0:y1, x0:x1], out[y0 - top : y1 - top, x0 - left : x1 - left])


def resized_crop(height: int, width: int, draws: NDArray[np.uint32]) -> tuple[int, int, int, int]:
    """Top, left, height and width of a part of random area, and aspect uniform on the log scale.

    draws: the words [tries, 4] for area, aspect, top and left.  When no try fits in the image: the largest centred
    part whose aspect is allowed.
    """
    for area, aspect, y, x in draws.tolist():
        pixels = height * width * (AREA[0] + (AREA[1] - AREA[0]) * area / 2**32)
        ratio = math.exp(math.log(RATIO[0]) + math.log(RATIO[1] / RATIO[0]) * aspect / 2**32)
        wide, tall = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            return below(y, height - tall + 1), below(x, width - wide + 1), tall, wide
    wide, tall = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return (height - tall) // 2, (width - wide) // 2, tall, wide
