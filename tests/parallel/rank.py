"""A job for tests of the launcher and of the control channel: `python -m tests.parallel.rank RANKS WHAT [RANK]`.

Ranks take steps together. WHAT happens at the third step of RANK, a number or all.
"""

import json
import os
import signal
import sys
import time

import numpy as np

from convnet.errors import UserError
from convnet.parallel import launch as launcher
from convnet.parallel.join import join, same
from convnet.parallel.launch import launch
from convnet.parallel.world import from_environment
from convnet.signals import stop_request

STEPS = 100


def say(text):
    """In one piece, whatever other ranks write."""
    os.write(1, f"{text}\n".encode())


def explain(error):
    return ("interrupted", 130) if isinstance(error, KeyboardInterrupt) else (f"error: {error}", 1)


def happen(what, control):
    if what == "raise":
        raise UserError("it failed")
    if what == "exit":
        os._exit(7)
    if what in ("SIGKILL", "SIGSEGV", "SIGSTOP"):
        os.kill(os.getpid(), getattr(signal, what))
    if what == "hang":
        time.sleep(1000)
    if what == "device":  # waited for where images are read
        with control.busy(), control.waiting():
            time.sleep(1000)
    if what == "stray":
        control.barrier()
    if what == "differ":
        control.sum(np.zeros(control.rank + 1))


def steps(what, who, control, request):
    """The exit status. Without an event it runs until it is stopped."""
    for step in range(STEPS if what in ("end", "results") else 100000):
        if step == 2 and who in ("all", str(control.rank)):
            happen(what, control)
        with control.busy():  # the others may hang there, too
            total = control.sum(np.array([control.rank + 1.0]))
        assert total == control.size * (control.size + 1) / 2
        control.progress()
        if step == 2 and control.rank == 0:
            say("running")
        code, _ = control.agree(request.code, 0.0)
        if code and what != "ignore":
            say(f"rank {control.rank} stops after {step}")
            return code
        time.sleep(0.0 if what == "results" else 0.01)
    return 0


def results(control):
    """One of everything, as JSON."""
    found = {
        "exchange": control.exchange({"rank": control.rank}),
        "sum": control.sum(np.arange(3) * 10**control.rank).tolist(),
        "broadcast": control.broadcast(b"a\nb%d" % control.rank).decode(),
        "first": control.first(lambda: ["rank", control.rank]),
        "local": [control.world.local_rank, control.world.local_size],
    }
    control.barrier()
    if control.rank:
        control.warn(f"hello from {control.rank}")
    return found


def main(ranks, what, who="all"):
    world = from_environment(os.environ)
    if not world.launcher:
        launcher.ENDING = 1.0
        return launch(int(ranks), sys.argv[1:], (sys.executable, "-W", "error", "-m", "tests.parallel.rank"))
    if what == "import" and who == str(world.rank):
        import convnet.no_such_module  # noqa: F401
    if what == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        say("running")
    if what == "deaf" or (what == "early" and who == str(world.rank)):
        time.sleep(1000)  # before it joins the others
    with (
        join(world, explain, say) as control,
        stop_request(lambda text: None) as request,
    ):
        if what == "config":
            same(control, "config", str(control.rank % 2))
        if what == "results":
            say(json.dumps([control.rank, results(control)]))
        with control.watched(5.0 if what in ("hang", "device", "SIGSTOP") else 10.0):
            status = steps(what, who, control, request)
    if what == "end" and who == str(world.rank):
        time.sleep(1000)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
