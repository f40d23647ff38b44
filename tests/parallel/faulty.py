"""convnet with a fault at one rank: `python -m tests.parallel.faulty RANK WHAT PLACE COUNT ARGUMENTS...`.

WHAT happens in the COUNT-th call of PLACE, "module:name", at RANK: a number, or all.
"""

import importlib
import os
import signal
import sys
import time

from convnet.errors import UserError
from convnet.parallel.world import from_environment


def happen(what):
    if what == "raise":
        raise UserError("it failed")
    if what == "bug":
        raise RuntimeError("a bug")
    if what == "memory":
        raise MemoryError("'weights' needs 10 bytes")
    if what == "hang":
        time.sleep(1000)
    os.kill(os.getpid(), getattr(signal, what))


def patch(place, count, what):
    module, _, name = place.partition(":")
    owner = importlib.import_module(module)
    *path, name = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    inner, calls = getattr(owner, name), 0

    def outer(*args, **options):
        nonlocal calls
        calls += 1
        if calls == count:
            happen(what)
        return inner(*args, **options)

    setattr(owner, name, outer)


if __name__ == "__main__":
    rank, what, place, count, *arguments = sys.argv[1:]
    if rank in ("all", str(from_environment(os.environ).rank)):
        patch(place, int(count), what)
    from convnet.cli import main

    sys.exit(main(arguments))
