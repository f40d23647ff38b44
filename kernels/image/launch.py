"""The image operation and its CUDA variants."""

from kernels.image import reference
from kernels.image.geometry import Prepare
from kernels.op import Launch, Op, ceil_div

PREPARE = Op("image.prepare", reference.prepare, writes=("y",))

SAMPLES, BYTES = 32, 128


@PREPARE.variant("prepare.cu")
def transpose(g: Prepare) -> Launch:
    blocks = ceil_div(g.batch, SAMPLES) * ceil_div(g.width * g.channels, BYTES) * g.height
    return Launch((blocks,), (32, 8), define=(("SAMPLES", SAMPLES), ("BYTES", BYTES)))
