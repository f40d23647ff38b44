"""The bound on the start of MPI holds whatever a terminal sends to all of its processes, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from convnet.parallel.fault import clock
from tests.convnet.toy import environment

# MPI's start, which hangs: it keeps Python's lock, so that no handler of a signal runs.
HANGS = """
import signal, sys, time
from convnet.parallel.fault import clock
for name in sys.argv[2:]:
    signal.signal(getattr(signal, name), lambda *_: None)
with clock(0, float(sys.argv[1])):
    print("begun", flush=True)
    time.sleep(60)
"""


def hanging(seconds, *names):
    """A process that leads a group, as the shell starts it; the clock runs already, and has its standard error."""
    line = [sys.executable, "-c", HANGS, str(seconds), *names]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(line, start_new_session=True, env=environment(), **pipes)
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGTERM"])
def test_a_signal_to_all_leaves_the_bound(name):
    with hanging(1, name) as process:
        try:
            os.killpg(process.pid, getattr(signal, name))
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    told = "rank 0: MPI has not started in 1 s: another rank is stopped, or did not come; "
    assert err == told + "CONVNET_JOIN_SECONDS is how long to wait\n"


def test_the_clock_ends_with_what_it_bounds():
    began = time.monotonic()
    with clock(0, 60):
        pass
    with hanging(60) as process:
        process.kill()
        assert process.communicate(timeout=20) == ("", "")  # when nobody is left that could write
    assert time.monotonic() - began < 20
