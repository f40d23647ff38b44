"""Files that are complete or not there."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from convnet.errors import UserError, naming


@contextmanager
def writing(target: Path, *, shared: bool = False) -> Iterator[Path]:
    """A path to write to, which takes the place of `target` in the end; after an error nothing is left of it.

    What a killed process leaves is overwritten by the next one, except where the file is `shared`: several processes
    may write it at the same time, each its own.
    """
    check_place(target)
    partial = target.with_name(f".writing-{target.name}" + (f"-{secrets.token_hex(4)}" if shared else ""))
    with naming(target, partial):
        try:
            yield partial
            flush(partial)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)


def check_place(target: Path) -> None:
    """Raise UserError where no file can be written: there is a folder by that name, or none to write it to."""
    if target.is_dir():
        raise UserError(f"{target}: is a folder; expected the name of a file")
    if not target.parent.is_dir():
        raise UserError(f"{target}: there is no folder '{target.parent}'")


def flush(path: Path) -> None:
    """Have the disk take a file, or the entries of a folder, so that they survive the loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
