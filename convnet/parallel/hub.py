"""The end of the control channel at rank 0, which joins the parts of all ranks and sees which of them has gone."""

import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from typing import Any, NoReturn

import numpy as np

from convnet.parallel.fault import leave, show
from convnet.parallel.spoke import LOST, End, Part
from convnet.parallel.watch import BEAT, Health
from convnet.parallel.wire import Line

GRACE = 0.3  # seconds in which of several faults the one that explains the others is looked for
OFTEN, SELDOM = 0.05, 16  # agreements are so many seconds apart, and at most so many calls


class Hub(End):
    """The end at rank 0. lines: to the other ranks, by rank. warn: shows a warning of one."""

    def __init__(self, lines: Mapping[int, Line], warn: Callable[[str], None]):
        super().__init__(0)
        self.size = len(lines) + 1
        self.lines, self.warn = dict(lines), warn
        self.health = Health(self.size)
        self._parts: dict[str, dict[int, Part]] = {}
        self._joining = threading.RLock()
        self._gone: set[int] = set()  # said goodbye
        self._fault: tuple[int, str, int, bool] | None = None
        self._since = 0.0
        self._pace = Pace()
        self.start()

    def post(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        self._handle(0, dict(head), body)

    def listen(self) -> None:
        sent = 0.0
        while not self.over.is_set():
            connections = {line.connection: rank for rank, line in self.lines.items()}
            for ready in wait(list(connections), BEAT / 4):
                self._receive(connections[ready])  # type: ignore[index]
            if time.monotonic() - sent >= BEAT:
                self.health.note(0, self.pulse.beat())
                self._tell({"kind": "beat"})
                sent = time.monotonic()
            if not self._fault and (found := self.health.fault()):
                self.blame(*found, 1, guess=True)
            if self._fault and time.monotonic() - self._since > GRACE:
                self._end()

    def _receive(self, rank: int) -> None:
        try:
            head, body = self.lines[rank].receive()
        except (EOFError, OSError):
            self.lines.pop(rank).close()
            if rank not in self._gone:
                self.blame(rank, LOST, 1, guess=True)
            return
        self.health.note(rank, head if head["kind"] == "beat" else None)
        self._handle(rank, head, body)

    def _handle(self, rank: int, head: dict[str, Any], body: bytes) -> None:
        kind = head["kind"]
        if kind == "part":
            self._join(rank, head, body)
        elif kind == "failed":
            self.blame(rank, head["text"], head["code"])
        elif kind == "warning":
            self.warn(f"rank {rank}: {head['text']}")
        elif kind == "bye":
            self._gone.add(rank)
            if len(self._gone) == self.size:
                self._tell({"kind": "over"})
                self.over.set()

    def _join(self, rank: int, head: dict[str, Any], body: bytes) -> None:
        ticket = head["ticket"]
        with self._joining:
            parts = self._parts.setdefault(ticket, {})
            parts[rank] = head, body
            if len(parts) < self.size:
                return
            del self._parts[ticket]
            ordered = [parts[rank] for rank in range(self.size)]
            kinds = [" ".join(str(of[key]) for key in ("what", "dtype", "shape") if key in of) for of, _ in ordered]
            if len(set(kinds)) > 1:
                other = next(rank for rank, found in enumerate(kinds) if found != kinds[0])
                text = f"takes part in {kinds[other]}, rank 0 in {kinds[0]}: the ranks do not do the same"
                return self.blame(other, text, 1)
            made, data = JOIN[ordered[0][0]["what"]](ordered)
            if head["what"] == "agreement":
                made["every"] = self._pace.every()
        self.health.moved()
        result = {"kind": "result", "ticket": ticket, **made}
        self._tell(result, data)
        self.put(ticket, (result, data))

    def _tell(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        """Send to all other ranks. One that is gone is seen at the other end of its line."""
        for line in list(self.lines.values()):
            try:
                line.send(head, body)
            except OSError:
                continue

    def blame(self, rank: int, text: str, code: int, *, guess: bool = False) -> None:
        """Note why the job ends. A rank that is gone explains the errors of others; of several, that of the first."""
        with self._joining:
            if self._fault is None or guess:
                self._since = -math.inf if guess else time.monotonic()  # a launcher may end this rank at once, too
            if self._fault is not None:
                first, *_, guessed = self._fault
                explains = guess and not guessed and rank != first
                if not explains and (guess or guessed or rank >= first):
                    return
            self._fault = rank, text, code, guess

    def _end(self) -> NoReturn:
        assert self._fault is not None
        rank, text, code, guess = self._fault
        show(rank, text, code, guess=guess)
        self._tell({"kind": "end", "code": code})
        leave(code)

    def watch(self, timeout: float) -> None:
        self.health.watch(timeout)

    def fail(self, text: str, code: int) -> NoReturn:
        self.blame(0, text, code)
        time.sleep(10 * BEAT)  # the thread ends the process
        self._end()


class Pace:
    """How many calls lie between two agreements: as few as keep them OFTEN apart, so that they cost nothing."""

    def __init__(self) -> None:
        self._calls = 1, 1  # between the agreement before and the present one, and from there to the next
        self._last = time.monotonic()

    def every(self) -> int:
        """Calls between the next agreement and the one after it, from the time that those before took."""
        now, (before, present) = time.monotonic(), self._calls
        each, self._last = max((now - self._last) / before, 1e-6), now
        found = int(min(max(OFTEN / each, 1), SELDOM, 2 * present))  # the first two have no time between them
        self._calls = present, found
        return found


def _values(parts: list[Part]) -> Part:
    return {}, json.dumps([json.loads(body) for _, body in parts]).encode()


def _sum(parts: list[Part]) -> Part:
    """By rank: the order of additions is always the same."""
    total = np.zeros(parts[0][0]["shape"], parts[0][0]["dtype"])
    for head, body in parts:
        total += np.frombuffer(body, head["dtype"]).reshape(head["shape"])
    return {}, total.tobytes()


def _agreement(parts: list[Part]) -> Part:
    return {"code": max(head["code"] for head, _ in parts), "seconds": parts[0][0]["seconds"]}, b""


JOIN: dict[str, Callable[[list[Part]], Part]] = {
    "exchange": _values,
    "sum": _sum,
    "broadcast": lambda parts: ({}, parts[0][1]),
    "barrier": lambda parts: ({}, b""),
    "agreement": _agreement,
}
