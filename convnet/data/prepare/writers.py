"""The forms of a prepared dataset. Each writes a unit of images and renames it: it is whole, or not there."""

import io
import os
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from convnet.data.prepare.recipe import Made, Recipe
from convnet.data.sources.index import COLUMNS, Index, stat_file
from convnet.data.sources.raw import IMAGES
from convnet.data.sources.tars import BLOCK
from convnet.errors import naming
from convnet.formats.files import writing

HEADER = 128  # bytes of an .npy file before the array
END = bytes(2 * BLOCK)  # of a tar file


class Unit:
    """The index of the images that one unit of work has written."""

    def __init__(self, entry: dict[str, Any]):
        self.entry = entry  # of meta.files
        self.names: list[str] = []
        self.rows: list[tuple[int, ...]] = []
        self.digests = bytearray()

    def add(self, name: str, made: Made, label: int, offset: int = 0) -> None:
        self.names.append(name)
        self.rows.append((0, offset, len(made.data), label, made.width, made.height, made.restart))
        self.digests += made.digest

    def index(self, **meta: Any) -> Index:
        rows = np.array(self.rows, np.int64).reshape(-1, len(COLUMNS))
        columns: dict[str, Any] = dict(zip(COLUMNS, rows.T, strict=True))
        columns["digest"] = np.frombuffer(self.digests, np.uint8)
        return Index({"files": [self.entry], **meta}, self.names, columns)


Sample = tuple[str, int, Made]  # name, label, image


class Writer:
    """Writes units of samples to a folder; work: a folder for what is not finished."""

    def __init__(self, root: Path, work: Path, recipe: Recipe, classes: Sequence[str]):
        self.root, self.work, self.recipe, self.classes = root, work, recipe, classes

    def begin(self, done: int) -> None:
        """Go on behind `done` images of earlier units."""

    def write(self, number: int, samples: Iterable[Sample]) -> Index:
        """One unit; raises OSError with the name of the file."""
        raise NotImplementedError

    def finish(self, count: int) -> list[dict[str, Any]] | None:
        """When all `count` images are written: what meta.files is, where that is not what the units say."""
        return None


class FolderWriter(Writer):
    """Class folders of files."""

    def write(self, number: int, samples: Iterable[Sample]) -> Index:
        unit, temporary = Unit({"name": ".", "size": None}), self.work / "image"
        for name, label, made in samples:
            name += "" if self.recipe.keep_original else made.extension
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with naming(path):
                temporary.write_bytes(made.data)
            temporary.replace(path)
            unit.add(name, made, label)
        return unit.index()

    def finish(self, count: int) -> list[dict[str, Any]] | None:
        for name in self.classes:  # one whose images were all broken has its folder, too
            (self.root / name).mkdir(exist_ok=True)
        return None


class ShardWriter(Writer):
    """Tar files in WebDataset's naming; a unit is a shard."""

    def write(self, number: int, samples: Iterable[Sample]) -> Index:
        path, unit = self.root / f"shard-{number:06}.tar", Unit({})
        with writing(path) as partial, partial.open("wb") as file:
            for name, label, made in samples:
                offset = _add(file, f"{name}{made.extension}", made.data)
                _add(file, f"{name}.cls", str(label).encode())
                unit.add(name, made, label, offset)
            file.write(END)
        unit.entry.update(stat_file(path, dated=False))
        return unit.index()


def _add(file: BinaryIO, name: str, data: bytes) -> int:
    """Append a file to a tar; where its data begin. The same content gives the same bytes: no time, no owner."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    file.write(info.tobuf(tarfile.PAX_FORMAT))
    offset = file.tell()
    file.write(data)
    file.write(bytes(-len(data) % BLOCK))
    return offset


class RawWriter(Writer):
    """One array of pixels; images that are broken take no place in it."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._shape = self.recipe.size, self.recipe.size, self.recipe.channels
        self._row = 0

    def begin(self, done: int) -> None:
        self._row = done

    def write(self, number: int, samples: Iterable[Sample]) -> Index:
        path, row = self.work / IMAGES, int(np.prod(self._shape))
        unit = Unit({"name": IMAGES, "size": None})
        with naming(path), open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
            file.seek(HEADER + self._row * row)
            for name, label, made in samples:
                unit.add(name, made, label, file.tell())
                file.write(made.data)
            file.flush()
            os.fsync(file.fileno())
        self._row += len(unit.names)
        return unit.index()

    def finish(self, count: int) -> list[dict[str, Any]] | None:
        path = self.work / IMAGES
        if path.exists():  # or it was renamed, and the run killed then
            with naming(path), path.open("r+b") as file:
                file.write(_npy_header((count, *self._shape)))
                file.truncate(HEADER + count * int(np.prod(self._shape)))
                os.fsync(file.fileno())
            path.replace(self.root / IMAGES)
        return [stat_file(self.root / IMAGES, dated=False)]


def _npy_header(shape: tuple[int, ...]) -> bytes:
    """What `numpy.save` begins a uint8 array with: always of the same length."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    assert buffer.tell() == HEADER, shape
    return buffer.getvalue()


WRITERS: dict[str, type[Writer]] = {"folder": FolderWriter, "shards": ShardWriter, "raw": RawWriter}
