"""Updates in NumPy."""

import numpy as np

from kernels.layout import Array
from kernels.update.geometry import BLOCK, Magnitude, Sgd


def sgd(g: Sgd, w: Array, dw: Array, v: Array, owner: Array, rates: Array, healthy: Array) -> None:
    """v = momentum * v - lr * dw - decay * lr * w; w = w + v. Nothing is written when healthy[0] is 0.

    w, dw, v: [1024 * blocks], dw = dE/dw. owner: int32 [blocks], the parameter that a block belongs to.
    rates: [parameters, 3], (learning rate, momentum, weight decay). The rate scales the step as it enters v, so that
    a new rate does not rescale old steps (cuda-convnet2, Caffe; PyTorch scales v).
    """
    if not healthy[0]:
        return
    lr, momentum, decay = rates[owner].T[:, :, None]
    weights, steps = w.reshape(-1, BLOCK), v.reshape(-1, BLOCK)
    steps *= momentum
    steps -= lr * dw.reshape(-1, BLOCK)
    steps -= decay * lr * weights
    weights += steps


def magnitude(g: Magnitude, w: Array, v: Array, spans: Array, out: Array) -> None:
    """out[p] = (mean |w|, mean |v|) over each span; 0 for an empty one.

    spans: int64 [parameters, 2], (begin, size) in elements of w and v. out: [parameters, 2].
    """
    for p, (begin, size) in enumerate(spans):
        for column, values in enumerate((w, v)):
            total = np.abs(values[begin : begin + size]).sum(dtype=np.float64)
            out[p, column] = total / max(size, 1)
