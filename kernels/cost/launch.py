"""The cost operations and their CUDA variants."""

from kernels.cost import reference, targets
from kernels.cost.geometry import Bce, Count, Crossent, Logreg, OneHot, Report, Softmax, Sum2
from kernels.op import Launch, Op, Plan, ceil_div
from kernels.rows import VECTOR, map_launch, next_power_of_two, row_launch, whole_batch_vectors, whole_vectors

SOFTMAX_FORWARD = Op("cost.softmax_forward", reference.softmax_forward, writes=("y",), inplace=(("x", "y"),))
SOFTMAX_BACKWARD = Op("cost.softmax_backward", reference.softmax_backward, writes=("dx",), inplace=(("dy", "dx"),))
LOGREG_FORWARD = Op("cost.logreg_forward", reference.logreg_forward, writes=("p", "y"))
LOGREG_BACKWARD = Op("cost.logreg_backward", reference.logreg_backward, writes=("dx",), inplace=(("p", "dx"),))
ONE_HOT = Op("cost.one_hot", targets.one_hot, writes=("t",))
CROSSENT_FORWARD = Op("cost.crossent_forward", targets.crossent_forward, writes=("y",))
CROSSENT_BACKWARD = Op("cost.crossent_backward", targets.crossent_backward, writes=("dx",), inplace=(("x", "dx"),))
CROSSENT_LOGITS_FORWARD = Op("cost.crossent_logits_forward", targets.crossent_logits_forward, writes=("p", "y"))
CROSSENT_LOGITS_BACKWARD = Op(
    "cost.crossent_logits_backward", targets.crossent_logits_backward, writes=("dx",), inplace=(("p", "dx"),)
)
BCE_FORWARD = Op("cost.bce_forward", targets.bce_forward, writes=("y",))
BCE_BACKWARD = Op("cost.bce_backward", targets.bce_backward, writes=("dx",), inplace=(("x", "dx"),))
BCE_LOGITS_FORWARD = Op("cost.bce_logits_forward", targets.bce_logits_forward, writes=("p", "y"), inplace=(("x", "p"),))
BCE_LOGITS_BACKWARD = Op(
    "cost.bce_logits_backward", targets.bce_logits_backward, writes=("dx",), inplace=(("p", "dx"),)
)
COUNT = Op("cost.count", targets.count, writes=("counts",))
SUM2_FORWARD = Op("cost.sum2_forward", targets.sum2_forward, writes=("y",))
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
@CROSSENT_FORWARD.variant("crossent.cu")
@CROSSENT_BACKWARD.variant("crossent.cu")
@CROSSENT_LOGITS_FORWARD.variant("crossent.cu")
@CROSSENT_LOGITS_BACKWARD.variant("crossent.cu")
def samples(g: Logreg | Crossent) -> Launch:
    return _columns(g.classes, 1, g.batch)


@LOGREG_BACKWARD.variant("logreg_backward.cu")
@ONE_HOT.variant("one_hot.cu")
def single(g: Logreg | OneHot) -> Launch:
    return row_launch(g.classes, 1, g.batch)


@LOGREG_BACKWARD.variant("logreg_backward.cu", fits=whole_batch_vectors)
@ONE_HOT.variant("one_hot.cu", fits=whole_batch_vectors)
def vec4(g: Logreg | OneHot) -> Launch:
    return row_launch(g.classes, 1, g.batch, VECTOR)


@BCE_BACKWARD.variant("bce_backward.cu")
@BCE_LOGITS_BACKWARD.variant("bce_backward.cu")
def elements(g: Bce) -> Launch:
    return map_launch(g)


@BCE_BACKWARD.variant("bce_backward.cu", fits=whole_vectors)
@BCE_LOGITS_BACKWARD.variant("bce_backward.cu", fits=whole_vectors)
def elements_vec4(g: Bce) -> Launch:
    return map_launch(g, VECTOR)


def _shares(g: Bce | Sum2, kernel: str, size: int) -> Plan:
    """Each sample's elements in enough shares for some hundred blocks, but no thread with fewer than 16.

    size: bytes of what a share leaves in the workspace for each sample.
    """
    across, features = min(32, next_power_of_two(g.batch)), g.channels * g.height * g.width
    lanes, tiles = min(256 // across, next_power_of_two(features)), ceil_div(g.batch, across)
    splits = max(1, min(ceil_div(512, tiles), features // (16 * lanes)))
    define = (("SPLITS", splits), ("THREADS", across * lanes))
    first = Launch((tiles * splits,), (across, lanes), define=define, kernel=kernel)
    finish = Launch((ceil_div(g.batch, 128),), (128,), define=define, kernel=f"{kernel}_finish")
    return Plan((first, finish), workspace=splits * g.batch * size)


@BCE_FORWARD.variant("bce_forward.cu")
def probabilities(g: Bce) -> Plan:
    return _shares(g, "bce_forward", 32)


@BCE_LOGITS_FORWARD.variant("bce_forward.cu")
def logits(g: Bce) -> Plan:
    return _shares(g, "bce_logits_forward", 32)


@SUM2_FORWARD.variant("sum2_forward.cu")
def squares(g: Sum2) -> Plan:
    return _shares(g, "sum2_forward", 8)


@COUNT.variant("count.cu")
def classes(g: Count) -> Launch:
    threads = min(128, next_power_of_two(g.batch))
    return Launch((g.classes,), (1, threads), define=(("THREADS", threads),))


@REPORT.variant("report.cu")
def rows(g: Report) -> Launch:
    threads = min(256, next_power_of_two(g.batch))
    return Launch((g.rows,), (1, threads), define=(("THREADS", threads),))
