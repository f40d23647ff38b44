"""Image operations in NumPy."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.image.geometry import HEAD, Augment, Blur, Colour, Flip, Prepare, Resample, Resize, Rscale
from kernels.layout import Array, Map
from kernels.random.philox import philox4x32


def resample(g: Resample, cells: Array, pixels: Array) -> None:
    """pixels[n] = the image of cells[n] in another size, by Pillow's antialiased bilinear filter, bit for bit.

    cells: uint8 [N, cell]; pixels: uint8 [N, H, W, C]. Along an axis, output o has its centre at (o + 1/2) s of the
    input, s being input pixels to one of the output, and the weights 1 - |distance| / max(s, 1), scaled to the sum 1
    and rounded to multiples of 2^-22. First along rows, then along columns (Pillow 13 has it the other way round where
    that is faster, which may change a byte by 1); each time the sums are rounded to bytes.
    """
    for cell, out in zip(cells, pixels, strict=True):
        height, width = cell[:8].view(np.int32).tolist()
        image = cell[HEAD : HEAD + height * width * g.channels].reshape(height, width, g.channels)
        out[...] = _filtered(_filtered(image, g.width, 1), g.height, 0) if image.size else 0


def _filtered(image: Any, count: int, axis: int) -> Any:
    first, weights = bilinear_taps(image.shape[axis], count)
    taps = np.minimum(first[:, None] + np.arange(weights.shape[1]), image.shape[axis] - 1)
    each = np.moveaxis(image, axis, -1).astype(np.int64)[..., taps] * weights
    return np.moveaxis((each.sum(axis=-1) + (1 << FRACTION - 1)) >> FRACTION, -1, axis).astype(np.uint8)


FRACTION = 22  # bits of a weight behind the point


def bilinear_taps(side: int, count: int) -> tuple[Any, Any]:
    """Of each of `count` outputs along a side: its first input, and the weights of so many from there on, integers."""
    scale = side / count
    reach = max(scale, 1.0)
    centre = (np.arange(count) + 0.5) * scale
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + reach + 0.5).astype(np.int64), side)
    at = first[:, None] + np.arange(int((end - first).max()))
    weights = np.maximum(1.0 - np.abs((at - centre[:, None] + 0.5) * (1.0 / reach)), 0.0) * (at < end[:, None])
    weights /= np.cumsum(weights, axis=1)[:, -1:]  # a sum from left to right, as the kernel's is
    return first, (0.5 + weights * (1 << FRACTION)).astype(np.int64)


def windows(g: Prepare, pixels: Array, corner: Array, mirror: Array) -> Any:
    """The part of each image that is used, uint8 [N, H, W, C]: from `corner` on, 0 outside the image, then mirrored."""
    if pixels.shape[1:3] == (g.height, g.width) and not corner.any():
        cut = pixels.copy() if mirror.any() else pixels
    else:
        cut = np.zeros((g.batch, g.height, g.width, g.channels), np.uint8)
        for image, (top, left), out in zip(pixels, corner.tolist(), cut, strict=True):
            part = image[max(top, 0) : max(top + g.height, 0), max(left, 0) : max(left + g.width, 0)]
            y, x = min(max(-top, 0), g.height), min(max(-left, 0), g.width)
            out[y : y + part.shape[0], x : x + part.shape[1]] = part
    flipped = np.flatnonzero(mirror)
    cut[flipped] = cut[flipped, :, ::-1]
    return cut


def prepare(g: Prepare, pixels: Array, corner: Array, mirror: Array, mean: Array, std: Array, y: Map) -> None:
    """y[c, h, w, n] = (pixels[n, top + h, left + w', c] - mean[c]) / std[c]; w' = W - 1 - w where mirror[n] is not 0.

    pixels: uint8 [N, H', W', C]; what lies outside is 0. corner: int32 [N, 2], top and left of each image, which may be
    negative. mirror: uint8 [N]. mean, std: [C], in units of a pixel, 0 to 255; or a mean [C, H, W], which is of the
    result's pixels: it is neither moved nor mirrored.
    """
    cut = windows(g, pixels, corner, mirror).transpose(3, 1, 2, 0)
    np.subtract(cut, mean[..., None] if g.mean_image else mean[:, None, None, None], out=y)
    y /= std[:, None, None, None]


def augment(
    g: Augment,
    pixels: Array,
    corner: Array,
    mirror: Array,
    colour: Array | None,
    pull: Array | None,
    erased: Array | None,
    partner: Array | None,
    patch: Array | None,
    blend: Array | None,
    mean: Array,
    std: Array,
    y: Map,
) -> None:
    """As prepare, each image by itself, then two and two mixed; an argument that is None changes nothing.

    colour: [N, C, C + 2], for each channel the weights of all, a shift and a gain: with x the channels of a pixel,
    y = ((weights . x + pulled, cut to 0..255) - mean + shift) gain / std.
    pull: [N, C]; pulled, one number an image, is this times its mean colour, zeros outside included. It counts only
    where g.contrast is set.
    erased: int32 [N, 4], top, left, height, width of the part of y that becomes 0.
    partner: int32 [N], how many places further on in the batch the image is that is mixed in.
    patch: int32 [N, 4], the part of y where that happens: there, y = blend own + (1 - blend) partner's. blend: [N].
    """
    cut = windows(g, pixels, corner, mirror)
    prepare(g, cut, np.zeros_like(corner), np.zeros_like(mirror), mean, std, y)
    for n in range(g.batch):
        if colour is not None:
            pulled = 0 if pull is None or not g.contrast else pull[n] @ _mean_colour(cut[n]).astype(y.dtype)
            y[..., n] = _coloured(cut[n], colour[n].astype(y.dtype), pulled, mean, std)
        if erased is not None:
            y[(*_part(erased[n]), n)] = 0
    if partner is not None and patch is not None and blend is not None:
        own = y.copy()
        for n in range(g.batch):
            at = _part(patch[n])
            y[(*at, n)] = blend[n] * own[(*at, n)] + (1 - blend[n]) * own[(*at, n + partner[n])]


def _mean_colour(image: Any) -> Any:
    return image.sum(axis=(0, 1), dtype=np.int64) / (image.shape[0] * image.shape[1])


def _coloured(image: Any, colour: Any, pulled: Any, mean: Any, std: Any) -> Any:
    """One image [H, W, C] as a map [C, H, W]."""
    channels = len(colour)
    weights, shift, gain = colour[:, :channels], colour[:, channels, None, None], colour[:, channels + 1, None, None]
    mixed = np.clip(np.tensordot(weights, image.transpose(2, 0, 1).astype(colour.dtype), 1) + pulled, 0, 255)
    return (mixed - mean.reshape(channels, *(mean.shape[1:] or (1, 1))) + shift) * gain / std[:, None, None]


def _part(box: Any) -> tuple[slice, slice, slice]:
    """All channels, and the rows and columns of top, left, height, width."""
    top, left, height, width = box.tolist()
    return slice(None), slice(top, top + height), slice(left, left + width)


def _add(y: Map, beta: float, value: Any) -> None:
    y[...] = value if beta == 0 else beta * y + value


def flip(g: Flip, x: Map, y: Map, beta: float) -> None:
    """y[c, h, w] = beta * y[c, h, w] + x[c, h, W - 1 - w]; it is its own transpose."""
    _add(y, beta, x[:, :, ::-1])


def gaussian(size: int, stdev: float) -> list[float]:
    """exp(-d^2 / (2 stdev^2)) for |d| <= size // 2, scaled to the sum 1."""
    taps = [math.exp(-((d / stdev) ** 2) / 2) for d in range(-(size // 2), size // 2 + 1)]
    return [tap / math.fsum(taps) for tap in taps]


def blur(g: Blur, x: Map, y: Map, beta: float) -> None:
    """y = beta * y + x convolved with the Gaussian along one axis, zeros outside; it is its own transpose."""
    axis, half = 1 if g.vertical else 2, g.size // 2
    margins = [(half, half) if i == axis else (0, 0) for i in range(4)]
    wide = np.moveaxis(np.pad(x, margins), axis, 0)
    result = sum(tap * wide[d : d + x.shape[axis]] for d, tap in enumerate(gaussian(g.size, g.stdev)))
    _add(y, beta, np.moveaxis(np.asarray(result), 0, axis))


class Lattice(NamedTuple):
    """Where the outputs along one axis lie on the input: output o at first + o * step, clamped to [0, last]."""

    first: float
    step: float
    last: float


def _bilinear(x: Map, rows: Lattice, columns: Lattice, y: Map) -> None:
    above, below, down = _neighbours(rows, x.shape[1], y.shape[1])
    left, right, across = _neighbours(columns, x.shape[2], y.shape[2])
    down, across = down[:, None, None].astype(x.dtype), across[:, None].astype(x.dtype)

    def along_row(row: Any) -> Any:
        return (1 - across) * row[:, :, left] + across * row[:, :, right]

    y[...] = (1 - down) * along_row(x[:, above]) + down * along_row(x[:, below])


def _neighbours(lattice: Lattice, side: int, count: int) -> tuple[Any, Any, Any]:
    """The two pixels that each output lies between, and the share of the second."""
    at = np.clip(lattice.first + np.arange(count) * lattice.step, 0, lattice.last)
    first = at.astype(np.int64)
    return first, np.minimum(first + 1, side - 1), at - first


def _centred(side: int, count: float, scale: float, first: float = 0.0) -> Lattice:
    """`count` outputs of `scale` pixels about the middle of the side, from the output `first` on.

    cuda-convnet2 stays 1.01 pixels away from the end, so that the next pixel exists.
    """
    return Lattice(side * 0.5 + (first - count * 0.5) * scale, scale, max(0.0, side - 1.01))


def resize(g: Resize, x: Map, y: Map) -> None:
    """y[c, p, q] = x[c] at (p scale + H / 2 - P / 2 scale, ...), clamped to [0, H - 1.01], bilinear. scale: float32."""
    scale = float(np.float32(g.scale))
    _bilinear(x, _centred(g.height, g.out_h, scale), _centred(g.width, g.out_w, scale), y)


class Draw(NamedTuple):
    """A random scale and crop: pixels of the input to one of the shrunk image; its sides; the corner of the crop."""

    scale: float
    sides: tuple[int, int]
    corner: tuple[int, int]


def draw(g: Rscale, clock: Array) -> Draw:
    """What a step draws, of the four words w of Philox with the key (seed low, seed high), counter (0, 0, step, key).

    The side that is shorter in proportion to the crop's shrinks to crop + s. s is the least whose cumulated crops,
    1 + 4 + ... + (s + 1)^2, are above (w0 + 1/2) / 2^32 of those of all s. The scale is side / (crop + s) less
    (1 - w1 / 2^32) of the way to side / (crop + s + 1) or 1. The corner is w2 and w3, in units of 2^-32 of the places.
    """
    seed_low, seed_high, step, _ = (int(word) for word in clock)
    words = [int(word) for word in philox4x32((0, 0, step, g.key), (seed_low, seed_high))]
    sides, crops = (g.height, g.width), (g.out_h, g.out_w)
    tight = 0 if g.height * g.out_w <= g.width * g.out_h else 1
    side, crop = sides[tight], crops[tight]
    count = np.arange(1, side - crop + 2, dtype=np.float64)
    cumulated = count * (count + 1) * (2 * count + 1) / 6
    s = int(np.searchsorted(cumulated, (words[0] + 0.5) * 2.0**-32 * cumulated[-1], side="right"))
    most, least = side / (crop + s), max(1.0, side / (crop + s + 1))
    scale = least + words[1] * 2.0**-32 * (most - least)
    shrunk = [max(int(sides[axis] / scale), crops[axis]) for axis in range(2)]
    shrunk[tight] = crop + s
    corner = [words[2 + axis] * (shrunk[axis] - crops[axis] + 1) >> 32 for axis in range(2)]
    return Draw(scale, (shrunk[0], shrunk[1]), (corner[0], corner[1]))


def rscale(g: Rscale, x: Map, clock: Array, y: Map) -> None:
    """y = a random crop of x shrunk by a random factor, one for all samples (see `draw`), bilinear as `resize`.

    Where the factor is 1, the crop is of x itself. clock: uint32 [4], (seed low, seed high, step, sample offset).
    """
    drawn = draw(g, clock)
    rows, columns = (
        _centred(side, shrunk, drawn.scale, first)._replace(**_whole(side, drawn.scale))
        for side, shrunk, first in zip((g.height, g.width), drawn.sides, drawn.corner, strict=True)
    )
    _bilinear(x, rows, columns, y)


def _whole(side: int, scale: float) -> dict[str, float]:
    """The end of a lattice that falls on pixels, where there is nothing to stay away from."""
    return {"last": side - 1.0} if scale == 1 else {}


YUV = ((0.2126, 0.7152, 0.0722), (-0.09991, -0.33609, 0.436), (0.615, -0.55861, -0.05639))
XYZ = ((0.49, 0.31, 0.2), (0.17697, 0.8124, 0.01063), (0.0, 0.01, 0.99))


def _mix(matrix: Sequence[Sequence[float]], x: Map) -> list[Any]:
    return [r * x[0] + g * x[1] + b * x[2] for r, g, b in matrix]


def rgb2yuv(g: Colour, x: Map, y: Map) -> None:
    """Y, U, V of R, G, B: a linear map (BT.709)."""
    y[...] = _mix(YUV, x)


def _lightness(t: Any) -> Any:
    """Nearly the cube root, linear near 0."""
    bound = 0.0088564517
    return np.where(t > bound, np.maximum(t, bound) ** 0.3333, 7.787037 * t + 0.13793103)


def rgb2lab(g: Colour, x: Map, y: Map) -> None:
    """L* (less 50 with `center`), a*, b* of R, G, B in [0, 1]."""
    fx, fy, fz = (_lightness(t) for t in _mix(XYZ, x))
    y[...] = 116 * fy - (66 if g.center else 16), 500 * (fx - fy), 200 * (fy - fz)
