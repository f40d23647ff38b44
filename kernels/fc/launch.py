"""The fully connected operations and their CUDA variants: cuBLAS for the products, kernels of ours for the bias.

The `tiled` variants do without cuBLAS.
"""

from typing import Any

from kernels.fc import reference
from kernels.fc.cublas import WORKSPACE, gemm
from kernels.fc.geometry import Fc
from kernels.op import Call, Launch, Op, Plan, ceil_div
from kernels.tiles import RANKS, tiled_launch

FORWARD = Op("fc.forward", reference.forward, writes=("y",))
DGRAD = Op("fc.dgrad", reference.dgrad, writes=("dx",))
WGRAD = Op("fc.wgrad", reference.wgrad, writes=("dw",))
BGRAD = Op("fc.bgrad", reference.bgrad, writes=("db",))

# Row-major: x [features, N], y [outputs, N], w [outputs, features/parts].


@FORWARD.variant("tiled.cu", rank=RANKS)
def tiled(g: Fc, rank: int) -> Launch:
    return tiled_launch(g.part_outputs, g.batch, g.parts, rank)


@DGRAD.variant("tiled.cu", rank=RANKS)
def tiled_dgrad(g: Fc, rank: int) -> Launch:
    return tiled_launch(g.part_features, g.batch, g.parts, rank)


@WGRAD.variant("tiled.cu", rank=RANKS)
def tiled_wgrad(g: Fc, rank: int) -> Launch:
    return tiled_launch(g.part_outputs, g.part_features, g.parts, rank)


@FORWARD.variant("bias.cu")
def cublas(g: Fc) -> Plan:
    """y = w x + b: the kernel fills y with the bias, the product is added to it."""
    fill = Launch((ceil_div(g.outputs * g.batch, 256),), (256,))
    return Plan((fill, Call(_forward)), WORKSPACE)


def _forward(stream: Any, g: Fc, x: Any, w: Any, b: Any, y: Any, workspace: Any) -> None:
    gemm(stream, workspace, w, x, y, (g.part_outputs, g.batch, g.part_features), "NN", 1.0, g.parts)


@DGRAD.variant()
def cublas_dgrad(g: Fc) -> Plan:
    return Plan((Call(_dgrad),), WORKSPACE)


def _dgrad(stream: Any, g: Fc, dy: Any, w: Any, dx: Any, beta: float, workspace: Any) -> None:
    gemm(stream, workspace, w, dy, dx, (g.part_features, g.batch, g.part_outputs), "TN", beta, g.parts)


@WGRAD.variant()
def cublas_wgrad(g: Fc) -> Plan:
    return Plan((Call(_wgrad),), WORKSPACE)


def _wgrad(stream: Any, g: Fc, x: Any, dy: Any, dw: Any, beta: float, workspace: Any) -> None:
    gemm(stream, workspace, dy, x, dw, (g.part_outputs, g.part_features, g.batch), "NT", beta, g.parts)


@BGRAD.variant("bias.cu")
def rows(g: Fc) -> Launch:
    """A block of 128 threads an output."""
    return Launch((g.outputs,), (1, 128))
