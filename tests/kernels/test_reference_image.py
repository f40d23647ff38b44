"""Image operations, pixel by pixel, and the draw of a random scale."""

import numpy as np
import pytest
from PIL import Image

from kernels.image import (
    AUGMENT,
    BLUR,
    FLIP,
    HEAD,
    MOST,
    PREPARE,
    RESAMPLE,
    RESIZE,
    RSCALE,
    Augment,
    Blur,
    Flip,
    Prepare,
    Resample,
    Resize,
    Rscale,
)  # fmt: skip
from kernels.image.reference import draw, gaussian


def test_pixels():
    rng = np.random.default_rng(0)
    pixels, mirror = rng.integers(0, 256, (3, 4, 5, 2), np.uint8), np.array([0, 1, 1], np.uint8)
    mean, std, y = np.array([100.0, 120.0]), np.array([50.0, 60.0]), np.empty((2, 4, 5, 3))
    PREPARE.reference(Prepare(2, 4, 5, 3, 4, 5), pixels, np.zeros((3, 2), np.int32), mirror, mean, std, y)
    for c, h, w, n in np.ndindex(y.shape):
        source = pixels[n, h, 4 - w if mirror[n] else w, c]
        assert y[c, h, w, n] == (source - mean[c]) / std[c]


@pytest.mark.parametrize("channels", [1, 3])
def test_resample_is_pillows_filter(channels):
    """Of any size to any other, byte for byte; rows first, as Pillow 13 has it in two calls alone."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        out_h, out_w = (int(side) for side in rng.integers(1, 50, 2))
        height, width = int(rng.integers(1, MOST * out_h + 1)), int(rng.integers(1, MOST * out_w + 1))
        image = rng.integers(0, 256, (height, width, channels), np.uint8)
        cells = rng.integers(0, 256, (2, HEAD + image.size + 7), np.uint8)
        cells[:, :8].view(np.int32)[:] = (height, width), (0, 0)
        cells[0, HEAD : HEAD + image.size] = image.ravel()
        found = np.ones((2, out_h, out_w, channels), np.uint8)
        RESAMPLE.reference(Resample(channels, out_h, out_w, 2, cells.shape[1]), cells, found)
        expected = Image.fromarray(image.squeeze(2) if channels == 1 else image)
        for size in ((out_w, height), (out_w, out_h)):
            expected = expected.resize(size, Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(found[0], np.asarray(expected).reshape(out_h, out_w, channels))
        assert not found[1].any()


def test_windows():
    """From anywhere in the image and beyond its edges, where it is 0; a mean image stays where it is."""
    rng, sides = np.random.default_rng(0), (6, 7)
    pixels, std = rng.integers(0, 256, (9, *sides, 2), np.uint8), np.array([50.0, 60.0])
    mean, y = rng.uniform(0, 255, (2, 4, 5)), np.empty((2, 4, 5, 9))
    corner = np.array([(0, 0), (2, 2), (1, 0), (-1, 1), (4, -3), (-4, 0), (6, 0), (0, 7), (-9, -9)], np.int32)
    mirror = np.arange(9).astype(np.uint8) % 3
    PREPARE.reference(Prepare(2, 4, 5, 9, *sides, mean_image=True), pixels, corner, mirror, mean, std, y)
    for c, h, w, n in np.ndindex(y.shape):
        row, column = corner[n] + (h, 4 - w if mirror[n] else w)
        inside = 0 <= row < 6 and 0 <= column < 7
        assert y[c, h, w, n] == ((pixels[n, row, column, c] if inside else 0.0) - mean[c, h, w]) / std[c]


def augmented(pixels, mean, std, **given):
    """Of images of 4 x 5 pixels, unmoved."""
    count, *_, channels = pixels.shape
    names = ("colour", "pull", "erased", "partner", "patch", "blend")
    still = {"corner": np.zeros((count, 2), np.int32), "mirror": np.arange(count) % 2}
    y = np.empty((channels, 4, 5, count))
    g = Augment(channels, 4, 5, count, 4, 5, contrast="pull" in given)
    AUGMENT.reference(g, pixels=pixels, **still, **dict.fromkeys(names) | given, mean=mean, std=std, y=y)
    return y


def test_augmentation():
    """Colours, the erased part, then the mix: each pixel by the definition."""
    rng = np.random.default_rng(0)
    pixels, mean, std = rng.integers(0, 256, (3, 4, 5, 3), np.uint8), rng.uniform(90, 130, 3), rng.uniform(40, 70, 3)
    colour, pull = rng.uniform(-0.5, 1.2, (3, 3, 5)), rng.uniform(-0.3, 0.6, (3, 3))
    erased, patch = (
        np.array([[0, 0, 0, 0], [1, 2, 2, 3], [0, 0, 4, 5]]),
        np.array([[0, 0, 4, 5], [1, 0, 3, 2], [2, 2, 0, 0]]),
    )
    partner, blend = np.array([1, 1, -2]), np.array([0.25, 0.0, 0.5])

    def alone(c, h, w, n):
        top, left, height, width = erased[n]
        if top <= h < top + height and left <= w < left + width:
            return 0.0
        pixel, mean_colour = pixels[n, h, 4 - w if n % 2 else w].astype(float), pixels[n].mean((0, 1))
        mixed = np.clip(colour[n, c, :3] @ pixel + pull[n] @ mean_colour, 0, 255)
        return (mixed - mean[c] + colour[n, c, 3]) * colour[n, c, 4] / std[c]

    given = {"colour": colour, "pull": pull, "erased": erased, "partner": partner, "patch": patch, "blend": blend}
    y = augmented(pixels, mean, std, **given)
    for c, h, w, n in np.ndindex(y.shape):
        top, left, height, width = patch[n]
        inside = top <= h < top + height and left <= w < left + width
        share = blend[n] if inside else 1.0
        expected = share * alone(c, h, w, n) + (1 - share) * alone(c, h, w, n + partner[n])
        assert y[c, h, w, n] == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_nothing_is_changed_by_nothing():
    pixels, mean, std = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8), np.ones(3), np.full(3, 2.0)
    unchanged = augmented(pixels, mean, std)
    plain = np.concatenate([np.eye(3), np.zeros((3, 1)), np.ones((3, 1))], axis=1)
    same = augmented(pixels, mean, std, colour=np.stack([plain, plain]), erased=np.zeros((2, 4), int))
    np.testing.assert_array_equal(same, unchanged)
    np.testing.assert_array_equal(unchanged[..., 0], (pixels[0].transpose(2, 0, 1) - 1.0) / 2)


def values(*shape):
    return np.random.default_rng(1).standard_normal(shape)


def test_flip():
    x, y = values(2, 3, 5, 4), values(2, 3, 5, 4)
    expected = np.empty_like(y)
    for c, h, w, n in np.ndindex(y.shape):
        expected[c, h, w, n] = 0.5 * y[c, h, w, n] + x[c, h, 4 - w, n]
    FLIP.reference(Flip(2, 3, 5, 4), x, y, 0.5)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("size, stdev", [(3, 0.5), (5, 1.0), (9, 3.0)])
@pytest.mark.parametrize("vertical", [True, False])
def test_blur(size, stdev, vertical):
    """Also of maps that are smaller than the filter."""
    x, y = values(2, 3, 6, 2), np.empty((2, 3, 6, 2))
    taps = np.exp(-((np.arange(size) - size // 2) ** 2) / (2 * stdev**2))
    np.testing.assert_allclose(gaussian(size, stdev), taps / taps.sum(), rtol=1e-14)
    BLUR.reference(Blur(2, 3, 6, 2, size, stdev, vertical), x, y, 0.0)
    for h, w in np.ndindex(3, 6):
        expected = np.zeros((2, 2))
        for d in range(-(size // 2), size // 2 + 1):
            a, b = (h + d, w) if vertical else (h, w + d)
            if 0 <= a < 3 and 0 <= b < 6:
                expected += taps[d + size // 2] / taps.sum() * x[:, a, b]
        np.testing.assert_allclose(y[:, h, w], expected, rtol=1e-12, atol=1e-14)


def bilinear(x, row, column):
    """x[:, row, column] between the four pixels around."""
    a, b = int(row), int(column)
    c, d = min(a + 1, x.shape[1] - 1), min(b + 1, x.shape[2] - 1)
    down, across = row - a, column - b
    above = x[:, a, b] * (1 - across) + x[:, a, d] * across
    return above * (1 - down) + (x[:, c, b] * (1 - across) + x[:, c, d] * across) * down


@pytest.mark.parametrize("out_h, out_w, scale", [(5, 7, 1.25), (14, 18, 0.5), (1, 1, 2.0), (7, 9, 1.0)])
def test_resize(out_h, out_w, scale):
    x, y = values(2, 7, 9, 3), np.empty((2, out_h, out_w, 3))
    RESIZE.reference(Resize(2, 7, 9, 3, out_h, out_w, scale), x, y)
    for p, q in np.ndindex(out_h, out_w):
        row = min(max(p * scale + 3.5 - out_h / 2 * scale, 0), 7 - 1.01)
        column = min(max(q * scale + 4.5 - out_w / 2 * scale, 0), 9 - 1.01)
        np.testing.assert_allclose(y[:, p, q], bilinear(x, row, column), rtol=1e-10, atol=1e-12)


def clock(step, offset=0):
    return np.array([11, 12, step, offset], np.uint32)


@pytest.mark.parametrize("height, width", [(9, 9), (9, 14), (15, 9)])
def test_a_random_scale_stays_on_the_image(height, width):
    """The crop fits the shrunk image, and that fits the image; the tighter side is the one that is counted."""
    g, x = Rscale(1, height, width, 1, 5, 5, key=3), values(1, height, width, 1)
    for step in range(200):
        scale, (rows, columns), (top, left) = draw(g, clock(step))
        assert 1 <= scale <= 9 / 5 and min(rows, columns) in (int(9 / scale), round(9 / scale))
        assert rows * scale <= height + 1e-9 and columns * scale <= width + 1e-9
        assert 0 <= top <= rows - 5 and 0 <= left <= columns - 5
        y = np.empty((1, 5, 5, 1))
        RSCALE.reference(g, x, clock(step, offset=step), y)  # all samples of a step share the draw
        for p, q in np.ndindex(5, 5):
            ends = [side - (1 if scale == 1 else 1.01) for side in (height, width)]
            row = np.clip((top + p) * scale + height / 2 - rows / 2 * scale, 0, ends[0])
            column = np.clip((left + q) * scale + width / 2 - columns / 2 * scale, 0, ends[1])
            np.testing.assert_allclose(y[:, p, q], bilinear(x, row, column), rtol=1e-9, atol=1e-12)


def test_draws_differ_between_layers_and_seeds():
    draws = {draw(Rscale(1, 40, 40, 1, 30, 30, key), clock(7)) for key in range(8)}
    draws |= {draw(Rscale(1, 40, 40, 1, 30, 30, 0), np.array([seed, 12, 7, 0])) for seed in range(20, 28)}
    assert len(draws) == 16
