"""What is made of an image, and by what it is recognised later."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, UnidentifiedImageError

from convnet.data.decode import FORMATS as FILES
from convnet.data.decode import MAX_PIXELS, decode, over
from convnet.data.errors import DataError, DecodeError
from convnet.data.sources.base import Place
from convnet.data.sources.index import digest
from convnet.data.transform import centred, resized

FORMATS = ("shards", "folder", "raw")
REDUCING_GAP = 2  # a JPEG is decoded at least this much larger than it will be
GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L")
LONGEST = 65500  # side that libjpeg writes
MCU = 16  # pixels a side, of a JPEG with halved chroma
BLOCK = 8  # pixels a side: the MCU of a grey JPEG


@dataclass(frozen=True)
class Recipe:
    """How a dataset is prepared.

    format: "shards" (tar files of about `shard_size` bytes), "folder" (class folders) or "raw" (one array).
    short_side: of the images, pixels; None: as they are.  quality: of the JPEGs.
    keep_original: the files as they are.
    restart: markers in the JPEGs, from which decoding can begin: "row" (at each row of MCUs, blocks of 16 x 16 pixels),
    "none", or after how many MCUs.
    size, channels: of the array, pixels and 1 or 3; images are cut at the centre.  Other formats have no size: 0.
    exif_orientation: turn images as their EXIF tag says.  shuffle: spread the images over the shards in random order.
    """

    format: str = "shards"
    short_side: int | None = 256
    quality: int = 95
    keep_original: bool = False
    restart: str | int = "row"
    size: int = 0
    channels: int = 3
    exif_orientation: bool = False
    shuffle: bool = True
    shard_size: int = 1_000_000_000


@dataclass(frozen=True)
class Made:
    """One image as it will be stored: `data` is an encoded image, or pixels [size, size, channels].

    padded: whether the image was too small for these, and has a black border.
    """

    data: bytes
    width: int
    height: int
    restart: int = 0
    extension: str = ".jpg"
    padded: bool = False

    @property
    def digest(self) -> bytes:
        return digest(self.data)


@dataclass(frozen=True)
class Task:
    """A few images, for one process."""

    recipe: Recipe
    places: Sequence[Place]


def make_all(task: Task) -> list[Made | DecodeError]:
    """Each image as the recipe wants it, or what is wrong with it."""
    found: list[Made | DecodeError] = []
    for where in task.places:
        try:
            found.append(make(task.recipe, where.read(), str(where)))
        except DecodeError as error:
            found.append(error)
    return found


def make(recipe: Recipe, data: bytes, path: str) -> Made:
    """One image; raises DecodeError."""
    if recipe.keep_original:
        return _original(data, path)
    image = _scaled(recipe, data, path)
    if recipe.format == "raw":
        pixels = _cut(recipe, image)
        return Made(pixels.tobytes(), recipe.size, recipe.size, padded=min(image.size) < recipe.size)
    return encode(image, recipe.quality, recipe.restart)


def encode(image: Image.Image, quality: int, restart: str | int) -> Made:
    """A baseline JPEG with halved chroma and the Huffman tables of the standard, which every decoder is fast at."""
    spacing = _spacing(image, restart)
    buffer = io.BytesIO()
    options = {"restart_marker_blocks": spacing} if spacing else {}
    image.save(buffer, "JPEG", quality=quality, subsampling="4:2:0", progressive=False, optimize=False, **options)
    data = buffer.getvalue()
    if spacing and b"\xff\xdd\x00\x04" not in data[:2048]:
        raise DataError("this version of Pillow writes no restart markers; install pillow>=10.2, or use --restart none")
    return Made(data, *image.size, restart=spacing)


def _spacing(image: Image.Image, restart: str | int) -> int:
    """MCUs between restart markers; 0: there are none."""
    if isinstance(restart, int):
        return restart
    return -(-image.width // (BLOCK if image.mode == "L" else MCU)) if restart == "row" else 0


def _original(data: bytes, path: str) -> Made:
    image = header(data, path)
    if image.width * image.height > MAX_PIXELS:
        raise DecodeError(path, over(image.size, MAX_PIXELS))
    kind = "JPEG" if image.format == "MPO" else str(image.format)  # MPO: JPEGs, one after another
    return Made(data, *image.size, extension=FILES[kind][0])


def header(data: bytes, path: str) -> Image.Image:
    """An image whose pixels are not decoded yet; raises DecodeError."""
    try:
        return Image.open(io.BytesIO(data), formats=tuple(FILES))
    except UnidentifiedImageError as error:
        what = f"not an image; it begins with {data[:8]!r}" if data else "the file is empty"
        raise DecodeError(path, what) from error
    except Exception as error:  # damaged files raise many kinds
        raise DecodeError(path, str(error) or type(error).__name__) from error


def _scaled(recipe: Recipe, data: bytes, path: str) -> Image.Image:
    """The image with the recipe's short side, by the filter that evaluation uses; grey images stay grey in JPEGs."""
    channels = recipe.channels
    if recipe.format != "raw":
        channels = 1 if header(data, path).mode in GREY else 3
    least = recipe.short_side * REDUCING_GAP if recipe.short_side else None
    image = decode(
        data, path, channels=channels, exif_orientation=recipe.exif_orientation, max_pixels=MAX_PIXELS, least_side=least
    )
    size = resized(*image.size, recipe.short_side) if recipe.short_side else image.size
    if max(size) > LONGEST:
        raise DecodeError(path, f"it would have {size[0]} x {size[1]} pixels; expected at most {LONGEST} a side")
    return image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)


def _cut(recipe: Recipe, image: Image.Image) -> np.ndarray:
    """The centre [size, size, channels], with zeros where the image is too small."""
    top, left = centred(image.height, recipe.size), centred(image.width, recipe.size)
    part = image.crop((left, top, left + recipe.size, top + recipe.size))
    return np.asarray(part).reshape(recipe.size, recipe.size, recipe.channels)
