"""The normalisation operations and their CUDA variants."""

from dataclasses import replace

from kernels.norm import reference
from kernels.norm.geometry import BatchNorm, Cnorm, Lrn, Rnorm
from kernels.op import Launch, Op, Plan, ceil_div
from kernels.rows import VECTOR, map_launch, next_power_of_two, row_launch, whole_batch_vectors, whole_vectors

LRN_FORWARD = Op("norm.lrn_forward", reference.lrn_forward, writes=("y",))
LRN_BACKWARD = Op("norm.lrn_backward", reference.lrn_backward, writes=("dx",))
RNORM_FORWARD = Op("norm.rnorm_forward", reference.rnorm_forward, writes=("y",))
RNORM_BACKWARD = Op("norm.rnorm_backward", reference.rnorm_backward, writes=("dx",))
CNORM_FORWARD = Op("norm.cnorm_forward", reference.cnorm_forward, writes=("y",))
CNORM_BACKWARD = Op("norm.cnorm_backward", reference.cnorm_backward, writes=("dx",))
BATCH_STATS = Op("norm.batch_stats", reference.batch_stats, writes=("mean", "inv_std", "running_mean", "running_var"))
BATCH_MOMENTS = Op("norm.batch_moments", reference.batch_moments, writes=("moments",))
BATCH_JOIN = Op("norm.batch_join", reference.batch_join, writes=("mean", "inv_std", "running_mean", "running_var"))
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


def in_registers(g: Lrn) -> str:
    """Why lrn.cu does not compute this."""
    if g.blocked:
        return "windows are blocks"
    return "" if g.size <= LRN_REGISTERS else f"size {g.size}, at most {LRN_REGISTERS} fit the registers"


@LRN_FORWARD.variant("lrn.cu", fits=in_registers, tile=(8, 4))
@LRN_BACKWARD.variant("lrn.cu", fits=in_registers, tile=(8, 4))
def tiled(g: Lrn, tile: int) -> Launch:
    return row_launch(ceil_div(g.channels, tile), g.height, g.width * g.batch, SIZE=g.size, TILE=tile)


def in_blocks(g: Lrn) -> str:
    """Why lrn_blocked.cu does not compute this."""
    return "" if g.blocked else "windows are not blocks"


@LRN_FORWARD.variant("lrn_blocked.cu", fits=in_blocks)
@LRN_BACKWARD.variant("lrn_blocked.cu", fits=in_blocks)
def blocked(g: Lrn) -> Launch:
    return row_launch(ceil_div(g.channels, g.size), g.height, g.width * g.batch)


@LRN_FORWARD.variant("lrn_blocked.cu", fits=lambda g: in_blocks(g) or whole_vectors(g))
@LRN_BACKWARD.variant("lrn_blocked.cu", fits=lambda g: in_blocks(g) or whole_vectors(g))
def blocked_vec4(g: Lrn) -> Launch:
    return row_launch(ceil_div(g.channels, g.size), g.height, g.width * g.batch, VECTOR)


@RNORM_FORWARD.variant("rnorm.cu")
def window(g: Rnorm) -> Launch:
    return map_launch(g)


@RNORM_FORWARD.variant("rnorm.cu", fits=whole_batch_vectors)
def window_vec4(g: Rnorm) -> Launch:
    return map_launch(g, VECTOR)


def _chain(g: Rnorm, vector: int, maps: int, *kernels: str, **define: int) -> Plan:
    """Kernels over all pixels that hand each other so many maps in the workspace."""
    launch = map_launch(g, vector, **define)
    size = g.channels * g.height * g.width * g.batch
    return Plan(tuple(replace(launch, kernel=kernel) for kernel in kernels), workspace=4 * maps * size)


def _cnorm_backward(g: Cnorm, vector: int) -> Plan:
    kernels = ("centre_again", "cnorm_ratio", "cnorm_slope", *["cnorm_backward"] * g.exact)
    return _chain(g, vector, 2, *kernels, EXACT=int(g.exact))


@RNORM_BACKWARD.variant("rnorm.cu")
def window_backward(g: Rnorm) -> Plan:
    return _chain(g, 1, 1, "rnorm_ratio", "rnorm_backward")


@RNORM_BACKWARD.variant("rnorm.cu", fits=whole_batch_vectors)
def window_backward_vec4(g: Rnorm) -> Plan:
    return _chain(g, VECTOR, 1, "rnorm_ratio", "rnorm_backward")


@CNORM_FORWARD.variant("cnorm.cu")
def contrast(g: Cnorm) -> Plan:
    return _chain(g, 1, 1, "centre", "cnorm_forward", EXACT=1)


@CNORM_FORWARD.variant("cnorm.cu", fits=whole_batch_vectors)
def contrast_vec4(g: Cnorm) -> Plan:
    return _chain(g, VECTOR, 1, "centre", "cnorm_forward", EXACT=1)


@CNORM_BACKWARD.variant("cnorm.cu")
def contrast_backward(g: Cnorm) -> Plan:
    return _cnorm_backward(g, 1)


@CNORM_BACKWARD.variant("cnorm.cu", fits=whole_batch_vectors)
def contrast_backward_vec4(g: Cnorm) -> Plan:
    return _cnorm_backward(g, VECTOR)


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
@BATCH_JOIN.variant("batch.cu")
def channels(g: BatchNorm) -> Launch:
    return Launch(grid=(ceil_div(g.channels, 256),), block=(256,))


def _reduction(g: BatchNorm, name: str, vector: int) -> Plan:
    """Enough shares of each channel for about a thousand blocks, but no share under 4096 elements."""
    values = g.height * g.width * g.batch
    splits = max(1, min(ceil_div(1024, g.channels), values // 4096))
    threads = min(256, next_power_of_two(ceil_div(values, splits * vector)))
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


@BATCH_MOMENTS.variant("batch_reduce.cu")
def moments(g: BatchNorm) -> Plan:
    return _reduction(g, "batch_moments", 1)


@BATCH_MOMENTS.variant("batch_reduce.cu", fits=whole_vectors)
def moments_vec4(g: BatchNorm) -> Plan:
    return _reduction(g, "batch_moments", VECTOR)


@BATCH_SUMS.variant("batch_reduce.cu")
def sums(g: BatchNorm) -> Plan:
    return _reduction(g, "batch_sums", 1)


@BATCH_SUMS.variant("batch_reduce.cu", fits=whole_vectors)
def sums_vec4(g: BatchNorm) -> Plan:
    return _reduction(g, "batch_sums", VECTOR)
