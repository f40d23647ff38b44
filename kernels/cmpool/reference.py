"""Pooling across maps in NumPy: loops over the channels of each group, vectorised over everything else."""

import numpy as np

from kernels.cmpool.geometry import Cmpool
from kernels.layout import Map, scale


def _group(g: Cmpool, o: int) -> range:
    """The channels that output o covers."""
    first = g.start + o * g.stride
    return range(max(first, 0), min(first + g.size, g.channels))


def forward(g: Cmpool, x: Map, y: Map) -> None:
    """y[o] = the maximum of the channels that o covers; NaN if one is (Goodfellow et al. 2013, maxout)."""
    for o in range(g.outputs):
        group = _group(g, o)
        np.max(x[group.start : group.stop], axis=0, out=y[o])


def backward(g: Cmpool, x: Map, y: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + dy of every output whose maximum the channel is; of equal channels the first gets all."""
    scale(dx, beta)
    for o in range(g.outputs):
        free = np.ones(y.shape[1:], bool)
        for c in _group(g, o):
            chosen = free & (x[c] == y[o])
            free ^= chosen
            dx[c] += dy[o] * chosen
