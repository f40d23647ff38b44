"""Normalisations in NumPy."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.layout import Array, Map
from kernels.norm.geometry import BatchNorm, Cnorm, Lrn, Rnorm


def _neighbours(g: Lrn) -> Iterator[tuple[slice, slice]]:
    """For each offset within a window: the channels c that have a neighbour there, and these neighbours."""
    for offset in range(max(-(g.size // 2), 1 - g.channels), min(g.size - g.size // 2, g.channels)):
        low, high = max(0, -offset), g.channels - max(0, offset)
        yield slice(low, high), slice(low + offset, high + offset)


def _window_sums(g: Lrn, values: Map) -> Map:
    """For each channel: the sum over the channels of its window."""
    if g.blocked:
        return _block_sums(g, values)
    sums = np.zeros_like(values)
    for channels, neighbours in _neighbours(g):
        sums[channels] += values[neighbours]
    return sums


def _holding_sums(g: Lrn, values: Map) -> Map:
    """For each channel: the sum over the channels whose window holds it."""
    if g.blocked:
        return _block_sums(g, values)
    sums = np.zeros_like(values)
    for channels, neighbours in _neighbours(g):
        sums[neighbours] += values[channels]
    return sums


def _block_sums(g: Lrn, values: Map) -> Map:
    sums = np.add.reduceat(values, range(0, g.channels, g.size), axis=0)
    return sums[np.arange(g.channels) // g.size]


def lrn_forward(g: Lrn, x: Map, y: Map) -> None:
    """y = x * (k + alpha * S)^-power (Krizhevsky et al. 2012, 3.3)."""
    np.multiply(x, _base(g, _window_sums(g, x * x)) ** -g.power, out=y)


def lrn_backward(g: Lrn, x: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + dy D^-power - 2 alpha power x * (sum of dy' x' D'^(-power - 1)), D = k + alpha * S.

    The sum is over the channels whose window holds this one.
    """
    direct, ratio = _direct(g, x, dy, _window_sums(g, x * x))
    total = _holding_sums(g, ratio)
    total *= x
    total *= -2 * g.alpha * g.power
    total += direct
    dx[...] = total if beta == 0 else beta * dx + total


def _base(g: Lrn | Rnorm, sums: Map) -> Map:
    """D = k + alpha * S, the base of the power, in the place of S."""
    sums *= g.alpha
    sums += g.k
    return sums


def _direct(g: Lrn | Rnorm, x: Map, dy: Map, sums: Map) -> tuple[Map, Map]:
    """dy D^-power, and dy x D^(-power - 1)."""
    base = _base(g, sums)
    direct = base**-g.power
    direct *= dy
    ratio = direct * x
    ratio /= base
    return direct, ratio


def _box_sums(values: Map, before: int, after: int) -> Map:
    """For each pixel: the sum over so many rows and columns before and after it, and its own, that exist."""
    for axis in 1, 2:
        side, lines = values.shape[axis], np.moveaxis(values, axis, 0)
        values = np.zeros_like(values)
        sums = np.moveaxis(values, axis, 0)
        for offset in range(max(-before, 1 - side), min(after + 1, side)):
            sums[max(0, -offset) : side - max(0, offset)] += lines[max(0, offset) : side + min(0, offset)]
    return values


def _within(g: Rnorm, values: Map) -> Map:
    """For each pixel: the sum over its window."""
    return _box_sums(values, g.size // 2, g.size - 1 - g.size // 2)


def _around(g: Rnorm, values: Map) -> Map:
    """For each pixel: the sum over the pixels whose window holds it."""
    return _box_sums(values, g.size - 1 - g.size // 2, g.size // 2)


def _rnorm_gradients(g: Rnorm, x: Map, d: Map, dy: Map) -> tuple[Map, Map]:
    """Of y = x * (k + alpha * sum of d^2)^-power: the gradients of x, where it stands alone, and of d."""
    direct, ratio = _direct(g, x, dy, _within(g, d * d))
    slope = _around(g, ratio)
    slope *= d
    slope *= -2 * g.alpha * g.power
    return direct, slope


def rnorm_forward(g: Rnorm, x: Map, y: Map) -> None:
    """y = x * (k + alpha * (sum of x^2 over the window))^-power."""
    np.multiply(x, _base(g, _within(g, x * x)) ** -g.power, out=y)


def rnorm_backward(g: Rnorm, x: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + dy D^-power - 2 alpha power x * (sum of dy' x' D'^(-power - 1)), D = k + alpha * S.

    The sum is over the pixels whose window holds this one.
    """
    direct, slope = _rnorm_gradients(g, x, x, dy)
    direct += slope
    dx[...] = direct if beta == 0 else beta * dx + direct


def _areas(g: Cnorm, x: Map) -> Map:
    """The pixels of each window, [1, H, W, 1]."""
    return _within(g, np.ones((1, g.height, g.width, 1), x.dtype))


def cnorm_forward(g: Cnorm, x: Map, y: Map) -> None:
    """y = x * (k + alpha * (sum of d^2 over the window))^-power, d = x - the mean of its window."""
    d = x - _within(g, x) / _areas(g, x)
    np.multiply(x, _base(g, _within(g, d * d)) ** -g.power, out=y)


def cnorm_backward(g: Cnorm, x: Map, dy: Map, dx: Map, beta: float) -> None:
    """dx = beta * dx + dy D^-power + e - (sum of e' / (pixels of its window)), e = the gradient of d.

    e = -2 alpha power d * (sum of dy' x' D'^(-power - 1)). Both sums are over the pixels whose window holds this one.
    Without `exact` the last sum, by which the means depend on x, is left out.
    """
    areas = _areas(g, x)
    direct, slope = _rnorm_gradients(g, x, x - _within(g, x) / areas, dy)
    direct += slope
    if g.exact:
        direct -= _around(g, slope / areas)
    dx[...] = direct if beta == 0 else beta * dx + direct


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


def batch_moments(g: BatchNorm, x: Map, running_mean: Array, moments: Array) -> None:
    """The sums over this batch of d = x - running_mean and of d^2, which can be added to those of other batches.

    running_mean: [channels], any number near the mean, the same for all batches. moments: float64 [2, channels].
    """
    d = np.subtract(x, _wide(running_mean), dtype=np.float64)
    moments[0], moments[1] = d.sum(axis=(1, 2, 3)), (d * d).sum(axis=(1, 2, 3))


def batch_join(
    g: BatchNorm, moments: Array, mean: Array, inv_std: Array, running_mean: Array, running_var: Array
) -> None:
    """As batch_stats, from the moments of all batches together, which have height * width * samples values."""
    offset = moments[0] / g.count
    variance = np.maximum(moments[1] / g.count - offset**2, 0)
    mean[...], inv_std[...] = running_mean + offset, _inverse(variance, g.eps)
    running_mean += g.momentum * offset
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
    """dx = beta * dx + w * inv_std * (dy - (sum_dy + xhat * sum_dy_xhat) / n), n = height * width * batch.

    With `samples`, n = height * width * samples, and the sums are those over all these samples.
    """
    local = _normal(x, mean, inv_std)
    local *= _wide(-sum_dy_xhat / g.count)
    local += dy
    local -= _wide(sum_dy / g.count)
    local *= _wide(w * inv_std)
    dx[...] = local if beta == 0 else beta * dx + local
