"""How a process becomes a rank of its job: it meets rank 0, and makes sure that all run the same code."""

import contextlib
import ctypes
import hashlib
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from convnet import __version__
from convnet.errors import UserError
from convnet.parallel.control import Control, Joined
from convnet.parallel.fault import leave, show
from convnet.parallel.hub import Hub
from convnet.parallel.meeting import arrange, patience
from convnet.parallel.spoke import Spoke
from convnet.parallel.watch import BEAT
from convnet.parallel.wire import Line, accept, connect
from convnet.parallel.world import World

LAUNCHER = "CONVNET_LAUNCHER"
ABSENT, SHOWN = "absent", 3  # in errors: what a rank has not, and how many differences
PR_SET_PDEATHSIG = 1
Told = tuple[str, int]  # the message of an error, and the exit status
Explain = Callable[[BaseException], Told | None]  # None of one that only a traceback explains


@contextmanager
def join(
    world: World, explain: Explain, warn: Callable[[str], None], environ: Mapping[str, str] = os.environ
) -> Iterator[Control]:
    """The control channel of a world. Within several ranks, an error inside ends all of them and this process.

    explain: makes the message of an error. warn: shows, at rank 0, a warning of another rank.
    """
    if world.size == 1:
        yield Control(world)
        return
    try:
        _die_with(environ.get(LAUNCHER))
        control = _meet(world, warn, environ)
    except BaseException as error:
        told = _explained(error, explain)
        show(world.rank, *told)
        leave(told[1])
    try:
        same(control, f"version {__version__} of convnet, source code", _code())
        control.world = _placed(control)
        yield control
    except BaseException as error:  # the end of a generator apart, which has no way here
        control.fail(*_explained(error, explain))
    control.close()


def _explained(error: BaseException, explain: Explain) -> Told:
    return explain(error) or ("".join(traceback.format_exception(error)).rstrip(), 1)


def same(control: Control, what: str, value: str | Mapping[str, str]) -> None:
    """Raise UserError, at all ranks, unless all have the same; of a mapping it tells the first entries that differ."""
    digests = control.exchange(hashlib.sha256(json.dumps(value).encode()).hexdigest())
    others = [rank for rank, found in enumerate(digests) if found != digests[0]]
    if not others:
        return
    told = f"other than at rank 0 at rank {', '.join(map(str, others))}"
    if not isinstance(value, str):
        values = control.exchange(value)
        told = _differences(values[0], values[others[0]], others[0])
    raise UserError(f"the ranks do not have the same {what}: {told}")


def _differences(first: Mapping[str, str], other: Mapping[str, str], rank: int) -> str:
    found = [key for key in {**first, **other} if first.get(key) != other.get(key)]
    told = [f"{key} is {first.get(key, ABSENT)} at rank 0, {other.get(key, ABSENT)} at rank {rank}" for key in found]
    more = [f"and {len(told) - SHOWN} more"] if len(told) > SHOWN else []
    return "; ".join(told[:SHOWN] + more)


def _meet(world: World, warn: Callable[[str], None], environ: Mapping[str, str]) -> Joined:
    seconds = patience(environ)
    listener, meeting = arrange(world, environ)
    if listener is None:
        line = connect(meeting.address, meeting.key, seconds)
        line.send({"kind": "hello", "rank": world.rank, "size": world.size})
        return Joined(world, Spoke(world.rank, line))
    with listener:
        lines = _welcome(listener, meeting.key, world, seconds)
    return Joined(world, Hub(lines, warn))


def _welcome(listener: socket.socket, key: bytes, world: World, seconds: float) -> dict[int, Line]:
    """A line to each of the other ranks; where not all come, those that did are sent away."""
    lines: dict[int, Line] = {}
    came: list[Line] = []
    began = told = time.monotonic()
    try:
        while len(lines) < world.size - 1:
            missing = sorted(set(range(1, world.size)) - set(lines))
            if time.monotonic() > began + seconds:
                raise UserError(f"rank {', '.join(map(str, missing))} of {world.size} did not come in {seconds:g} s")
            if time.monotonic() > told + BEAT:
                told = time.monotonic()
                _send_all(came, {"kind": "beat"})  # a sign of life: others may come late
            if line := accept(listener, key):
                came.append(line)
                with contextlib.suppress(EOFError, OSError):  # it has ended since
                    lines[_rank(line, world, missing)] = line
    except UserError:
        _send_all(came, {"kind": "end", "code": 1})
        raise
    return lines


def _send_all(lines: Sequence[Line], head: Mapping[str, Any]) -> None:
    """To the ranks that are still there."""
    for line in lines:
        with contextlib.suppress(OSError):
            line.send(head)


def _rank(line: Line, world: World, missing: Sequence[int]) -> int:
    """Which one has come."""
    hello, _ = line.receive()
    rank, size = hello["rank"], hello["size"]
    if size != world.size:
        raise UserError(f"rank {rank} was started as one of {size}, rank 0 as one of {world.size}")
    if rank not in missing:
        raise UserError(f"two processes were started as rank {rank}")
    return int(rank)


def _placed(control: Control) -> World:
    """The world, with the place on this machine, which some launchers do not tell."""
    hosts = control.exchange([socket.gethostname(), control.world.local_size])
    world = control.world
    if all(size for _, size in hosts):
        return world
    here = [rank for rank, (host, _) in enumerate(hosts) if host == hosts[world.rank][0]]
    return replace(world, local_rank=here.index(world.rank), local_size=len(here))


def _die_with(launcher: str | None) -> None:
    """Have the kernel end this process when its launcher has ended, however that came."""
    if launcher is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):  # it has ended before
        leave(1)


def _code() -> str:
    """A digest of all sources of this package."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in ("kernels", "layers", "convnet"):
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh"):
                digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return f"{__version__} {digest.hexdigest()}"
