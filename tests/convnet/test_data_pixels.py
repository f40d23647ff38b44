"""Pillow's memory, seen and lent: the same pixels, and none that have gone."""

import gc

import numpy as np
import pytest
from PIL import Image

from convnet.data.pixels import copy, image_of, resize, view


def noise(height, width, channels):
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), np.uint8)


def picture(array):
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


@pytest.fixture(params=["shared", "copied"], autouse=True)
def memory(request, monkeypatch):
    """Pillow as it is, and an older one, which cannot say where its pixels are."""
    if request.param == "copied":
        monkeypatch.delattr(Image.Image, "__arrow_c_array__")
        monkeypatch.delattr(Image, "fromarrow")
    return request.param


@pytest.mark.parametrize("channels", [1, 3])
def test_view_has_the_pixels(channels):
    array = noise(7, 5, channels)
    seen = view(picture(array))
    assert seen.shape == (7, 5, channels) and (seen == array).all()
    with pytest.raises(ValueError, match="read-only"):
        seen[0, 0, 0] = 1


def test_view_lives_as_long_as_it_is_looked_at():
    array = noise(300, 300, 3)
    seen = view(picture(array).resize((300, 300)))
    gc.collect()
    others = [picture(noise(300, 300, 3) // 2) for _ in range(20)]  # would take the memory, were it free
    assert (seen == array).all() and len(others) == 20


def test_view_of_an_image_in_several_blocks():
    """Pillow keeps more than 16 MiB in pieces."""
    array = np.tile(noise(64, 64, 3), (40, 40, 1))
    assert (view(picture(array)) == array).all()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("window", [np.s_[:, :], np.s_[2:6, 1:4]], ids=["all", "window"])
def test_image_of_is_the_inverse(channels, window):
    array = noise(7, 5, channels)
    for pixels in (array[window], view(picture(array))[window]):
        image = image_of(pixels)
        del pixels
        gc.collect()
        assert image.mode == ("L" if channels == 1 else "RGB")
        assert (np.asarray(image).reshape(array[window].shape) == array[window]).all()


def test_image_of_shares_memory(memory):
    pixels = view(picture(noise(7, 5, 3)))
    again = view(image_of(pixels))
    assert (again.ctypes.data == pixels.ctypes.data) == (memory == "shared")


@pytest.mark.parametrize("channels", [1, 3])
def test_resize_is_pillows(channels):
    array = noise(40, 30, channels)
    expected = np.asarray(picture(array).resize((12, 17), Image.Resampling.BILINEAR)).reshape(17, 12, channels)
    for pixels in (array, view(picture(array))):
        assert (resize(pixels, (12, 17)) == expected).all()


def test_copy():
    array, out = noise(7, 5, 3), np.zeros((2, 7, 5, 3), np.uint8)
    for pixels in (array, view(picture(array)), view(picture(array))[:, ::-1]):
        out[:] = 0
        copy(pixels, out[1])
        assert (out[1] == pixels).all() and not out[0].any()
