"""Convolutions and fully connected layers to test: shapes at the edges of tiles, vectors and images."""

from kernels import conv, fc
from kernels.conv import Conv
from kernels.fc import Fc


def square(c: int, side: int, n: int, f: int, size: int, stride: int = 1, pad: int = 0, groups: int = 1) -> Conv:
    """A square convolution, its output size rounded down."""
    out = 1 + (side + 2 * pad - size) // stride
    return Conv(c, side, side, n, f, size, size, stride, stride, pad, pad, out, out, groups)


CONVS = [
    square(1, 1, 1, 1, 1),
    square(1, 5, 1, 1, 3),
    square(3, 7, 1, 5, 3, pad=1),
    square(3, 23, 3, 6, 11, stride=4, pad=2),
    square(3, 35, 32, 64, 11, stride=4, pad=2),
    square(1, 12, 20, 16, 5, pad=2),
    square(16, 6, 128, 32, 5, pad=2),
    square(64, 9, 2, 130, 3, pad=1),  # one filter more than two tiles
    square(130, 4, 36, 64, 3, pad=1),
    square(96, 5, 33, 70, 1),
    square(8, 8, 5, 12, 3, stride=2, pad=1, groups=2),
    square(12, 7, 4, 12, 3, pad=1, groups=4),
    square(6, 7, 3, 6, 3, pad=1, groups=6),  # a filter a channel
    square(5, 9, 8, 7, 1, stride=3),  # pixels that no filter sees
    square(4, 3, 4, 8, 5, pad=4),  # filters larger than the map, padding larger than it
    square(2, 40, 4, 4, 3, pad=1),  # weight gradients summed in several panels
    Conv(3, 6, 9, 7, 10, 2, 5, 1, 2, 1, 3, 7, 6, 1),  # rectangles
    Conv(2, 5, 5, 4, 8, 3, 3, 2, 2, 0, 0, 3, 3, 1),  # the last windows hang over the edge
    Conv(4, 8, 3, 2, 8, 4, 2, 3, 1, 2, 0, 3, 4, 2),
]
FCS = [
    *(Fc(1, 1, 1), Fc(5, 3, 1), Fc(37, 11, 3), Fc(256, 10, 128), Fc(1000, 70, 32)),
    *(Fc(12, 6, 5, parts=3), Fc(96, 134, 66, parts=2)),  # block-diagonal
]

CASES = [
    *((op, g) for op in (conv.FORWARD, conv.DGRAD, conv.WGRAD, conv.BGRAD) for g in CONVS),
    *((op, g) for op in (fc.FORWARD, fc.DGRAD, fc.WGRAD, fc.BGRAD) for g in FCS),
]
