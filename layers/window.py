"""Where a sliding window stands: output sizes of convolution and pooling."""

from layers.base import Shape
from layers.options import ConfigError, Size

ROUNDING = ("floor", "ceil")
ROUNDING_DOC = "floor drops a last window that hangs over the edge, ceil keeps it unless it would see padding alone"


def positions(x: Shape, size: Size, stride: Size, pad: Size, rounding: str) -> Size:
    """How many windows fit a map of the shape `x`, down and across.

    A side has 1 + (side + 2 pad - size) / stride of them, rounded by `rounding`. Rounding up, the last window may hang
    over the padded edge, but begins inside the map or its left padding: PyTorch's `ceil_mode`.
    """
    if size.height > x.height + 2 * pad.height or size.width > x.width + 2 * pad.width:
        found = f"size {text(size)} is larger than the {x.height}x{x.width} map (with pad {text(pad)})"
        raise ConfigError(found, key="size")
    sides = zip((x.height, x.width), size, stride, pad, strict=True)
    return Size(*(_positions(*side, up=rounding == "ceil") for side in sides))


def _positions(side: int, size: int, stride: int, pad: int, up: bool) -> int:
    count = (side + 2 * pad - size + (stride - 1 if up else 0)) // stride + 1
    return count - 1 if up and (count - 1) * stride >= side + pad else count


def text(size: Size) -> str:
    """A size as people write it: "3", or "3x5" where the sides differ."""
    return f"{size.height}" if size.height == size.width else f"{size.height}x{size.width}"
