"""Resizing and cropping: torchvision's numbers for evaluation, and the distribution of random ones."""

import io
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from convnet.data import DecodeError, Transform
from convnet.data.draws import below, permutation
from convnet.data.splits import Folder
from convnet.data.transform import CROPS, centred, place, resized, resized_crop
from convnet.session import make_transform


def ramp(height, width, channels=3):
    """An image of which each pixel tells its place."""
    y, x = np.mgrid[:height, :width].astype(np.uint8)
    return np.stack([y, x, y ^ x], axis=2)[:, :, :channels]


def photo(height, width, form="PNG"):
    """Smooth, so that JPEG and resizing keep it nearly."""
    y, x = np.mgrid[:height, :width] / [[[height]], [[width]]]
    image = Image.fromarray((255 * np.stack([y, x, (1 + np.sin(9 * y * x)) / 2], axis=2)).astype(np.uint8))
    file = io.BytesIO()
    image.save(file, form, **({"quality": 95} if form == "JPEG" else {}))
    return file.getvalue()


def cut(transform, image, seed=0, epoch=0, index=0):
    out = np.full((transform.height, transform.width, transform.channels), 99, np.uint8)
    transform.cut(image, transform.draw(seed, epoch, np.array([index]))[0], out)
    return out


class TestEvaluation:
    @pytest.mark.parametrize(
        "width, height, short, expected",
        [
            (500, 375, 256, (341, 256)),  # 341.33
            (333, 500, 256, (256, 384)),  # 384.38
            (600, 401, 256, (383, 256)),  # 383.04
            (401, 599, 256, (256, 382)),  # 382.40
            (1000, 333, 232, (696, 232)),  # 696.70 is cut off, not rounded
            (64, 64, 256, (256, 256)),
        ],
    )
    def test_size(self, width, height, short, expected):
        assert resized(width, height, short) == expected

    @pytest.mark.parametrize(
        "extent, size, start",
        [(256, 224, 16), (341, 224, 58), (225, 224, 0), (227, 224, 2), (229, 224, 2), (231, 224, 4), (224, 224, 0)],
    )
    def test_centre_rounds_half_to_even(self, extent, size, start):
        assert centred(extent, size) == start

    @pytest.mark.parametrize("extent, size, start", [(4, 6, -1), (3, 6, -1), (1, 6, -2), (5, 6, 0)])
    def test_smaller_image_is_padded_less_before_than_behind(self, extent, size, start):
        assert centred(extent, size) == start

    def test_pixels_are_those_of_the_pillow_calls(self):
        """What torchvision's Resize(256) and CenterCrop(224) come down to for a 500 x 375 Pillow image."""
        data = photo(375, 500, "JPEG")
        transform = Transform(3, 224, 224, resize=256)
        expected = Image.open(io.BytesIO(data)).resize((341, 256), Image.Resampling.BILINEAR).crop((58, 16, 282, 240))
        assert (cut(transform, transform.load(data, "x")) == np.asarray(expected)).all()

    def test_bilinear_is_antialiased(self):
        """Against the triangle filter, widened by the reduction, in float64."""

        def matrix(size, out):
            scale = size / out
            at = (np.arange(out)[:, None] + 0.5) * scale
            weight = np.maximum(0, 1 - np.abs(np.arange(size) + 0.5 - at) / scale)
            return weight / weight.sum(axis=1, keepdims=True)

        image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        expected = np.einsum("yh,xw,hwc->yxc", matrix(90, 32), matrix(120, 42), image)
        loaded = Transform(3, 32, 32, resize=32).load(file.getvalue(), "x")
        assert loaded.shape == (32, 42, 3) and np.abs(loaded - expected).max() <= 1.01  # rounded after each axis

    def test_centre_crop_decodes_at_full_scale(self):
        data = photo(800, 1000, "JPEG")
        exact = Image.open(io.BytesIO(data)).resize((80, 64), Image.Resampling.BILINEAR)
        assert (Transform(3, 64, 64, resize=64).load(data, "x") == np.asarray(exact)).all()

    def test_zeros_around_a_small_image(self):
        out = cut(Transform(3, 5, 8), ramp(3, 4) + 1)
        assert (out[1:4, 2:6] == ramp(3, 4) + 1).all() and out.sum() == (ramp(3, 4) + 1).sum()

    def test_one_channel(self):
        transform = Transform(1, 16, 16, resize=16)
        assert cut(transform, transform.load(photo(30, 40), "x")).shape == (16, 16, 1)


