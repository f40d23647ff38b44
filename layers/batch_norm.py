"""Batch normalisation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels import norm
from layers.base import Emit, Layer, Param, Shape, State, axes
from layers.initializers import Constant, Initializer
from layers.options import LayerSolver, layer, option


@layer("batch_norm")
@dataclass(frozen=True)
class BatchNorm(Layer):
    """y = weight (x - mean) / sqrt(variance + eps) + bias, each channel apart (Ioffe and Szegedy 2015). y is as x.

    Training takes the mean and the (biased) variance of the batch, over height, width and samples, and moves the
    running statistics towards them: running += momentum (new - running), the new variance being the unbiased one.
    Of several ranks each takes those of its own samples, or with `sync` all take those of the whole batch (with
    train.accumulate, of each micro-batch of all ranks).
    Evaluation takes the running statistics. weight, bias, running_mean, running_var: [C], as in PyTorch.
    A frozen layer (solver: {lr: 0}) does so too: its running statistics move, unless momentum is 0.
    """

    eps: float = option(1e-5, above=0, doc="added to the variance")
    momentum: float = option(0.1, least=0, most=1, doc="weight of a new batch in the running statistics, as in PyTorch")
    sync: bool = option(False, doc="statistics of the samples of all ranks, in place of each rank's own")
    init: Initializer = option(Constant(value=1), doc="initial weights; 0 in a residual branch starts it as nothing")
    init_bias: Initializer = option(Constant(), doc="initial biases")
    solver: LayerSolver = option(LayerSolver(), doc="learning parameters of this layer")

    def output(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def params(self, *inputs: Shape) -> dict[str, Param]:
        shape = (inputs[0].channels,)
        return {
            "weight": Param(shape, self.init, fan_in=1, decays=False),
            "bias": Param(shape, self.init_bias, fan_in=1, decays=False),
        }

    def states(self, *inputs: Shape) -> dict[str, State]:
        shape = (inputs[0].channels,)
        return {"running_mean": State(shape), "running_var": State(shape, fill=1.0)}

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        g = self._geometry(emit, y)
        affine = {"w": emit.param("weight"), "b": emit.param("bias")}
        running = {name: emit.state(name) for name in ("running_mean", "running_var")}
        if emit.training:
            batch = _batch_statistics(emit, y)
            if self._synced(emit):
                moments = emit.keep("moments", (2, *y.shape[:1]), "float64")
                emit(norm.BATCH_MOMENTS, g, x=xs[0], running_mean=running["running_mean"], moments=moments)
                emit.all_reduce(moments)
                emit(norm.BATCH_JOIN, g, moments=moments, **batch, **running)
            else:
                emit(norm.BATCH_STATS, g, x=xs[0], **batch, **running)
            emit(norm.BATCH_FORWARD, g, x=xs[0], **batch, **affine, y=y)
        else:
            emit(norm.BATCH_INFER, g, x=xs[0], **running, **affine, y=y)

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        g, batch = self._geometry(emit, y), _batch_statistics(emit, y)
        sums = {name: emit.keep(name, y.shape[:1]) for name in ("sum_dy", "sum_dy_xhat")}
        emit(norm.BATCH_SUMS, g, x=xs[0], dy=dy, **batch, **sums)
        for name, total in ("weight", "sum_dy_xhat"), ("bias", "sum_dy"):
            if (dw := emit.grad(name)) is not None:
                emit(norm.BATCH_WGRAD, g, total=sums[total], dw=dw)
        if dxs[0] is not None:
            if self._synced(emit):
                emit.all_reduce(*sums.values())  # after the gradients above, which are added up later with all others
            emit(norm.BATCH_DGRAD, g, x=xs[0], dy=dy, **batch, w=emit.param("weight"), **sums, dx=dxs[0])

    def _synced(self, emit: Emit) -> bool:
        return self.sync and emit.ranks > 1

    def _geometry(self, emit: Emit, y: Any) -> norm.BatchNorm:
        samples = emit.total if self._synced(emit) else 0
        return norm.BatchNorm(**axes(y), eps=self.eps, momentum=self.momentum, samples=samples)


def _batch_statistics(emit: Emit, y: Any) -> dict[str, Any]:
    return {name: emit.keep(name, y.shape[:1]) for name in ("mean", "inv_std")}
