"""Where the ranks of a job meet: the address on which rank 0 listens, and the key that proves who belongs to it."""

import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from convnet.errors import UserError
from convnet.parallel.fault import clock
from convnet.parallel.wire import PORT, Address, listen
from convnet.parallel.world import MPI, World

KEY, SECONDS = "CONVNET_KEY", "CONVNET_JOIN_SECONDS"
LONGEST, HERE = 60, 12  # seconds in which ranks come that may be on other machines, and those of one, as MPI starts
APART = 1000  # from MASTER_PORT, which torchrun's own store uses
SLURM_PORTS = 20000, 10000  # the first, and how many, of which a job has one


class Meeting(NamedTuple):
    """Where rank 0 listens, and what proves that a process belongs to the job."""

    address: Address
    key: bytes


def arrange(world: World, environ: Mapping[str, str]) -> tuple[socket.socket | None, Meeting]:
    """The meeting, and at rank 0 the socket that already listens there."""
    if world.launcher in MPI and PORT not in environ:
        with clock(world.rank, patience(environ, world)):
            return _arrange_by_mpi(world)
    meeting = meeting_of(world, environ)
    if world.rank:
        return None, meeting
    host, port = meeting.address
    return listen((host if host == "127.0.0.1" else "", port)), meeting


def patience(environ: Mapping[str, str], started: World | None = None) -> float:
    """Seconds in which all ranks have to come. started: by MPI, the ranks of this world."""
    here = started is not None and started.local_size == started.size
    text = environ.get(SECONDS, str(HERE if here else LONGEST))
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        raise UserError(f"{SECONDS}: expected seconds, such as 60, found '{text}'")
    return float(text)


def meeting_of(world: World, environ: Mapping[str, str]) -> Meeting:
    """As the environment has it; UserError where that does not say which machine rank 0 is on."""
    one = world.local_size == world.size
    host = "127.0.0.1" if one else environ.get("MASTER_ADDR") or _first_node(environ)
    if not host:
        raise UserError(f"{world.told}, on several machines; set MASTER_ADDR to the one that rank 0 runs on")
    job = "-".join(environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID"))
    return Meeting((host, _port(world, environ)), (environ.get(KEY) or f"convnet {job}").encode())


def _port(world: World, environ: Mapping[str, str]) -> int:
    name, apart = (PORT, 0) if PORT in environ else ("MASTER_PORT", APART)
    if name in environ or world.launcher == "torchrun":
        text = environ.get(name, "29500")
        if not re.fullmatch(r"\d{1,5}", text) or not 0 < int(text) < 65536:
            raise UserError(f"{name}: expected a port, 1 to 65535, found '{text}'")
        port = int(text) + apart
        return port if port < 65536 else port - 2 * apart
    first, count = SLURM_PORTS
    job, step = (int(environ.get(name, "0") or 0) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return first + (job * 7 + step) % count


def _first_node(environ: Mapping[str, str]) -> str:
    """Of a Slurm list such as "gpu[07-09,12],login1"; "" where there is none."""
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or ""
    match = re.match(r"([^\[,]*)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", nodes)
    return "".join(part or "" for part in match.groups()) if match else ""


def _arrange_by_mpi(world: World) -> tuple[socket.socket | None, Meeting]:
    """Rank 0 takes a free port and tells it through MPI."""
    try:
        from mpi4py import MPI as mpi
    except (ImportError, RuntimeError) as error:  # the latter where it finds no MPI library
        hint = f"pip install 'convnet[mpi]', or set MASTER_ADDR and {PORT}"
        text = f"ranks that {world.launcher} starts meet through mpi4py, which does not work"
        raise UserError(f"{text} ({error}); {hint}") from None
    comm = mpi.COMM_WORLD
    if comm.Get_size() != world.size:
        found = f"{world.told}, but MPI says {comm.Get_rank()} of {comm.Get_size()}"
        raise UserError(f"{found}: mpi4py belongs to another MPI than the launcher")
    listener, told = None, np.zeros(512, np.uint8)
    if world.rank == 0:
        one = world.local_size == world.size
        listener = listen(("127.0.0.1" if one else "", 0))
        host = "127.0.0.1" if one else os.environ.get("MASTER_ADDR", socket.gethostname())
        message = json.dumps([host, listener.getsockname()[1], secrets.token_hex()]).encode()
        told[: len(message)] = np.frombuffer(message, np.uint8)
    comm.Bcast(told)
    host, port, key = json.loads(told.tobytes().rstrip(b"\0"))
    return listener, Meeting((host, port), key.encode())
