"""Image files of every kind, whole and damaged."""

import gzip
import io
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from convnet.data import DecodeError, decode
from convnet.data.decode import take_over_pillow_limits

PATH = "/d/cat/photo.JPEG"


@pytest.fixture(autouse=True)
def as_in_a_run():
    take_over_pillow_limits()  # pytest has put its own warning filters before those of the import


def encoded(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def noise(height, width, channels=3, seed=0):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def pixels(data, **options):
    return np.asarray(decode(data, PATH, **options))


def test_cmyk_jpeg():
    data = encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG")
    assert b"Adobe" in data  # so the inks are stored inverted
    rgb = pixels(data)
    assert rgb.shape == (8, 8, 3) and np.abs(rgb - np.array([255.0, 0, 0])).max() <= 3


def test_png_named_jpeg():
    rgb = pixels(encoded(Image.new("RGB", (5, 4), (10, 20, 30))))
    assert rgb.shape == (4, 5, 3) and (rgb == (10, 20, 30)).all()


def test_grey_jpeg_has_three_equal_channels():
    grey = noise(4, 4, 1)
    rgb = pixels(encoded(grey, "JPEG"))
    assert rgb.shape == (4, 4, 3) and (rgb == rgb[:, :, :1]).all() and np.ptp(rgb) > 50


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM", "GIF"])
def test_lossless_formats(form):
    image = noise(5, 7).quantize(200).convert("RGB")  # GIF has no more than 256 colours
    assert (pixels(encoded(image, form)) == np.asarray(image)).all()


def test_webp():
    image = noise(5, 7)
    assert (pixels(encoded(image, "WEBP", lossless=True)) == np.asarray(image)).all()


@pytest.mark.parametrize("transparency", [None, 0, bytes([0, 128, 255])])
def test_palette(transparency):
    image = Image.fromarray(np.array([[0, 1], [2, 0]], np.uint8))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    options = {} if transparency is None else {"transparency": transparency}
    red, green, blue = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    assert pixels(encoded(image, **options)).tolist() == [[[*red], [*green]], [[*blue], [*red]]]


@pytest.mark.parametrize(
    "mode, colour, expected",
    [
        ("1", 1, (255, 255, 255)),
        ("L", 77, (77, 77, 77)),
        ("LA", (77, 0), (77, 77, 77)),
        ("RGBA", (1, 2, 3, 0), (1, 2, 3)),
        ("I;16", 0x1234, (0x12,) * 3),
        ("I;16", 0xFFFF, (0xFF,) * 3),
    ],
)
def test_png_modes(mode, colour, expected):
    rgb = pixels(encoded(Image.new(mode, (3, 2), colour)))
    assert rgb.shape == (2, 3, 3) and (rgb == expected).all()


def test_sixteen_bits_of_other_origins():
    pgm = b"P5 2 1 65535\n" + struct.pack(">HH", 0x1234, 0xFFFF)
    assert pixels(pgm)[0, :, 0].tolist() == [0x12, 0xFF]
    ramp = np.arange(0, 65536, 257, np.uint16).reshape(16, 16)
    assert (pixels(encoded(Image.fromarray(ramp)))[:, :, 0] == np.arange(256).reshape(16, 16)).all()


@pytest.mark.parametrize("values", [np.full((2, 2), 0.5, np.float32), np.full((2, 2), 1 << 20, np.int32)])
def test_pixels_of_unknown_range_are_refused(values):
    with pytest.raises(DecodeError, match=r"photo.JPEG': pixels .*expected"):
        decode(encoded(Image.fromarray(values), "TIFF"), PATH)


def test_one_channel():
    image = Image.new("RGB", (3, 2), (100, 150, 200))
    assert (pixels(encoded(image), channels=1) == (299 * 100 + 587 * 150 + 114 * 200 + 500) // 1000).all()
    assert pixels(encoded(noise(2, 3, 1)), channels=1).shape == (2, 3)


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
@pytest.mark.parametrize("kept", [0.5, -2, -20, 0.9])
def test_truncated_jpeg(options, kept):
    data = encoded(noise(64, 64), "JPEG", **options)
    with pytest.raises(DecodeError, match=f"{PATH}.*truncated") as error:
        decode(data[: int(len(data) * kept) if kept == abs(kept) else kept], PATH)
    assert error.value.path == PATH


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "TIFF", "PPM", "WEBP"])
@pytest.mark.parametrize("kept", [1, 7, 20, 0.3, 0.7])
def test_every_format_cut_anywhere(form, kept):
    data = encoded(noise(40, 40), form)
    with pytest.raises(DecodeError, match=PATH):
        decode(data[: kept if kept >= 1 else int(len(data) * kept)], PATH)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "TIFF", "PPM", "WEBP", "GIF"])
