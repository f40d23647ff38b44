"""bfloat16 on the host against what Python's own arithmetic says."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import wire
from kernels.bfloat16 import narrow, widen
from kernels.update import BLOCK


def exact(bits: int) -> Fraction:
    """The number of a bfloat16."""
    return Fraction(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_nearest_one_is_taken(x):
    bits = int(narrow(np.float32(x)))
    toward_zero = struct.unpack("<I", struct.pack("<f", x))[0] >> 16
    if bits & 0x7FFF == 0x7F80:  # infinity, from half a step beyond the largest finite one on
        assert abs(Fraction(x)) >= (exact(0x7F7F) + Fraction(2) ** 128) / 2
        return
    choices = [c for c in (toward_zero, toward_zero + 1) if c & 0x7FFF < 0x7F80]
    gaps = {c: abs(exact(c) - Fraction(x)) for c in choices}
    best = min(gaps.values())
    assert bits in [c for c in choices if gaps[c] == best]
    if len(choices) == 2 and gaps[choices[0]] == gaps[choices[1]]:
        assert bits % 2 == 0


@pytest.mark.parametrize("x, bits", [(1.0, 0x3F80), (-2.0, 0xC000), (0.0, 0), (-0.0, 0x8000), (np.inf, 0x7F80)])
def test_known_numbers(x, bits):
    assert narrow(np.float32(x)) == bits
    assert widen(np.uint16(bits)).tobytes() == np.float32(x).tobytes()


def test_a_nan_stays_one_and_infinities_are_not_made_of_them():
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(widen(narrow(nans))).all()
    assert np.isinf(widen(narrow(np.float32([3.4e38, -3.4e38])))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_there_and_back(dtype):
    """What has at most 8 binary digits is not changed."""
    x = np.resize(np.arange(-256, 256), BLOCK).astype(dtype) * dtype(2.0**-9)
    half, back = np.zeros(BLOCK, np.uint16), np.full(BLOCK, np.nan, dtype)
    wire.NARROW.reference(wire.Halve(1), x, half)
    wire.WIDEN.reference(wire.Halve(1), half, back)
    np.testing.assert_array_equal(back, x)
