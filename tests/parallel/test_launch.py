"""The launcher and the control channel, with real processes: results, faults, signals, and that nothing is left."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from convnet.errors import UserError
from convnet.parallel import wire
from convnet.parallel.join import _welcome
from convnet.parallel.launch import Group
from convnet.parallel.world import World
from tests.convnet.toy import ROOT, environment

COMMAND = [sys.executable, "-W", "error", "-m", "tests.parallel.rank"]
LAUNCHED = re.compile(rb"\0CONVNET_LAUNCHER=(\d+)\0")


def start(*words, **env):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *map(str, words)], cwd=ROOT, env=environment(**env), **pipes)


def ranks_of(launcher):
    """Process ids of the ranks that a launcher has started, dead or alive, by rank."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            text = b"\0" + file.read()
            if (match := LAUNCHED.search(text)) and int(match[1]) == launcher:
                found[int(re.search(rb"\0CONVNET_RANK=(\d+)\0", text)[1])] = int(name)
    return found


def end(process, within=15.0):
    """Exit status, stdout, stderr and seconds of a launcher that has to end, and to leave nothing."""
    began = time.monotonic()
    try:
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    seconds = time.monotonic() - began
    assert seconds < within
    assert not ranks_of(process.pid)
    return process.returncode, out, err, seconds


def running(process):
    """Wait until the ranks take steps; their process ids."""
    assert process.stdout.readline() == "running\n", end(process)
    return ranks_of(process.pid)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_what_ranks_say_to_each_other(ranks):
    status, out, err, _ = end(start(ranks, "results"))
    assert (status, err) == (0, "")
    found = dict(json.loads(line) for line in out.splitlines() if line.startswith("["))
    assert sorted(found) == list(range(ranks))
    for rank, said in found.items():
        assert said == {
            "exchange": [{"rank": r} for r in range(ranks)],
            "sum": [i * sum(10**r for r in range(ranks)) for i in range(3)],
            "broadcast": "a\nb0",
            "first": ["rank", 0],
            "local": [rank, ranks],
        }
    hellos = [line for line in out.splitlines() if "hello" in line]
    assert sorted(hellos) == [f"rank {r}: hello from {r}" for r in range(1, ranks)]


FAULTS = [
    ("raise", 1, 1, "rank 1: error: it failed"),
    ("raise", 0, 1, "rank 0: error: it failed"),
    ("raise", "all", 1, "rank 0: error: it failed"),
    ("exit", 1, 7, "rank 1: ended with exit status 7"),
    ("exit", 0, 7, "rank 0: ended with exit status 7"),
    ("SIGKILL", 2, 137, "rank 2: killed by SIGKILL, perhaps by the system, for want of memory"),
    ("SIGKILL", 0, 137, "rank 0: killed by SIGKILL, perhaps by the system, for want of memory"),
    ("SIGSEGV", 1, 139, "rank 1: killed by SIGSEGV"),
    ("stray", 1, 1, "rank 1: takes part in barrier, rank 0 in sum float64 [1]: the ranks do not do the same"),
    ("differ", "all", 1, "rank 1: takes part in sum float64 [2], rank 0 in sum float64 [1]: the ranks"),
    ("config", "all", 1, "rank 0: error: the ranks do not have the same config: other than at rank 0 at rank 1"),
    ("SIGSTOP", 1, 1, "rank 1: no sign of life for "),
    ("SIGSTOP", 0, 1, "rank 0: no sign of life for "),
    ("hang", 1, 1, "rank 1: hangs in tests/parallel/rank.py:"),
    ("device", 0, 1, "rank 0: hangs in tests/parallel/rank.py:"),
]


@pytest.fixture(scope="module")
def waiting():
    """Jobs of which the end has to be waited for: all at once."""
    found = {case[:2]: start(3, *case[:2]) for case in FAULTS if case[0] in ("SIGSTOP", "hang", "device")}
    yield found
    for process in found.values():
        process.kill()
        process.communicate()


