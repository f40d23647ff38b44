"""Which rank a process is, for the environments that launchers make."""

import pytest

from convnet.errors import UserError
from convnet.parallel.command import choose
from convnet.parallel.launch import check_gpus, parse_gpus
from convnet.parallel.meeting import meeting_of
from convnet.parallel.world import World, from_environment

ELASTIC = {"TORCHELASTIC_RUN_ID": "none"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a"}
STEP = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "6", "SLURM_JOB_NAME": "train"}
STEP |= {"SLURM_LOCALID": "2", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "3(x2)"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
OMPI = {f"OMPI_COMM_WORLD_{key}": value for key, value in [("RANK", "2"), ("SIZE", "3"), ("LOCAL_RANK", "0")]}
JSRUN = {"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_LOCAL_RANK": "1"}
OWN = {"CONVNET_RANK": "1", "CONVNET_WORLD_SIZE": "2", "CONVNET_LOCAL_RANK": "1", "CONVNET_LOCAL_SIZE": "2"}
BATCH = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_NAME": "train"}


@pytest.mark.parametrize(
    "environ, launcher, numbers",
    [
        ({}, "", (0, 1, 0, 1)),
        ({"LOCAL_RANK": "1", "PATH": "/bin"}, "", (0, 1, 0, 1)),
        (TORCHRUN, "torchrun", (3, 4, 1, 2)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "torchrun", (1, 2, 0, 0)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "torchrun", (0, 1, 0, 1)),
        (STEP, "slurm", (5, 6, 2, 3)),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "4,2", "SLURM_LOCALID": "1"}, "slurm", (5, 6, 1, 2)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}, "slurm", (1, 2, 0, 0)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1", "SLURM_NNODES": "1"}, "slurm", (1, 2, 1, 2)),
        ({**STEP, "SLURM_JOB_NAME": "bash"}, "", (0, 1, 0, 1)),
        ({**STEP, "SLURM_JOB_NAME": "interactive"}, "", (0, 1, 0, 1)),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_NAME": "interactive"}, "", (0, 1, 0, 1)),
        ({"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}, "", (0, 1, 0, 1)),  # salloc's shell
        ({"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, "", (0, 1, 0, 1)),  # a batch script
        (HYDRA, "mpich", (1, 2, 1, 2)),
        (OMPI, "openmpi", (2, 3, 0, 0)),
        ({**OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "openmpi", (2, 3, 0, 1)),
        (JSRUN, "lsf", (1, 2, 0, 0)),
        # One launcher under another.
        (OWN, "convnet", (1, 2, 1, 2)),
        ({**OWN, **TORCHRUN}, "convnet", (1, 2, 1, 2)),
        ({**HYDRA, **STEP}, "mpich", (1, 2, 1, 2)),  # mpirun that Slurm starts once a machine
        ({**HYDRA, **BATCH}, "mpich", (1, 2, 1, 2)),  # mpirun in a batch script
        ({**TORCHRUN, **STEP, **ELASTIC}, "torchrun", (3, 4, 1, 2)),  # torchrun that Slurm starts once a machine
        ({**HYDRA, "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, "mpich", (1, 2, 1, 2)),  # srun --mpi=pmi2
        ({"RANK": "1", "WORLD_SIZE": "2", **HYDRA}, "torchrun", (1, 2, 1, 2)),  # both, and they agree
    ],
)
def test_worlds(environ, launcher, numbers):
    found = from_environment(environ)
    assert (found.rank, found.size, found.local_rank, found.local_size) == numbers
    assert found.launcher == launcher


@pytest.mark.parametrize(
    "environ, words",
    [
        ({"RANK": "0"}, "RANK is set (0), but not WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set (2), but not RANK"),
        ({"PMI_SIZE": "2"}, "PMI_SIZE is set (2), but not PMI_RANK"),
        ({"OMPI_COMM_WORLD_RANK": "2"}, "OMPI_COMM_WORLD_RANK is set (2), but not OMPI_COMM_WORLD_SIZE"),
        ({"SLURM_PROCID": "2"}, "SLURM_PROCID is set (2), but not SLURM_NTASKS"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_NUM_TASKS is set (2), but not SLURM_PROCID"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK and WORLD_SIZE say rank 2 of 2; expected a rank below"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK: expected a number, 0 or more, found 'one'"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK: expected a number, 0 or more, found '-1'"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "say rank 0 of 0"),
        ({**TORCHRUN, "LOCAL_RANK": "2"}, "LOCAL_RANK and LOCAL_WORLD_SIZE say rank 2 of 2 on this machine"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "5"}, "LOCAL_RANK and LOCAL_WORLD_SIZE say rank 1 of 5"),
        ({**TORCHRUN, **HYDRA}, "RANK and WORLD_SIZE say rank 3 of 4, PMI_RANK and PMI_SIZE say rank 1 of 2"),
        ({**TORCHRUN, **STEP}, "SLURM_PROCID and SLURM_STEP_NUM_TASKS say rank 5 of 6"),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "SLURM_PROCID and SLURM_NTASKS"),
        ({**HYDRA, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "PMI_RANK and PMI_SIZE say rank 1 of 2"),
    ],
)
def test_what_is_wrong_names_the_variables(environ, words):
    with pytest.raises(UserError) as caught:
        from_environment(environ)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "world, environ, address",
    [
        (World(1, 2, 1, 2, "torchrun"), {"MASTER_ADDR": "far", "MASTER_PORT": "29500"}, ("127.0.0.1", 30500)),
        (World(1, 4, 1, 2, "torchrun"), {"MASTER_ADDR": "far", "MASTER_PORT": "29500"}, ("far", 30500)),
        (World(1, 4, 1, 2, "torchrun"), {"MASTER_ADDR": "far"}, ("far", 30500)),
        (World(1, 4, 1, 2, "torchrun"), {"MASTER_ADDR": "far", "MASTER_PORT": "65000"}, ("far", 64000)),
        (World(1, 4, 1, 2, "torchrun"), {"MASTER_ADDR": "far", "CONVNET_PORT": "7000"}, ("far", 7000)),
        (
            World(1, 4, 0, 0, "slurm"),
            {"SLURM_STEP_NODELIST": "gpu[07-09,12],b1", "SLURM_JOB_ID": "3"},
            ("gpu07", 20021),
        ),
        (World(1, 4, 0, 0, "slurm"), {"SLURM_JOB_NODELIST": "b1,gpu[1-2]", "SLURM_JOB_ID": "3"}, ("b1", 20021)),
        (World(1, 4, 0, 0, "slurm"), {"SLURM_JOB_NODELIST": "n[3,5]-ib", "MASTER_PORT": "5000"}, ("n3-ib", 6000)),
    ],
)
def test_where_the_ranks_meet(world, environ, address):
    assert meeting_of(world, environ).address == address


def test_two_steps_of_a_job_and_two_jobs_meet_at_different_ports():
    jobs = [{"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)} for job in (70, 71) for step in (0, 1)]
    meetings = {meeting_of(World(0, 2, 0, 2, "slurm"), job) for job in jobs}
    assert len({meeting.address for meeting in meetings}) == len({meeting.key for meeting in meetings}) == 4


@pytest.mark.parametrize(
    "environ, words",
    [
        ({}, "set MASTER_ADDR"),
        ({"MASTER_ADDR": "far", "CONVNET_PORT": "all"}, "CONVNET_PORT: expected a port, 1 to 65535, found 'all'"),
        ({"MASTER_ADDR": "far", "MASTER_PORT": "0"}, "MASTER_PORT: expected a port, 1 to 65535, found '0'"),
    ],
)
def test_a_meeting_that_cannot_be(environ, words):
    with pytest.raises(UserError) as caught:
        meeting_of(World(1, 4, 1, 2, "torchrun", "RANK and WORLD_SIZE"), environ)
    assert words in str(caught.value)


@pytest.mark.parametrize("text, gpus", [("1", (0,)), ("3", (0, 1, 2)), ("0,2", (0, 2)), ("2,0", (2, 0)), ("1,", (1,))])
def test_gpus(text, gpus):
    assert parse_gpus(text) == gpus


@pytest.mark.parametrize("text", ["0", "", ",", "a", "0;1", "-1", "1,,2", "0 1"])
def test_gpus_that_cannot_be_read(text):
    with pytest.raises(UserError, match="--gpus: expected how many GPUs, such as 2, or which, such as 0,2; found"):
        parse_gpus(text)


def test_gpus_that_are_listed_twice_or_absent():
    with pytest.raises(UserError, match="--gpus 0,2,0: GPU 0 is listed twice"):
        parse_gpus("0,2,0")
    with pytest.raises(UserError, match="there is no GPU 2 on this machine; found 2, counted from 0 to 1"):
        check_gpus((0, 2), 2)
    with pytest.raises(UserError, match="there is no GPU 0 on this machine; found 0; `convnet doctor`"):
        check_gpus((0,), 0)
    check_gpus((0, 1), 2)


def test_gpus_with_a_device_or_a_launcher_that_says_otherwise():
    assert choose("0,2", "auto", World()) == (0, 2)
    assert choose("0,2", "auto", World(5, 6, 1, 2, "torchrun")) == (0, 2)
    assert choose(None, "cpu", World(5, 6, 1, 2, "torchrun")) is None
    with pytest.raises(UserError, match="--gpus 2 and --device cpu do not go together"):
        choose("2", "cpu", World())
    with pytest.raises(
        UserError, match="--gpus 2 asks for 2 ranks, but torchrun has started 3 of them on this machine"
    ):
        choose("2", "auto", World(5, 6, 1, 3, "torchrun"))
