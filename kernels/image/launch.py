"""The image operations and their CUDA variants."""

from kernels.image import reference
from kernels.image.geometry import HEAD, MOST, Augment, Blur, Colour, Flip, Prepare, Resample, Resize, Rscale
from kernels.op import Launch, Op, Plan, ceil_div
from kernels.rows import VECTOR, map_launch, next_power_of_two, row_launch, whole_batch_vectors, whole_vectors

RESAMPLE = Op("image.resample", reference.resample, writes=("pixels",))
PREPARE = Op("image.prepare", reference.prepare, writes=("y",))
AUGMENT = Op("image.augment", reference.augment, writes=("y",))
FLIP = Op("image.flip", reference.flip, writes=("y",))
BLUR = Op("image.blur", reference.blur, writes=("y",))
RESIZE = Op("image.resize", reference.resize, writes=("y",))
RSCALE = Op("image.rscale", reference.rscale, writes=("y",))
RGB2YUV = Op("image.rgb2yuv", reference.rgb2yuv, writes=("y",), inplace=(("x", "y"),))
RGB2LAB = Op("image.rgb2lab", reference.rgb2lab, writes=("y",), inplace=(("x", "y"),))

TILE, THREADS = 6144, 256  # bytes of a tile, about


def _tiles(g: Prepare) -> Launch:
    """Tiles of one row: `samples` images by as many columns as make them about equally large and wide."""
    samples = min(32, next_power_of_two(g.batch), next_power_of_two(max(1, 4 * TILE // g.channels)))
    most = max(1, TILE // (samples * g.channels))
    columns = ceil_div(g.width, ceil_div(g.width, most))
    blocks = ceil_div(g.batch, samples) * ceil_div(g.width, columns) * g.height
    define = (("SAMPLES", samples), ("COLUMNS", columns), ("CHANNELS", g.channels), ("THREADS", THREADS))
    return Launch((blocks,), (samples, THREADS // samples), define=define)


@RESAMPLE.variant("resample.cu")
def tiles(g: Resample) -> Launch:
    rows, columns = 16, 32
    blocks = ceil_div(g.width, columns) * ceil_div(g.height, rows) * g.batch
    define = (("ROWS", rows), ("COLUMNS", columns), ("CHANNELS", g.channels), ("MOST", MOST), ("HEAD", HEAD))
    return Launch((blocks,), (THREADS,), define=define)


@PREPARE.variant("prepare.cu")
def transpose(g: Prepare) -> Launch:
    return _tiles(g)


@AUGMENT.variant("augment.cu")
def coloured(g: Augment) -> Plan:
    tiles = _tiles(g)
    means = Launch((g.batch,), (1, THREADS), define=tiles.define, kernel="augment_means")
    return Plan((means, tiles) if g.contrast else (tiles,), workspace=4 * g.channels * g.batch)


@FLIP.variant("flip.cu")
def flip_single(g: Flip) -> Launch:
    return map_launch(g)


@FLIP.variant("flip.cu", fits=whole_batch_vectors)
def flip_vec4(g: Flip) -> Launch:
    return map_launch(g, VECTOR)


def _blur(g: Blur, vector: int) -> Launch:
    launch = map_launch(g, vector)
    taps = ",".join(f"{tap:.9e}f" for tap in reference.gaussian(g.size, g.stdev))
    return Launch(launch.grid, launch.block, define=(*launch.define, ("SIZE", g.size), ("TAPS", taps)))


@BLUR.variant("blur.cu")
def blur_single(g: Blur) -> Launch:
    return _blur(g, 1)


@BLUR.variant("blur.cu", fits=whole_batch_vectors)
def blur_vec4(g: Blur) -> Launch:
    return _blur(g, VECTOR)


@RESIZE.variant("resize.cu")
@RSCALE.variant("rscale.cu")
def bilinear_single(g: Resize | Rscale) -> Launch:
    return row_launch(g.channels, g.out_h, g.out_w * g.batch)


@RESIZE.variant("resize.cu", fits=whole_batch_vectors)
@RSCALE.variant("rscale.cu", fits=whole_batch_vectors)
def bilinear_vec4(g: Resize | Rscale) -> Launch:
    return row_launch(g.channels, g.out_h, g.out_w * g.batch, VECTOR)


@RGB2YUV.variant("colour.cu")
@RGB2LAB.variant("colour.cu")
def pixel_single(g: Colour) -> Launch:
    return row_launch(1, g.height, g.width * g.batch)


@RGB2YUV.variant("colour.cu", fits=whole_vectors)
@RGB2LAB.variant("colour.cu", fits=whole_vectors)
def pixel_vec4(g: Colour) -> Launch:
    return row_launch(1, g.height, g.width * g.batch, VECTOR)
