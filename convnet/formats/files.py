"""Files that are complete or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from convnet.errors import UserError, naming


@contextmanager
def writing(target: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `target` in the end; after an error nothing is left of it."""
    if target.is_dir():
        raise UserError(f"{target}: is a folder; expected the name of a file")
    if not target.parent.is_dir():
        raise UserError(f"{target}: there is no folder '{target.parent}'")
    partial = target.with_name(f".writing-{target.name}")
    with naming(target, partial):
        try:
            yield partial
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
