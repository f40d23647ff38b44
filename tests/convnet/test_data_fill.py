"""Batches of images that are at hand: gathered at once, and the same as one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convnet.data import DataError, Pipeline, PixelSource, Transform
from convnet.data import fill as module
from convnet.data.fill import gather
from convnet.data.transform import place


def source(height, width, channels=3, count=50):
    images = np.random.default_rng(0).integers(1, 256, (count, height, width, channels), np.uint8)
    return PixelSource(images, np.arange(count, dtype=np.int32) % 10, [str(k) for k in range(10)], "made")


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9),
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), max_size=9), st.booleans(),
)  # fmt: skip
def test_gather_is_place_of_each(height, width, tall, wide, corners, small):
    images = np.random.default_rng(0).integers(1, 256, (4, height, width, 3), np.uint8)
    indices = np.arange(len(corners)) % 4
    out, expected = np.full((2, len(corners), tall, wide, 3), 77, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALL", 1000 if small else 0)
        patch.setattr(module, "CHUNK", 2)
        gather(images, indices, np.array(corners, np.int64).reshape(-1, 2), out)
    for index, corner, window in zip(indices, corners, expected, strict=True):
        place(images[index], *corner, window)
    assert (out == expected).all()


@pytest.mark.parametrize(
    "options",
    [{}, {"crop": "random"}, {"crop": "random", "pad": 3}, {"pad": 9}, {"crop": "resized"}, {"resize": 12}],
    ids=str,
)
@pytest.mark.parametrize("channels", [1, 3])
def test_batches_are_the_cuts_of_each_image(options, channels):
    made, transform = source(12, 14, channels), Transform(channels, 8, 10, **options)
    with Pipeline(made, transform, 7, train=True, seed=4, threads=2) as pipeline:
        for batch in pipeline.batches(3):
            draws, out = transform.draw(4, 3, batch.indices), np.zeros_like(batch.pixels)
            for words, index, window in zip(draws, batch.indices, out, strict=True):
                transform.cut(made.images[index], words, window)
            assert (batch.pixels == out).all() and (batch.labels == batch.indices % 10).all()


def test_images_that_must_be_resized_first():
    with Pipeline(source(24, 28), Transform(3, 8, 8, resize=12), 50) as pipeline:
        (batch,) = pipeline.batches()
        assert batch.pixels.shape == (50, 8, 8, 3) and np.ptp(batch.pixels.astype(int)) < 250  # averaged


def test_views():
    made = source(10, 10)
    with Pipeline(made, Transform(3, 8, 8), 50, views=10) as pipeline:
        corners = [batch.pixels.copy() for batch in pipeline.batches()][::2]
    places = [(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)]
    assert all(
        (made.images[:, y : y + 8, x : x + 8] == seen).all() for (y, x), seen in zip(places, corners, strict=True)
    )


def test_no_process_is_started_for_what_needs_no_decoding():
    with Pipeline(source(8, 8), Transform(3, 8, 8), 10, workers="processes") as pipeline:
        assert not pipeline.processes and sum(len(batch) for batch in pipeline.batches()) == 50


def test_channels_must_be_those_of_the_network():
    with pytest.raises(DataError, match="made: images of 1 channels, the network's input has 3"):
        Pipeline(source(8, 8, 1), Transform(3, 8, 8), 10)