def test_damaged_bytes_raise_nothing_else(form):
    """Any damage gives pixels or a DecodeError that names the file."""
    good, random_ = encoded(noise(24, 24), form), random.Random(form)
    for _ in range(60):
        data = bytearray(good)
        for _ in range(random_.choice([1, 4, 30])):
            data[random_.randrange(min(len(data), 400))] = random_.randrange(256)
        try:
            assert decode(bytes(data), PATH, max_pixels=10**6, exif_orientation=True).mode == "RGB"
        except DecodeError as error:
            assert PATH in str(error)


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "the file is empty"),
        (b"<html>404</html>", r"not an image in JPEG, PNG.*begins with b'<html>40'"),
        (gzip.compress(encoded(noise(8, 8), "JPEG")), "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),  # would start another program
    ],
    ids=["empty", "html", "gzip", "postscript"],
)
def test_not_an_image(data, words):
    with pytest.raises(DecodeError, match=words) as error:
        decode(data, PATH)
    assert error.value.path == PATH


ROW_0_COLUMN_0 = {  # EXIF 2.32, tag 274: the visual side at which the stored image's first row and column lie
    1: ("top", "left"), 2: ("top", "right"), 3: ("bottom", "right"), 4: ("bottom", "left"),
    5: ("left", "top"), 6: ("right", "top"), 7: ("right", "bottom"), 8: ("left", "bottom"),
}  # fmt: skip


@pytest.mark.parametrize("value", ROW_0_COLUMN_0)
def test_exif_orientation(value):
    upright = np.asarray(noise(2, 4))
    sides = ROW_0_COLUMN_0[value]
    stored = upright[::-1] if "bottom" in sides else upright
    stored = stored[:, ::-1] if "right" in sides else stored
    stored = stored if sides[0] in ("top", "bottom") else stored.transpose(1, 0, 2)
    exif = Image.Exif()
    exif[0x112] = value
    data = encoded(Image.fromarray(np.ascontiguousarray(stored)), exif=exif)
    assert (pixels(data) == stored).all()
    assert (pixels(data, exif_orientation=True) == upright).all()


def test_exif_orientation_of_a_jpeg():
    exif = Image.Exif()
    exif[0x112] = 6
    data = encoded(noise(2, 4), "JPEG", exif=exif)
    assert decode(data, PATH).size == (4, 2)
    assert decode(data, PATH, exif_orientation=True).size == (2, 4)


@pytest.mark.parametrize("damage", [b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\1" * 30, b"Exif\0\0garbage!", b"Exif\0\0"])
@pytest.mark.parametrize("turn", [False, True])
def test_damaged_exif_does_not_matter(damage, turn):
    """Pillow warns about it while opening; here a warning is an error."""
    data = encoded(noise(8, 8), "JPEG")
    start = data.index(b"\xff\xdb")  # in place of the JFIF segment, so that Pillow looks for the resolution in EXIF
    segment = b"\xff\xe1" + struct.pack(">H", len(damage) + 2) + damage
    assert pixels(data[:2] + segment + data[start:], exif_orientation=turn).shape == (8, 8, 3)


def header_only_png(width, height):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("width, height", [(10_000, 9_000), (14_000, 13_000), (60_000, 60_000)])
def test_size_limit_is_ours_at_any_size(width, height):
    """Pillow by itself would warn for the first, and raise without the path for the others."""
    with pytest.raises(
        DecodeError, match=f"{PATH}': {width} x {height} pixels are over the limit max_pixels: 80000000"
    ):
        decode(header_only_png(width, height), PATH, max_pixels=80_000_000)


def test_size_at_the_limit():
    data = encoded(noise(20, 30))
    assert pixels(data, max_pixels=600).shape == (20, 30, 3)
    with pytest.raises(DecodeError, match="30 x 20 pixels are over the limit max_pixels: 599"):
        decode(data, PATH, max_pixels=599)


@pytest.mark.parametrize("least, expected", [(100, (100, 150)), (99, (100, 150)), (101, (200, 300)), (30, (50, 75))])
def test_jpeg_at_reduced_scale(least, expected):
    data = encoded(noise(200, 300), "JPEG")
    assert pixels(data, least_side=least).shape[:2] == expected
    assert pixels(encoded(noise(200, 300)), least_side=least).shape[:2] == (200, 300)
