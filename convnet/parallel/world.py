"""Which rank of how many this process is, from the variables that launchers set.

    launcher   rank and number of ranks                      on this machine
    convnet    CONVNET_RANK, CONVNET_WORLD_SIZE              CONVNET_LOCAL_RANK, CONVNET_LOCAL_SIZE
    torchrun   RANK, WORLD_SIZE                              LOCAL_RANK, LOCAL_WORLD_SIZE
    openmpi    OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE    OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE
    mpich      PMI_RANK, PMI_SIZE                            MPI_LOCALRANKID, MPI_LOCALNRANKS
    lsf        JSM_NAMESPACE_RANK, JSM_NAMESPACE_SIZE        JSM_NAMESPACE_LOCAL_RANK, JSM_NAMESPACE_LOCAL_SIZE
    slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS            SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE
               (or SLURM_NTASKS)

The first of these that is set counts, and the others must agree with it. Slurm alone may say something else, since it
often starts what starts the ranks: torchrun or mpirun, once a machine or in a batch script.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from convnet.errors import UserError

Environ = Mapping[str, str]
LAUNCHERS = {
    "convnet": ("CONVNET_RANK", "CONVNET_WORLD_SIZE", "CONVNET_LOCAL_RANK", "CONVNET_LOCAL_SIZE"),
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "openmpi": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "lsf": ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
}
MPI = ("openmpi", "mpich", "lsf")
INTERACTIVE = ("bash", "interactive")  # names of Slurm jobs that are a shell: what is started there is one process


@dataclass(frozen=True)
class World:
    """`rank` of `size`; on this machine `local_rank` of `local_size`, 0 of 0 where the launcher does not say.

    launcher: a name of the table above, "" for a process of its own. source: the variables it was read from.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    launcher: str = ""
    source: str = ""

    @property
    def told(self) -> str:
        """What the environment says, for messages."""
        return f"{self.source} say rank {self.rank} of {self.size}"


def from_environment(environ: Environ) -> World:
    """The world of a process with these variables; UserError where they are wrong, incomplete or contradict."""
    found = list(_worlds(environ))
    slurm = _slurm(environ)
    if not found:
        return slurm or World()
    chosen = found[0]
    for other in found[1:] + ([slurm] if slurm and _comparable(chosen, slurm, environ) else []):
        if (other.rank, other.size) != (chosen.rank, chosen.size):
            raise UserError(f"the environment contradicts itself: {chosen.told}, {other.told}; unset the wrong ones")
    if not chosen.local_size:
        chosen = next((_placed(chosen, other) for other in found if other.local_size), chosen)
    return chosen


def _worlds(environ: Environ) -> Iterator[World]:
    """What each launcher but Slurm says, by precedence."""
    for launcher, (rank, size, local_rank, local_size) in LAUNCHERS.items():
        if rank in environ or size in environ:
            world = _world(launcher, environ, rank, size)
            yield _local(world, environ, local_rank, local_size)
            if launcher == "convnet":
                return  # our own launcher, and it has looked at the rest


def _world(launcher: str, environ: Environ, rank: str, size: str) -> World:
    for there, missing in ((rank, size), (size, rank)):
        if missing not in environ:
            raise UserError(f"{there} is set ({environ[there]}), but not {missing}; a launcher sets both")
    world = World(_number(environ, rank), _number(environ, size), 0, 0, launcher, f"{rank} and {size}")
    if not world.rank < world.size:
        raise UserError(f"{world.told}; expected a rank below the number of ranks, counted from 0")
    return replace(world, local_size=1) if world.size == 1 else world


def _local(world: World, environ: Environ, rank: str, size: str) -> World:
    """With the place on this machine, where both variables are there."""
    if rank not in environ or size not in environ:
        return world
    local = replace(world, local_rank=_number(environ, rank), local_size=_number(environ, size))
    if not local.local_rank < local.local_size <= local.size:
        told = f"{rank} and {size} say rank {local.local_rank} of {local.local_size} on this machine"
        raise UserError(f"{told}, {world.told} in all; expected less")
    return local


def _placed(world: World, other: World) -> World:
    return replace(world, local_rank=other.local_rank, local_size=other.local_size)


def _number(environ: Environ, name: str) -> int:
    if not re.fullmatch(r"\s*\d+\s*", environ[name]):
        raise UserError(f"{name}: expected a number, 0 or more, found '{environ[name]}'")
    return int(environ[name])


def _slurm(environ: Environ) -> World | None:
    """The step that this process is a task of: none in an interactive shell, or where Slurm has numbered no task."""
    if environ.get("SLURM_JOB_NAME") in INTERACTIVE or not {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"} & environ.keys():
        return None
    size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    if size not in environ and _number(environ, "SLURM_PROCID") == 0:  # a batch script that asked for no tasks
        return None
    world = _world("slurm", environ, "SLURM_PROCID", size)
    local_size = _tasks_here(environ) or (world.size if environ.get("SLURM_NNODES") == "1" else 0)
    local_rank = int(environ.get("SLURM_LOCALID", local_size))
    return replace(world, local_rank=local_rank, local_size=local_size) if local_rank < local_size else world


def _tasks_here(environ: Environ) -> int:
    """Of SLURM_STEP_TASKS_PER_NODE, such as "4(x2),3", the number of this node; 0 where it is not told."""
    numbers: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        if match := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part):
            numbers += [int(match[1])] * int(match[2] or 1)
    node = int(environ.get("SLURM_NODEID", 0))
    return numbers[node] if node < len(numbers) else 0


def _comparable(chosen: World, slurm: World, environ: Environ) -> bool:
    """Whether Slurm numbers the ranks, and not the processes that start them."""
    if chosen.launcher == "convnet" or "TORCHELASTIC_RUN_ID" in environ:
        return False
    return chosen.launcher not in MPI or (chosen.size == slurm.size and "SLURM_STEP_NUM_TASKS" in environ)
