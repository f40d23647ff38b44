"""How many processors there are for us."""

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds in each period, or "max"


def available_cpus() -> int:
    """Processors that this process may use: those it may run on, and no more than its container has time for."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(int, QUOTA.read_text().split())
    except (OSError, ValueError):
        return count
    return max(1, min(count, quota // period))
