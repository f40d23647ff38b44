"""How arguments reach a kernel: the C declaration of a geometry, and the packing of each argument.

geometry    a frozen dataclass of int, bool, float and tuple[int, ...] fields -> a struct of the same name, by value;
            a tuple has at most LONGEST elements, none of them 0, and zeros behind them
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
LONGEST = 8
FIELD: dict[Any, tuple[str, Any, tuple[int, ...]]] = {  # type in C, of an element here, and their number
    int: ("int", np.int32, ()),
    bool: ("int", np.int32, ()),
    float: ("float", np.float32, ()),
    tuple[int, ...]: ("int", np.int32, (LONGEST,)),
}
NAMES = {"int": int, "bool": bool, "float": float, "tuple[int, ...]": tuple[int, ...]}


@functools.cache
def _fields(geometry: Any) -> tuple[tuple[str, str, Any, tuple[int, ...]], ...]:
    types = ((field.name, NAMES.get(str(field.type), field.type)) for field in dataclasses.fields(geometry))
    return tuple((name, *FIELD[kind]) for name, kind in types)


def declaration(geometry: Any) -> str:
    """C++ struct with the fields of the dataclass, in order.

    >>> declaration(Window)
    'struct Window { int channels; int height; };'
    """
    fields = ((c_type, name, "".join(f"[{side}]" for side in shape)) for name, c_type, _, shape in _fields(geometry))
    body = " ".join(f"{c_type} {name}{sides};" for c_type, name, sides in fields)
    return f"struct {geometry.__name__} {{ {body} }};"


def pack_geometry(g: Any) -> np.ndarray:
    """The geometry as a 0-d structured array with the memory layout of `declaration`."""
    kind: Any = type(g)
    fields = _fields(kind)
    record = np.dtype([(name, dtype, shape) for name, _, dtype, shape in fields])
    packed = np.zeros((), record)
    for name, _, dtype, shape in fields:
        value = getattr(g, name)
        numbers = value if shape else (value,)
        if dtype is np.int32 and not all(-(2**31) <= number < 2**31 for number in numbers):
            raise OverflowError(f"{type(g).__name__}.{name} = {value} does not fit 32 bits")
        if len(numbers) > LONGEST:
            raise OverflowError(f"{type(g).__name__}.{name}: expected at most {LONGEST} numbers, found {len(numbers)}")
        packed[name] = (*value, *[0] * (LONGEST - len(value))) if shape else value
    return packed


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
    check(kind, name, value)
    return np.uint64(value.data.ptr)


def check(kind: str, name: str, value: Any) -> None:
    """Raise ValueError where an array does not lie in memory as its kind wants."""
    if kind == "array" and value is not None and not value.flags.c_contiguous:
        raise ValueError(f"array '{name}': expected it contiguous, found strides {value.strides}")
