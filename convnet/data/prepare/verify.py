"""Whether a prepared dataset still is what was written: every image is read, compared and decoded.

Then what lies around the images is looked at: names and labels in tar files, the header of the array.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from convnet.data.decode import decode
from convnet.data.errors import DataError, DecodeError
from convnet.data.sources.base import Place
from convnet.data.sources.index import NAME, Index, digest
from convnet.data.sources.raw import RawSource
from convnet.data.sources.tars import scan
from convnet.processes import in_processes

PIECE = 64  # images that a process takes at a time


@dataclass(frozen=True)
class Check:
    """Some images of an index, for one process."""

    places: list[Place]
    digests: list[bytes]
    encoded: bool


def verify(root: Path, bar: Callable[..., Any], workers: int = 0) -> list[str]:
    """What is wrong, an image or a file a line: it cannot be read, its bytes have changed, or it cannot be decoded."""
    if not (root / NAME).exists():
        raise DataError(f"'{root}' has no {NAME}: it is not prepared, or not to the end")
    index = Index.load(root / NAME)
    wrong: list[str] = []
    with bar(total=len(index), unit="image", desc=f"verify {root.name}") as shown:
        for found in in_processes(_faults, _checks(root, index), workers):
            wrong += [fault for fault in found if fault]
            shown.update(len(found))
    return wrong or _around(root, index, workers)


def _checks(root: Path, index: Index) -> Iterator[Check]:
    kind, files = index.meta["format"], [str(root / file["name"]) for file in index.meta["files"]]
    for first in range(0, len(index), PIECE):
        rows = range(first, min(first + PIECE, len(index)))
        if kind == "folder":
            places = [Place(str(root / index.names[i])) for i in rows]
        else:
            places = [index.place(i, files[index["shard"][i]]) for i in rows]
        yield Check(places, [index["digest"][i].tobytes() for i in rows], kind != "raw")


def _faults(check: Check) -> list[str]:
    """What is wrong with each image; "": nothing."""
    return [_fault(place, expected, check.encoded) for place, expected in zip(check.places, check.digests, strict=True)]


def _fault(place: Place, expected: bytes, encoded: bool) -> str:
    try:
        data = place.read()
        if digest(data) != expected:
            return f"'{place}' has changed since it was prepared"
        if encoded:
            decode(data, str(place))
    except DecodeError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Shard:
    """A tar file, and what the index says of it."""

    path: Path
    index: Index


def _around(root: Path, index: Index, workers: int) -> list[str]:
    """What is wrong with files whose images are as they were."""
    if index.meta["format"] == "raw":
        try:
            RawSource(root, allow_empty=True)
        except DataError as error:
            return [str(error)]
    if index.meta["format"] != "shards":
        return []
    shards = (
        Shard(root / file["name"], index.take(np.flatnonzero(index["shard"] == number)))
        for number, file in enumerate(index.meta["files"])
    )
    return [fault for fault in in_processes(_shard_fault, shards, workers) if fault]


def _shard_fault(shard: Shard) -> str:
    try:
        found, expected = _samples(scan(shard.path)), _samples(shard.index)
    except DataError as error:
        return str(error)
    odd = sorted(found ^ expected)
    return f"'{shard.path}': place, name or label of '{odd[0][1]}' differ from the index" if odd else ""


def _samples(index: Index) -> set[tuple[int, str, int, int]]:
    columns = (index[name].tolist() for name in ("offset", "size", "label"))
    return {(offset, name, size, label) for name, offset, size, label in zip(index.names, *columns, strict=True)}
