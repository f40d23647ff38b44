"""`--gpus`: one process for each GPU of this machine, watched until all have ended.

The launcher itself touches no GPU. Ranks are sessions of their own, so that Ctrl-C reaches them once, through the
launcher. The first that fails ends all; the launcher says why, with what the rank told it or with how the rank died.
When the launcher is killed, the kernel ends the ranks.
"""

import contextlib
import json
import math
import os
import re
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from convnet.errors import UserError
from convnet.parallel.fault import REPORT
from convnet.parallel.join import LAUNCHER
from convnet.parallel.meeting import KEY
from convnet.parallel.wire import PORT
from convnet.signals import SIGNALS, received

PROGRAM = (sys.executable, "-m", "convnet")
TOLD = 0.7  # seconds after the first failure in which ranks may say more, and end
ASKED = 1.0  # seconds from then to SIGTERM for those that are left ...
KILLED = 2.5  # ... and to SIGKILL
SAVING = 10.0  # seconds after which ranks that were asked to stop, of which one has ended, are taken for hanging
ENDING = 60.0  # the same of those that have done all
STOPPED = tuple(128 + number for number in SIGNALS)  # exit statuses of ranks that a signal has stopped
SAYS_WHY = (0, 1, 2)  # exit statuses of a rank that says itself why it ends
USAGE = "expected how many GPUs, such as 2, or which, such as 0,2"


def parse_gpus(text: str) -> tuple[int, ...]:
    """The GPU of each rank: "2" is the first two, "0,2" those two, "1," one alone."""
    if not re.fullmatch(r"\d{1,4}|(\d{1,4},)+\d{0,4}", text) or text == "0":
        raise UserError(f"--gpus: {USAGE}; found '{text}'")
    gpus = tuple(map(int, filter(None, text.split(","))) if "," in text else range(int(text)))
    twice = sorted({gpu for gpu in gpus if gpus.count(gpu) > 1})
    if twice:
        raise UserError(f"--gpus {text}: GPU {twice[0]} is listed twice; every rank needs its own")
    return gpus


def check_gpus(gpus: Sequence[int], found: int) -> None:
    """Raise UserError where one of them is not among the `found` GPUs of this machine."""
    absent = [gpu for gpu in gpus if gpu >= found]
    if absent:
        there = f"found {found}" + (f", counted from 0 to {found - 1}" if found else "; `convnet doctor` says more")
        raise UserError(f"--gpus: there is no GPU {absent[0]} on this machine; {there}")


def launch(ranks: int, arguments: Sequence[str], program: Sequence[str] = PROGRAM) -> int:
    """Run `program` with `arguments` as that many ranks, to the end of all.

    The exit status: 0, that of the first failure, or 128 + the signal that stopped them.
    """
    group = Group()
    with group.listening(), received(group.forward):
        try:
            group.start(ranks, [*program, *arguments])
            while group.alive():
                group.look()
        finally:
            group.kill(signal.SIGKILL)
        return group.finish()


