"""Inputs are fed behind the back of running steps: every step still sees its own."""

import random
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from kernels.staging import Staging


class Device:
    """Streams that run whenever chance has it, in order each, and waits between them as CUDA defines them."""

    def __init__(self, seed):
        self.random, self.streams = random.Random(seed), []
        runtime = SimpleNamespace(memcpyAsync=self.copy, memcpyHostToDevice=1, memcpyDeviceToDevice=3)
        self.cuda = SimpleNamespace(Stream=self.stream, Event=self.event, runtime=runtime)
        self.memory = {}

    def stream(self, non_blocking=True):
        made = Stream(self)
        self.streams.append(made)
        return made

    def event(self, disable_timing=True):
        event = SimpleNamespace(recorded=0, done=0)

        def record(stream):
            event.recorded += 1
            number = event.recorded
            stream.queue.append((lambda: True, lambda: setattr(event, "done", number)))

        event.record = record
        return event

    def empty(self, size, dtype):
        return Array(self, np.full(size, 255, np.uint8))  # not zero: what is never filled must not pass for an input

    def copy(self, target, source, size, kind, stream):
        into, from_ = self.memory[target], self.memory.get(source)
        if from_ is None:  # pinned memory of the host is read when the copy runs
            from_ = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * size).from_address(source))
        stream.queue.append((lambda: True, lambda: into.__setitem__(slice(size), from_[:size])))

    def run(self, steps):
        """Some of the work that may run now."""
        for _ in range(steps):
            ready = [stream for stream in self.streams if stream.queue and stream.queue[0][0]()]
            if not ready:
                return
            self.random.choice(ready).queue.popleft()[1]()


class Stream:
    def __init__(self, device):
        self.device, self.queue, self.ptr = device, deque(), self

    def wait_event(self, event):
        number = event.recorded  # of the records so far: none is no wait
        self.queue.append((lambda: event.done >= number, lambda: None))

    def synchronize(self):
        while self.queue:
            self.device.run(1)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class Array:
    def __init__(self, device, values):
        self.values, self.nbytes = values, values.nbytes
        self.data = SimpleNamespace(ptr=self)
        device.memory[self] = values


@pytest.mark.parametrize("seed", range(30))
def test_each_step_sees_its_own_inputs(seed):
    device = Device(seed)
    main = device.stream()
    staging = Staging(device, main)
    targets = [Array(device, np.zeros(size, np.uint8)) for size in (8, 3)]
    seen, expected, kept = [], [], []
    for step in range(40):
        size = device.random.choice((8, 5))  # the last batch of an epoch is smaller
        for target, count in zip(targets, (size, 3), strict=True):
            source = np.full(count, step + 1, np.uint8)
            kept.append(source)
            staging.feed(target, source)
            expected.append([step + 1] * count)
            main.queue.append((lambda: True, lambda v=target.values, n=count: seen.append(v[:n].tolist())))
        device.run(device.random.randrange(12))
    main.synchronize()
    assert seen == expected


def test_copies_run_ahead_of_steps():
    """Two batches can come while a step holds the main stream up; a third waits for its buffer."""
    device = Device(0)
    main = device.stream()
    staging, target, free = Staging(device, main), Array(device, np.zeros(4, np.uint8)), []
    sources = [np.full(4, step, np.uint8) for step in range(1, 6)]
    for source in sources[:2]:
        staging.feed(target, source)
    device.run(100)
    main.queue.append((lambda: bool(free), lambda: None))
    for source in sources[2:]:
        staging.feed(target, source)
    device.run(100)
    arrived = sorted(int(array[0]) for array in device.memory.values() if array is not target.values and len(array))
    assert (target.values == 2).all() and arrived == [3, 4]
    free.append(True)
    device.run(100)
    assert (target.values == 5).all() and not main.queue


def test_nothing_of_an_empty_batch():
    device = Device(0)
    Staging(device, device.stream()).feed(Array(device, np.zeros(4, np.uint8)), np.zeros(0, np.uint8))
    assert not any(stream.queue for stream in device.streams)


@pytest.mark.gpu
def test_on_a_device(cuda):
    count = 1 << 22
    target, results = cuda.zeros(count, np.int32), cuda.zeros(50, np.int64)
    sources = [cuda.host((count,), np.int32) for _ in range(2)]
    fences = [lambda: None, lambda: None]
    for step in range(50):
        source = sources[step % 2]
        fences[step % 2]()
        source[:] = step + 1
        cuda.feed(target, source)
        fences[step % 2] = cuda.fence()
        with cuda.stream:
            results[step] = target.sum()
    assert (cuda.download(results) == np.arange(1, 51) * count).all()
