"""SIGTERM, SIGINT and SIGHUP end a run in good order: the step is finished and a checkpoint is written."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class StopRequest:
    """Whether a signal came, and which: `code` is the exit status that belongs to it, 0 before."""

    def __init__(self) -> None:
        self.code = 0

    def __call__(self) -> bool:
        return self.code != 0


@contextmanager
def stop_request(say: Callable[[str], None]) -> Iterator[StopRequest]:
    """Within, the first of the signals only sets the request; a SIGINT after it interrupts at once.

    A SIGHUP that is ignored, as under nohup, stays so.
    """
    request = StopRequest()

    def receive(number: int, frame: FrameType | None) -> None:
        if request.code and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not request.code:
            request.code = 128 + number
            say(f"{signal.Signals(number).name}: finishing the step, then saving; Ctrl-C aborts at once")

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before: dict[int, Any] = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
