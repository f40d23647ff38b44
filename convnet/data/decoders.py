"""Decoders: from the bytes of a file to its pixels.  All give the same pixels, because all of them do libjpeg's
arithmetic ("islow" DCT, smooth upsampling of colours); they differ in speed and in what else they read.

A decoder is a function `decode(data, path, *, channels, exif_orientation, max_pixels, least_side, wide, rows)`, with
the arguments of `convnet.data.decode.decode` and
wide: the pixels will be resized, so that four bytes for each are the better form.
rows: tells from height and width how many of the upper rows are needed, at full size; those below may be missing, and
damage in them goes unnoticed.
It returns the pixels [H, W, channels] and raises DecodeError.
"""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

from convnet.data.decode import MAX_PIXELS, decode, over, reduction
from convnet.data.errors import DataError, DecodeError
from convnet.data.jpeg import upper_part
from convnet.data.pixels import Pixels, view

Rows = Callable[[int, int], int]
START = b"\xff\xd8"  # of a JPEG
COLOURS = {1: ("Gray",), 3: ("YCbCr", "RGB", "Gray")}  # of files, by the channels wanted


class Decoder(Protocol):
    """Bytes to pixels [H, W, channels]; see above."""

    def __call__(
        self,
        data: bytes,
        path: str,
        *,
        channels: int = 3,
        exif_orientation: bool = False,
        max_pixels: int = MAX_PIXELS,
        least_side: int | None = None,
        wide: bool = False,
        rows: Rows | None = None,
    ) -> Pixels: ...


def pillow(data: bytes, path: str, *, wide: bool = False, rows: Rows | None = None, **options: Any) -> Pixels:
    """All formats.  Its pixels always take four bytes."""
    return view(decode(data, path, **options))


def simplejpeg(
    data: bytes,
    path: str,
    *,
    channels: int = 3,
    exif_orientation: bool = False,
    max_pixels: int = MAX_PIXELS,
    least_side: int | None = None,
    wide: bool = False,
    rows: Rows | None = None,
) -> Pixels:
    """JPEGs by libjpeg-turbo, in two calls; whatever it does not do as Pillow does, or not at all, is left to Pillow.

    That is: other formats, inks (CMYK), grey of a colour image, turning by EXIF, and files in which something is wrong.
    """
    if not exif_orientation and data.startswith(START):
        try:
            pixels = _jpeg(data, path, channels, max_pixels, least_side, wide, rows)
        except ValueError:  # damaged, or only odd: Pillow knows which, and what to say
            pixels = None
        if pixels is not None:
            return pixels
    return pillow(
        data, path, channels=channels, exif_orientation=exif_orientation, max_pixels=max_pixels, least_side=least_side
    )


def _jpeg(
    data: bytes, path: str, channels: int, max_pixels: int, least_side: int | None, wide: bool, rows: Rows | None
) -> Pixels | None:
    """By simplejpeg; None for colours that it does not convert as Pillow does."""
    library = _simplejpeg()
    height, width, colours, _ = library.decode_jpeg_header(data)
    if colours not in COLOURS[channels]:
        return None
    if width * height > max_pixels:
        raise DecodeError(path, over((width, height), max_pixels))
    form = "GRAY" if channels == 1 else "RGBX" if wide else "RGB"
    if (scale := reduction(width, height, least_side)) > 1:
        found: Pixels = library.decode_jpeg(data, form, False, False, -(-height // scale), -(-width // scale), scale)
    elif rows and (part := upper_part(data, height, width, rows(height, width))):
        found = library.decode_jpeg(part, form, strict=False)
    else:
        found = library.decode_jpeg(data, form)
    return found[:, :, :channels] if form == "RGBX" else found


@functools.cache
def _simplejpeg() -> Any:
    import simplejpeg

    return simplejpeg


DECODERS: dict[str, Decoder] = {"pillow": pillow, "simplejpeg": simplejpeg}


def chosen(name: str) -> str:
    """The decoder that a config means: "auto" is simplejpeg where it is installed, else Pillow."""
    installed = importlib.util.find_spec("simplejpeg") is not None
    if name == "simplejpeg" and not installed:
        raise DataError("simplejpeg is not installed: pip install 'convnet[simplejpeg]'; pillow always is")
    return ("simplejpeg" if installed else "pillow") if name == "auto" else name
