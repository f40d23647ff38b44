"""Inputs of a step on their way to the GPU while the step before still runs."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

BUFFERS = 2  # for each target: one is being filled while the other waits to be taken


@dataclass
class _Buffer:
    """memory: on the device.  arrived: its contents are there.  taken: they have been copied to their target."""

    memory: Any
    arrived: Any
    taken: Any


class Staging:
    """Copies host arrays to the device on a stream of its own, then within the device on the stream of the steps.

    A captured graph reads its inputs at fixed addresses, so that they can only be changed between two steps.  What lies
    between is the second copy alone: microseconds, where the first, over the bus, takes as long as a fast step.
    """

    def __init__(self, cupy: Any, main: Any):
        self._cuda, self._empty, self.main = cupy.cuda, cupy.empty, main
        self.copies = cupy.cuda.Stream(non_blocking=True)
        self._buffers: dict[int, deque[_Buffer]] = {}  # by the address of the target

    def feed(self, target: Any, source: np.ndarray) -> None:
        """target[...] = source, both contiguous and of one type; a pinned source is still read after the return."""
        if not source.nbytes:
            return
        buffer, runtime = self._turn(target), self._cuda.runtime
        self.copies.wait_event(buffer.taken)
        into = buffer.memory.data.ptr
        runtime.memcpyAsync(into, source.ctypes.data, source.nbytes, runtime.memcpyHostToDevice, self.copies.ptr)
        buffer.arrived.record(self.copies)
        self.main.wait_event(buffer.arrived)
        runtime.memcpyAsync(target.data.ptr, into, source.nbytes, runtime.memcpyDeviceToDevice, self.main.ptr)
        buffer.taken.record(self.main)

    def _turn(self, target: Any) -> _Buffer:
        """The buffer whose turn it is, large enough."""
        turns = self._buffers.setdefault(target.data.ptr, deque())
        if len(turns) < BUFFERS:
            turns.append(_Buffer(self._empty(0, np.uint8), self._event(), self._event()))
        else:
            turns.rotate(-1)
        buffer = turns[-1]
        if buffer.memory.nbytes < target.nbytes:
            self.copies.synchronize()
            with self.main:
                buffer.memory = self._empty(target.nbytes, np.uint8)
            buffer.taken.record(self.main)  # it may be memory that the main stream still works on for someone else
        return buffer

    def _event(self) -> Any:
        return self._cuda.Event(disable_timing=True)
