"""Files as torch.save writes them, made without PyTorch: modules of its names stand in while they are written."""

import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from contextlib import contextmanager

import numpy as np

from convnet.formats.pytorch import DTYPES, MAGIC, PROTOCOL

KINDS = {np.dtype(code): kind for kind, code in DTYPES.items() if kind != "BFloat16Storage"}


class Storage:
    """An array under a key."""

    def __init__(self, key, array, kind=None):
        self.key, self.array, self.kind = str(key), array.reshape(-1), kind or KINDS[array.dtype]


class Tensor:
    """A view of a storage, in elements."""

    def __init__(self, storage, shape, strides=None, offset=0):
        self.storage, self.shape, self.offset = storage, tuple(shape), offset
        self.strides = tuple(strides or [int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape))])

    def __reduce__(self):
        arguments = (self.storage, self.offset, self.shape, self.strides, False, OrderedDict())
        return sys.modules["torch._utils"]._rebuild_tensor_v2, arguments


@contextmanager
def torch():
    """Modules with the names that such a pickle refers to."""
    module, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for kind in DTYPES:
        setattr(module, kind, type(kind, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2(*arguments):
        raise AssertionError("only its name is written")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2, module._utils = _rebuild_tensor_v2, utils
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": module, "torch._utils": utils})
    try:
        yield module
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old


def state(arrays):
    """A state dict of whole arrays, with the attribute that PyTorch gives it."""
    found = OrderedDict((n, Tensor(Storage(i, a), a.shape)) for i, (n, a) in enumerate(arrays.items()))
    found._metadata = OrderedDict({"": {"version": 1}})
    return found


def save_zip(path, value, *, cut=0, byteorder=b"little"):
    """The zip format. cut: bytes left off each storage."""
    with zipfile.ZipFile(path, "w") as archive, torch() as module:
        storages = {}
        with archive.open("net/data.pkl", "w") as file:
            _pickler(file, module, storages, ()).dump(value)
        archive.writestr("net/byteorder", byteorder)
        for storage in storages.values():
            data = storage.array.tobytes()
            archive.writestr(f"net/data/{storage.key}", data[: len(data) - cut])


def save_stream(path, value):
    """The format before it."""
    with path.open("wb") as file, torch() as module:
        for head in (MAGIC, PROTOCOL, {"little_endian": True}):
            pickle.dump(head, file, protocol=2)
        storages = {}
        _pickler(file, module, storages, (None,)).dump(value)
        pickle.dump(sorted(storages), file, protocol=2)
        for key in sorted(storages):
            file.write(len(storages[key].array).to_bytes(8, "little") + storages[key].array.tobytes())


def _pickler(file, module, storages, view):
    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, Storage):
                return None
            storages[value.key] = value
            return ("storage", getattr(module, value.kind), value.key, "cpu", len(value.array), *view)

    return Pickler(file, protocol=2)
