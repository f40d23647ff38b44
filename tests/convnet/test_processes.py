"""Work spread over processes."""

import multiprocessing
import time

from convnet.processes import in_processes

LONG = 60.0


def nap(seconds):
    time.sleep(seconds)
    return seconds


def test_results_are_in_order():
    naps = [0.2, 0.0, 0.1, 0.0]
    assert list(in_processes(nap, naps, 2)) == naps


def test_work_that_is_given_up_is_not_waited_for():
    """As by Ctrl-C: what is under way may take long."""
    results = in_processes(nap, [0.0, *[LONG] * 9], 2)
    next(results)
    begin = time.monotonic()
    results.close()
    assert time.monotonic() - begin < LONG / 2 and not multiprocessing.active_children()