class TestViews:
    def test_corners_and_centre(self):
        image, out = ramp(10, 13), np.zeros((5, 4, 6, 3), np.uint8)
        Transform(3, 4, 6).cut_views(image, out)
        assert out[:, 0, 0, :2].tolist() == [[0, 0], [0, 7], [6, 0], [6, 7], [3, 4]]  # centre of 7: 3.5 to 4
        for window in out:
            y, x = window[0, 0, :2]
            assert (window == image[y : y + 4, x : x + 6]).all()

    def test_a_grid(self):
        """As cuda-convnet has it for CIFAR-10: 0, half and all of what is left over, along both axes."""
        image, out = ramp(32, 32), np.zeros((9, 24, 24, 3), np.uint8)
        Transform(3, 24, 24).cut_views(image, out)
        assert out[:, 0, 0, :2].tolist() == [[y, x] for y in (0, 4, 8) for x in (0, 4, 8)]
        for window in out:
            y, x = window[0, 0, :2]
            assert (window == image[y : y + 24, x : x + 24]).all()

    def test_of_an_image_that_is_too_small(self):
        out = np.full((5, 4, 4, 3), 9, np.uint8)
        Transform(3, 4, 4).cut_views(np.ones((2, 6, 3), np.uint8), out)
        assert (out[:, 1:3] == 1).all() and out.sum() == 5 * 2 * 4 * 3


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(-9, 9), st.integers(-9, 9)
)
def test_place_is_a_window_of_the_image_in_zeros(height, width, tall, wide, top, left):
    image, out = ramp(height, width) + 1, np.full((tall, wide, 3), 77, np.uint8)
    sea = np.zeros((40, 40, 3), np.uint8)
    sea[20 : 20 + height, 20 : 20 + width] = image
    place(image, top, left, out)
    assert (out == sea[20 + top : 20 + top + tall, 20 + left : 20 + left + wide]).all()


class TestRandomCrop:
    def starts(self, transform, image, count=4000):
        draws = transform.draw(5, 0, np.arange(count))
        out = np.zeros((count, transform.height, transform.width, 3), np.uint8)
        for sample, words in zip(out, draws, strict=True):
            transform.cut(image, words, sample)
        return out

    def test_every_place_equally_often(self):
        image = ramp(6, 9)
        out = self.starts(Transform(3, 4, 4, crop="random"), image)
        places, counts = np.unique(out[:, 0, 0, :2], axis=0, return_counts=True)
        assert places.tolist() == [[y, x] for y in range(3) for x in range(6)]
        assert ((counts - 4000 / 18) ** 2 / (4000 / 18)).sum() < 40.8  # chi squared, 17 degrees of freedom: 0.1%

    def test_padding_is_zero_and_reached(self):
        image = np.full((6, 6, 3), 200, np.uint8)
        out = self.starts(Transform(3, 6, 6, pad=2, crop="random"), image)
        zero_rows, zero_columns = (out == 0).all(axis=(2, 3)).sum(axis=1), (out == 0).all(axis=(1, 3)).sum(axis=1)
        assert set(zero_rows) == set(zero_columns) == {0, 1, 2} and set(np.unique(out)) == {0, 200}

    def test_image_smaller_along_one_axis(self):
        out = cut(Transform(3, 8, 4, crop="random"), ramp(4, 9) + 1)
        assert (out[:2] == 0).all() and (out[6:] == 0).all() and (out[2:6] > 0).all()

    def test_jpeg_may_be_decoded_at_reduced_scale(self):
        """Four times smaller here; the image stays the same to the eye."""
        data = photo(1024, 1280, "JPEG")
        full, reduced = (Transform(3, 64, 64, resize=100, crop=crop).load(data, "x") for crop in ("center", "random"))
        assert reduced.shape == full.shape == (100, 125, 3)
        assert (reduced != full).any() and np.abs(reduced.astype(int) - full).max() <= 4


