"""Updates in NumPy."""

import numpy as np

from kernels.layout import Array
from kernels.update.geometry import BLOCK, Average, Collect, Magnitude, Norm, Rescale, Sgd

STEP = 2  # where the clock has the step
TINY = 1e-6  # added to the norm, as PyTorch does
EQUAL = 1e-16  # of the sum of squares: weights that deviate less are equal to float32's last digit


def sgd(
    g: Sgd, w: Array, dw: Array, v: Array, owner: Array, rates: Array, clock: Array, norms: Array | None, healthy: Array
) -> None:
    """v = momentum * v - lr * (dw + decay * w); w = w + v. Nothing is written when healthy[0] is 0.

    w, dw, v: [1024 * blocks], dw = dE/dw. owner: int32 [blocks], the parameter that a block belongs to.
    rates: [parameters, 4], (learning rate, momentum, weight decay, share); a parameter of share 0 stays as it is.
    The rate scales the step as it enters v, so that a new rate does not rescale old steps (cuda-convnet2, Caffe;
    PyTorch scales v).
    nesterov: w = w + momentum * v - lr * (dw + decay * w), v being the new one; at a constant rate this is PyTorch's
    w - lr * (d + momentum * buf) with buf = momentum * buf + d, since v = -lr * buf (Sutskever et al. 2013).
    norms: float64 [ring], of all gradients at recent steps, that of this one at clock[2] modulo ring: dw is scaled by
    min(1, clip / (norm + 1e-6)) (Pascanu et al. 2013). clock: uint32 [4].
    """
    if not healthy[0]:
        return
    scale = 1.0 if norms is None else min(1.0, g.clip / (norms[clock[STEP] % g.ring] + TINY))
    lr, momentum, decay, share = rates[owner].T[:, :, None]
    moves = share > 0
    lr, momentum = lr * moves, np.where(moves, momentum, 1)
    weights, steps = w.reshape(-1, BLOCK), v.reshape(-1, BLOCK)
    pull = lr * dw.dtype.type(scale) * dw.reshape(-1, BLOCK)
    pull += decay * lr * weights
    steps *= momentum
    steps -= pull
    np.add(weights, momentum * steps - pull if g.nesterov else steps, out=weights, where=moves)


def collect(g: Collect, dw: Array, pending: Array, owner: Array, rates: Array, healthy: Array) -> None:
    """Gradients that wait for the update of their parameter; nothing is written when healthy[0] is 0.

    share = rates[p, 3]. Above 0, the update comes now: dw = share * (pending + dw), pending = 0. At 0 it does not:
    pending = pending + dw, dw = 0. dw, pending: [1024 * blocks]; owner, rates as in `sgd`.
    """
    if not healthy[0]:
        return
    share = rates[owner, 3][:, None]
    total = (pending + dw).reshape(-1, BLOCK)
    dw.reshape(-1, BLOCK)[...] = share * total
    pending.reshape(-1, BLOCK)[...] = np.where(share > 0, 0, total)


def gradient_norm(g: Norm, dw: Array, clock: Array, norms: Array) -> None:
    """norms[clock[2] % ring] = sqrt(sum of dw^2), dw: [1024 * blocks]; norms: float64 [ring]."""
    norms[clock[STEP] % g.ring] = np.sqrt(np.square(dw, dtype=np.float64).sum())


def rescale(g: Rescale, w: Array, rates: Array, healthy: Array) -> None:
    """Bring the norm of each output unit's weights into [low, high] by scaling them; a unit of norm 0 stays.

    The norm of a row is sqrt(sum of w^2), or sqrt(sum of (w - mean)^2) / columns if centered, which counts as 0
    when it is the rounding of equal weights. w: any shape of rows * columns elements.
    Nothing is written when healthy[0] is 0 or rates[parameter, 3] is (see `sgd`).
    """
    if not healthy[0] or not rates[g.parameter, 3] > 0:
        return
    units = w.reshape(g.rows, g.columns)
    exact = units.astype(np.float64)
    least = EQUAL * np.square(exact).sum(axis=1, keepdims=True) if g.centered else 0
    if g.centered:
        exact -= exact.mean(axis=1, keepdims=True)
    squares = np.square(exact).sum(axis=1, keepdims=True)
    norms = np.sqrt(squares) / (g.columns if g.centered else 1)
    units *= np.divide(np.clip(norms, g.low, g.high), norms, np.ones_like(norms), where=squares > least).astype(w.dtype)


def average(g: Average, w: Array, e: Array, clock: Array, healthy: Array) -> None:
    """e = e + k * (w - e), the exponential moving average; nothing is written when healthy[0] is 0.

    k = weight, which is 1 - decay, or with warmup at least 9 / (10 + t), so that the decay is at most
    (1 + t) / (10 + t) at the step t = clock[2]. w, e: [1024 * blocks].
    """
    if healthy[0]:
        weight = max(g.weight, 9 / (10 + int(clock[STEP]))) if g.warmup else g.weight
        e += e.dtype.type(weight) * (w - e)


def magnitude(g: Magnitude, w: Array, v: Array, spans: Array, out: Array) -> None:
    """out[p] = (mean |w|, mean |v|) over each span; 0 for an empty one.

    spans: int64 [parameters, 2], (begin, size) in elements of w and v. out: [parameters, 2].
    """
    for p, (begin, size) in enumerate(spans):
        for column, values in enumerate((w, v)):
            total = np.abs(values[begin : begin + size]).sum(dtype=np.float64)
            out[p, column] = total / max(size, 1)
