"""Pixels in memory: seen, copied and resized without holding Python's lock for longer than a few microseconds.

Pillow keeps RGB as four bytes a pixel, and copies them out (`np.asarray`, `tobytes`, `crop`) with the lock held: 0.2 ms
for a photo, which is what keeps sixteen threads from decoding as fast as sixteen processes.  Here its memory is looked
at where it lies, and NumPy copies it with the lock released.
"""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kernels.image import HEAD

Pixels = NDArray[np.uint8]  # [H, W, channels]; the pixels of a row may be four bytes apart, of which three are used
WORD = 4  # bytes of a pixel in Pillow's memory, unless the image is grey
TRIPLE = np.dtype("V3")


class _ArrowArray(ctypes.Structure):
    """`struct ArrowArray` of the Arrow C data interface, as far as Pillow and we read it."""


_ArrowArray._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowArray))),
]


class _ArrowSchema(ctypes.Structure):
    """`struct ArrowSchema` likewise."""

    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("format", "name", "metadata")),
        *((name, ctypes.c_int64) for name in ("flags", "n_children")),
        *((name, ctypes.c_void_p) for name in ("children", "dictionary", "release", "private_data")),
    )


_Buffers = ctypes.c_void_p * 2
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.POINTER(_ArrowArray), (ctypes.py_object, ctypes.c_char_p)
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_ARRAY_NAME, _SCHEMA_NAME = b"arrow_array", b"arrow_schema"  # a capsule keeps a pointer to its name
_INT32 = _ArrowSchema(format=b"I")  # one for each pixel
_SCHEMA = _capsule(ctypes.addressof(_INT32), _SCHEMA_NAME, None)


class _Memory:
    """Memory of an image, which lives as long as `owner`."""

    def __init__(self, address: int, shape: tuple[int, ...], owner: Any):
        self.owner = owner
        self.__array_interface__ = {"data": (address, True), "shape": shape, "typestr": "|u1", "version": 3}


def view(image: Image.Image) -> Pixels:
    """The pixels of an image of mode "L" (1 channel) or "RGB" (3), read only.

    A copy where Pillow cannot tell where they are: before 11.2, pillow-simd, images of more than 16 MiB.
    """
    grey = image.mode == "L"
    try:
        _, owner = image.__arrow_c_array__()  # type: ignore[attr-defined, unused-ignore]
    except (AttributeError, ValueError):
        pixels = np.asarray(image)
        return pixels[:, :, None] if grey else pixels[:, :, :3]
    array = _pointer(owner, _ARRAY_NAME).contents
    values = array if grey else array.children[0].contents  # a list of four for each pixel
    shape = image.height, image.width, 1 if grey else WORD
    return np.asarray(_Memory(values.buffers[1], shape, owner))[:, :, : 1 if grey else 3]


class _Words:
    """Pixels of four bytes [H, W, 4] in one block, offered to Pillow."""

    def __init__(self, words: Pixels):
        self.words = words
        self.buffers = _Buffers(None, words.__array_interface__["data"][0])
        self.array = _ArrowArray(length=words.shape[0] * words.shape[1], n_buffers=2, buffers=self.buffers)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return _SCHEMA, _capsule(ctypes.addressof(self.array), _ARRAY_NAME, None)


def image_of(pixels: Pixels) -> Image.Image:
    """A Pillow image of these pixels, "L" or "RGB"; in the same memory where they are four bytes apart in one block.

    Copied by Pillow before 11.2 and by pillow-simd.
    """
    height, width, channels = pixels.shape
    if channels == 1 or pixels.strides[1] != WORD:
        return Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
    words = np.lib.stride_tricks.as_strided(pixels, (height, width, WORD), pixels.strides, writeable=False)
    words = np.ascontiguousarray(words)
    if not hasattr(Image, "fromarrow"):
        return Image.frombuffer("RGB", (width, height), words, "raw", "RGBX", 0, 1)
    shared = _Words(words)
    image: Image.Image = Image.fromarrow(shared, "RGB", (width, height))
    image.memory = shared  # type: ignore[attr-defined]  # lives as long
    return image


def resize(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """To another size (width, height), by Pillow's bilinear filter, which is antialiased."""
    return view(image_of(pixels).resize(size, Image.Resampling.BILINEAR))


def fitted(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """As `resize`, rows first whatever the version of Pillow: what image.resample does."""
    image, (height, width, _) = image_of(pixels), pixels.shape
    if size[0] != width and height - size[1] > max(0, 2 * (width - size[0])):  # Pillow 13 would begin with the columns
        image = image.resize((size[0], height), Image.Resampling.BILINEAR)
    return view(image.resize(size, Image.Resampling.BILINEAR))


def pack(pixels: Pixels, cell: NDArray[np.uint8]) -> None:
    """Into a cell that image.resample reads: height, width, and from HEAD on the pixels."""
    cell[:8].view(np.int32)[:] = pixels.shape[:2]
    copy(pixels, cell[HEAD : HEAD + pixels.size].reshape(pixels.shape))


def copy(pixels: Pixels, out: Pixels) -> None:
    """out[...] = pixels, quickly also where these are four bytes apart."""
    if pixels.shape[2] == 3 and pixels.strides[1] == WORD and out.strides[1:] == (3, 1):
        pixels, out = pixels.view(TRIPLE), out.view(TRIPLE)  # NumPy is slow at rows of three bytes, not at such items
    out[...] = pixels
