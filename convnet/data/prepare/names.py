"""What prepared images are called."""

import os
from collections.abc import Iterable, Sequence

from convnet.data.prepare.recipe import Recipe


def prepared_names(names: Sequence[str], recipe: Recipe) -> list[str]:
    """The name of each image, without the extension that it will get; names: `<class>/.../<file>`.

    Names that differ in their extension alone stay apart.  In a shard the last part has no dot: WebDataset takes what
    is behind the first one for the extension.
    """
    if recipe.format == "folder" and recipe.keep_original:
        return list(names)
    plain = _dotless if recipe.format == "shards" else _same
    return _distinct((plain(os.path.splitext(name)[0]), plain(name)) for name in names)


def _same(name: str) -> str:
    return name


def _dotless(name: str) -> str:
    folder, base = os.path.split(name)
    return os.path.join(folder, base.replace(".", "_"))


def _distinct(choices: Iterable[tuple[str, str]]) -> list[str]:
    """The first choice where it is free, then the second, then the second with a number."""
    taken = set[str]()
    found = []
    for first, second in choices:
        name = next(name for name in _candidates(first, second) if name not in taken)
        taken.add(name)
        found.append(name)
    return found


def _candidates(first: str, second: str) -> Iterable[str]:
    yield first
    yield second
    number = 2
    while True:
        yield f"{second}-{number}"
        number += 1
