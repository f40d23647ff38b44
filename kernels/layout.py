"""Where the elements of a map lie in memory.  Decided here and nowhere else.

A map has the logical axes C, H, W, N.  In memory the batch is always innermost; the order of the outer axes is

    hcwn    H, C, W, N: the default.  Rows of all channels lie together, so that a convolution tile touches few pages.
    chwn    C, H, W, N: for a map that a fully connected layer reads as a plain [features, N] matrix.
"""

from typing import Annotated, Any

Map = Annotated[Any, "map"]  # an array with the axes C, H, W, N, any strides but N contiguous
Array = Annotated[Any, "array"]  # any other array, contiguous
Memory = Annotated[Any, "memory"]  # the memory of a whole array or map, whatever the order of its elements

LAYOUTS = {"hcwn": (1, 0, 2, 3), "chwn": (0, 1, 2, 3)}


def view(buffer: Any, shape: tuple[int, ...], layout: str = "") -> Any:
    """The contiguous 1-d NumPy or CuPy `buffer` seen with the logical `shape`.

    `layout` is empty for anything but a map (plain C order), else a key of LAYOUTS.
    """
    if not layout:
        return buffer.reshape(shape)
    order = LAYOUTS[layout]  # each of these permutations is its own inverse
    return buffer.reshape([shape[axis] for axis in order]).transpose(order)


def scale(dx: Map, beta: float) -> None:
    """dx = beta * dx, which is not read where beta is 0."""
    if beta == 0:
        dx[...] = 0
    else:
        dx *= beta
