"""The images in class folders; the list of a large dataset is kept, so that it is not walked at every start.

What is kept is used while every folder has the time of its last change that it had: adding, removing and renaming
files change it.  It lies in $CONVNET_CACHE, else $XDG_CACHE_HOME/convnet, else ~/.cache/convnet, and may be deleted.
"""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from convnet.data.sources.files import Odd, identity, walk
from kernels.compile import cache_folder, write_atomic

VERSION = 1
LARGE = 10_000  # images from which on a list is kept: walking fewer takes a fraction of a second
RECENT = 2_000_000_000  # ns; a folder changed so shortly ago might change again at the same time by its clock


@dataclass
class Listing:
    """Folders below the class folders, each with its class, and the names of the images in it, both sorted."""

    places: list[tuple[str, str, list[str]]]  # class, path of the folder, names
    odd: Odd

    def images(self, name: str) -> list[str]:
        """Paths of the images of a class."""
        return self._by_class.get(name, [])

    def __post_init__(self) -> None:
        self._by_class: dict[str, list[str]] = {}
        for name, folder, files in self.places:
            self._by_class.setdefault(name, []).extend(os.path.join(folder, file) for file in files)


def list_images(root: str, folders: Mapping[str, str]) -> Listing:
    """The images of each class folder, of which `folders` has the path by name."""
    file = _file(root)
    if file and (kept := _load(file, folders)):
        return kept
    began, above, odd = time.time_ns(), frozenset({identity(root)}), Odd()
    places = [(name, *place) for name in sorted(folders) for place in sorted(walk(folders[name], odd, above))]
    listing = Listing(places, odd)
    if file and not odd.dead and sum(len(files) for *_, files in places) >= LARGE:  # where a link leads may change
        _save(file, listing, began)
    return listing


def kept_in(name: str) -> Path | None:
    """The folder in which things of a kind are kept for the next start; None where nothing can be."""
    try:
        folder = cache_folder().parent / name
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return folder


def _file(root: str) -> Path | None:
    """Where the list of a folder is kept."""
    folder = kept_in("listings")
    place = os.path.realpath(root).encode("utf-8", "surrogateescape")
    return folder and folder / hashlib.sha256(place).hexdigest()[:32]


def _save(file: Path, listing: Listing, began: int) -> None:
    """Keep the list of a walk that began at a time; not where a folder may have changed since."""
    changed = {folder: os.stat(folder).st_mtime_ns for _, folder, _ in listing.places}
    if max(changed.values()) > began - RECENT:
        return
    head = {
        "version": VERSION,
        "places": [(name, folder, changed[folder], len(files)) for name, folder, files in listing.places],
        "others": listing.odd.others,
    }
    names = "\0".join(name for *_, files in listing.places for name in files)
    data = f"{json.dumps(head)}\n{names}".encode("utf-8", "surrogateescape")
    with suppress(OSError):  # a full disk: the list is made again next time
        write_atomic(file, data)


def _load(file: Path, folders: Mapping[str, str]) -> Listing | None:
    """The list that was kept, where it still holds."""
    try:
        head, _, text = file.read_text("utf-8", "surrogateescape").partition("\n")
        kept = json.loads(head)
        if kept["version"] != VERSION or {(name, path) for name, path in folders.items()} != _roots(kept):
            return None
        if any(os.stat(folder).st_mtime_ns != changed for _, folder, changed, _ in kept["places"]):
            return None
        names = iter(text.split("\0"))
        places = [(name, folder, [next(names) for _ in range(count)]) for name, folder, _, count in kept["places"]]
        return Listing(places, Odd(Counter(kept["others"])))
    except (OSError, ValueError, KeyError, TypeError, StopIteration, RuntimeError):  # damaged, or of another version
        return None


def _roots(kept: dict) -> set[tuple[str, str]]:
    """Name and path of each class folder: the first of its class."""
    first: dict[str, str] = {}
    for name, folder, *_ in kept["places"]:
        first.setdefault(name, folder)
    return set(first.items())
