"""Where a sliding window stands: output sizes of convolution and pooling.

A side has 1 + (side + margins - size) / stride positions, which has to be rounded. Tools differ in how, and in whether
they keep a last window that begins beyond the map; the names of the rules are those tools'.
"""

from layers.base import Shape
from layers.options import ConfigError, Size

ROUNDING = ("floor", "ceil", "caffe", "convnet")
ROUNDING_DOC = (
    "floor (and caffe) drops a last position that hangs over the padded edge, ceil keeps it unless it would see padding"
    " alone, convnet keeps it always"
)
POOL_ROUNDING_DOC = (
    "floor drops a last window that hangs over the padded edge, ceil keeps it unless it would see padding alone"
    " (PyTorch's ceil_mode); caffe does the latter only where there is padding; convnet keeps a last window that hangs"
    " over the map itself, padded before it alone (cuda-convnet)"
)


def positions(x: Shape, size: Size, stride: Size, pad: Size, rounding: str) -> Size:
    """How many positions a filter has on a map of the shape `x`, down and across. Caffe's convolution rounds down."""
    rule = "floor" if rounding == "caffe" else rounding
    return _along_both(x, size, stride, pad, pad, rule, f"pad {text(pad)}")


def pool_positions(x: Shape, size: Size, stride: Size, pad: Size, rounding: str, start: Size | None = None) -> Size:
    """How many windows pooling has. `start`, in place of `pad`: where the first window begins; negative is padding."""
    if start is not None:
        if start.height >= x.height or start.width >= x.width:
            raise ConfigError(f"start {text(start)} is beyond the {x.height}x{x.width} map", key="start")
        before, after, named = Size(-start.height, -start.width), Size(0, 0), f"start {text(start)}"
    else:
        before, after, named = pad, pad, f"pad {text(pad)}"
    if rounding == "caffe":  # clips on both axes where either has padding
        rounding = "ceil" if max(before) > 0 else "convnet"
    elif rounding == "convnet":
        after = Size(0, 0)
    return _along_both(x, size, stride, before, after, rounding, named)


def _along_both(x: Shape, size: Size, stride: Size, before: Size, after: Size, rounding: str, named: str) -> Size:
    sides = zip((x.height, x.width), size, stride, before, after, strict=True)
    counts = Size(*(_along(*side, rounding) for side in sides))
    if min(counts) < 1:
        raise ConfigError(f"size {text(size)} is larger than the {x.height}x{x.width} map (with {named})", key="size")
    return counts


def _along(side: int, size: int, stride: int, before: int, after: int, rounding: str) -> int:
    """Windows along one axis of `side` pixels with margins before and after it, negative where pixels are dropped."""
    space = side + before + after - size
    if rounding == "floor":
        return space // stride + 1
    count = -(-space // stride) + 1
    beyond = rounding == "ceil" and (count - 1) * stride >= side + before
    return count - 1 if beyond else count


def text(size: Size) -> str:
    """A size as people write it: "3", or "3x5" where the sides differ."""
    return f"{size.height}" if size.height == size.width else f"{size.height}x{size.width}"
