"""Images that are files of their own, and the walk that finds them in folders."""

import logging
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convnet.data.decode import FORMATS
from convnet.data.errors import DataError
from convnet.data.sources.base import UNLABELLED, EncodedSource, Place, read_file

EXTENSIONS = tuple(extension for extensions in FORMATS.values() for extension in extensions)

log = logging.getLogger(__name__)


class Files(EncodedSource):
    """Images that are files of their own.

    paths: of the images.  labels: int32, class indices, or -1 without a label.  classes: names in index order.
    """

    def __init__(self, paths: Sequence[str], labels: NDArray[np.int32], classes: Sequence[str] = ()):
        super().__init__(labels, classes)
        self.paths = tuple(paths)

    def place(self, index: int) -> Place:
        return Place(self.paths[index])

    def where(self, index: int) -> str:
        return self.paths[index]

    def read(self, index: int) -> bytes:
        return read_file(self.paths[index])

    def take(self, indices: ArrayLike) -> "Files":
        part = super().take(indices)
        part.paths = tuple(self.paths[index] for index in np.asarray(indices).tolist())
        return part


class FileSource(Files):
    """Images without labels: files, in the order given, and everything below folders."""

    def __init__(self, paths: Iterable[str | Path]):
        found: list[str] = []
        for given in paths:
            path = os.fspath(given)
            if not os.path.exists(path):
                raise DataError(f"'{path}' does not exist")
            if not os.path.isdir(path) and not os.path.isfile(path):
                raise DataError(f"'{path}': expected a file or folder, found a pipe or device")
            below = images_below(path) if os.path.isdir(path) else [path]
            if not below:
                raise DataError(f"no images below '{path}' (looked for {' '.join(EXTENSIONS)})")
            found += below
        super().__init__(found, np.full(len(found), UNLABELLED, np.int32))


@dataclass
class Odd:
    """What a walk comes across apart from images.

    others: files that are no images, by extension.  dead: paths of links that lead nowhere, whatever they are called.
    """

    others: Counter[str] = field(default_factory=Counter)
    dead: list[str] = field(default_factory=list)


def tell_dead(root: str, paths: Sequence[str], place: str = "") -> None:
    """Warn of links that lead nowhere."""
    if paths:
        log.warning("'%s': %d symbolic links%s lead nowhere; the first: '%s'", root, len(paths), place, min(paths))


def images_below(folder: str) -> list[str]:
    """Paths of the images at any depth."""
    odd = Odd()
    found = [os.path.join(place, name) for place, names in sorted(walk(folder, odd)) for name in names]
    tell_dead(folder, odd.dead)
    return found


def walk(folder: str, odd: Odd, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[tuple[str, list[str]]]:
    """Each folder at any depth, and the names of the images in it; `odd` gets what else there is.

    above: identifies folders that are not entered again.
    """
    here = identity(folder)
    if here in above:
        return
    folders, files = [], []
    for entry in list_folder(folder):
        if dead := is_dead(entry):
            odd.dead.append(entry.path)
        if is_folder(entry):
            folders.append(entry.path)
        elif is_image(entry):
            files.append(entry.name)
        elif not dead:
            odd.others[os.path.splitext(entry.name)[1] or "no extension"] += 1
    yield folder, sorted(files)
    for path in folders:
        yield from walk(path, odd, above | {here})


def identity(folder: str) -> tuple[int, int]:
    """What tells a folder from others, whatever path leads to it."""
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def list_folder(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder, hidden things apart; raises DataError."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"cannot list '{folder}': {error.strerror}") from error


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def is_dead(entry: os.DirEntry[str]) -> bool:
    """A link that leads nowhere; one that is called as an image counts as one, which cannot be read."""
    return entry.is_symlink() and not os.path.exists(entry.path)


def is_image(entry: os.DirEntry[str]) -> bool:
    """By name. Pipes and devices do not count: reading one can last for ever."""
    return entry.name.lower().endswith(EXTENSIONS) and _is_file(entry)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Or a link to a file; one that leads nowhere is a file that cannot be read."""
    if not entry.is_symlink():
        return entry.is_file()
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True
