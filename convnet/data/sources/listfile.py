"""A text file that names images and their labels, as Caffe has them: `n01440764/n01440764_10026.JPEG 0`."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError
from convnet.data.sources.classes import indexed
from convnet.data.sources.files import Files


class ListSource(Files):
    """The images of a list file, in its order; an image may come more than once.

    A line is a path, then white space or a comma, then a label: the last word, or all that follows a tab.  Labels are
    numbers from 0, or class names; where all are numbers, `class_list` or a model may name them.  Blank lines and
    lines that begin with '#' are left out.
    root: folder that paths are relative to; None: that of the list file.  The others as of FolderSource.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        root: str | Path | None = None,
        classes: Sequence[str] | None = None,
        class_list: str | Path | None = None,
        allow_empty: bool = False,
    ):
        path = os.fspath(path)
        images, words = read_list(path)
        folder = os.path.dirname(path) if root is None else os.fspath(root)
        names: Sequence[str] = ()
        if all(re.fullmatch(r"-?\d+", word) for word in words):
            labels = _numbers(path, words)
        else:
            names = sorted(set(words))
            ranks = {name: rank for rank, name in enumerate(names)}
            labels = np.array([ranks[word] for word in words], np.int32)
        given: dict[str, Any] = {"classes": classes, "class_list": class_list, "allow_empty": allow_empty}
        found, kept = indexed(path, labels, names, **given)
        super().__init__([os.path.join(folder, image) for image in images], found, kept)


def _numbers(path: str, words: Sequence[str]) -> NDArray[np.int32]:
    numbers = [int(word) for word in words]
    if odd := next((number for number in numbers if not 0 <= number < 2**31), None):
        raise DataError(f"'{path}': expected labels from 0 to 2^31 - 1, found {odd}")
    return np.array(numbers, np.int32)


def read_list(path: str) -> tuple[list[str], list[str]]:
    """Paths and labels, as they are written."""
    try:
        lines = Path(path).read_text("utf-8-sig", "surrogateescape").splitlines()
    except OSError as error:
        raise DataError(f"cannot read list '{path}': {error.strerror}") from error
    pairs = [_pair(path, *line) for line in enumerate(lines, 1) if line[1].strip() and not line[1].startswith("#")]
    if not pairs:
        raise DataError(f"'{path}': expected lines such as 'cat/1.jpg 0', found none")
    images, words = zip(*pairs, strict=True)
    return list(images), list(words)


def _pair(path: str, number: int, line: str) -> tuple[str, str]:
    line = line.strip()
    if "\t" in line:
        image, _, word = line.rpartition("\t")
    elif match := re.fullmatch(r"(.*[^\s,])\s*[\s,]\s*(\S+)", line):
        image, word = match.groups()
    else:
        image = word = ""
    if not image.strip() or not word.strip():
        raise DataError(f"{path}:{number}: expected the path of an image and its label, found '{line}'")
    return image.strip(), word.strip()
