"""How a rank says why the job ends: to the launcher of this package where it started the rank, else on stderr."""

import contextlib
import json
import os
import sys
from typing import NoReturn

REPORT = "CONVNET_REPORT"  # descriptor on which the launcher reads


def show(rank: int, text: str, code: int, *, guess: bool = False) -> None:
    """Once, at one rank. guess: what a rank looks like from afar; the launcher may know more."""
    with contextlib.suppress(OSError):
        if REPORT in os.environ:
            line = json.dumps({"rank": rank, "text": text, "code": code, "guess": guess}) + "\n"
            os.write(int(os.environ[REPORT]), line.encode())
        else:
            clear = "\r\033[K" if os.isatty(2) else ""  # of a progress bar
            os.write(2, f"{clear}rank {rank}: {text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace"))


def leave(code: int) -> NoReturn:
    """End this process at once, wherever its other threads are: an exchange with a rank that is gone never returns."""
    os._exit(code or 1)
