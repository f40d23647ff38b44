"""Work spread over processes: results in order, a bounded number of tasks ahead, no process left behind."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from convnet.cpus import available_cpus
from convnet.errors import UserError

AHEAD = 4  # tasks for each process: enough that none waits for the one that reads the results
Task = TypeVar("Task")
Result = TypeVar("Result")


def in_processes(function: Callable[[Task], Result], tasks: Iterable[Task], processes: int = 0) -> Iterator[Result]:
    """function(task) for each task, in order; with one process: in this one; 0: one for each CPU.

    function, tasks and results are pickled.  What a task raises is raised here, and ends the work.  Raises UserError
    where a process was killed.
    """
    processes = processes or available_cpus()
    if processes == 1:
        yield from map(function, tasks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy threads' locks
    others, done = set(multiprocessing.active_children()), False
    pool = ProcessPoolExecutor(processes, context, _begin)
    queue: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            queue.append(pool.submit(function, task))
            if len(queue) >= processes * AHEAD:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()
        done = True
    except BrokenProcessPool:
        raise UserError("a worker process was killed, perhaps for want of memory; fewer --workers need less") from None
    finally:
        if not done:  # nobody wants their results: Ctrl-C that comes again must find nothing to wait for
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """In a worker: the parent alone hears Ctrl-C, and ends us; where it is killed, we end ourselves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
