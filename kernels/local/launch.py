"""The operations of local convolution and their CUDA variants.

Each of the three products has a `direct` variant, the definition, and a `tiled` one: a matrix product for each output
position (for each pixel in dgrad). One geometry may have few positions, so tiles are ranked for all of them together.
"""

from kernels.local import reference
from kernels.local.geometry import Local, Units
from kernels.op import Launch, Op, ceil_div
from kernels.rows import VECTOR, map_launch, next_power_of_two, whole_batch_vectors
from kernels.tiles import RANKS, THREADS, one_a_thread, ranked_tile

FORWARD = Op("local.forward", reference.forward, writes=("y",))
DGRAD = Op("local.dgrad", reference.dgrad, writes=("dx",))
WGRAD = Op("local.wgrad", reference.wgrad, writes=("dw",))
BIAS = Op("local.bias", reference.bias, writes=("y",))
BGRAD = Op("local.bgrad", reference.bgrad, writes=("db",))

LEAST = 4  # rows of a product, below which most of a tile would be empty
LEAST_BATCH = 8  # columns of a product, likewise


def tiled_launch(g: Local, rows: int, columns: int, products: int, rank: int) -> Launch:
    """As many products of rows x columns, in tiles."""
    tile = ranked_tile(rows, columns, products, rank)
    vector = VECTOR if g.batch % VECTOR == 0 else 1  # samples that one load takes
    define = (("TILE_M", tile[0]), ("TILE_J", tile[1]), ("VECTOR", vector))
    blocks = ceil_div(rows, tile[0]) * ceil_div(columns, tile[1]) * products
    return Launch((blocks,), (THREADS,), define=define)


def enough(rows: int, what: str, batch: int = LEAST_BATCH) -> str:
    """Why products of so many rows, and columns of the batch, should not be tiled."""
    if batch < LEAST_BATCH:
        return f"N = {batch}, at least {LEAST_BATCH} needed"
    return "" if rows >= LEAST else f"{rows} {what} a group, at least {LEAST} needed"


@FORWARD.variant("direct.cu")
def direct(g: Local) -> Launch:
    return one_a_thread(g.filters * g.out_h * g.out_w * g.batch)


@FORWARD.variant("tiled.cu", fits=lambda g: enough(g.group_filters, "filters", g.batch), rank=RANKS)
def tiled(g: Local, rank: int) -> Launch:
    return tiled_launch(g, g.group_filters, g.batch, g.out_h * g.out_w * g.groups, rank)


@DGRAD.variant("direct.cu")
def direct_dgrad(g: Local) -> Launch:
    return one_a_thread(g.channels * g.height * g.width * g.batch)


@DGRAD.variant("tiled.cu", fits=lambda g: enough(g.group_channels, "channels", g.batch), rank=RANKS)
def tiled_dgrad(g: Local, rank: int) -> Launch:
    return tiled_launch(g, g.group_channels, g.batch, g.height * g.width * g.groups, rank)


@WGRAD.variant("direct.cu")
def direct_wgrad(g: Local) -> Launch:
    return one_a_thread(g.out_h * g.out_w * g.filters * g.depth)


@WGRAD.variant("tiled.cu", fits=lambda g: enough(g.group_filters, "filters"), rank=RANKS)
def tiled_wgrad(g: Local, rank: int) -> Launch:
    return tiled_launch(g, g.group_filters, g.depth, g.out_h * g.out_w * g.groups, rank)


@BIAS.variant("bias.cu")
def single(g: Units) -> Launch:
    return map_launch(g)


@BIAS.variant("bias.cu", fits=whole_batch_vectors)
def vec4(g: Units) -> Launch:
    return map_launch(g, VECTOR)


@BGRAD.variant("bias.cu")
def units(g: Units) -> Launch:
    return Launch((g.channels * g.height * g.width,), (1, min(128, next_power_of_two(g.batch))))
