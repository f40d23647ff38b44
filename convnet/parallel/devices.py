"""The device of each rank, and what its arrays travel by."""

import os
import socket
from collections.abc import Sequence
from typing import Any

from convnet.device import gpu_count, identity, open_device
from convnet.errors import UserError
from convnet.parallel.communicator import Communicator, Mpi, Solo
from convnet.parallel.control import Control
from convnet.parallel.fault import clock
from convnet.parallel.join import same
from convnet.parallel.meeting import patience
from convnet.parallel.nccl import Nccl


def open_rank(name: str, gpus: Sequence[int] | None, control: Control) -> Any:
    """The backend of this rank; all ranks call it together.

    name: as of --device; auto and cuda are the GPU of the rank's place on its machine. gpus: as of --gpus. UserError
    where there are too few GPUs, two ranks have the same, or some ranks have a GPU and others none.
    """
    world = control.world
    if gpus is not None:
        name = f"cuda:{gpus[world.local_rank]}"
    elif world.size > 1 and name in ("auto", "cuda"):
        name = _own(name, world.local_rank, world.local_size)
    backend = open_device(name)
    if world.size > 1:
        same(control, "kind of device", "a GPU" if hasattr(backend, "arch") else "the CPU")
        _check_apart(control, backend)
    return backend


def _own(name: str, rank: int, size: int) -> str:
    """The device of the rank that is the `rank`-th on its machine."""
    found = gpu_count()
    if found == 0:
        return "cpu" if name == "auto" else name
    if found == 1:  # a launcher may show each rank another
        return "cuda:0"
    if found < size:
        raise UserError(f"{size} ranks on {socket.gethostname()}, found {found} GPUs; --device cpu does without")
    return f"cuda:{rank}"


def _check_apart(control: Control, backend: Any) -> None:
    """Raise UserError where two ranks have one GPU."""
    found = control.exchange([socket.gethostname(), identity(backend)])
    for rank, (host, gpu) in enumerate(found):
        first = found.index([host, gpu])
        if gpu and first < rank:
            raise UserError(f"ranks {first} and {rank} both have the GPU {gpu} of {host}; every rank needs its own")


def make_communicator(backend: Any, control: Control) -> Communicator:
    """What arrays of the network travel by: NCCL between GPUs, MPI between hosts."""
    found = Solo() if control.size == 1 else _connected(backend, control)
    found.local = control.world.local_size
    return found


def _connected(backend: Any, control: Control) -> Communicator:
    if hasattr(backend, "arch"):
        return Nccl(control.rank, control.size, backend, control.broadcast)
    try:
        with clock(control.rank, patience(os.environ, control.world)):
            found = Mpi()
    except (ImportError, RuntimeError) as error:  # mpi4py raises the latter where it finds no MPI library
        raise UserError(f"ranks on the CPU need mpi4py ({error}); pip install 'convnet[mpi]'") from None
    if (found.rank, found.size) != (control.rank, control.size):
        told = f"MPI says rank {found.rank} of {found.size}, {control.world.launcher} {control.rank} of {control.size}"
        raise UserError(f"ranks on the CPU exchange through MPI: start them with mpirun -n {control.size}; {told}")
    return found
