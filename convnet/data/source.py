"""Where samples come from: names, labels, and the bytes of each.

A folder is read as torchvision's ImageFolder reads it, so that labels and file order agree with published models:
one folder per class, classes in plain code-point order of their names, images in sorted order at any depth, extensions
in any case, links followed.  Three things differ.  Names that start with '.' are skipped, folders too
(ImageFolder makes a class of `.cache`, and reads the `._1.jpg` that macOS puts beside `1.jpg`).  A folder that links
back to one above it is not entered again.  A pipe or device is no image, whatever its name.
"""

import logging
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError, DecodeError

log = logging.getLogger(__name__)
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
UNLABELLED = -1


class Source:
    """A list of samples.

    classes: names in index order.  paths: of the images.  labels: int32, class indices, or -1 without a label.
    """

    def __init__(self, paths: Sequence[str], labels: NDArray[np.int32], classes: Sequence[str] = ()):
        self.paths, self.labels, self.classes = tuple(paths), labels, tuple(classes)

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> bytes:
        """The encoded image; raises DecodeError."""
        path = self.paths[index]
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise DecodeError(path, error.strerror or str(error)) from error


class FileSource(Source):
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


class FolderSource(Source):
    """One folder per class.

    classes: the names that a model was trained with, in index order; the folders must be the same.
    class_list: a file that gives them, one a line.  Without either: the sorted folder names.
    allow_empty: a class may have no images, or (where the names are given) no folder; its index is kept.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        classes: Sequence[str] | None = None,
        class_list: str | Path | None = None,
        allow_empty: bool = False,
    ):
        root = os.fspath(path)
        folders = class_folders(root)
        names = tuple(sorted(folders))
        if class_list is not None:
            names = read_class_list(class_list, folders)
            _compare(root, names, folders, f"class list '{class_list}'", allow_empty)
        if classes is not None:
            if class_list is not None and names != tuple(classes):
                raise DataError(f"class list '{class_list}' {_difference(names, classes)}")
            names = tuple(classes)
            _compare(root, names, folders, "the model", allow_empty)
        above = frozenset({_identity(root)})
        others: Counter[str] = Counter()
        images = [images_below(folders[name], above, others) if name in folders else [] for name in names]
        _tell_ignored(root, others)
        _check_found(root, names, images, allow_empty)
        counts = [len(below) for below in images]
        labels = np.repeat(np.arange(len(names), dtype=np.int32), counts)
        super().__init__([image for below in images for image in below], labels, names)


def class_folders(root: str) -> dict[str, str]:
    """Path of each class folder by name."""
    if not os.path.isdir(root):
        kind = "is not a folder" if os.path.exists(root) else "does not exist"
        raise DataError(f"'{root}' {kind}; expected a folder with one folder of images per class")
    entries = _entries(root)
    folders = {entry.name: entry.path for entry in entries if _is_folder(entry)}
    if not folders:
        flat = sum(_is_image(entry) for entry in entries)
        found = f"{flat} images and no folders" if flat else "no folders"
        expected = f"one folder of images for each class, such as '{os.path.join(root, 'cat', '1.jpg')}'"
        raise DataError(f"'{root}': expected {expected}, found {found}")
    return folders


def read_class_list(path: str | Path, folders: Iterable[str]) -> tuple[str, ...]:
    """Class names, one a line in index order; blank lines are ignored.

    A line may add a description after the name (`n01440764 tench, Tinca tinca`) where the name alone is a folder.
    """
    try:
        lines = Path(path).read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read class list '{path}': {error}") from error
    known, names = set(folders), list[str]()
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line:
            continue
        name = line.split()[0] if line not in known and line.split()[0] in known else line
        if name in names:
            raise DataError(f"{path}:{number}: class '{name}' is listed twice, first as number {names.index(name)}")
        names.append(name)
    return tuple(names)


def images_below(
    folder: str, above: frozenset[tuple[int, int]] = frozenset(), others: Counter[str] | None = None
) -> list[str]:
    """Paths of the images at any depth.

    above: identifies folders that are not entered again. others: counts the files that are no images, by extension.
    """
    others = Counter() if others is None else others
    return [os.path.join(place, name) for place, names in sorted(_walk(folder, above, others)) for name in names]


def _walk(folder: str, above: frozenset[tuple[int, int]], others: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    here = _identity(folder)
    if here in above:
        return
    folders, files = [], []
    for entry in _entries(folder):
        if _is_folder(entry):
            folders.append(entry.path)
        elif _is_image(entry):
            files.append(entry.name)
        else:
            others[os.path.splitext(entry.name)[1] or "no extension"] += 1
    yield folder, sorted(files)
    for path in folders:
        yield from _walk(path, above | {here}, others)


def _tell_ignored(root: str, others: Counter[str]) -> None:
    """Warn of files in class folders that are no images by name, and of images that are in no class folder."""
    if count := others.total():
        log.warning("'%s': ignored %d files that are not images by name (%s)", root, count, ", ".join(sorted(others)))
    if loose := sum(_is_image(entry) for entry in _entries(root)):
        log.warning("'%s': ignored %d images beside the class folders", root, loose)


def _identity(folder: str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"cannot list '{folder}': {error.strerror}") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_image(entry: os.DirEntry[str]) -> bool:
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


def _compare(root: str, names: Sequence[str], folders: Iterable[str], origin: str, allow_empty: bool) -> None:
    """The folders must be the classes that `origin` names."""
    unknown, missing = sorted(set(folders) - set(names)), sorted(set(names) - set(folders))
    known = f"the {len(names)} classes of {origin}"
    if unknown:
        raise DataError(f"'{root}' has folders that are not among {known}: {some(unknown)}")
    if missing and not allow_empty:
        raise DataError(
            f"'{root}' has no folder for {len(missing)} of {known}: {some(missing)}; allow_empty: true accepts this"
        )


def _difference(names: Sequence[str], classes: Sequence[str]) -> str:
    """How a class list differs from a model's classes."""
    if len(names) != len(classes):
        return f"has {len(names)} classes, the model {len(classes)}"
    index = next(i for i, (ours, theirs) in enumerate(zip(names, classes, strict=True)) if ours != theirs)
    return f"has '{names[index]}' as class {index}, the model '{classes[index]}'"


def _check_found(root: str, names: Sequence[str], images: Sequence[list[str]], allow_empty: bool) -> None:
    empty = [name for name, below in zip(names, images, strict=True) if not below]
    looked = f"(looked for {' '.join(EXTENSIONS)}, in any case)"
    if len(empty) == len(names):
        raise DataError(f"no images in any of the {len(names)} class folders of '{root}' {looked}: {some(names)}")
    if empty and not allow_empty:
        raise DataError(
            f"no images for class {some(empty)} in '{root}' {looked}; remove the folder, "
            "or set allow_empty: true to keep its index without images"
        )


def some(names: Sequence[str], most: int = 5) -> str:
    """The names, or the first few and how many more there are."""
    listed = ", ".join(f"'{name}'" for name in names[:most])
    return listed + (f" and {len(names) - most} more" if len(names) > most else "")