@pytest.mark.parametrize("what, who, status, words", FAULTS)
def test_the_first_fault_ends_all_and_is_shown_once(waiting, what, who, status, words):
    found, _, err, _ = end(waiting.pop((what, who), None) or start(3, what, who), within=15.0)
    assert found == status
    assert err.startswith(words) and err.count("\n") == 1, err


def test_a_rank_that_fails_before_it_joins():
    status, _, err, _ = end(start(3, "import", 1))
    assert status == 1 and err.count("No module named 'convnet.no_such_module'") == 1
    assert err.splitlines()[-1] == "rank 1: ended with exit status 1", err


def test_a_rank_that_does_not_end():
    status, _, err, _ = end(start(2, "end", 1))
    assert (status, err) == (1, "rank 1: does not end\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_stops_all_ranks_at_one_step(number):
    process = start(3, "run")
    running(process)
    process.send_signal(number)
    status, out, err, _ = end(process, within=5.0)
    assert (status, err) == (128 + number, "")
    assert len({line.split()[-1] for line in out.splitlines()}) == 1 and len(out.splitlines()) == 3, out


def test_a_signal_to_one_rank_stops_all_at_one_step():
    process = start(3, "run")
    os.kill(running(process)[2], signal.SIGTERM)
    status, out, err, _ = end(process, within=5.0)
    assert (status, err) == (143, "")
    assert len({line.split()[-1] for line in out.splitlines()}) == 1 and len(out.splitlines()) == 3, out


def test_a_second_ctrl_c_aborts():
    process = start(2, "ignore")
    running(process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    status, _, err, _ = end(process, within=5.0)
    assert (status, err) == (130, "rank 0: interrupted\n")


def test_a_second_ctrl_c_ends_ranks_that_hear_nothing():
    process = start(2, "deaf")
    for _ in range(2):
        running(process)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    status, _, err, _ = end(process, within=5.0)
    assert (status, err) == (130, "")


def test_ctrl_c_while_ranks_wait_for_one():
    process = start(2, "early", 1)
    while len(ranks_of(process.pid)) < 2:
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    status, _, err, _ = end(process, within=5.0)
    assert status == 130 and err.splitlines()[-1] == "rank 0: interrupted", err


def test_ranks_die_with_a_launcher_that_is_killed():
    process = start(3, "run")
    assert len(running(process)) == 3
    process.kill()
    process.wait()
    deadline = time.monotonic() + 5
    while ranks_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not ranks_of(process.pid)
    process.communicate()


def test_a_port_in_use_is_named_with_its_variable():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, err, _ = end(start(2, "run", CONVNET_PORT=str(port)))
    assert status == 1
    expected = f"rank 0: error: port {port}, on which rank 0 waits for the other ranks, is in use; set CONVNET_PORT"
    assert err.startswith(expected) and err.count("\n") == 1, err


def test_a_rank_that_never_comes():
    status, _, err, seconds = end(start(3, "early", 2, CONVNET_JOIN_SECONDS="2"))
    assert (status, err) == (1, "rank 0: error: rank 2 of 3 did not come in 2 s\n")
    assert seconds > 2


def test_ranks_that_have_come_wait_for_one_that_is_late():
    """Longer than the silence after which they would take rank 0 for stopped."""
    with wire.listen(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        found = pool.submit(_welcome, listener, b"key", World(0, 3), 3.5)
        line = wire.connect(listener.getsockname(), b"key", 5.0)
        line.send({"kind": "hello", "rank": 1, "size": 3})
        told = [line.receive()[0] for _ in range(3)]
        with pytest.raises(UserError, match=r"rank 2 of 3 did not come in 3\.5 s"):
            found.result(10)
    assert [head["kind"] for head in told] == ["beat", "beat", "beat"] and line.receive()[0]["kind"] == "end"
    line.close()


def test_patience_is_a_number():
    status, _, err, _ = end(start(2, "run", CONVNET_JOIN_SECONDS="soon"))
    assert status == 1 and err.endswith("error: CONVNET_JOIN_SECONDS: expected seconds, such as 60, found 'soon'\n")


def test_a_report_that_comes_in_pieces():
    group = Group()
    with group.listening():
        line = json.dumps({"rank": 1, "text": "x" * 100, "code": 1, "guess": False}).encode() + b"\n"
        for piece, told in ((line[:50], 0), (line[50:] + line[:7], 1), (line[7:], 2)):
            os.write(group._writing, piece)
            group._read()
            assert len(group.told) == told


LAUNCHED_BY_HAND = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
}


@pytest.mark.parametrize("launcher", LAUNCHED_BY_HAND)
def test_ranks_that_another_launcher_starts(launcher):
    with socket.create_server(("127.0.0.1", 0)) as store:  # torchrun's own, at MASTER_PORT
        master = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.getsockname()[1]), "SLURM_JOB_ID": "5"}
        worlds = [dict(zip(LAUNCHED_BY_HAND[launcher], (rank, "2", rank, "2"), strict=True)) for rank in "01"]
        for found in [end(process) for process in [start(2, "results", **world, **master) for world in worlds]]:
            status, out, err, _ = found
            assert (status, err) == (0, "") and '"exchange": [{"rank": 0}, {"rank": 1}]' in out


