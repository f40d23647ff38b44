"""Dropout: which elements it keeps, element by element, and that the mask depends on logical positions alone."""

import numpy as np
import pytest

from kernels.random import DROPOUT, Dropout, philox4x32
from kernels.random.reference import keep_mask


def clock(step=3, offset=0, seed=(11, 12)):
    return np.array([*seed, step, offset], np.uint32)


@pytest.mark.parametrize("offset", [0, 6, 2**32 - 3])
def test_each_element_has_its_own_counter(offset):
    g = Dropout(2, 3, 2, 7, keep=0.4, key=5)
    mask = keep_mask(g, clock(offset=offset))
    for c, h, w, n in np.ndindex(mask.shape):
        sample = (offset + n) % 2**32
        words = philox4x32((c * 6 + h * 2 + w, sample // 4, 3, 5), (11, 12))
        assert mask[c, h, w, n] == (int(words[sample % 4]) < np.float64(np.float32(0.4)) * 2**32)


def test_parts_of_a_batch_draw_what_the_whole_draws():
    whole = keep_mask(Dropout(3, 2, 2, 10, 0.5, 1), clock())
    parts = [keep_mask(Dropout(3, 2, 2, n, 0.5, 1), clock(offset=first)) for first, n in ((0, 3), (3, 6), (9, 1))]
    np.testing.assert_array_equal(np.concatenate(parts, axis=3), whole)


def test_a_part_of_the_channels_draws_what_the_whole_draws():
    whole = keep_mask(Dropout(7, 3, 2, 5, 0.5, 1), clock())
    part = keep_mask(Dropout(3, 3, 2, 5, 0.5, 1, channel=4), clock())
    np.testing.assert_array_equal(part, whole[4:])


@pytest.mark.parametrize("offset", [0, 2])
def test_samples_in_runs_draw_by_their_places(offset):
    """The second pass of three ranks with 6 samples each, of which each gives two: those at 2, 3, 8, 9, 14, 15."""
    whole = keep_mask(Dropout(4, 2, 1, 18 + offset, 0.5, 1), clock())
    part = keep_mask(Dropout(4, 2, 1, 6, 0.5, 1, first=2 - 6, run=2, stride=6), clock(offset=6 + offset))
    np.testing.assert_array_equal(part, whole[..., [offset + n for n in (2, 3, 8, 9, 14, 15)]])


def test_step_seed_and_key_change_the_mask():
    g = Dropout(4, 4, 4, 8, 0.5, 1)
    masks = [keep_mask(g, clock()), keep_mask(g, clock(step=4)), keep_mask(g, clock(seed=(11, 13)))]
    masks.append(keep_mask(Dropout(4, 4, 4, 8, 0.5, 2), clock()))
    assert len({mask.tobytes() for mask in masks}) == 4


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_share_and_scale(keep):
    """The share kept is within 5 deviations of `keep`, and what is kept is divided by it."""
    g = Dropout(10, 10, 10, 100, keep, 0)
    x, y = np.ones((10, 10, 10, 100)), np.empty((10, 10, 10, 100))
    DROPOUT.reference(g, x, clock(), y)
    assert abs((y != 0).mean() - keep) < 5 * (keep * (1 - keep) / y.size) ** 0.5
    np.testing.assert_allclose(y[y != 0], 1 / keep)


def test_keep_all():
    assert keep_mask(Dropout(3, 3, 3, 5, 1.0, 0), clock()).all()
