"""How a rank says why the job ends: to the launcher of this package where it started the rank, else on stderr."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

REPORT = "CONVNET_REPORT"  # descriptor on which the launcher reads
CLOCK = """
import os, select, signal, sys
if not select.select([0], [], [], float(sys.argv[1]))[0]:
    os.write(2, sys.argv[2].encode())
    os.kill(int(sys.argv[3]), signal.SIGKILL)
"""


def show(rank: int, text: str, code: int, *, guess: bool = False) -> None:
    """Once, at one rank. guess: what a rank looks like from afar; the launcher may know more."""
    with contextlib.suppress(OSError):
        if REPORT in os.environ:
            line = json.dumps({"rank": rank, "text": text, "code": code, "guess": guess}) + "\n"
            os.write(int(os.environ[REPORT]), line.encode())
        else:
            clear = "\r\033[K" if os.isatty(2) else ""  # of a progress bar
            os.write(2, f"{clear}rank {rank}: {text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace"))


@contextmanager
def clock(rank: int, seconds: float) -> Iterator[None]:
    """Within, MPI starts; a rank for which that takes longer is ended, and one of all ranks says so.

    mpi4py keeps Python's lock while it waits for the other ranks, so that no thread of this process could see that one
    never comes: a process of its own does, in a session of its own, so that what a terminal sends to all (Ctrl-C)
    leaves it alone.
    """
    why = "another rank is stopped, or did not come; CONVNET_JOIN_SECONDS is how long to wait"
    text = f"rank {rank}: MPI has not started in {seconds:g} s: {why}\n" if rank < 2 else ""
    words = str(seconds + min(rank, 2)), text, str(os.getpid())
    line = [sys.executable, "-ISc", CLOCK, *words]
    with subprocess.Popen(line, stdin=subprocess.PIPE, start_new_session=True):  # it ends with this pipe
        yield


def leave(code: int) -> NoReturn:
    """End this process at once, wherever its other threads are: an exchange with a rank that is gone never returns."""
    os._exit(code or 1)
