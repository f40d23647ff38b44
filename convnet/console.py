"""What a run says: lines on the terminal, around a progress bar where there is one, and the same lines in its log."""

import json
import logging
import math
import sys
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm


class Console(logging.Handler):
    """Results go to stdout, warnings to stderr; both also to `log`, once there is a run folder.

    As a handler of logging it shows the warnings of the data pipeline, unless `muted`.
    """

    muted = False

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._log: TextIO | None = None

    def open(self, path: Path) -> None:
        """Append all further lines to a file."""
        self._log = path.open("a", encoding="utf-8", buffering=1)

    def close(self) -> None:
        if self._log:
            self._log.close()
            self._log = None
        super().close()

    def say(self, text: str) -> None:
        """A result."""
        self._print(text, sys.stdout)

    def warn(self, text: str) -> None:
        """Something that the user should know."""
        self._print(f"warning: {text}", sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        if not self.muted:
            self.warn(record.getMessage())

    def bar(self, **options: Any) -> Any:
        """A progress bar on stderr, where that is a terminal."""
        return tqdm(file=sys.stderr, disable=not sys.stderr.isatty(), dynamic_ncols=True, leave=False, **options)

    def _print(self, text: str, stream: TextIO) -> None:
        if self._log:
            self._log.write(text + "\n")
        with tqdm.external_write_mode(file=stream):
            print(text, file=stream, flush=True)


def json_line(value: Any) -> str:
    """JSON text in one line. JSON has no NaN and no infinity: null stands for them."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: "1:02:03", "2:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
