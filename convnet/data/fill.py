"""Samples of a batch into their places: what a decoding thread or process does."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from convnet.data.cache import Cache
from convnet.data.errors import DataError, DecodeError
from convnet.data.pixels import Pixels
from convnet.data.sources import EncodedSource, PixelSource, Source
from convnet.data.transform import Transform
from kernels.image import HEAD
from kernels.op import ceil_div

MOST_UNCUT = 2  # times the pixels of the network's input, that a whole image may have
ROOM = 3  # times the same, that a cell has room for: seven of eight resized crops of ImageNet's photographs
SMALL = 64 << 10  # bytes of an image; copies of such are gathered in one call, which holds Python's lock once
LEAVES_OUT = "on_error: skip leaves such images out"
CHUNK = 64  # images that are padded at a time: together they stay in the processor's cache

Broken = dict[int, DecodeError]


@dataclass(frozen=True)
class Form:
    """What samples come as, if not as pixels of the network's input.

    uncut: height and width of whole images of a PixelSource, which the device cuts.
    cell: bytes of a cell, in which there is the part of an image that the device resizes (`image.resample`).
    """

    uncut: tuple[int, int] | None = None
    cell: int = 0


PLAIN = Form()


class Filler:
    """Fills places of a batch with samples of a source.

    skip: a sample that cannot be decoded gets pixels 0 and is reported, rather than raised.
    """

    def __init__(self, source: Source, transform: Transform, cache: Cache, *, skip: bool = False, form: Form = PLAIN):
        self.source, self.cache, self.skip, self.form = source, cache, skip, form
        self.transform = replace(transform, cells=form.cell > 0)
        self._broken: Broken = {}  # by index in the source: not read again
        self.whole = np.zeros(len(source), np.uint8)  # 1 for each image that has been decoded without a fault
        if isinstance(source, PixelSource) and source.images.shape[3] != transform.channels:
            found = f"{source.name}: images of {source.images.shape[3]} channels"
            raise DataError(f"{found}, the network's input has {transform.channels}")

    def fill(
        self,
        indices: NDArray[np.int64],
        draws: NDArray[np.uint32],
        out: NDArray[np.uint8],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Broken:
        """Samples `indices` [n], with their random words [n, ...], to out [windows, n, H, W, C], or [1, n, cell].

        The errors of those that were skipped, by place; raises DecodeError and DataError, which name the sample.
        """
        images = self.images
        if self.form.uncut:
            np.take(np.asarray(images), indices, axis=0, out=out[0], mode="clip")  # "raise" would make a copy of all
            return {}
        if images is not None and len(out) == 1 and self.transform.crop != "resized":
            corners = self.transform.corners(images.shape[1], images.shape[2], draws)
            gather(images, indices, corners, out[0])
            for place, words in zip(out[0], draws, strict=True) if self.transform.policy else ():
                self.transform.finish(place, words)
            return {}
        broken: Broken = {}
        for place, index in enumerate(indices.tolist()):
            if cancelled():
                break
            try:
                self._place(index, draws[place], out[:, place])
            except DecodeError as error:
                where = error.path or self.source.where(index)
                if not self.skip:
                    raise DecodeError(where, f"{error.reason}; {LEAVES_OUT}") from error
                out[:, place], broken[place] = 0, DecodeError(where, error.reason)
                self._broken[index] = broken[place]
            except Exception as error:
                raise DataError(f"'{self.source.where(index)}': {type(error).__name__}: {error}") from error
        return broken

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample: height, width, channels; or the bytes of a cell."""
        if self.form.cell:
            return (self.form.cell,)
        return (*(self.form.uncut or (self.transform.height, self.transform.width)), self.transform.channels)

    @property
    def images(self) -> NDArray[np.uint8] | None:
        """All images of the source, [n, H, W, C], where they are at hand and of one size."""
        if not isinstance(self.source, PixelSource):
            return self.cache.stacked
        images = self.source.images
        return images if self.transform.keeps(images.shape[2], images.shape[1]) else None

    def _place(self, index: int, draws: NDArray[np.uint32], out: NDArray[np.uint8]) -> None:
        """One sample; errors have no path, which takes longer to tell than to read some images."""
        known = self.whole[index] and not self.cache.limit
        if known and self.transform.partial and isinstance(self.source, EncodedSource):
            self.transform.sample(self.source.read(index), "", draws, out[0])
            return
        image = self._image(index)
        self.whole[index] = 1
        if len(out) == 1:
            self.transform.cut(image, draws, out[0])
        else:
            self.transform.cut_views(image, out)

    def _image(self, index: int) -> Pixels:
        if isinstance(self.source, PixelSource):
            return self.transform.scaled(self.source.images[index], "")
        assert isinstance(self.source, EncodedSource)
        image = self.cache.get(index)
        if image is None:
            if index in self._broken:
                raise self._broken[index]
            image = self.transform.load(self.source.read(index), "")
            self.cache.put(index, image)
        return image


def choose_form(source: Source | None, transform: Transform, *, cells: bool) -> Form:
    """What saves the most work here: samples uncut, or, if there may be any, in cells; neither with a policy.

    Whole images are one copy each, without a line of Python for any; not if that would make the batch much larger.
    Resizing takes about a third of the time of a random resized crop.
    """
    pixels = transform.height * transform.width
    if transform.policy:
        return PLAIN
    if transform.crop == "resized":
        return Form(cell=HEAD + ceil_div(ROOM * pixels * transform.channels, HEAD) * HEAD) if cells else PLAIN
    if not isinstance(source, PixelSource):
        return PLAIN
    _, height, width, _ = source.images.shape
    small = height * width <= MOST_UNCUT * pixels
    return Form(uncut=(height, width)) if small and transform.keeps(width, height) else PLAIN


def gather(
    images: NDArray[np.uint8], indices: NDArray[np.int64], corners: NDArray[np.int64], out: NDArray[np.uint8]
) -> None:
    """Windows of images of one size, zeros around them: out[n, y, x] = images[indices[n], corners[n, 0] + y, ... + x].

    images: [m, H, W, C]; corners: [n, 2]; out: [n, h, w, C].
    """
    images = np.asarray(images)  # of a memory map, whose own class is slow to index
    height, width = out.shape[1:3]
    over = corners + out.shape[1:3] - images.shape[1:3]
    pad = max(0, -int(corners.min(initial=0)), int(over.max(initial=0)))
    if not len(out):
        return
    if pad:
        for part in chunks(len(out)):
            inner = images[indices[part]]
            padded = np.zeros((len(inner), *(side + 2 * pad for side in inner.shape[1:3]), inner.shape[3]), np.uint8)
            padded[:, pad:-pad, pad:-pad] = inner
            gather(padded, np.arange(len(padded)), corners[part] + pad, out[part])
    elif out[:1].nbytes <= SMALL:
        windows = np.lib.stride_tricks.sliding_window_view(images, (height, width), axis=(1, 2))
        out[...] = windows[indices, corners[:, 0], corners[:, 1]].transpose(0, 2, 3, 1)
    else:
        for place, index, (top, left) in zip(out, indices.tolist(), corners.tolist(), strict=True):
            place[...] = images[index, top : top + height, left : left + width]


def chunks(count: int) -> Iterable[slice]:
    """0 .. count in pieces."""
    return (slice(first, first + CHUNK) for first in range(0, count, CHUNK))
