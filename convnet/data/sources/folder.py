"""A folder of class folders, read as torchvision's ImageFolder reads it.

Labels and file order therefore agree with published models: one folder per class, classes in plain code-point order of
their names, images in sorted order at any depth, extensions in any case, links followed.  Four things differ.  Names
that start with '.' are skipped, folders too (ImageFolder makes a class of `.cache`, and reads the `._1.jpg` that macOS
puts beside `1.jpg`).  A folder that links back to one above it is not entered again.  A pipe or device is no image,
whatever its name.  GIFs are images.
"""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from convnet.data.errors import DataError
from convnet.data.sources.base import check_folder, some
from convnet.data.sources.classes import compare, named
from convnet.data.sources.files import EXTENSIONS, Files, is_dead, is_folder, is_image, list_folder, tell_dead
from convnet.data.sources.listing import list_images

log = logging.getLogger(__name__)
PARTS = ("train", "val", "valid", "validation", "test")  # a folder of nothing but such folders holds several datasets


class FolderSource(Files):
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
        given, origin = named(folders, classes=classes, class_list=class_list)
        names = tuple(sorted(folders)) if given is None else given
        compare(f"'{root}'", "folders", "folder", names, folders, origin, allow_empty)
        listing = list_images(root, folders)
        images = [listing.images(name) for name in names]
        _tell_ignored(root, listing.odd.others)
        tell_dead(root, listing.odd.dead)
        _check_found(root, names, images, allow_empty)
        labels = np.repeat(np.arange(len(names), dtype=np.int32), [len(below) for below in images])
        super().__init__([image for below in images for image in below], labels, names)


def class_folders(root: str) -> dict[str, str]:
    """Path of each class folder by name."""
    check_folder(root, "a folder with one folder of images per class")
    entries = list_folder(root)
    folders = {entry.name: entry.path for entry in entries if is_folder(entry)}
    tell_dead(root, [entry.path for entry in entries if is_dead(entry)], " among the class folders")
    if not folders:
        flat = sum(is_image(entry) for entry in entries)
        found = f"{flat} images and no folders" if flat else "no folders"
        expected = f"one folder of images for each class, such as '{os.path.join(root, 'cat', '1.jpg')}'"
        raise DataError(f"'{root}': expected {expected}, found {found}{_advice(entries)}")
    if len(folders) > 1 and folders.keys() <= set(PARTS):
        expected = f"one folder for each class, as in '{os.path.join(root, min(folders, key=PARTS.index))}'"
        raise DataError(f"'{root}': expected {expected}, found the datasets {some(sorted(folders))}")
    return folders


def _advice(entries: Sequence[os.DirEntry[str]]) -> str:
    if any(entry.name.startswith("ILSVRC2012_val_") for entry in entries):
        return "; `convnet prepare imagenet` puts the images of ImageNet's archives into their classes"
    if any(entry.name.endswith(".tar") for entry in entries):
        return "; tar files are data of `type: shards`"
    return "; data of `type: list` names the label of each image" if any(map(is_image, entries)) else ""


def _tell_ignored(root: str, others: Counter[str]) -> None:
    """Warn of files in class folders that are no images by name, and of images that are in no class folder."""
    if count := others.total():
        log.warning("'%s': ignored %d files that are not images by name (%s)", root, count, ", ".join(sorted(others)))
    if loose := sum(is_image(entry) for entry in list_folder(root)):
        log.warning("'%s': ignored %d images beside the class folders", root, loose)


def _check_found(root: str, names: Sequence[str], images: Sequence[list[str]], allow_empty: bool) -> None:
    empty = [name for name, below in zip(names, images, strict=True) if not below]
    looked = f"(looked for {' '.join(EXTENSIONS)}, in any case)"
    if len(empty) == len(names):
        raise DataError(f"no images in any of the {len(names)} class folders of '{root}' {looked}: {some(names)}")
    if empty and not allow_empty:
        raise DataError(
            f"no images for class {some(empty)} in '{root}' {looked}; remove the folder, "
            "or set allow_empty: true (convnet prepare: --allow-empty) to keep its index without images"
        )
