"""Ranks as threads of one process."""

import threading
from collections import defaultdict
from collections.abc import Callable
from queue import Queue
from typing import Any

from convnet.parallel.communicator import Host

PATIENCE = 60  # seconds that a rank waits for the others


class Room:
    """Where the ranks meet."""

    def __init__(self, size: int):
        self.size, self.barrier = size, threading.Barrier(size, timeout=PATIENCE)
        self.parts: list[Any] = [None] * size
        self.post: dict[tuple[int, int], Queue] = defaultdict(Queue)


class Threads(Host):
    """One of the ranks in a room. calls: what it has exchanged so far, lengths and types."""

    def __init__(self, rank: int, room: Room):
        super().__init__(rank, room.size)
        self.room, self.calls = room, []

    def gather(self, part):
        self.calls.append((part.size, part.dtype.name))
        self.room.parts[self.rank] = part.copy()
        self.room.barrier.wait()
        found = list(self.room.parts)
        self.room.barrier.wait()  # nobody puts the next part where one is still to be read
        return found

    def send(self, source, peer):
        self.room.post[self.rank, peer].put(source.copy())

    def receive(self, target, peer):
        target[...] = self.room.post[peer, self.rank].get(timeout=PATIENCE)


def together(size: int, function: Callable[[Threads], Any]) -> list[Any]:
    """What `function` returns for each rank, by rank; raises what the first of them raised."""
    room, results, errors = Room(size), [None] * size, []

    def run(rank: int) -> None:
        try:
            results[rank] = function(Threads(rank, room))
        except threading.BrokenBarrierError as error:
            errors.append(error)  # because of another's error, which came first
        except BaseException as error:
            errors.insert(0, error)
            room.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
