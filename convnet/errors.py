"""Failures that are the user's to mend: shown as one line, without a traceback."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """Something outside the program is not as it must be; the message says what was expected and what was found."""


class NotFinite(UserError):
    """Training left the range of numbers."""


class NotSaved(UserError):
    """A checkpoint could not be written; those before it are as they were."""


@contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """An OSError inside that names no file, as those of a full disk do, or one in which `path` begins, names `path`."""
    try:
        yield
    except OSError as error:
        unnamed = error.filename is None or (temporary is not None and error.filename == str(temporary))
        if unnamed and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def out_of_memory(error: BaseException) -> bool:
    """Whether it is NumPy's or CuPy's, which need not be installed."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def reason(error: Exception) -> str:
    """What went wrong, the file first: "runs/x/log.txt: No space left on device"."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)
