"""Class names: lists of them, and whether what a source has agrees with what a model or a list names."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError
from convnet.data.sources.base import some

Labels = NDArray[np.int32]


def indexed(
    where: str, labels: Labels, names: Sequence[str], *, allow_empty: bool = False, **given: Any
) -> tuple[Labels, tuple[str, ...]]:
    """Labels and class names of a source that is no folder, as a model or a class list indexes them.

    names: of the source's own labels; empty: they are numbers, which any list of enough names can name.
    given: `classes` and `class_list`, as `named` takes them.
    """
    wanted, origin = named(names, **given)
    if not names:
        most = int(labels.max(initial=-1)) + 1
        if wanted is not None and most > len(wanted):
            raise DataError(f"'{where}' has label {most - 1}, and {origin} has only {len(wanted)} classes")
        names = wanted = wanted or tuple(map(str, range(most)))
    if wanted is not None and wanted != tuple(names):
        compare(f"'{where}'", "classes", "images", wanted, names, origin, allow_empty)
        ranks = {name: rank for rank, name in enumerate(wanted)}
        labels, names = np.array([ranks.get(name, -1) for name in names], np.int32)[labels], wanted
    missing = np.setdiff1d(np.arange(len(names)), labels)
    if len(missing) and not allow_empty:
        raise DataError(
            f"'{where}' has no images of {len(missing)} of {len(names)} classes: {some([names[i] for i in missing])}; "
            "allow_empty: true accepts this"
        )
    return labels, tuple(names)


def named(
    found: Iterable[str], *, classes: Sequence[str] | None = None, class_list: str | Path | None = None
) -> tuple[tuple[str, ...] | None, str]:
    """The class names that are given, in index order, and who gives them; None where a source is to name its own.

    found: names that a source has.  classes: of a model.  class_list: a file; with both, they must agree.
    """
    listed = read_class_list(class_list, found) if class_list is not None else None
    if listed is not None and classes is not None and listed != tuple(classes):
        raise DataError(f"class list '{class_list}' {difference(listed, classes)}")
    if classes is not None:
        return tuple(classes), "the model"
    return listed, f"class list '{class_list}'"


def read_class_list(path: str | Path, folders: Iterable[str]) -> tuple[str, ...]:
    """Class names, one a line in index order; blank lines are ignored.

    A line may add a description after the name (`n01440764 tench, Tinca tinca`) where the name alone is a folder.
    """
    try:
        lines = Path(path).read_text("utf-8-sig", "surrogateescape").split("\n")
    except OSError as error:
        raise DataError(f"cannot read class list '{path}': {error}") from error
    known, names = set(folders), list[str]()
    for number, line in enumerate(lines, 1):
        name = line if line in known else line.strip()
        if not name:
            continue
        if name not in known and (word := name.split()[0]) in known:
            name = word
        if name in names:
            raise DataError(f"{path}:{number}: class '{name}' is listed twice, first as number {names.index(name)}")
        names.append(name)
    return tuple(names)


def compare(
    where: str, have: str, lack: str, names: Sequence[str], found: Iterable[str], origin: str, allow_empty: bool
) -> None:
    """The classes `found` at a place must be those that `origin` names; `have` and `lack` say in which form."""
    unknown, missing = sorted(set(found) - set(names)), sorted(set(names) - set(found))
    known = f"the {len(names)} classes of {origin}"
    if unknown:
        raise DataError(f"{where} has {have} that are not among {known}: {some(unknown)}")
    if missing and not allow_empty:
        raise DataError(
            f"{where} has no {lack} for {len(missing)} of {known}: {some(missing)}; allow_empty: true accepts this"
        )


def difference(names: Sequence[str], classes: Sequence[str]) -> str:
    """How a class list differs from a model's classes."""
    if len(names) != len(classes):
        return f"has {len(names)} classes, the model {len(classes)}"
    index = next(i for i, (ours, theirs) in enumerate(zip(names, classes, strict=True)) if ours != theirs)
    return f"has '{names[index]}' as class {index}, the model '{classes[index]}'"
