"""Geometries as structs: the declaration and the bytes have the same fields."""

from dataclasses import dataclass

import numpy as np
import pytest

from kernels.abi import declaration, pack_geometry


@dataclass(frozen=True)
class Window:
    size: int
    sides: tuple[int, ...]
    scale: float
    padded: bool = False


def test_a_geometry_is_a_struct():
    assert declaration(Window) == "struct Window { int size; int sides[8]; float scale; int padded; };"
    packed = pack_geometry(Window(7, (1, 5), 0.5, True))
    expected = np.array([7, 1, 5, 0, 0, 0, 0, 0, 0], np.int32).tobytes() + np.float32(0.5).tobytes()
    assert packed.ndim == 0 and packed.tobytes() == expected + np.int32(1).tobytes()


@pytest.mark.parametrize("size, sides", [(2**31, ()), (1, (3, -(2**31) - 1)), (1, (1,) * 9)])
def test_what_does_not_fit_is_an_error(size, sides):
    with pytest.raises(OverflowError, match=r"Window\.(size|sides)"):
        pack_geometry(Window(size, sides, 1.0))
