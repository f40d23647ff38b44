"""The table of (operation, geometry) that every test of kernels runs over; edge shapes first.

A new operation needs rows here and, where its arguments are not plain maps, a function in arguments.py.
"""

import dataclasses
import importlib
from importlib.util import find_spec
from typing import Any, NamedTuple

from kernels import cost, eltwise, image, neuron, norm, pool, random, update
from kernels.op import FOLDER, Op

for path in FOLDER.glob("*/__init__.py"):  # so that the registry is complete
    importlib.import_module(f"kernels.{path.parent.name}")


class Case(NamedTuple):
    op: Op
    geometry: Any

    def __str__(self) -> str:
        """neuron.forward(3x4x5x32 kind=1): the axes C, H, W, N where the geometry has them, then the rest."""
        fields = dataclasses.asdict(self.geometry)
        names = ("channels", "height", "width", "batch")
        axes = ["x".join(str(fields.pop(name)) for name in names)] if "channels" in fields else []
        return f"{self.op}({' '.join(axes + [f'{name}={value:g}' for name, value in fields.items()])})"


def cases(ops: tuple[Op, ...], *geometries: Any) -> list[Case]:
    return [Case(op, g) for g in geometries for op in ops]


# channels, height, width, batch: one element; one pixel; rows of odd length; rectangles; batches 1, 3, 32, 128.
MAPS = ((1, 1, 1, 1), (5, 1, 1, 32), (3, 1, 1, 3), (3, 7, 5, 1), (5, 4, 6, 3), (1, 3, 2, 128), (70, 2, 3, 4))

NEURON = [
    *cases((neuron.FORWARD, neuron.BACKWARD), *(neuron.Neuron(*m, kind=k) for m in MAPS for k in range(3))),
    # More rows than a grid's y and z axes may count.
    *cases((neuron.FORWARD, neuron.BACKWARD), neuron.Neuron(66000, 1, 1, 1, 0), neuron.Neuron(1, 66000, 1, 1, 0)),
]

DROPOUT = cases(
    (random.DROPOUT, random.DROPOUT_BACKWARD),
    *(random.Dropout(*m, keep=keep, key=7) for m in MAPS for keep in (0.5, 0.9)),
    random.Dropout(4, 3, 3, 8, keep=1.0, key=0),
)

ELTWISE = [
    *cases((eltwise.SUM,), *(eltwise.Sum(*m, coeff=coeff) for m in MAPS for coeff in (1.0, -0.3))),
    *cases((eltwise.COPY,), *(eltwise.Copy(*m, x_offset=a, y_offset=b) for m in MAPS for a, b in ((0, 3), (2, 0)))),
]


def windows(shape: tuple, size: tuple, stride: tuple, start: tuple, out: tuple, count_pad: bool = False) -> pool.Pool:
    return pool.Pool(*shape, *size, *stride, *start, *out, count_pad)


POOLS = (
    windows((1, 1, 1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
    windows((3, 13, 13, 3), (3, 3), (2, 2), (0, 0), (6, 6)),
    windows((5, 6, 9, 32), (3, 2), (2, 3), (0, 0), (3, 3)),  # overhangs below
    windows((2, 8, 7, 4), (3, 3), (2, 2), (-1, -1), (5, 4), True),  # padded, overhangs
    windows((2, 8, 7, 4), (3, 3), (2, 2), (-1, -1), (5, 4)),
    windows((1, 5, 5, 1), (2, 2), (3, 3), (0, 0), (2, 2)),  # gaps between windows
    windows((3, 7, 4, 8), (7, 4), (1, 1), (0, 0), (1, 1)),  # the whole map
    windows((2, 6, 5, 3), (3, 3), (1, 1), (-1, -2), (6, 7), True),  # some windows at the right hold padding alone
    windows((2, 6, 6, 4), (1, 1), (2, 2), (0, 0), (4, 4)),  # the last windows are empty
    windows((2, 9, 8, 3), (3, 2), (2, 2), (2, 1), (3, 3)),  # the first pixels are dropped
    windows((70, 2, 2, 128), (2, 2), (2, 2), (0, 0), (1, 1)),
)
POOL = cases((pool.MAX_FORWARD, pool.MAX_BACKWARD, pool.AVG_FORWARD, pool.AVG_BACKWARD), *POOLS)

NORM = [
    *cases(
        (norm.LRN_FORWARD, norm.LRN_BACKWARD),
        norm.Lrn(1, 1, 1, 1, size=5, alpha=0.5, power=0.75, k=2.0),
        norm.Lrn(5, 2, 3, 3, size=4, alpha=0.3, power=0.75, k=1.0),
        norm.Lrn(11, 3, 2, 32, size=5, alpha=0.2, power=0.75, k=2.0),
        norm.Lrn(3, 1, 5, 1, size=9, alpha=1.0, power=1.5, k=1.0),
        norm.Lrn(16, 1, 1, 4, size=1, alpha=1.0, power=0.5, k=1.0),
        norm.Lrn(40, 1, 2, 3, size=17, alpha=0.1, power=0.75, k=1.0),
    ),
    *cases(
        (norm.BATCH_STATS, norm.BATCH_FORWARD, norm.BATCH_INFER, norm.BATCH_SUMS, norm.BATCH_DGRAD, norm.BATCH_WGRAD),
        *(norm.BatchNorm(*m, eps=1e-5, momentum=0.1) for m in MAPS),
        norm.BatchNorm(2, 40, 33, 8, eps=1e-3, momentum=0.3),  # several shares a channel
    ),
]

COST = [
    *cases(
        (cost.SOFTMAX_FORWARD, cost.SOFTMAX_BACKWARD),
        *(cost.Softmax(*m) for m in MAPS),
        cost.Softmax(1000, 1, 1, 3),
        cost.Softmax(3, 2, 17, 128),  # wide blocks
    ),
    *cases(
        (cost.LOGREG_FORWARD, cost.LOGREG_BACKWARD),
        cost.Logreg(1, 1, topk=1, smoothing=0.0, scale=1.0),
        cost.Logreg(3, 3, topk=2, smoothing=0.1, scale=0.5),
        cost.Logreg(10, 128, topk=5, smoothing=0.0, scale=1 / 128),
        cost.Logreg(1000, 32, topk=5, smoothing=0.1, scale=1 / 32),
        cost.Logreg(7, 37, topk=7, smoothing=0.2, scale=1.0),
    ),
    *cases((cost.REPORT,), *(cost.Report(n, ring=8, first=first) for n in (1, 3, 128, 300) for first in (True, False))),
]

IMAGE = cases(
    (image.PREPARE,),
    *(image.Prepare(*m) for m in MAPS),
    image.Prepare(3, 2, 50, 33),  # rows of more than a tile
)

UPDATE = [
    *cases((update.SGD,), update.Sgd(1, 1), update.Sgd(7, 3)),
    *cases((update.MAGNITUDE,), update.Magnitude(1), update.Magnitude(3), update.Magnitude(300)),
]

CASES: list[Case] = [*NEURON, *DROPOUT, *ELTWISE, *POOL, *NORM, *COST, *IMAGE, *UPDATE]
if find_spec("tests.kernels.cases_conv"):
    from tests.kernels import cases_conv

    CASES += [Case(*row) for row in cases_conv.CASES]
