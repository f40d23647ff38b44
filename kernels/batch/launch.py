"""The operations on shares of batches and their CUDA variants."""

from kernels.batch import reference
from kernels.batch.geometry import Labels, Shares
from kernels.op import Launch, Op
from kernels.rows import VECTOR, row_launch

SPLIT = Op("batch.split", reference.split, writes=("y",))
JOIN = Op("batch.join", reference.join, writes=("y",))
LABELS = Op("batch.labels", reference.labels, writes=("y",))
AMOUNTS = Op("batch.amounts", reference.amounts, writes=("y",))


def _rows(g: Shares, vector: int = 1) -> Launch:
    return row_launch(g.parts * g.channels, g.height, g.width * g.share, vector)


def whole_share_vectors(g: Shares) -> str:
    """Why samples cannot be moved four at a time."""
    sides = {"N": g.batch, "share": g.share, "first": g.first, "offset": g.offset, "length": g.length}
    return ", ".join(f"{name} = {side} is not a multiple of {VECTOR}" for name, side in sides.items() if side % VECTOR)


@SPLIT.variant("split.cu")
@JOIN.variant("join.cu")
def single(g: Shares) -> Launch:
    return _rows(g)


@SPLIT.variant("split.cu", fits=whole_share_vectors)
@JOIN.variant("join.cu", fits=whole_share_vectors)
def vec4(g: Shares) -> Launch:
    return _rows(g, VECTOR)


@LABELS.variant("labels.cu")
@AMOUNTS.variant("amounts.cu")
def threads(g: Labels) -> Launch:
    return row_launch(1, 1, g.count)
