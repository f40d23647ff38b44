"""The convolution operations and their CUDA variants.

Each of the three products has a `direct` variant, the definition, and a `tiled` one, an implicit matrix product.
"""

from dataclasses import replace

from kernels.conv import reference
from kernels.conv.geometry import Conv
from kernels.op import Launch, Op, Plan, ceil_div
from kernels.rows import batch_vector
from kernels.tiles import PROCESSORS, RANKS, THREADS, one_a_thread, ranked_tile, tiled_launch

FORWARD = Op("conv.forward", reference.forward, writes=("y",))
DGRAD = Op("conv.dgrad", reference.dgrad, writes=("dx",))
WGRAD = Op("conv.wgrad", reference.wgrad, writes=("dw",))
BGRAD = Op("conv.bgrad", reference.bgrad, writes=("db",))

PANEL = 1024  # products of a weight gradient that are added in one go
BLOCKS = 4 * PROCESSORS  # of a weight gradient, about
LEAST_ROWS = 4  # of a product, below which most of a tile would be empty


def enough(rows: int, what: str) -> str:
    """Why a product of so many rows should not be tiled."""
    return "" if rows >= LEAST_ROWS else f"{rows} {what} a group, at least {LEAST_ROWS} needed"


def enough_filters(g: Conv) -> str:
    """Why a product with a row for each filter should not be tiled."""
    return enough(g.group_filters, "filters")


def enough_channels(g: Conv) -> str:
    """Why a product with a row for each channel should not be tiled."""
    return enough(g.group_channels, "channels")


@FORWARD.variant("forward_direct.cu")
def direct(g: Conv) -> Launch:
    return one_a_thread(g.filters * g.out_h * g.out_w * g.batch)


@FORWARD.variant("forward_tiled.cu", fits=enough_filters, rank=RANKS)
def tiled(g: Conv, rank: int) -> Launch:
    columns = g.out_h * g.out_w * g.batch
    return tiled_launch(g.group_filters, columns, g.groups, rank, VECTOR=batch_vector(g))


@DGRAD.variant("dgrad_direct.cu")
def direct_dgrad(g: Conv) -> Launch:
    return one_a_thread(g.channels * g.height * g.width * g.batch)


@DGRAD.variant("dgrad_tiled.cu", fits=enough_channels, rank=RANKS)
def tiled_dgrad(g: Conv, rank: int) -> Launch:
    phases = min(g.stride_h, g.height) * min(g.stride_w, g.width) * g.groups
    columns = ceil_div(g.height, g.stride_h) * ceil_div(g.width, g.stride_w) * g.batch  # of the largest phase
    return tiled_launch(g.group_channels, columns, phases, rank, VECTOR=batch_vector(g))


@WGRAD.variant("wgrad_direct.cu")
def direct_wgrad(g: Conv) -> Launch:
    return Launch(grid=(g.filters * g.depth,), block=(1, THREADS))


@WGRAD.variant("wgrad_tiled.cu", fits=enough_filters, rank=RANKS)
def tiled_wgrad(g: Conv, rank: int) -> Plan:
    panels = ceil_div(g.out_h * g.out_w * g.batch, PANEL)
    tile = ranked_tile(g.group_filters, g.depth, g.groups * panels, rank)
    tiles = ceil_div(g.group_filters, tile[0]) * ceil_div(g.depth, tile[1]) * g.groups
    splits = min(panels, ceil_div(BLOCKS, tiles))  # as in wgrad_tiled.cu
    size = tile[0] * tile[1]
    define = {"TILE_M": tile[0], "TILE_J": tile[1], "VECTOR": batch_vector(g), "PANEL": PANEL, "BLOCKS": BLOCKS}
    product = Launch((tiles * splits,), (THREADS,), define=tuple(define.items()))
    reduction = replace(product, grid=(tiles * size // (4 * THREADS),), kernel="reduce")
    return Plan((product, reduction), workspace=4 * splits * tiles * size)


@BGRAD.variant("bgrad.cu")
def rows(g: Conv) -> Plan:
    splits = min(g.out_h, ceil_div(BLOCKS, g.filters))
    define = (("SPLITS", splits),)
    sums = Launch(grid=(g.filters * splits,), block=(1, THREADS), define=define)
    reduction = Launch(grid=(ceil_div(g.filters, THREADS),), block=(THREADS,), define=define, kernel="reduce")
    return Plan((sums, reduction), workspace=4 * splits * g.filters)
