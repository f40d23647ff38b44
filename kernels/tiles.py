"""Launches of matrix products: which tile to try first (include/gemm.cuh is the device's side), or a sum a thread."""

from kernels.op import Launch, ceil_div

THREADS = 256
PROCESSORS = 132  # multiprocessors of the GPU that first guesses are made for
# Rows and columns of a tile, and how fast each is thought to run when there are plenty of them.
TILES = {(128, 128): 1.0, (128, 64): 0.85, (64, 128): 0.85, (64, 64): 0.75, (32, 128): 0.65}
RANKS = tuple(range(len(TILES)))


def ranked_tile(rows: int, columns: int, products: int, rank: int) -> tuple[int, int]:
    """The tile that is expected to be the rank-th fastest for so many products of rows x columns."""

    def cost(tile: tuple[int, int]) -> float:
        blocks = products * ceil_div(rows, tile[0]) * ceil_div(columns, tile[1])
        return ceil_div(blocks, PROCESSORS) * tile[0] * tile[1] / TILES[tile]

    return sorted(TILES, key=cost)[rank]


def tiled_launch(rows: int, columns: int, products: int, rank: int, **define: int) -> Launch:
    """A block for each tile of so many products of rows x columns."""
    tile = ranked_tile(rows, columns, products, rank)
    blocks = ceil_div(rows, tile[0]) * ceil_div(columns, tile[1]) * products
    return Launch((blocks,), (THREADS,), define=(("TILE_M", tile[0]), ("TILE_J", tile[1]), *define.items()))


def one_a_thread(count: int) -> Launch:
    """A launch of `count` threads."""
    return Launch((ceil_div(count, THREADS),), (THREADS,))
