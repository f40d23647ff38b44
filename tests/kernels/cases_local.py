"""Local convolutions to test: shapes at the edges of tiles, vectors and images."""

from kernels import local
from kernels.local import Local, Units


def square(c: int, side: int, n: int, f: int, size: int, stride: int = 1, pad: int = 0, groups: int = 1) -> Local:
    """A square local convolution, its output size rounded down."""
    out = 1 + (side + 2 * pad - size) // stride
    return Local(c, side, side, n, f, size, size, stride, stride, pad, pad, out, out, groups)


LOCALS = [
    square(1, 1, 1, 1, 1),
    square(3, 5, 1, 5, 3, pad=1),
    square(3, 7, 3, 6, 5, stride=2, pad=2),
    square(4, 4, 9, 7, 3, pad=1),  # single loads, tiles
    square(16, 4, 128, 32, 3, pad=1),
    square(4, 2, 132, 130, 2),  # one tile of samples and of filters, and a bit
    square(130, 3, 8, 5, 2),  # the same of channels, and many weights a filter
    square(8, 6, 12, 12, 3, stride=2, pad=1, groups=2),
    square(6, 4, 8, 6, 3, pad=1, groups=6),  # a filter a channel
    square(5, 7, 8, 4, 1, stride=3),  # pixels that no filter sees
    square(4, 3, 8, 4, 5, pad=4),  # filters larger than the map, padding larger than it
    Local(4, 6, 9, 8, 10, 2, 5, 1, 2, 1, 3, 7, 6, 1),  # rectangles
    Local(4, 5, 5, 10, 8, 3, 3, 2, 2, 0, 0, 3, 3, 2),  # the last windows hang over the edge
]
MAPS = ((1, 1, 1, 1), (5, 1, 1, 32), (3, 7, 5, 1), (5, 4, 6, 3), (2, 3, 2, 128), (3, 2, 2, 300))

CASES = [
    *((op, g) for op in (local.FORWARD, local.DGRAD, local.WGRAD) for g in LOCALS),
    *((op, Units(*shape)) for op in (local.BIAS, local.BGRAD) for shape in MAPS),
]
