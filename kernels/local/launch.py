"""The operations of local convolution and their CUDA variants.

Each of the three products has a `direct` variant, the definition, and a `tiled` one: a matrix product for each output
position (for each pixel in dgrad). One geometry may have few positions, so tiles are ranked for all of them together.
"""

from kernels.conv.launch import enough_channels, enough_filters
from kernels.local import reference
from kernels.local.geometry import Local, Units
from kernels.op import Launch, Op
from kernels.rows import VECTOR, batch_vector, map_launch, next_power_of_two, whole_batch_vectors
from kernels.tiles import RANKS, one_a_thread, tiled_launch

FORWARD = Op("local.forward", reference.forward, writes=("y",))
DGRAD = Op("local.dgrad", reference.dgrad, writes=("dx",))
WGRAD = Op("local.wgrad", reference.wgrad, writes=("dw",))
BIAS = Op("local.bias", reference.bias, writes=("y",))
BGRAD = Op("local.bgrad", reference.bgrad, writes=("db",))

LEAST_BATCH = 8  # columns of a product, below which most of a tile would be empty


def enough_samples(g: Local) -> str:
    """Why a product with a column for each sample should not be tiled."""
    return "" if g.batch >= LEAST_BATCH else f"N = {g.batch}, at least {LEAST_BATCH} needed"


@FORWARD.variant("direct.cu")
def direct(g: Local) -> Launch:
    return one_a_thread(g.filters * g.out_h * g.out_w * g.batch)


@FORWARD.variant("tiled.cu", fits=lambda g: enough_samples(g) or enough_filters(g), rank=RANKS)
def tiled(g: Local, rank: int) -> Launch:
    return tiled_launch(g.group_filters, g.batch, g.out_h * g.out_w * g.groups, rank, VECTOR=batch_vector(g))


@DGRAD.variant("direct.cu")
def direct_dgrad(g: Local) -> Launch:
    return one_a_thread(g.channels * g.height * g.width * g.batch)


@DGRAD.variant("tiled.cu", fits=lambda g: enough_samples(g) or enough_channels(g), rank=RANKS)
def tiled_dgrad(g: Local, rank: int) -> Launch:
    return tiled_launch(g.group_channels, g.batch, g.height * g.width * g.groups, rank, VECTOR=batch_vector(g))


@WGRAD.variant("direct.cu")
def direct_wgrad(g: Local) -> Launch:
    return one_a_thread(g.out_h * g.out_w * g.filters * g.depth)


@WGRAD.variant("tiled.cu", fits=enough_filters, rank=RANKS)
def tiled_wgrad(g: Local, rank: int) -> Launch:
    return tiled_launch(g.group_filters, g.depth, g.out_h * g.out_w * g.groups, rank, VECTOR=batch_vector(g))


@BIAS.variant("bias.cu")
def single(g: Units) -> Launch:
    return map_launch(g)


@BIAS.variant("bias.cu", fits=whole_batch_vectors)
def vec4(g: Units) -> Launch:
    return map_launch(g, VECTOR)


@BGRAD.variant("bias.cu")
def units(g: Units) -> Launch:
    return Launch((g.channels * g.height * g.width,), (1, min(128, next_power_of_two(g.batch))))
