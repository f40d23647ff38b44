"""SIGTERM, SIGINT and SIGHUP end a run in good order: the step is finished and a checkpoint is written."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def received(receive: Callable[[int], None]) -> Iterator[None]:
    """Within, these signals are handed to a function; one that is ignored, as under nohup, stays so."""
    numbers = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, lambda number, _: receive(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopRequest:
    """Whether a run is to stop.

    code: the exit status that belongs to the signal that came, 0 before.  failed: something else wants it to stop.
    """

    def __init__(self) -> None:
        self.code = 0
        self.failed = False

    @property
    def status(self) -> int:
        """0 to go on."""
        return self.code or int(self.failed)


@contextmanager
def stop_request(say: Callable[[str], None]) -> Iterator[StopRequest]:
    """Within, the first of the signals only sets the request; a SIGINT after it interrupts at once."""
    request = StopRequest()

    def receive(number: int) -> None:
        if request.code and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not request.code:
            request.code = 128 + number
            say(f"{signal.Signals(number).name}: finishing the step, then saving; Ctrl-C aborts at once")

    with received(receive):
        yield request
