"""The index of a dataset in archives or in one array: where each sample lies, its label, size and digest.

One file, `index.npz`, that `numpy.load` reads without pickles:

    meta      JSON text: version, format, classes (null: labels are numbers), options, files [{name, size}], of which
              a size may be null: not known; with mtime_ns where the index only holds while that is the file's
    names     of the samples, joined by U+0000, as UTF-8 bytes
    shard     int32, number of the file in meta.files       offset, size   int64, bytes of the encoded image in it
    label     int32                                         width, height  int32, pixels; 0: not known
    restart   int32, MCUs between restart markers of a JPEG; 0: it has none, or it is not known
    digest    uint8 [n, 16], BLAKE2b of the encoded image, or of the pixels; 0: not known

Readers ignore arrays that they do not know: byte lengths of restart segments, for example, can be added.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError
from convnet.data.sources.base import Place
from convnet.formats.files import writing

NAME = "index.npz"
VERSION = 1
DIGEST = 16  # bytes
COLUMNS: dict[str, Any] = {
    "shard": np.int32, "offset": np.int64, "size": np.int64, "label": np.int32, "width": np.int32, "height": np.int32,
    "restart": np.int32,
}  # fmt: skip
FAULTS = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)  # of a file that is no index


def digest(data: bytes | memoryview) -> bytes:
    """What tells one content from another."""
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


@dataclass
class Index:
    """See above. columns: the arrays of COLUMNS and "digest"; those left out are 0."""

    meta: dict[str, Any]
    names: list[str]
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in COLUMNS.items():
            self.columns[name] = np.asarray(self.columns.get(name, np.zeros(len(self.names))), kind)
        empty = np.zeros((len(self.names), DIGEST))
        self.columns["digest"] = np.asarray(self.columns.get("digest", empty), np.uint8).reshape(-1, DIGEST)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def take(self, rows: NDArray[np.int64]) -> "Index":
        """The samples `rows`, in that order."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Index(self.meta, [self.names[row] for row in rows.tolist()], columns)

    def place(self, row: int, file: str) -> Place:
        """Where the encoded image of a row lies in its file, of which this is the path."""
        return Place(file, self.names[row], int(self["offset"][row]), int(self["size"][row]))

    def save(self, path: Path, *, shared: bool = False) -> None:
        """Write the file; it is whole or not there. shared: several processes may do so at the same time."""
        arrays = {"meta": np.array(json.dumps({"version": VERSION, **self.meta})), "names": _joined(self.names)}
        columns: dict[str, Any] = {**arrays, **self.columns}
        with writing(path, shared=shared) as partial, partial.open("wb") as file:
            np.savez(file, **columns)

    @classmethod
    def load(cls, path: Path) -> "Index":
        """Raises DataError for one that is damaged or of a later version."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                meta = json.loads(str(arrays["meta"]))
                if meta["version"] > VERSION:
                    raise DataError(f"'{path}' has version {meta['version']}; this program reads up to {VERSION}")
                index = cls(meta, _split(arrays["names"]), {name: arrays[name] for name in (*COLUMNS, "digest")})
        except FAULTS as error:
            raise DataError(f"cannot read the index '{path}': {error}") from error
        if wrong := index._wrong():
            raise DataError(f"the index '{path}' is damaged: {wrong}")
        return index

    def _wrong(self) -> str:
        """What cannot be, in words."""
        lengths = {name: len(column) for name, column in self.columns.items()}
        if set(lengths.values()) - {len(self)}:
            return f"{len(self)} names and columns of {lengths}"
        classes, files = self.meta.get("classes"), self.meta["files"]
        if len(self) and (self["label"].min() < 0 or (classes is not None and self["label"].max() >= len(classes))):
            return f"labels from {self['label'].min()} to {self['label'].max()} of {len(classes or ())} classes"
        if len(self) and not 0 <= self["shard"].min() <= self["shard"].max() < len(files):
            return f"file numbers from {self['shard'].min()} to {self['shard'].max()} of {len(files)} files"
        sizes = np.array([2**62 if file["size"] is None else file["size"] for file in files], np.int64)
        outside = (self["offset"] < 0) | (self["size"] < 0) | (self["offset"] + self["size"] > sizes[self["shard"]])
        return f"sample '{self.names[int(outside.argmax())]}' lies outside its file" if outside.any() else ""


def stat_file(path: Path, *, dated: bool = True) -> dict[str, Any]:
    """What `meta.files` holds of a file; dated: its time, too."""
    status = path.stat()
    return {"name": path.name, "size": status.st_size, **({"mtime_ns": status.st_mtime_ns} if dated else {})}


def prepared_side(folder: str | os.PathLike[str]) -> int | None:
    """The shorter side that `convnet prepare` gave the images in a folder; None where it made none of them."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file, np.load(file, allow_pickle=False) as arrays:
            side: int | None = json.loads(str(arrays["meta"]))["options"]["recipe"]["short_side"]
            return side
    except FAULTS:
        return None


def joined(meta: Mapping[str, Any], parts: Iterable[Index]) -> Index:
    """One index of several, in order; file numbers are kept."""
    parts = list(parts)
    names = [name for part in parts for name in part.names]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in (*COLUMNS, "digest")}
    return Index(dict(meta), names, columns)


def _joined(names: Sequence[str]) -> NDArray[np.uint8]:
    return np.frombuffer("\0".join(names).encode("utf-8", "surrogateescape"), np.uint8)


def _split(blob: NDArray[np.uint8]) -> list[str]:
    return blob.tobytes().decode("utf-8", "surrogateescape").split("\0") if len(blob) else []
