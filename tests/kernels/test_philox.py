"""Philox4x32-10 against the known answers that Random123 publishes (kat_vectors)."""

import numpy as np
import pytest

from kernels.random import philox4x32

KNOWN = [  # counter, key, result
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("counter, key, result", KNOWN)
def test_known_answers(counter, key, result):
    assert tuple(int(word) for word in philox4x32(counter, key)) == result


def test_vector_is_each_counter_alone():
    counters = np.array([counter for counter, _, _ in KNOWN], np.uint32).T
    for n, (counter, _, _) in enumerate(KNOWN):
        alone = philox4x32(counter, (7, 9))
        assert [word[n] for word in philox4x32(tuple(counters), (7, 9))] == [int(word) for word in alone]


def test_counter_words_broadcast():
    words = philox4x32((np.arange(3)[:, None], np.arange(5)[None], 1, 2), (3, 4))
    assert all(word.shape == (3, 5) and word.dtype == np.uint32 for word in words)
    assert words[2][2, 4] == philox4x32((2, 4, 1, 2), (3, 4))[2]


def test_draws_are_uniform():
    draws = np.stack(philox4x32((np.arange(1 << 14), 0, 0, 0), (1, 2))) / 2.0**32
    assert np.abs(draws.mean(axis=1) - 0.5).max() < 0.01
    assert np.abs(np.corrcoef(draws) - np.eye(4)).max() < 0.03