class Group:
    """The ranks that run, and what is known of their end."""

    def __init__(self) -> None:
        self.ranks: list[subprocess.Popen] = []
        self.signal = 0  # the first that came
        self.told: list[dict[str, Any]] = []  # what ranks report, in the order in which it came
        self._rest = b""  # of a report that has not come to its end
        self._failed = math.inf  # when
        self._ended: dict[int, int] = {}  # status, in the order in which it was seen
        self._sent: set[int] = set()  # signals, because of the failure
        self._shown = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within, ranks can report."""
        reading, self._writing = os.pipe()
        os.set_blocking(reading, False)
        with open(reading, "rb", buffering=0) as self._reports, selectors.DefaultSelector() as self._selector:
            self._selector.register(self._reports, selectors.EVENT_READ)
            try:
                yield
            finally:
                os.close(self._writing)

    def start(self, count: int, command: Sequence[str]) -> None:
        """Start all ranks."""
        world = {"CONVNET_WORLD_SIZE": count, "CONVNET_LOCAL_SIZE": count}
        meeting = {PORT: os.environ.get(PORT) or _free_port(), KEY: secrets.token_hex()}
        shared = {**world, **meeting, LAUNCHER: os.getpid(), REPORT: self._writing}
        for rank in range(count):
            own = {**shared, "CONVNET_RANK": rank, "CONVNET_LOCAL_RANK": rank}
            made = subprocess.Popen(
                command,
                env={**os.environ, **{name: str(value) for name, value in own.items()}},
                stdin=subprocess.DEVNULL,
                pass_fds=(self._writing,),
                start_new_session=True,
            )
            self.ranks.append(made)
            if self.signal:  # it came before there was this rank
                made.send_signal(self.signal)

    def alive(self) -> bool:
        return len(self._ended) < len(self.ranks)

    def look(self) -> None:
        """Wait a moment for news; after a failure, end what is left."""
        if self._selector.select(0.05):
            self._read()
        for rank, process in enumerate(self.ranks):
            if rank not in self._ended and process.poll() is not None:
                self._ended[rank] = process.returncode
                grace = ENDING if not process.returncode else SAVING if process.returncode in STOPPED else 0.0
                self._failed = min(self._failed, time.monotonic() + grace)
        late = time.monotonic() - self._failed
        if late > TOLD:
            self.show()
        for after, number in ((ASKED, signal.SIGTERM), (KILLED, signal.SIGKILL)):
            if late > after and number not in self._sent:
                self._sent.add(number)
                self.kill(number)

    def _read(self) -> None:
        *lines, self._rest = (self._rest + (self._reports.read() or b"")).split(b"\n")
        for line in lines:
            self.told.append(json.loads(line))
            self._failed = min(self._failed, time.monotonic())

    def _stopped(self, status: int) -> bool:
        """Whether a rank ended in good order because of a signal, or by the one that was handed on."""
        return status in STOPPED or (self.signal > 0 and status == -self.signal)

    def forward(self, number: int) -> None:
        """A signal came; ranks that a second Ctrl-C does not abort are ended, too."""
        if self.signal and number == signal.SIGINT:
            self._failed = min(self._failed, time.monotonic())
        self.signal = self.signal or number
        self.kill(number)

    def kill(self, number: int) -> None:
        """Send a signal to every rank, and whatever it has started, that has not ended."""
        for rank, process in enumerate(self.ranks):
            if rank not in self._ended and process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        if number == signal.SIGKILL:
            for process in self.ranks:
                process.wait()

    def show(self) -> None:
        """Say why all end, once."""
        if not self._shown and (cause := self._cause()):
            print(cause[0], file=sys.stderr, flush=True)
            self._shown = True

    def _cause(self) -> tuple[str, int] | None:
        """The message and the exit status of the first failure.

        What the first rank that failed says; else how the first died; else what one looks like from another.
        """
        for report in self.told:
            if not report["guess"]:
                return f"rank {report['rank']}: {report['text']}", report["code"]
        for rank, status in self._ended.items():
            if self._stopped(status) or (status < 0 and self._sent):
                continue
            if status < 0:
                hint = ", perhaps by the system, for want of memory" if status == -signal.SIGKILL else ""
                return f"rank {rank}: killed by {_name(-status)}{hint}", 128 - status
            if status not in SAYS_WHY:
                return f"rank {rank}: ended with exit status {status}", status
        return next(((f"rank {report['rank']}: {report['text']}", report["code"]) for report in self.told), None)

    def finish(self) -> int:
        """The last words, and the exit status."""
        self._read()
        failed = {rank: status for rank, status in self._ended.items() if status}
        if not failed:
            return 0
        rank, status = next(iter(failed.items()))
        cause = self._cause()
        if cause is None and (self.signal or self._stopped(status)):
            return 128 + self.signal if self.signal else status
        if cause is None:
            text = f"ended with exit status {status}" if status > 0 else "does not end"
            self.told.append({"rank": rank, "text": text, "code": max(status, 1), "guess": True})
        self.show()
        found = self._cause()
        return found[1] if found else 1


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of a real-time signal
        return f"signal {number}"
