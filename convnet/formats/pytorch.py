"""The tensors in a PyTorch file, without PyTorch: the zip format, and the one before it.

Such a file is a pickle, and unpickling calls whatever the file names.  Here nothing is known but the handful of names
that a state dict needs; a file that names anything else is refused, by that name.
"""

import math
import pickle
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from convnet.errors import UserError
from kernels.bfloat16 import widen

DTYPES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<u2",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "|i1",
    "ByteStorage": "|u1", "BoolStorage": "|b1",
}  # fmt: skip
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # the first two pickles of the format before zip
MALFORMED = (
    pickle.UnpicklingError, zipfile.BadZipFile, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError,
    OverflowError, OSError, MemoryError, zlib.error,
    RuntimeError,  # of zipfile: an encrypted file, a compression it does not know
)  # fmt: skip


class _Fixed:
    """What a pickle cannot change: its BUILD writes even to frozen objects, and to those that outlive the file."""

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it changes what it is made of")


@dataclass(frozen=True)
class _Kind(_Fixed):
    """A type of storage; it cannot be called."""

    name: str


@dataclass(frozen=True)
class _Storage(_Fixed):
    kind: str
    key: str
    elements: int


@dataclass(frozen=True)
class _Tensor(_Fixed):
    """A strided view of a storage, in elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def array(self, storage: np.ndarray) -> np.ndarray:
        """A copy in C order; of an expanded tensor, which repeats elements, a view: it may be of any size."""
        sides = zip(self.shape, self.strides, strict=True)
        end = self.offset + sum((n - 1) * stride for n, stride in sides) + 1 if all(self.shape) else self.offset
        if min((self.offset, *self.shape, *self.strides)) < 0 or end > len(storage):
            raise ValueError(f"a tensor reaches outside its storage of {len(storage)} elements")
        steps = [stride * storage.itemsize for stride in self.strides]
        view = np.lib.stride_tricks.as_strided(storage[self.offset :], self.shape, steps, writeable=False)
        return view if math.prod(self.shape) > len(storage) else view.copy()


def _tensor(storage: _Storage, offset: int, shape: tuple, strides: tuple, *unused: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda data, *unused: data,
    **{("torch", name): _Kind(name) for name in DTYPES},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which weights have no need of")
        return ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        word, kind, key, _, elements, *view = pid
        if word != "storage" or not isinstance(kind, _Kind) or any(view):
            raise pickle.UnpicklingError(f"unknown reference {pid!r}")
        return _Storage(kind.name, str(key), int(elements))


def read_pytorch(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a state dict by name; UserError for a file that is damaged, or that holds anything else."""
    with path.open("rb") as file:
        try:
            return _from_zip(file) if zipfile.is_zipfile(file) else _from_stream(file)
        except MALFORMED as error:
            found = str(error) or type(error).__name__
            if not file.seek(0, 2):
                found = "it is empty"
            elif isinstance(error, EOFError) or "truncated" in found:
                found += "; the file may be cut off"
            raise UserError(f"{path}: not a readable PyTorch file of weights: {found}") from None


def _from_zip(file: BinaryIO) -> dict[str, np.ndarray]:
    """NAME/data.pkl with the tensors, NAME/data/KEY with each storage."""
    with zipfile.ZipFile(file) as archive:
        pickled = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
        if pickled is None:
            raise ValueError("a zip file without data.pkl")
        folder = pickled.removesuffix("data.pkl")
        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise ValueError("its numbers are not little-endian")
        tensors = _tensors(_Unpickler(BytesIO(archive.read(pickled))).load())
        return _arrays(tensors, lambda storage: archive.read(f"{folder}data/{storage.key}"))


def _from_stream(file: BinaryIO) -> dict[str, np.ndarray]:
    """Pickles one after the other: magic number, version, system, tensors, keys; then each storage after its length."""
    file.seek(0)
    if file.read(2) == b"PK":
        raise ValueError("a zip file without its end; it may be cut off")
    file.seek(0)
    if file.read(1) != b"\x80" or file.seek(0) or any(_Unpickler(file).load() != word for word in (MAGIC, PROTOCOL)):
        raise ValueError("it has neither of PyTorch's two formats")
    _Unpickler(file).load()
    tensors = _tensors(_Unpickler(file).load())
    storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    data: dict[str, bytes] = {}
    for key in _Unpickler(file).load():
        elements = int.from_bytes(file.read(8), "little")
        if key in storages:
            data[key] = file.read(elements * np.dtype(DTYPES[storages[key].kind]).itemsize)
    return _arrays(tensors, lambda storage: data[storage.key])


def _tensors(value: Any) -> Mapping[str, _Tensor]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping of names to tensors, found {type(value).__name__}")
    for name, tensor in value.items():
        if not isinstance(name, str):
            raise ValueError(f"expected names of tensors, found the key {name!r}")
        if not isinstance(tensor, _Tensor):
            raise ValueError(f"expected a tensor under {name!r}, found {type(tensor).__name__}")
    return value


def _arrays(tensors: Mapping[str, _Tensor], read: Callable[[_Storage], bytes]) -> dict[str, np.ndarray]:
    storages: dict[str, np.ndarray] = {}
    for tensor in tensors.values():
        key = tensor.storage.key
        if key not in storages:
            data, dtype = read(tensor.storage), np.dtype(DTYPES[tensor.storage.kind])
            storages[key] = np.frombuffer(data, dtype, len(data) // dtype.itemsize)
            if len(storages[key]) != tensor.storage.elements:
                found = f"{len(storages[key])} elements of {tensor.storage.elements}"
                raise ValueError(f"storage {key} has {found}; the file may be cut off")
            if tensor.storage.kind == "BFloat16Storage":
                storages[key] = widen(storages[key])
    return {name: tensor.array(storages[tensor.storage.key]) for name, tensor in tensors.items()}
