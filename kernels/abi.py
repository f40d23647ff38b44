"""How arguments reach a kernel: the C declaration of a geometry, and the packing of each argument.

geometry    a frozen dataclass of int, bool and float fields -> a struct of the same name, by value
map         an array of four axes (C, H, W, N), N contiguous -> struct Map<T> {T* data; long long c, h, w;},
            strides in elements; None -> data == nullptr
array       any other contiguous array -> a pointer; None -> nullptr
scalar      int -> int, float -> float
"""

import dataclasses
import functools
from typing import Any

import numpy as np

MAP = np.dtype([("data", np.uint64), ("c", np.int64), ("h", np.int64), ("w", np.int64)])
FIELD = {int: ("int", np.int32), bool: ("int", np.int32), float: ("float", np.float32)}


@functools.cache
def _fields(geometry: Any) -> tuple[tuple[str, str, Any], ...]:
    fields = []
    for field in dataclasses.fields(geometry):
        kind = field.type if isinstance(field.type, type) else {"int": int, "bool": bool, "float": float}[field.type]
        fields.append((field.name, *FIELD[kind]))
    return tuple(fields)


def declaration(geometry: Any) -> str:
    """C++ struct with the fields of the dataclass, in order.

    >>> declaration(Window)
    'struct Window { int channels; int height; };'
    """
    body = " ".join(f"{c_type} {name};" for name, c_type, _ in _fields(geometry))
    return f"struct {geometry.__name__} {{ {body} }};"


def pack_geometry(g: Any) -> np.ndarray:
    """The geometry as a 0-d structured array with the memory layout of `declaration`."""
    kind: Any = type(g)
    fields = _fields(kind)
    record = np.dtype([(name, dtype) for name, _, dtype in fields])
    for name, _, dtype in fields:
        value = getattr(g, name)
        if dtype is np.int32 and not -(2**31) <= value < 2**31:
            raise OverflowError(f"{type(g).__name__}.{name} = {value} does not fit 32 bits")
    return np.array(tuple(getattr(g, name) for name, *_ in fields), record)


def pack(kind: str, name: str, value: Any) -> Any:
    """One kernel argument of the given kind (see `Op.arguments`) in the form CuPy's launcher takes."""
    if kind == "int":
        return np.int32(value)
    if kind == "float":
        return np.float32(value)
    if kind == "map":
        if value is None:
            return np.array((0, 0, 0, 0), MAP)
        c, h, w, n = (stride // value.itemsize for stride in value.strides)
        if n != 1 and value.shape[3] > 1:
            raise ValueError(f"map '{name}': expected the batch contiguous, found strides {(c, h, w, n)}")
        return np.array((value.data.ptr, c, h, w), MAP)
    if value is None:
        return np.uint64(0)
    if not value.flags.c_contiguous:
        raise ValueError(f"array '{name}': expected it contiguous, found strides {value.strides}")
    return np.uint64(value.data.ptr)
