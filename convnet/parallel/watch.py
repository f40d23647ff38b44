"""Is every rank alive, and does the job get on? What rank 0 knows of all ranks, and whom it blames.

Each rank tells once a second how many steps it has done and where it is. One of which nothing is heard is stopped, or
its machine is. Ranks wait for each other at every step: where one hangs, soon none gets on, and the one to blame is
behind, or is not in an exchange.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEAT = 1.0  # seconds between two signs of life
ROOT = Path(__file__).parents[2]
WAITS = "convnet/parallel/"  # where a rank is that waits for others
TIMEOUT = 10.0
LONG = 600.0  # seconds after which even what may take long is taken for a hang
UNWATCHED = 3600.0  # the same, before training and after it


@dataclass
class Pulse:
    """What a rank tells of itself. longest: seconds that a step has taken, without what may take long, and the first.

    busy: how many times it is within what may take long. spent: seconds of the present step in there.
    """

    done: int = 0
    longest: float = 0.0
    busy: int = 0
    spent: float = 0.0
    last: float = field(default_factory=time.monotonic)

    def step(self) -> None:
        """One is done."""
        now = time.monotonic()
        if self.done:
            self.longest = max(self.longest, now - self.last - self.spent)
        self.done, self.last, self.spent = self.done + 1, now, 0.0

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Within is what may take long."""
        self.busy += 1
        began = time.monotonic()
        try:
            yield
        finally:
            self.busy -= 1
            self.spent += 0.0 if self.busy else time.monotonic() - began

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within what may take long, this may not: other ranks are waited for, or the device, and so they are."""
        busy, began = self.busy, time.monotonic()
        self.busy = 0
        try:
            yield
        finally:
            self.busy = busy
            self.spent -= time.monotonic() - began if busy else 0.0

    def beat(self) -> dict[str, Any]:
        """The message."""
        return {"kind": "beat", "done": self.done, "longest": self.longest, "busy": self.busy, "at": place()}


def place() -> str:
    """Where the main thread is: "convnet/train/trainer.py:93 in update"."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if ROOT in path.parents:
            return f"{path.relative_to(ROOT).as_posix()}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return "code outside convnet"


class Health:
    """Signs of life of all ranks. `timeout` is of silence; also of a standstill, which is shorter while `watching`."""

    def __init__(self, size: int):
        now = time.monotonic()
        self.timeout, self.watching = TIMEOUT, False
        self.heard = [now] * size
        self.beats: list[dict[str, Any]] = [Pulse().beat() for _ in range(size)]
        self._moved = self._rested = self._looked = now  # a step was done; that, or a rank was busy; fault was asked

    def note(self, rank: int, beat: dict[str, Any] | None = None) -> None:
        """A rank has said something."""
        self.heard[rank] = time.monotonic()
        if beat is None:
            return
        if beat["done"] != self.beats[rank]["done"]:
            self.moved()
        if beat["busy"]:
            self._rested = self.heard[rank]
        self.beats[rank] = beat

    def moved(self) -> None:
        """A step is done, or something that all ranks do together."""
        self._moved = self._rested = time.monotonic()

    def watch(self, timeout: float) -> None:
        """From now on closely for a standstill; 0: no more."""
        self.watching, self.timeout = timeout > 0, timeout or TIMEOUT
        self.moved()

    def fault(self) -> tuple[int, str] | None:
        """The rank to blame, and for what."""
        now = time.monotonic()
        if now - self._looked > 3 * BEAT:  # this process was stopped itself
            self.heard = [now] * len(self.heard)
            self.moved()
        self._looked = now
        for rank, heard in enumerate(self.heard):
            if now - heard > self.timeout:
                return rank, f"no sign of life for {now - heard:.0f} s: it is stopped, or its machine cannot be reached"
        limit = self.timeout + 2 * max(beat["longest"] for beat in self.beats) if self.watching else UNWATCHED
        if now - self._rested > limit or now - self._moved > limit + LONG:
            return self._hanging(now - self._moved)
        return None

    def _hanging(self, seconds: float) -> tuple[int, str]:
        least = min(beat["done"] for beat in self.beats)
        behind = [rank for rank, beat in enumerate(self.beats) if beat["done"] == least]
        outside = [rank for rank in behind if not self.beats[rank]["at"].startswith(WAITS)]
        blamed = (outside or behind)[0]
        others = ", ".join(f"rank {r} in {beat['at']}" for r, beat in enumerate(self.beats) if r != blamed)
        return blamed, f"hangs in {self.beats[blamed]['at']}: no rank has got on for {seconds:.0f} s; {others}"
