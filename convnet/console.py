"""What a run says: lines on the terminal, around a progress bar where there is one, and the same lines in its log."""

import io
import json
import logging
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm


class Console(logging.Handler):
    """Results go to stdout, warnings to stderr; both also to `log`, once there is a run folder.

    As a handler of logging it shows the warnings of the data pipeline, unless `muted`. Of several ranks the first
    speaks for all; the others say nothing, and hand it such warnings by `relay`.
    """

    muted = False
    relay: Callable[[str], object] | None = None

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show stops no run
        self._log: TextIO | None = None

    def open(self, path: Path) -> None:
        """Append all further lines to a file."""
        self._log = path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)

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
            (self.relay or self.warn)(record.getMessage())

    def bar(self, **options: Any) -> Any:
        """A progress bar on stderr, where that is a terminal."""
        shown = sys.stderr is not None and sys.stderr.isatty() and not self.relay
        return tqdm(file=sys.stderr, disable=not shown, dynamic_ncols=True, leave=False, **options)

    def _print(self, text: str, stream: TextIO | None) -> None:
        if self.relay:
            return
        self._keep(text)
        try:
            with tqdm.external_write_mode(file=stream):
                print(text, file=stream, flush=True)
        except OSError as error:
            name = "stdout" if stream is sys.stdout else "stderr"
            if self._log is None or stream is None:
                raise OSError(error.errno, error.strerror, name) from error
            silence(stream)
            self.warn(f"{name}: {error.strerror}; what the run says from here on is in {self._log.name}")

    def _keep(self, text: str) -> None:
        """Put it in the log; without one, as on a full disk, the terminal has it still."""
        if self._log is None:
            return
        try:
            self._log.write(text + "\n")
        except OSError as error:
            log, self._log = self._log, None
            silence(log)
            log.close()
            self.warn(f"{log.name}: {error.strerror}; what the run says from here on is not kept there")


def silence(stream: TextIO) -> None:
    """Send what is still written to a stream that fails nowhere: Python, too, flushes it at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


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