class TestResizedCrop:
    def crops(self, height, width, count=4000):
        draws = Transform(3, 8, 8, crop="resized").draw(3, 0, np.arange(count))[:, 1:]
        return np.array([resized_crop(height, width, words) for words in draws])

    def test_aspect_is_log_uniform_and_area_uniform(self):
        top, left, height, width = self.crops(1000, 1000).T
        small = height * width < 0.5 * 1000 * 1000  # where the first try always fits
        log_ratio = np.log(width / height)[small]
        assert np.abs(log_ratio).max() < math.log(4 / 3) + 0.01
        histogram = np.histogram(log_ratio, 4)[0] / small.sum()
        assert np.abs(histogram - 0.25).max() < 0.03
        area = (height * width / 1e6)[small]
        assert area.min() > 0.079 and np.abs(np.histogram(area, 4)[0] / small.sum() - 0.25).max() < 0.03
        assert (top + height <= 1000).all() and (left + width <= 1000).all() and (top > 0).any() and (left > 0).any()

    @pytest.mark.parametrize("height, width", [(1, 2000), (2000, 1), (1, 1), (2, 3)])
    def test_never_empty_and_never_outside(self, height, width):
        top, left, tall, wide = self.crops(height, width, 50).T
        assert (tall >= 1).all() and (wide >= 1).all() and (top >= 0).all() and (left >= 0).all()
        assert (top + tall <= height).all() and (left + wide <= width).all()

    def test_when_no_try_fits(self):
        """The largest centred part of allowed aspect: 4 / 3 of a row of pixels 30 high."""
        draws = np.full((10, 4), 0xFFFFFFFF, np.uint32)
        assert resized_crop(30, 2000, draws) == (0, 980, 30, 40)
        assert resized_crop(2000, 30, draws) == (980, 0, 40, 30)
        assert resized_crop(30, 36, np.zeros((0, 4), np.uint32)) == (0, 0, 30, 36)

    @pytest.mark.parametrize("decoder", ["pillow", "simplejpeg"])
    def test_large_jpegs_are_decoded_at_reduced_scale(self, decoder):
        """As far as the smallest part keeps the result's pixels; whether the image or a part alone is asked for."""
        pytest.importorskip("simplejpeg" if decoder == "simplejpeg" else "PIL")
        transform = Transform(3, 24, 24, crop="resized", decoder=decoder)
        data, least = photo(400, 520, "JPEG"), 24 / math.sqrt(0.08 * 3 / 4)
        image = transform.load(data, "x")
        assert image.shape == (100, 130, 3) and 50 < least <= 100
        for index in range(8):
            draws, out = transform.draw(0, 0, np.array([index]))[0], np.zeros((24, 24, 3), np.uint8)
            transform.sample(data, "x", draws, out)
            assert (out == cut(transform, image, index=index)).all()
            top, left, tall, wide = (4 * side for side in resized_crop(100, 130, draws[1:]))
            part = Image.open(io.BytesIO(data)).crop((left, top, left + wide, top + tall))
            whole = np.asarray(part.resize((24, 24), Image.Resampling.BILINEAR), int)
            assert np.abs(whole - out).mean() < 2

    def test_pixels(self):
        transform = Transform(3, 24, 24, crop="resized")
        image = transform.load(photo(60, 80), "x")
        top, left, tall, wide = resized_crop(60, 80, transform.draw(0, 0, np.array([7]))[0, 1:])
        part = Image.fromarray(image).crop((left, top, left + wide, top + tall))
        expected = part.resize((24, tall), Image.Resampling.BILINEAR).resize((24, 24), Image.Resampling.BILINEAR)
        assert (cut(transform, image, index=7) == np.asarray(expected)).all()


