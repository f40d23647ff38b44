"""From the bytes of a file to an image: 8-bit grey or RGB, whatever the file holds.

The format is told by the first bytes, never by the name (ImageNet has a PNG named .JPEG).  Colours are converted
as Pillow and therefore torchvision convert them: CMYK (also Adobe's inverted one), palettes, grey; transparency is
dropped.  One case differs: 16-bit grey keeps its high byte, where Pillow would clip all but the darkest 1/256 to white.
"""

import io
import warnings

import numpy as np
from PIL import Image, UnidentifiedImageError

from convnet.data.errors import DecodeError

FORMATS = {  # that are read, by Pillow's names, and how the names of such files end: in folders, the others are ignored
    "JPEG": (".jpg", ".jpeg"), "PNG": (".png",), "PPM": (".ppm", ".pgm"), "BMP": (".bmp",), "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",), "GIF": (".gif",),
}  # fmt: skip
MAX_PIXELS = 178_956_970  # where Pillow refuses by default: 512 MiB of RGB

ORIENTATION = 0x112
T = Image.Transpose
TURNS = {  # by value of the EXIF orientation; 1 is upright
    2: T.FLIP_LEFT_RIGHT, 3: T.ROTATE_180, 4: T.FLIP_TOP_BOTTOM, 5: T.TRANSPOSE,
    6: T.ROTATE_270, 7: T.TRANSVERSE, 8: T.ROTATE_90,
}  # fmt: skip


def take_over_pillow_limits() -> None:
    """Turn off Pillow's own size limit (ours names the file) and its warnings about metadata, which is not used.

    Process-wide, because Python's warning filters are: they cannot be set for one thread.
    """
    Image.MAX_IMAGE_PIXELS = None
    warnings.filterwarnings("ignore", module=r"PIL\.")


take_over_pillow_limits()


def decode(
    data: bytes,
    path: str,
    *,
    channels: int = 3,
    exif_orientation: bool = False,
    max_pixels: int = MAX_PIXELS,
    least_side: int | None = None,
) -> Image.Image:
    """The first frame of an encoded image, in mode "L" (channels 1) or "RGB" (channels 3).

    path: for messages.
    exif_orientation: turn the image upright. Off, as in torchvision: published accuracies are without.
    least_side: a JPEG whose shorter side is larger may be decoded at 1/2, 1/4 or 1/8 of its size, not below this.
    Raises DecodeError: damaged, truncated (if only by the end marker: nothing else tells that the pixels are
    complete), not an image, or of more than max_pixels.
    """
    if not data:
        raise DecodeError(path, "the file is empty")
    try:
        image = Image.open(io.BytesIO(data), formats=tuple(FORMATS))
        if image.width * image.height > max_pixels:
            raise DecodeError(path, over(image.size, max_pixels))
        if least_side:
            image.draft(None, (least_side, least_side))
        image.decodermaxblock = len(data)  # in one call, without copying what is left after each 64 KiB
        image.load()
        return _convert(_upright(image) if exif_orientation else image, "L" if channels == 1 else "RGB")
    except (DecodeError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise DecodeError(path, f"not an image in {', '.join(FORMATS)} format; it begins with {data[:8]!r}") from error
    except Exception as error:  # damaged files raise many kinds: OSError, SyntaxError, ValueError, struct.error, ...
        raise DecodeError(path, str(error) or type(error).__name__) from error


def reduction(width: int, height: int, least_side: int | None) -> int:
    """1, 2, 4 or 8: by how much a JPEG may be reduced in decoding and keep a shorter side of `least_side` or more."""
    if not least_side:
        return 1
    most = min(width, height) // least_side
    return 8 if most >= 8 else 4 if most >= 4 else 2 if most >= 2 else 1


def over(size: tuple[int, int], max_pixels: int) -> str:
    """What is wrong with an image that is too large."""
    return f"{size[0]} x {size[1]} pixels are over the limit max_pixels: {max_pixels}"


def _upright(image: Image.Image) -> Image.Image:
    try:
        turn = TURNS.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged metadata: the pixels are good
        return image
    return image if turn is None else image.transpose(turn)


def _convert(image: Image.Image, mode: str) -> Image.Image:
    if image.mode == mode:
        return image
    if image.mode == "F":
        raise ValueError("pixels are floating-point numbers, whose range is unknown; expected integers")
    if image.mode.startswith("I"):
        image = _high_byte(image)
    return image.convert(mode)


def _high_byte(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError(f"pixels from {values.min()} to {values.max()}; expected at most 16 bits")
    return Image.fromarray((values >> 8).astype(np.uint8))
