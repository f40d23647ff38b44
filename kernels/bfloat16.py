"""bfloat16 in NumPy, which has no such type: uint16, the upper half of a float32."""

from typing import Any

import numpy as np


def narrow(x: Any) -> np.ndarray:
    """The nearest bfloat16 of each number, of two equally near ones the even; a NaN stays one."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


def widen(x: Any) -> np.ndarray:
    """The same numbers in float32."""
    return (np.asarray(x, np.uint32) << 16).view(np.float32)
