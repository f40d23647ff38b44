"""The cost operations and their CUDA variants."""

from kernels.cost import reference
from kernels.cost.geometry import Logreg, Report, Softmax
from kernels.op import Launch, Op, ceil_div
from kernels.rows import VECTOR, next_power_of_two, row_launch, whole_batch_vectors

SOFTMAX_FORWARD = Op("cost.softmax_forward", reference.softmax_forward, writes=("y",), inplace=(("x", "y"),))
SOFTMAX_BACKWARD = Op("cost.softmax_backward", reference.softmax_backward, writes=("dx",), inplace=(("dy", "dx"),))
LOGREG_FORWARD = Op("cost.logreg_forward", reference.logreg_forward, writes=("p", "y"))
LOGREG_BACKWARD = Op("cost.logreg_backward", reference.logreg_backward, writes=("dx",), inplace=(("p", "dx"),))
REPORT = Op("cost.report", reference.report, writes=("history", "healthy"))


def _columns(channels: int, height: int, length: int) -> Launch:
    """Blocks of neighbouring columns; narrow ones (32 bytes) where columns are few, to occupy more multiprocessors."""
    across = min(32 if height * length >= 4096 else 8, next_power_of_two(length))
    lanes = min(next_power_of_two(channels), 512 // across)
    return Launch((height * ceil_div(length, across),), (across, lanes), define=(("THREADS", across * lanes),))


@SOFTMAX_FORWARD.variant("softmax.cu")
@SOFTMAX_BACKWARD.variant("softmax.cu")
def columns(g: Softmax) -> Launch:
    return _columns(g.channels, g.height, g.width * g.batch)


@LOGREG_FORWARD.variant("logreg_forward.cu")
def samples(g: Logreg) -> Launch:
    return _columns(g.classes, 1, g.batch)


@LOGREG_BACKWARD.variant("logreg_backward.cu")
def single(g: Logreg) -> Launch:
    return row_launch(g.classes, 1, g.batch)


@LOGREG_BACKWARD.variant("logreg_backward.cu", fits=whole_batch_vectors)
def vec4(g: Logreg) -> Launch:
    return row_launch(g.classes, 1, g.batch, VECTOR)


@REPORT.variant("report.cu")
def block(g: Report) -> Launch:
    threads = min(256, next_power_of_two(g.batch))
    return Launch((1,), (3, threads), define=(("THREADS", threads),))
