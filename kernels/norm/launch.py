"""The normalisation operations and their CUDA variants."""

from kernels.norm import reference
from kernels.norm.geometry import BatchNorm, Lrn
from kernels.op import Launch, Op, Plan, ceil_div
from kernels.rows import VECTOR, map_launch, next_power_of_two, row_launch, whole_vectors

LRN_FORWARD = Op("norm.lrn_forward", reference.lrn_forward, writes=("y",))
LRN_BACKWARD = Op("norm.lrn_backward", reference.lrn_backward, writes=("dx",))
BATCH_STATS = Op("norm.batch_stats", reference.batch_stats, writes=("mean", "inv_std", "running_mean", "running_var"))
BATCH_FORWARD = Op("norm.batch_forward", reference.batch_forward, writes=("y",), inplace=(("x", "y"),))
BATCH_INFER = Op("norm.batch_infer", reference.batch_infer, writes=("y",), inplace=(("x", "y"),))
BATCH_SUMS = Op("norm.batch_sums", reference.batch_sums, writes=("sum_dy", "sum_dy_xhat"))
BATCH_WGRAD = Op("norm.batch_wgrad", reference.batch_wgrad, writes=("dw",))
BATCH_DGRAD = Op(
    "norm.batch_dgrad", reference.batch_dgrad, writes=("dx",), inplace=(("x", "dx"), ("dy", "dx"))
)  # fmt: skip

LRN_REGISTERS = 16  # the longest window that lrn.cu keeps in registers


@LRN_FORWARD.variant("lrn_wide.cu")
@LRN_BACKWARD.variant("lrn_wide.cu")
def wide(g: Lrn) -> Launch:
    return map_launch(g)


@LRN_FORWARD.variant("lrn.cu", fits=lambda g: g.size <= LRN_REGISTERS, tile=(8, 4))
@LRN_BACKWARD.variant("lrn.cu", fits=lambda g: g.size <= LRN_REGISTERS, tile=(8, 4))
def tiled(g: Lrn, tile: int) -> Launch:
    return row_launch(ceil_div(g.channels, tile), g.height, g.width * g.batch, SIZE=g.size, TILE=tile)


@BATCH_FORWARD.variant("batch.cu")
@BATCH_INFER.variant("batch.cu")
@BATCH_DGRAD.variant("batch.cu")
def single(g: BatchNorm) -> Launch:
    return map_launch(g)


@BATCH_FORWARD.variant("batch.cu", fits=whole_vectors)
@BATCH_INFER.variant("batch.cu", fits=whole_vectors)
@BATCH_DGRAD.variant("batch.cu", fits=whole_vectors)
def vec4(g: BatchNorm) -> Launch:
    return map_launch(g, VECTOR)


@BATCH_WGRAD.variant("batch.cu")
def channels(g: BatchNorm) -> Launch:
    return Launch(grid=(ceil_div(g.channels, 256),), block=(256,))


def _reduction(g: BatchNorm, name: str, vector: int) -> Plan:
    """Enough shares of each channel for about a thousand blocks, but no share under 4096 elements."""
    splits = max(1, min(ceil_div(1024, g.channels), g.count // 4096))
    threads = min(256, next_power_of_two(ceil_div(g.count, splits * vector)))
    define = (("SPLITS", splits), ("THREADS", threads), ("VECTOR", vector))
    return Plan(
        (
            Launch((g.channels * splits,), (1, threads), define=define, kernel=name),
            Launch((g.channels,), (1, 128), define=define, kernel=f"{name}_finish"),
        ),
        workspace=g.channels * splits * 16,
    )


@BATCH_STATS.variant("batch_reduce.cu")
def stats(g: BatchNorm) -> Plan:
    return _reduction(g, "batch_stats", 1)


@BATCH_STATS.variant("batch_reduce.cu", fits=whole_vectors)
def stats_vec4(g: BatchNorm) -> Plan:
    return _reduction(g, "batch_stats", VECTOR)


@BATCH_SUMS.variant("batch_reduce.cu")
def sums(g: BatchNorm) -> Plan:
    return _reduction(g, "batch_sums", 1)


@BATCH_SUMS.variant("batch_reduce.cu", fits=whole_vectors)
def sums_vec4(g: BatchNorm) -> Plan:
    return _reduction(g, "batch_sums", VECTOR)
