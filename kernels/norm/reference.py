"""Normalisations in NumPy."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.layout import Array, Map
from kernels.norm.geometry import BatchNorm, Lrn


def _neighbours(g: Lrn) -> Iterator[tuple[slice, slice]]:
    """For each offset within a window: the channels c that have a neighbour there, and these neighbours."""
    for offset in range(max(-(g.size // 2), 1 - g.channels), min(g.size - g.size // 2, g.channels)):
        low, high = max(0, -offset), g.channels - max(0, offset)
        yield slice(low, high), slice(low + offset, high + offset)


def _base(g: Lrn, x: Map) -> Map:
    """k + alpha * S, the base of the power."""
    square = x * x
    base = np.zeros_like(x)
    for channels, neighbours in _neighbours(g):
        base[channels] += square[neighbours]
    base *= g.alpha
    base += g.k
    return base


def lrn_forward(g: Lrn, x: Map, y: Map) -> None:
    """y = x * (k + alpha * S)^-power (Krizhevsky et al. 2012, 3.3)."""
    np.multiply(x, _base(g, x) ** -g.power, out=y)


def lrn_backward(g: Lrn, x: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + dy D^-power - 2 alpha power x * (sum of dy' x' D'^(-power - 1)), D = k + alpha * S.

    The sum is over the channels whose window holds this one.
    """
    base = _base(g, x)
    local = base**-g.power
    local *= dy
    ratio = local * x
    ratio /= base
    total = np.zeros_like(x)
    for channels, neighbours in _neighbours(g):
        total[neighbours] += ratio[channels]
    total *= x
    total *= 2 * g.alpha * g.power
    local -= total
    dx[...] = local if beta == 0 else beta * dx + local


def _wide(vector: Array) -> Any:
    """A value per channel, to broadcast over a map."""
    return vector[:, None, None, None]


def _mean(x: Map) -> Array:
    return x.mean(axis=(1, 2, 3), dtype=np.float64)


def _inverse(variance: Array, eps: float) -> Array:
    return 1 / np.sqrt(variance + eps)


def batch_stats(g: BatchNorm, x: Map, mean: Array, inv_std: Array, running_mean: Array, running_var: Array) -> None:
    """Mean and 1 / sqrt(variance + eps) of each channel, and the running statistics moved towards them.

    The variance is the biased one; the running variance takes the unbiased n / (n - 1) of it, unless n is 1
    (Ioffe, Szegedy 2015; as in PyTorch). All arrays [channels]. Running statistics: r += momentum * (new - r).
    """
    mean[...] = _mean(x)
    variance = _mean((x - _wide(mean)) ** 2)
    inv_std[...] = _inverse(variance, g.eps)
    running_mean += g.momentum * (mean - running_mean)
    running_var += g.momentum * (variance * (g.count / max(g.count - 1, 1)) - running_var)


def batch_forward(g: BatchNorm, x: Map, mean: Array, inv_std: Array, w: Array, b: Array, y: Map) -> None:
    """y = w * (x - mean) * inv_std + b, with the statistics of this batch."""
    np.subtract(x, _wide(mean), out=y)
    y *= _wide(inv_std * w)
    y += _wide(b)


def batch_infer(g: BatchNorm, x: Map, running_mean: Array, running_var: Array, w: Array, b: Array, y: Map) -> None:
    """y = w * (x - running_mean) / sqrt(running_var + eps) + b."""
    batch_forward(g, x, running_mean, _inverse(running_var, g.eps), w, b, y)


def _normal(x: Map, mean: Array, inv_std: Array) -> Map:
    return (x - _wide(mean)) * _wide(inv_std)


def batch_sums(g: BatchNorm, x: Map, dy: Map, mean: Array, inv_std: Array, sum_dy: Array, sum_dy_xhat: Array) -> None:
    """Of each channel: the sum of dy (the bias gradient) and of dy * xhat (the weight gradient).

    xhat = (x - mean) * inv_std. Both are needed by batch_dgrad, whether or not the parameters learn.
    """
    sum_dy[...] = dy.sum(axis=(1, 2, 3), dtype=np.float64)
    sum_dy_xhat[...] = (dy * _normal(x, mean, inv_std)).sum(axis=(1, 2, 3), dtype=np.float64)


def batch_wgrad(g: BatchNorm, total: Array, dw: Array, beta: float) -> None:
    """dw = beta * dw + total: adds sum_dy_xhat to the weight's gradient, or sum_dy to the bias's."""
    dw[...] = total if beta == 0 else beta * dw + total


def batch_dgrad(
    g: BatchNorm, x: Map, dy: Map, mean: Array, inv_std: Array, w: Array, sum_dy: Array, sum_dy_xhat: Array,
    dx: Map, beta: float,
) -> None:  # fmt: skip
    """dx = beta * dx + w * inv_std * (dy - (sum_dy + xhat * sum_dy_xhat) / n), n = height * width * batch."""
    local = _normal(x, mean, inv_std)
    local *= _wide(-sum_dy_xhat / g.count)
    local += dy
    local -= _wide(sum_dy / g.count)
    local *= _wide(w * inv_std)
    dx[...] = local if beta == 0 else beta * dx + local