def alone(*words, **env):
    return start(2, *words, CONVNET_RANK="1", CONVNET_LOCAL_RANK="1", **env)


def test_a_rank_that_finds_no_rank_0():
    world = {"CONVNET_WORLD_SIZE": "2", "CONVNET_LOCAL_SIZE": "2", "CONVNET_JOIN_SECONDS": "1"}
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
        status, _, err, _ = end(alone("run", CONVNET_PORT=port, **world))
    assert status == 1 and err.startswith(f"rank 1: error: rank 0 does not answer at 127.0.0.1, port {port} for 1 s")


def test_a_rank_0_that_is_stopped_is_told_from_something_else(monkeypatch):
    monkeypatch.setattr(wire, "STUCK", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        told = f"rank 0 does not answer at 127.0.0.1, port {other.getsockname()[1]} for 1 s: .* rank 0 is stopped, or"
        with pytest.raises(UserError, match=told):
            wire.connect(other.getsockname(), b"key", 1.0)


def test_a_rank_0_that_is_busy_for_a_while_is_waited_for(monkeypatch):
    monkeypatch.setattr(wire, "STUCK", 1.0)
    with wire.listen(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        found = pool.submit(wire.connect, listener.getsockname(), b"key", 30.0)
        time.sleep(1.5)
        lines = []
        while not lines:
            lines += filter(None, [wire.accept(listener, b"key")])
        for line in (found.result(10), *lines):
            line.close()


@pytest.mark.parametrize("word", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\5hello"])
def test_something_else_answers(monkeypatch, word):
    monkeypatch.setattr(wire, "STUCK", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            with contextlib.suppress(ConnectionError), other.accept()[0] as line:
                line.sendall(word)
                line.recv(100)

        thread = threading.Thread(target=answer)
        thread.start()
        address = other.getsockname()
        with pytest.raises(UserError, match=f"what answers at 127.0.0.1, port {address[1]} is not rank 0 of this job"):
            wire.connect(address, b"key", 1.0)
        thread.join()


def test_a_process_that_ends_before_it_says_who_it_is():
    with wire.listen(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        found = pool.submit(_welcome, listener, b"key", World(0, 2), 10.0)
        wire.connect(listener.getsockname(), b"key", 5.0).close()
        line = wire.connect(listener.getsockname(), b"key", 5.0)
        line.send({"kind": "hello", "rank": 1, "size": 2})
        lines = found.result(10)
    assert list(lines) == [1]
    for end_of_line in (line, lines[1]):
        end_of_line.close()
