"""The archives of ILSVRC2012 as sources of images: read where they lie, never unpacked.

One pass through an archive computes its MD5 and finds every image, those in the tar files inside it too; from then on
an image is one read at a known place.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError
from convnet.data.prepare.devkit import Devkit
from convnet.data.sources.base import EncodedSource, Handles, Place, some
from convnet.data.sources.index import Index, digest, stat_file
from convnet.data.sources.tars import Member, members

MD5 = {  # as torchvision has them
    "train": "1d675b47d978889d74fa0da5fadfb00e",
    "val": "29b22e2961454d5413ddabcf34fc5622",
    "devkit": "fa75699e90414af021442c21a62c3abf",
}
STEP = 1 << 22  # bytes read at a time
Bar = Callable[..., Any]


class ArchiveSource(EncodedSource):
    """The images that an index finds in one tar file; they are called `<wnid>/<file>`."""

    def __init__(self, path: Path, index: Index):
        super().__init__(index["label"], index.meta["classes"])
        self.path, self.index, self._handles = path, index, Handles()

    def place(self, index: int) -> Place:
        return self.index.place(index, str(self.path))

    def read(self, index: int) -> bytes:
        return self._handles.read(self.place(index))


def open_archive(path: Path, part: str, devkit: Devkit, keep: Path, *, md5: bool, bar: Bar) -> ArchiveSource:
    """The images of the training ("train") or the validation archive ("val"); raises DataError.

    keep: file in which what was found is kept for the next time.  md5: compare the archive's sum with the known one.
    """
    meta = {
        "files": [stat_file(path)],
        "classes": list(devkit.wnids),
        "truth": digest(repr(devkit.truth).encode()).hex(),
    }
    if keep.exists():
        kept = Index.load(keep)
        if {key: kept.meta[key] for key in meta} == meta and (kept.meta["md5"] or not md5):
            return ArchiveSource(path, kept)
    with Stream(path, whole=md5, bar=bar) as stream:
        found = list(_train(stream, path) if part == "train" else _val(stream, path))
        if md5:
            check_md5(path, MD5[part], stream.md5())
    names, labels = _named(path, found, devkit) if part == "train" else _labelled(path, found, devkit)
    order = sorted(range(len(names)), key=names.__getitem__)
    columns: dict[str, NDArray[Any]] = {
        "offset": np.array([member.offset for _, member in found]),
        "size": np.array([member.size for _, member in found]),
        "label": np.array(labels),
    }
    index = Index({**meta, "md5": md5}, names, columns).take(np.array(order, np.int64))
    index.save(keep)
    return ArchiveSource(path, index)


class Stream:
    """An archive that is read from its beginning to its end; what is skipped is read too, where the sum is wanted."""

    def __init__(self, path: Path, *, whole: bool, bar: Bar):
        self._file = path.open("rb")
        self.size = os.fstat(self._file.fileno()).st_size
        self._sum = hashlib.md5(usedforsecurity=False) if whole else None
        self._summed = 0
        self._bar = bar(total=self.size, unit="B", unit_scale=True, unit_divisor=1024, desc=path.name)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()
        self._file.close()

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        begin = self._file.tell()
        data = self._file.read(size)
        self._advance(begin + len(data))
        return data

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        self._advance(position)
        return self._file.seek(position, whence)

    def md5(self) -> str:
        """Of the whole archive."""
        self._advance(self.size)
        assert self._sum is not None
        return self._sum.hexdigest()

    def _advance(self, position: int) -> None:
        """Take all bytes up to a position into the sum."""
        position = min(position, self.size)
        while self._sum is not None and self._summed < position:
            data = os.pread(self._file.fileno(), min(STEP, position - self._summed), self._summed)
            if not data:
                break
            self._sum.update(data)
            self._summed += len(data)
        self._bar.update(max(0, position - self._bar.n))


def check_md5(path: Path, expected: str, found: str) -> None:
    """Raise DataError unless the sum is the known one."""
    if found != expected:
        raise DataError(
            f"'{path}' is damaged, or another file: expected MD5 {expected}, found {found}; "
            "--skip-md5 takes it as it is"
        )


def check_devkit(path: Path) -> None:
    """The same of the development kit, where it is the archive."""
    if path.is_file():
        check_md5(path, MD5["devkit"], hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest())


def _train(stream: Any, path: Path) -> Iterator[tuple[str, Member]]:
    """wnid and place of each image: the archive is a tar of one tar for each class."""
    for inner in members(stream, stream.size, str(path)):
        wnid, extension = os.path.splitext(os.path.basename(inner.name))
        if extension != ".tar":
            raise DataError(
                f"'{path}': expected tar files of classes in it, such as n01440764.tar, found '{inner.name}'"
            )
        stream.seek(inner.offset)
        for member in members(stream, inner.offset + inner.size, f"{path}: {inner.name}"):
            yield wnid, member


def _val(stream: Any, path: Path) -> Iterator[tuple[str, Member]]:
    return (("", member) for member in members(stream, stream.size, str(path)))


def _named(path: Path, found: list[tuple[str, Member]], devkit: Devkit) -> tuple[list[str], list[int]]:
    ranks = {wnid: rank for rank, wnid in enumerate(devkit.wnids)}
    have = {wnid for wnid, _ in found}
    for word, odd in (("unknown", have - ranks.keys()), ("no", ranks.keys() - have)):
        if odd:
            raise DataError(f"'{path}' has {word} classes of the development kit's {len(ranks)}: {some(sorted(odd))}")
    return [f"{wnid}/{os.path.basename(member.name)}" for wnid, member in found], [ranks[wnid] for wnid, _ in found]


def _labelled(path: Path, found: list[tuple[str, Member]], devkit: Devkit) -> tuple[list[str], list[int]]:
    """The lines of the ground truth are in the order of file names."""
    if len(found) != len(devkit.truth):
        raise DataError(
            f"'{path}': expected {len(devkit.truth)} images, as the ground truth has lines, found {len(found)}"
        )
    bases = [os.path.basename(member.name) for _, member in found]
    ranks = np.argsort(np.argsort(bases))
    labels = [devkit.truth[rank] for rank in ranks.tolist()]
    return [f"{devkit.wnids[label]}/{base}" for label, base in zip(labels, bases, strict=True)], labels
