"""Shares of batches: what ranks gather from each other is the batch, and taking it apart again is the reverse."""

import numpy as np
import pytest

from kernels.batch import AMOUNTS, JOIN, LABELS, SPLIT, Labels, Shares


def split(x, **options):
    g = Shares(*x.shape, **options)
    y = np.full((g.parts * x.shape[0], *x.shape[1:3], g.share), np.nan)
    SPLIT.reference(g, x, y)
    return y


@pytest.fixture
def x():
    return np.random.default_rng(2).standard_normal((3, 2, 2, 10))


def test_shares_are_the_samples_in_order_and_zeros_behind_them(x):
    y = split(x, parts=4, share=3)
    padded = np.concatenate([x, np.zeros((3, 2, 2, 2))], axis=3)
    for part in range(4):
        np.testing.assert_array_equal(y[3 * part : 3 * part + 3], padded[..., 3 * part : 3 * part + 3])


def test_shares_joined_are_the_batch(x):
    y = np.full(x.shape, np.nan)
    JOIN.reference(Shares(*x.shape, parts=4, share=3), split(x, parts=4, share=3), y, 0.0)
    np.testing.assert_array_equal(y, x)


def test_joining_some_samples_leaves_the_others(x):
    y = np.zeros(x.shape)
    JOIN.reference(Shares(*x.shape, parts=1, share=3, first=8, offset=2, length=10), x, y, 0.0)
    np.testing.assert_array_equal(y[..., 8:], x[..., 2:4])
    assert not y[..., :8].any()


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"count": 4}, [0, 1, 2, 3]),
        ({"count": 4, "first": 8}, [8, 9, -1, -1]),
        ({"count": 6, "run": 2, "stride": 5}, [0, 1, 5, 6, -1, -1]),
        ({"count": 4, "first": 4, "run": 2, "stride": 5}, [4, 5, 9, -1]),
    ],
)
def test_labels_and_amounts_come_in_runs(options, expected):
    y = np.full(options["count"], 99, np.int32)
    LABELS.reference(Labels(batch=10, **options), np.arange(10, dtype=np.int32), y)
    assert y.tolist() == expected
    found = np.full(options["count"], np.nan)
    AMOUNTS.reference(Labels(batch=10, **options), np.arange(10) / 4, found)
    assert found.tolist() == [max(place, 0) / 4 for place in expected]
