"""All decoders give the same pixels and the same errors."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, features

from convnet.data import DataError, DecodeError, Transform
from convnet.data import decoders as module
from convnet.data.decode import reduction
from convnet.data.decoders import DECODERS, chosen, pillow, simplejpeg
from convnet.data.jpeg import upper_part

pytest.importorskip("simplejpeg")
if not features.check_feature("libjpeg_turbo"):  # pragma: no cover
    pytest.skip("Pillow without libjpeg-turbo: another arithmetic", allow_module_level=True)


def photo(height=150, width=202, mode="RGB"):
    """Smooth, with edges and noise, as photos are."""
    y, x = np.mgrid[:height, :width] / [[[height]], [[width]]]
    colours = np.stack([y, x, (1 + np.sin(40 * y * x)) / 2], axis=2) * 0.8
    colours[height // 3 : height // 2, width // 4 :] = (0.9, 0.1, 0.4)
    noise = np.random.default_rng(0).normal(0, 0.06, colours.shape)
    return Image.fromarray((255 * np.clip(colours + noise, 0, 1)).astype(np.uint8)).convert(mode)


def encoded(image, form="JPEG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


KINDS = {
    "4:2:0": {"subsampling": 2},
    "4:2:2": {"subsampling": 1},
    "4:4:4": {"subsampling": 0, "quality": 95},
    "coarse": {"quality": 10},
    "progressive": {"progressive": True},
    "optimized": {"optimize": True},
    "restarts": {"restart_marker_rows": 1},
    "dense restarts": {"restart_marker_blocks": 2},
    "exif": {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"},
}
SAME = {
    **{name: encoded(photo(), **options) for name, options in KINDS.items()},
    "odd size": encoded(photo(67, 131)),
    "tiny": encoded(photo(1, 3)),
    "grey": encoded(photo(mode="L")),
    "inks": encoded(photo(mode="CMYK")),
    "PNG": encoded(photo(), "PNG"),
}


@pytest.mark.parametrize("least_side", [None, 18, 37, 75, 150])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", SAME)
def test_pixels_are_the_same(name, channels, least_side):
    expected = pillow(SAME[name], "x", channels=channels, least_side=least_side)
    for wide in (False, True):
        found = simplejpeg(SAME[name], "x", channels=channels, least_side=least_side, wide=wide)
        assert found.shape == expected.shape and (found == expected).all()


@pytest.mark.parametrize("name", ["4:2:0", "exif"])
def test_orientation(name):
    options = {"exif_orientation": True}
    assert (simplejpeg(SAME[name], "x", **options) == pillow(SAME[name], "x", **options)).all()
    turned = name == "exif"
    assert (simplejpeg(SAME[name], "x", **options).shape[0] == 202) == turned


@pytest.mark.parametrize(
    "data",
    [b"", b"no image", SAME["4:2:0"][:-2], SAME["4:2:0"][:2000], SAME["progressive"][:2000], SAME["4:2:0"][:15]],
    ids=["empty", "text", "no end", "cut", "progressive cut", "header cut"],
)
@pytest.mark.parametrize("wide", [False, True])
def test_errors_are_the_same(data, wide):
    told = []
    for decode in DECODERS.values():
        with pytest.raises(DecodeError) as error:
            decode(data, "/d/x.jpg", wide=wide)
        told.append(str(error.value))
    assert len(set(told)) == 1 and "/d/x.jpg" in told[0]


def test_limit_on_pixels():
    for decode in DECODERS.values():
        with pytest.raises(DecodeError, match="202 x 150 pixels are over the limit max_pixels: 30299"):
            decode(SAME["4:2:0"], "x", max_pixels=30_299)
        assert decode(SAME["4:2:0"], "x", max_pixels=30_300).shape == (150, 202, 3)


@pytest.mark.parametrize(
    "width, height, least, scale", [(80, 100, 10, 8), (79, 100, 10, 4), (30, 19, 10, 1), (9, 9, None, 1)]
)
def test_reduction(width, height, least, scale):
    assert reduction(width, height, least) == scale


class TestUpperPart:
    @pytest.mark.parametrize("name", [name for name in SAME if name not in ("progressive", "inks", "PNG", "tiny")])
    def test_has_the_pixels_of_the_whole(self, name):
        whole, spared = pillow(SAME[name], "x"), 0
        for rows in range(1, len(whole) + 1):
            part = simplejpeg(SAME[name], "x", rows=lambda height, width, rows=rows: rows)
            assert len(part) >= rows and (part[:rows] == whole[:rows]).all()
            spared += len(whole) - len(part)
        assert spared > len(whole) ** 2 / 4

    def test_is_told_the_size(self):
        asked = []
        for name in ("4:2:0", "odd size", "grey"):
            simplejpeg(SAME[name], "x", rows=lambda height, width: asked.append((height, width)) or 9)
        assert asked == [(150, 202), (67, 131), (150, 202)]

    def test_of_what_must_be_read_to_the_end(self):
        for name in ("progressive", "inks", "tiny", "PNG"):
            height, width, _ = pillow(SAME[name], "x").shape
            assert upper_part(SAME[name], height, width, 1) is None
            assert (simplejpeg(SAME[name], "x", rows=lambda h, w: 1) == pillow(SAME[name], "x")).all()

    def test_of_several_scans(self):
        data = SAME["4:2:0"]
        scan = data.index(b"\xff\xda\0\x0c\x03")
        assert upper_part(data, 150, 202, 20) is not None
        assert upper_part(data[:scan] + b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + data[scan + 14 :], 150, 202, 20) is None


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_sample_is_the_cut_of_the_whole_image(decoder):
    transform = Transform(3, 40, 48, crop="resized", decoder=decoder)
    for index, draws in enumerate(transform.draw(1, 0, np.arange(60))):
        data = list(SAME.values())[index % len(SAME)]
        whole, part = np.zeros((2, 40, 48, 3), np.uint8)
        transform.cut(transform.load(data, "x"), draws, whole)
        transform.sample(data, "x", draws, part)
        assert (whole == part).all() and whole.any()


def test_choice(monkeypatch):
    assert chosen("auto") == chosen("simplejpeg") == "simplejpeg" and chosen("pillow") == "pillow"
    monkeypatch.setattr(module.importlib, "util", SimpleNamespace(find_spec=lambda name: None))
    assert chosen("auto") == "pillow"
    with pytest.raises(DataError, match="simplejpeg is not installed: pip install"):
        chosen("simplejpeg")
