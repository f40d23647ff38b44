"""Tar shards, read by their index: a sample is one read at a known place, in any order.

The index lies beside the shards.  `convnet prepare` writes it; for shards of other tools it is made at first use, and
again when one of them has changed.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from convnet.data.errors import DataError
from convnet.data.sources.base import EncodedSource, Handles, Place, check_folder, some
from convnet.data.sources.classes import indexed
from convnet.data.sources.index import NAME, Index, digest, joined, stat_file
from convnet.data.sources.listing import kept_in
from convnet.data.sources.tars import scan

log = logging.getLogger(__name__)


class ShardSource(EncodedSource):
    """The samples of all `.tar` files of a folder, in the order of the index: for prepared data that of the images it
    was made from, for others that of the files.

    classes, class_list, allow_empty: as of FolderSource; either names the numbers that shards of other tools hold.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        classes: Sequence[str] | None = None,
        class_list: str | Path | None = None,
        allow_empty: bool = False,
    ):
        root = Path(path)
        self.index = open_index(root)
        names = self.index.meta.get("classes") or ()
        given: dict[str, Any] = {"classes": classes, "class_list": class_list, "allow_empty": allow_empty}
        super().__init__(*indexed(os.fspath(path), self.index["label"], names, **given))
        self.files = [str(root / file["name"]) for file in self.index.meta["files"]]
        self._samples, self._handles = np.arange(len(self.index)), Handles()

    def place(self, index: int) -> Place:
        sample = int(self._samples[index])
        return self.index.place(sample, self.files[self.index["shard"][sample]])

    def read(self, index: int) -> bytes:
        return self._handles.read(self.place(index))

    def take(self, indices: ArrayLike) -> "ShardSource":
        part = super().take(indices)
        part._samples = self._samples[np.asarray(indices)]
        return part


def open_index(root: Path) -> Index:
    """The index of the shards in a folder, made anew where there is none that holds; raises DataError."""
    files = find_shards(root)
    for path in (root / NAME, _elsewhere(root)):
        if path and path.exists():
            index = Index.load(path)
            if index.meta.get("options") is not None:
                check_prepared(root, index, files)
                return index
            if index.meta["files"] == [stat_file(file) for file in files]:
                return index
    return _make(root, files)


def find_shards(root: Path) -> list[Path]:
    """The shards of a folder, in order; raises DataError where there are none."""
    check_folder(root, "a folder of tar files")
    files = sorted(path for path in root.iterdir() if path.suffix == ".tar" and not path.name.startswith("."))
    if not files:
        packed = sum(path.name.endswith((".tar.gz", ".tgz", ".tar.zst")) for path in root.iterdir())
        more = f", and {packed} that are compressed: they cannot be read by offset" if packed else ""
        raise DataError(f"'{root}': expected files named *.tar, found none{more}")
    return files


def check_prepared(root: Path, index: Index, files: Sequence[Path]) -> None:
    """Raise DataError unless these are the shards that the index was made with, as far as their names and sizes, and
    the first and the last sample of each, tell."""
    listed = index.meta["files"]
    found, expected = [file.name for file in files], [file["name"] for file in listed]
    if found != expected:
        odd = some(sorted(set(found) ^ set(expected)))
        raise DataError(f"'{root}' has {len(found)} shards, its index {len(expected)}; they differ in {odd}")
    for number, (file, entry) in enumerate(zip(files, listed, strict=True)):
        size = file.stat().st_size
        if size != entry["size"]:
            raise DataError(f"'{file}' has {size} bytes, its index says {entry['size']}: prepare it again")
        _check_ends(file, index, np.flatnonzero(index["shard"] == number))


def _check_ends(path: Path, index: Index, samples: np.ndarray) -> None:
    ordered = samples[np.argsort(index["offset"][samples])]
    for sample in (ordered[0], ordered[-1]) if len(ordered) else ():
        place = index.place(int(sample), str(path))
        if digest(place.read()) != index["digest"][sample].tobytes():
            at = f"expected '{place.name}' at {place.offset}"
            raise DataError(f"'{path}' is not the shard that its index is of, or is damaged: {at}")


def _make(root: Path, files: Sequence[Path]) -> Index:
    log.warning("'%s': making an index of %d shards, once", root, len(files))
    parts = []
    for number, file in enumerate(files):
        part = scan(file)
        part["shard"][:] = number
        parts.append(part)
    meta = {"format": "shards", "classes": None, "files": [part.meta["files"][0] for part in parts]}
    index = joined(meta, parts)
    if not len(index):
        raise DataError(f"no images in the {len(files)} shards of '{root}'; expected files such as KEY.jpg and KEY.cls")
    for path in (root / NAME, _elsewhere(root)):
        try:
            if path:
                index.save(path, shared=True)
                break
        except OSError as error:
            log.debug("%s: %s", path, error)
    return index


def _elsewhere(root: Path) -> Path | None:
    """Where the index of a folder that cannot be written to lies."""
    folder = kept_in("indices")
    return folder and folder / f"{os.path.realpath(root).replace(os.sep, '%')[-200:]}.npz"
