"""What lies where in a tar file: the samples of WebDataset shards, found without reading the images."""

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from convnet.data.errors import DataError
from convnet.data.sources.files import EXTENSIONS
from convnet.data.sources.index import Index, stat_file

BLOCK = 512  # bytes; a tar file is made of them


@dataclass(frozen=True)
class Member:
    """A regular file in a tar file: its name, and where its bytes are in the file that holds the tar."""

    name: str
    offset: int
    size: int


def members(file: BinaryIO, end: int, where: str) -> Iterator[Member]:
    """The files in the tar that begins where `file` stands and ends before `end`; `file` may move on in between.

    A tar inside another needs no unpacking: the offsets are those in the outer file.  Raises DataError.
    """
    try:
        with tarfile.TarFile(fileobj=file) as tar:
            for info in tar:
                tar.members = []  # type: ignore[attr-defined]  # which would grow
                if info.offset_data + info.size > end:
                    raise DataError(f"'{where}' is truncated: '{info.name}' ends {info.offset_data + info.size - end} "
                                    "bytes after its end")  # fmt: skip
                if info.isreg():
                    yield Member(info.name, info.offset_data, info.size)
            _check_end(file, tar.offset, end, where)
    except (tarfile.TarError, ValueError) as error:
        raise DataError(f"'{where}' is damaged or truncated: {error}") from error


def _check_end(file: BinaryIO, offset: int, end: int, where: str) -> None:
    """Raise DataError unless the end mark is at `offset`: tarfile takes a damaged header for the end, too."""
    file.seek(offset)
    block = file.read(max(0, min(BLOCK, end - offset)))
    if len(block) < BLOCK:
        raise DataError(f"'{where}' is truncated: it has no end mark")
    if any(block):
        raise DataError(f"'{where}' is damaged: expected the header of a file at {offset}")


def scan(path: Path) -> Index:
    """The samples of one shard; raises DataError.

    A sample is what has the same name up to the first dot of its last part: KEY.jpg (or .png, ...) and KEY.cls, the
    label as a number.  Other files of a sample are ignored.
    """
    samples: dict[str, dict[str, Member]] = {}
    names, columns = [], {"offset": list[int](), "size": list[int](), "label": list[int]()}
    with path.open("rb") as file:
        for member in members(file, os.fstat(file.fileno()).st_size, str(path)):
            folder, _, base = member.name.rpartition("/")
            stem, _, extension = base.partition(".")
            if stem and not base.startswith("."):
                parts = samples.setdefault(os.path.join(folder, stem), {})
                if parts.setdefault(extension.lower(), member) is not member:
                    raise DataError(f"'{path}' has '{member.name}' twice")
        for key, parts in samples.items():
            image = _image(path, key, parts)
            if image is None:
                continue
            names.append(key)
            columns["offset"].append(image.offset)
            columns["size"].append(image.size)
            columns["label"].append(_label(file, path, key, parts))
    return Index({"files": [stat_file(path)]}, names, dict(columns))  # type: ignore[arg-type]


def _image(path: Path, key: str, parts: dict[str, Member]) -> Member | None:
    found = [member for extension, member in parts.items() if f".{extension}" in EXTENSIONS]
    if len(found) > 1:
        raise DataError(f"'{path}': sample '{key}' has more than one image: {', '.join(m.name for m in found)}")
    return found[0] if found else None


def _label(file: BinaryIO, path: Path, key: str, parts: dict[str, Member]) -> int:
    member = parts.get("cls")
    if member is None:
        raise DataError(f"'{path}': sample '{key}' has no label: expected '{key}.cls' beside the image")
    text = os.pread(file.fileno(), min(member.size, 64), member.offset).strip()
    if not text.isdigit() or int(text) >= 2**31:
        raise DataError(f"'{path}': {member.name}: expected a class number, found {text[:20]!r}")
    return int(text)
