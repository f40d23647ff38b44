"""The end of the control channel at each rank but the first, and what the first has in common with it.

What all ranks do together has a ticket; rank 0 (see hub.py) keeps the parts until all are there, joins them by rank,
and sends all the same result.
"""

import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from convnet.parallel.fault import leave, show
from convnet.parallel.watch import BEAT, TIMEOUT, Pulse
from convnet.parallel.wire import Line

Part = tuple[dict[str, Any], bytes]
LOST = "ended without a word: killed, or crashed"


class End(threading.Thread):
    """What both ends have in common: the results that come, and the thread that takes them."""

    def __init__(self, rank: int) -> None:
        super().__init__(name="control", daemon=True)
        self.rank, self.pulse = rank, Pulse()
        self.over = threading.Event()  # all ranks have come to the end
        self._mail: dict[str, Part] = {}
        self._came = threading.Condition()

    def run(self) -> None:
        """Until all is over. Without this thread nobody would see that another rank is gone."""
        try:
            self.listen()
        except Exception:
            show(self.rank, traceback.format_exc().rstrip(), 1)
            leave(1)

    def listen(self) -> None:
        """Take what comes, and give signs of life."""
        raise NotImplementedError

    def put(self, ticket: str, part: Part) -> None:
        """A result has come."""
        with self._came:
            self._mail[ticket] = part
            self._came.notify_all()

    def take(self, ticket: str) -> Part:
        """Wait for a result. Should it never come, the thread ends the process."""
        with self.pulse.waiting(), self._came:
            while ticket not in self._mail:
                self._came.wait(BEAT)
            return self._mail.pop(ticket)

    def post(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        """Send something to rank 0."""
        raise NotImplementedError

    def watch(self, timeout: float) -> None:
        """See Control.watch."""

    def fail(self, text: str, code: int) -> NoReturn:
        """This rank cannot go on: tell, and end."""
        raise NotImplementedError


class Spoke(End):
    """The end at another rank than 0."""

    def __init__(self, rank: int, line: Line):
        super().__init__(rank)
        self.line = line
        self.timeout = TIMEOUT
        self.start()

    def post(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        try:
            self.line.send(head, body)
        except OSError:
            if threading.current_thread() is not self:
                time.sleep(10 * BEAT)  # the thread reads what rank 0 had to say, and ends the process

    def listen(self) -> None:
        heard = looked = sent = 0.0
        while not self.over.is_set():
            now = time.monotonic()
            if now - looked > 3 * BEAT:  # at the beginning, and after a stop of this process
                heard = now
            looked = now
            if now - sent >= BEAT:
                self.post(self.pulse.beat())
                sent = now
            try:
                if self.line.connection.poll(BEAT / 4):
                    self._handle(*self.line.receive())
                    heard = time.monotonic()
            except (EOFError, OSError):
                self._lost(LOST)
            if now - heard > self.timeout:
                self._lost(f"no sign of life for {now - heard:.0f} s: it is stopped, or its machine cannot be reached")

    def _handle(self, head: dict[str, Any], body: bytes) -> None:
        if head["kind"] == "result":
            self.put(head["ticket"], (head, body))
        elif head["kind"] == "end":
            leave(head["code"])
        elif head["kind"] == "over":
            self.over.set()

    def _lost(self, what: str) -> NoReturn:
        if self.over.is_set():
            threading.Event().wait()
        if self.rank == 1:  # one of all
            show(0, what, 1, guess=True)
        leave(1)

    def watch(self, timeout: float) -> None:
        self.timeout = timeout or self.timeout

    def fail(self, text: str, code: int) -> NoReturn:
        self.post({"kind": "failed", "text": text, "code": code})
        time.sleep(3 * BEAT)  # the thread ends the process when rank 0 has shown it
        show(self.rank, text, code)
        leave(code)