class TestDraws:
    transform = Transform(3, 8, 8, crop="random", mirror=True)

    def test_depend_on_seed_epoch_and_sample_alone(self):
        indices = permutation(1, 0, 100)
        whole = self.transform.draw(1, 2, indices)
        assert (self.transform.draw(1, 2, indices[37:59]) == whole[37:59]).all()
        assert (self.transform.draw(1, 2, indices[::-1])[::-1] == whole).all()
        for other in (self.transform.draw(2, 2, indices), self.transform.draw(1, 3, indices)):
            assert (other != whole).mean() > 0.99
        assert len(np.unique(whole[:, 0, 0])) == 100

    def test_seeds_of_64_bits(self):
        low, high = (self.transform.draw(seed, 0, np.arange(4)) for seed in (1, 1 + (1 << 40)))
        assert (low != high).any()

    def test_mirror_is_a_fair_coin_of_its_own(self):
        draws = self.transform.draw(0, 0, np.arange(10_000))
        mirrored = self.transform.mirrored(draws)
        assert mirrored.dtype == np.uint8 and abs(mirrored.mean() - 0.5) < 0.02
        assert abs(np.corrcoef(mirrored, draws[:, 0, 0])[0, 1]) < 0.03
        assert not Transform(3, 8, 8, crop="random").mirrored(draws).any()

    def test_permutation(self):
        """Written down, because a resumed run needs the same on every machine and with every numpy."""
        assert permutation(1, 0, 10).tolist() == [8, 5, 4, 0, 2, 9, 6, 1, 7, 3]
        assert sorted(permutation(7, 3, 1000)) == list(range(1000))
        assert len({tuple(permutation(seed, epoch, 20)) for seed in range(5) for epoch in range(5)}) == 25
        places = np.array([permutation(0, epoch, 8) for epoch in range(2000)])
        assert np.abs(places.mean(axis=0) - 3.5).max() < 0.25

    @given(st.integers(0, 0xFFFFFFFF), st.integers(1, 1 << 31))
    def test_below(self, word, count):
        assert 0 <= below(word, count) < count
        assert below(0, count) == 0 and below(0xFFFFFFFF, count) == count - 1


class TestOptions:
    def transform(self, exif_orientation=False, decoder="pillow", **options):
        config = SimpleNamespace(data=SimpleNamespace(exif_orientation=exif_orientation, decoder=decoder))
        network = SimpleNamespace(data=[SimpleNamespace(shape=SimpleNamespace(channels=1, height=24, width=32))])
        return make_transform(config, Folder(path="x", **options), network)

    def test_every_option_arrives(self):
        options = {"resize": 40, "pad": 2, "crop": "random", "mirror": True, "max_pixels": 9}
        options |= {"exif_orientation": True, "decoder": "simplejpeg"}
        assert self.transform(**options) == Transform(1, 24, 32, **options)
        assert self.transform() == Transform(1, 24, 32, resize=32)

    @pytest.mark.parametrize("options", [{"resize": "none"}, {"crop": "resized"}])
    def test_image_keeps_its_size(self, options):
        assert self.transform(**options).resize is None

    def test_every_crop_is_known(self):
        for crop in CROPS:
            assert self.transform(crop=crop).crop == crop


def test_resize_that_would_make_a_giant():
    data = photo(1, 3000)
    with pytest.raises(
        DecodeError, match=r"'x': after resize: 256, 768000 x 256 pixels are over the limit .*: 1000000"
    ):
        Transform(3, 224, 224, resize=256, max_pixels=1_000_000).load(data, "x")


@pytest.mark.parametrize(
    "options, words", [({"channels": 4}, "1 or 3 channels, not 4"), ({"crop": "centre"}, "not 'centre'")]
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        Transform(**{"channels": 3, "height": 8, "width": 8, **options})
