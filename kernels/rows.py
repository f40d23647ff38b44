"""Launches of elementwise kernels: each thread takes one or a few neighbours of a row.

In every layout W and N are neighbours, so the W*N values at one (c, h) are a contiguous row.  Blocks are rectangles of
`across` threads along the row by `down` rows, counted in grid.x alone: grid.y and grid.z end at 65535, channel counts
do not.  `place` in include/launch.cuh is the device's side of this.
"""

from typing import Any

from kernels.op import Launch, ceil_div

VECTOR = 4  # floats in a 16-byte access


def row_launch(channels: int, height: int, length: int, vector: int = 1, threads: int = 256, **define: int) -> Launch:
    """`channels` x `height` rows of `length` elements, `vector` of them a thread."""
    across = min(threads, next_power_of_two(ceil_div(length, vector)))
    down = threads // across
    blocks = ceil_div(length, across * vector) * ceil_div(channels * height, down)
    return Launch(grid=(blocks,), block=(across, down), define=(("VECTOR", vector), *define.items()))


def map_launch(g: Any, vector: int = 1, **define: int) -> Launch:
    """The rows of a map of g.channels x g.height x g.width x g.batch."""
    return row_launch(g.channels, g.height, g.width * g.batch, vector, **define)


def whole_vectors(g: Any) -> str:
    """Why rows cannot be read 16 bytes at a time. Strides of c and h are whole rows, so the length decides."""
    return "" if g.width * g.batch % VECTOR == 0 else f"W*N = {g.width * g.batch} is not a multiple of {VECTOR}"


def whole_batch_vectors(g: Any) -> str:
    """The same for kernels whose threads may not step from one pixel to the next."""
    return "" if g.batch % VECTOR == 0 else f"N = {g.batch} is not a multiple of {VECTOR}"


def batch_vector(g: Any) -> int:
    """Samples of one pixel that one load takes."""
    return 1 if whole_batch_vectors(g) else VECTOR


def next_power_of_two(n: int) -> int:
    """The least power of two not below n >= 1."""
    return 1 << (n - 1).bit_length()
