"""The table of (operation, geometry) that every test of kernels runs over; edge shapes first.

A new operation needs rows here and, where its arguments are not plain maps, a function in arguments.py.
"""

import dataclasses
import importlib
from importlib.util import find_spec
from typing import Any, NamedTuple

from kernels import batch, cmpool, cost, eltwise, image, neuron, norm, pool, random, update, wire
from kernels.op import FOLDER, Op
from tests.kernels import cases_local

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
        return f"{self.op}({' '.join(axes + [f'{name}={_text(value)}' for name, value in fields.items()])})"


def _text(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}"


def cases(ops: tuple[Op, ...], *geometries: Any) -> list[Case]:
    return [Case(op, g) for g in geometries for op in ops]


# channels, height, width, batch: one element; one pixel; rows of odd length; rectangles; batches 1, 3, 32, 128.
MAPS = ((1, 1, 1, 1), (5, 1, 1, 32), (3, 1, 1, 3), (3, 7, 5, 1), (5, 4, 6, 3), (1, 3, 2, 128), (70, 2, 3, 4))

PARAMETERS = {"tanh": (1.7, 0.6), "brelu": (0.7, 1.0), "linear": (-1.5, 0.3), "log": (0.1, 1.0), "drelu": (0.8, 1.0)}


def neurons(shape: tuple[int, ...], *reads: str) -> list[neuron.Neuron]:
    """One of each kind, or of those whose derivative reads one of these."""
    kinds = [name for name, kind in neuron.FUNCTIONS.items() if not reads or kind.reads in reads]
    return [neuron.Neuron(*shape, neuron.KINDS.index(name), *PARAMETERS.get(name, ())) for name in kinds]


NEURON = [
    *cases((neuron.FORWARD,), *(g for m in MAPS for g in neurons(m))),
    *cases((neuron.BACKWARD,), *(g for m in MAPS for g in neurons(m, "y"))),
    *cases((neuron.BACKWARD_X,), *(g for m in MAPS for g in neurons(m, "x"))),
    # More rows than a grid's y and z axes may count.
    *cases((neuron.FORWARD, neuron.BACKWARD), neuron.Neuron(66000, 1, 1, 1, 0), neuron.Neuron(1, 66000, 1, 1, 0)),
]

DROPOUT = cases(
    (random.DROPOUT, random.DROPOUT_BACKWARD),
    *(random.Dropout(*m, keep=keep, key=7) for m in MAPS for keep in (0.5, 0.9)),
    random.Dropout(4, 3, 3, 8, keep=1.0, key=0),
    random.Dropout(3, 2, 3, 4, keep=0.7, key=3, scaled=False),
    random.Dropout(5, 2, 3, 8, keep=0.6, key=4, channel=3, first=2, run=4, stride=20),  # parts of a larger map
    random.Dropout(5, 1, 1, 12, keep=0.6, key=4, channel=70, first=-7, run=3, stride=9),
)

BATCH = [
    *cases(
        (batch.SPLIT, batch.JOIN),
        *(batch.Shares(*m, parts=1, share=m[3]) for m in MAPS),
        batch.Shares(3, 2, 2, 8, parts=2, share=4),
        batch.Shares(2, 1, 1, 7, parts=3, share=3),  # the last share is short
        batch.Shares(5, 2, 3, 4, parts=3, share=4),  # two shares are empty
        batch.Shares(2, 3, 1, 12, parts=1, share=4, first=8),
        batch.Shares(2, 3, 1, 9, parts=2, share=2, first=6),
        batch.Shares(70, 1, 1, 4, parts=2, share=3, first=4),  # nothing of the batch
    ),
    *cases(
        (batch.JOIN,),
        batch.Shares(3, 1, 1, 8, parts=1, share=4, first=4, offset=8, length=16),
        batch.Shares(3, 1, 1, 8, parts=1, share=4, first=4, offset=4, length=9),  # rows that begin anywhere
        batch.Shares(3, 2, 2, 5, parts=2, share=3, first=1, offset=2, length=7),
    ),
    *cases(
        (batch.LABELS, batch.AMOUNTS),
        batch.Labels(1, 1),
        batch.Labels(9, 5),  # padded
        batch.Labels(8, 24, first=2, run=4, stride=12),
        batch.Labels(6, 14, first=4, run=3, stride=9),  # the last run ends behind the batch
        batch.Labels(300, 500, first=200),
    ),
]

ELTWISE = [
    *cases((eltwise.SUM,), *(eltwise.Sum(*m, coeff=coeff) for m in MAPS for coeff in (1.0, -0.3))),
    *cases((eltwise.COPY,), *(eltwise.Copy(*m, x_offset=a, y_offset=b) for m in MAPS for a, b in ((0, 3), (2, 0)))),
    *cases((eltwise.MAXIMUM, eltwise.MAXIMUM_BACKWARD), *(eltwise.Maximum(*m, index=i) for m in MAPS for i in (0, 2))),
]

CMPOOL = cases(
    (cmpool.FORWARD, cmpool.BACKWARD),
    cmpool.Cmpool(1, 1, 1, 1, size=1, stride=1, start=0, outputs=1),
    cmpool.Cmpool(6, 2, 3, 4, size=2, stride=2, start=0, outputs=3),
    cmpool.Cmpool(7, 3, 2, 3, size=3, stride=3, start=0, outputs=3),  # the last group has one channel
    cmpool.Cmpool(9, 1, 5, 32, size=4, stride=2, start=-3, outputs=5),  # groups overlap
    cmpool.Cmpool(70, 2, 2, 8, size=70, stride=5, start=-4, outputs=1),
)


def windows(shape: tuple, size: tuple, stride: tuple, start: tuple, out: tuple, *flags: bool) -> pool.Pool:
    return pool.Pool(*shape, *size, *stride, *start, *out, *flags)


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
    windows((3, 4, 2, 3), (5, 3), (5, 3), (0, 0), (1, 1), False, False, True),  # larger than the map
    windows((5, 6, 9, 32), (3, 2), (2, 3), (0, 0), (3, 3), False, False, True),
    windows((2, 9, 8, 4), (3, 2), (2, 2), (-2, 1), (6, 4), True, False, True),
    windows((2, 7, 6, 4), (1, 1), (3, 2), (2, 0), (2, 3), False, False),  # single pixels
)
POOL = cases((pool.MAX_FORWARD, pool.MAX_BACKWARD, pool.AVG_FORWARD, pool.AVG_BACKWARD), *POOLS)

# channels, height, width, batch; size, alpha, power, k of a normalisation within maps.
WINDOWS = (
    (1, 1, 1, 1, 3, 0.5, 0.75, 2.0),
    (3, 5, 7, 3, 3, 0.3, 0.75, 1.0),
    (2, 6, 4, 4, 4, 0.2, 0.5, 2.0),  # an even window reaches further up and left
    (2, 3, 2, 8, 9, 1.0, 1.5, 1.0),  # larger than the map
    (70, 2, 3, 4, 1, 1.0, 0.75, 1.0),
)

NORM = [
    *cases(
        (norm.LRN_FORWARD, norm.LRN_BACKWARD),
        norm.Lrn(1, 1, 1, 1, size=5, alpha=0.5, power=0.75, k=2.0),
        norm.Lrn(5, 2, 3, 3, size=4, alpha=0.3, power=0.75, k=1.0),
        norm.Lrn(11, 3, 2, 32, size=5, alpha=0.2, power=0.75, k=2.0),
        norm.Lrn(3, 1, 5, 1, size=9, alpha=1.0, power=1.5, k=1.0),
        norm.Lrn(16, 1, 1, 4, size=1, alpha=1.0, power=0.5, k=1.0),
        norm.Lrn(40, 1, 2, 3, size=17, alpha=0.1, power=0.75, k=1.0),
        norm.Lrn(11, 3, 2, 32, size=4, alpha=0.2, power=0.75, k=2.0, blocked=True),
        norm.Lrn(6, 1, 5, 1, size=3, alpha=1.0, power=1.5, k=1.0, blocked=True),
    ),
    *cases((norm.RNORM_FORWARD, norm.RNORM_BACKWARD), *(norm.Rnorm(*w) for w in WINDOWS)),
    *cases(
        (norm.CNORM_FORWARD, norm.CNORM_BACKWARD),
        *(norm.Cnorm(*w, exact=exact) for w in WINDOWS for exact in (True, False)),
    ),
    *cases(
        (norm.BATCH_STATS, norm.BATCH_FORWARD, norm.BATCH_INFER, norm.BATCH_SUMS, norm.BATCH_DGRAD, norm.BATCH_WGRAD),
        *(norm.BatchNorm(*m, eps=1e-5, momentum=0.1) for m in MAPS),
        norm.BatchNorm(2, 40, 33, 8, eps=1e-3, momentum=0.3),  # several shares a channel
    ),
    *cases(
        (norm.BATCH_MOMENTS, norm.BATCH_JOIN, norm.BATCH_DGRAD),
        *(norm.BatchNorm(*m, eps=1e-5, momentum=0.1, samples=2 * m[3] + 1) for m in MAPS),
        norm.BatchNorm(2, 40, 33, 8, eps=1e-3, momentum=0.3, samples=11),
        norm.BatchNorm(1, 1, 1, 1, eps=1e-3, momentum=0.3, samples=1),
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
        cost.Logreg(1, 1, topk=(1,), smoothing=0.0, scale=1.0),
        cost.Logreg(3, 3, topk=(1, 2), smoothing=0.1, scale=0.5),
        cost.Logreg(10, 128, topk=(1, 5), smoothing=0.0, scale=1 / 128),
        cost.Logreg(1000, 32, topk=(1, 5, 10), smoothing=0.1, scale=1 / 32),
        cost.Logreg(9, 37, topk=(1, 2, 3, 4, 5, 6, 7, 8), smoothing=0.2, scale=1.0),
    ),
    *cases((cost.ONE_HOT,), *(cost.OneHot(*shape) for shape in ((1, 1), (1, 5), (3, 3), (10, 128), (1000, 6)))),
    *cases(
        (
            cost.CROSSENT_FORWARD,
            cost.CROSSENT_BACKWARD,
            cost.CROSSENT_LOGITS_FORWARD,
            cost.CROSSENT_LOGITS_BACKWARD,
        ),
        *(cost.Crossent(*shape, scale=0.3) for shape in ((1, 1), (3, 3), (10, 128), (1000, 32), (7, 37))),
    ),
    *cases(
        (cost.BCE_FORWARD, cost.BCE_BACKWARD, cost.BCE_LOGITS_FORWARD, cost.BCE_LOGITS_BACKWARD),
        *(cost.Bce(*m, weight=weight, scale=0.3) for m in MAPS for weight in (1.0, 2.5)),
        cost.Bce(20, 9, 31, 3, top1=False),  # several shares a sample
    ),
    *cases((cost.COUNT,), *(cost.Count(*shape) for shape in ((1, 1), (3, 5), (70, 300)))),
    *cases((cost.SUM2_FORWARD,), *(cost.Sum2(*m) for m in MAPS), cost.Sum2(20, 9, 31, 3)),
    *cases(
        (cost.REPORT,),
        *(cost.Report(n, ring=8, rows=3, first=first) for n in (1, 3, 128, 300) for first in (True, False)),
        cost.Report(5, ring=4, rows=1, offset=2, watched=False),
        cost.Report(5, ring=4, rows=9, offset=1),
    ),
]

IMAGE = [
    *cases(
        (image.RESAMPLE,),
        image.Resample(3, 20, 40, 6, 16384),
        image.Resample(1, 17, 3, 5, 1024),
        image.Resample(3, 1, 1, 4, 64),
    ),
    *cases((image.PREPARE,), *(image.Prepare(*m, *m[1:3], mean_image=m[3] % 2 == 1) for m in MAPS)),
    *cases(
        (image.PREPARE,),
        image.Prepare(3, 2, 150, 33, 2, 150),  # rows of more than a tile
        image.Prepare(3, 5, 4, 5, 8, 9),  # from larger images
        image.Prepare(1, 9, 8, 40, 5, 6, mean_image=True),  # from smaller ones
        image.Prepare(800, 1, 3, 33, 2, 2),  # of more channels than a tile of all samples holds
    ),
    *cases((image.AUGMENT,), *(image.Augment(*m, *m[1:3], contrast=m[3] % 2 == 1) for m in MAPS[:-1])),
    *cases(
        (image.AUGMENT,),
        image.Augment(3, 2, 150, 33, 3, 151, contrast=True),
        image.Augment(3, 5, 4, 5, 8, 9, mean_image=True, contrast=True),
        image.Augment(1, 9, 8, 40, 5, 6, contrast=True),
    ),
]
PIXELS = ((3, 1, 1, 1), (3, 1, 1, 32), (3, 7, 5, 1), (3, 4, 6, 3), (3, 1, 2, 128))
IMAGE += [
    *cases((image.FLIP,), *(image.Flip(*m) for m in MAPS)),
    *cases((image.BLUR,), *(image.Blur(*m, size=5, stdev=1.0, vertical=v) for m in MAPS for v in (True, False))),
    *cases((image.BLUR,), image.Blur(2, 12, 14, 4, size=9, stdev=2.5, vertical=True)),
    *cases((image.BLUR,), image.Blur(2, 12, 14, 3, size=3, stdev=0.3, vertical=False)),
    *cases(
        (image.RESIZE,),
        image.Resize(1, 1, 1, 1, 2, 2, scale=0.5),
        image.Resize(3, 7, 5, 1, 10, 7, scale=0.7),
        image.Resize(5, 9, 13, 4, 7, 10, scale=1.3),
        image.Resize(2, 4, 6, 3, 4, 6, scale=1.0),
        image.Resize(70, 3, 2, 32, 1, 1, scale=2.0),
        image.Resize(3, 40, 33, 8, 20, 30, scale=1.1),
    ),
    *cases(
        (image.RSCALE,),
        image.Rscale(1, 1, 1, 1, 1, 1, key=0),
        image.Rscale(3, 9, 9, 4, 5, 5, key=7),
        image.Rscale(5, 20, 31, 3, 12, 13, key=8),
        image.Rscale(2, 31, 20, 32, 13, 12, key=9),
        image.Rscale(70, 4, 4, 8, 4, 4, key=2**31 - 1),  # the whole image
    ),
    *cases((image.RGB2YUV,), *(image.Colour(*m, center=False) for m in PIXELS)),
    *cases((image.RGB2LAB,), *(image.Colour(*m, center=center) for m in PIXELS for center in (True, False))),
]

UPDATE = [
    *cases(
        (update.SGD,),
        update.Sgd(1, 1),
        update.Sgd(7, 3, ring=4, clip=0.5),
        update.Sgd(5, 2, nesterov=True, ring=4, clip=1e9),
    ),
    *cases((update.COLLECT,), update.Collect(1, 1), update.Collect(7, 3)),
    *cases((update.NORM,), update.Norm(1, ring=1), update.Norm(3, ring=8), update.Norm(1100, ring=2)),
    *cases(
        (update.RESCALE,),
        *(
            update.Rescale(*shape, parameter=parameter, low=low, high=high, centered=centered)
            for shape, parameter in (((1, 1), 0), ((5, 27), 1), ((70, 600), 0), ((3, 7), 2))
            for low, high, centered in ((1.5, 1.5, False), (0.0, 2.0, False), (0.3, float("inf"), True))
        ),
    ),
    *cases((update.AVERAGE,), update.Average(1, 0.25, warmup=False), update.Average(3, 1e-4, warmup=True)),
    *cases((update.MAGNITUDE,), update.Magnitude(1), update.Magnitude(3), update.Magnitude(300)),
]

WIRE = [
    *cases((wire.NARROW, wire.WIDEN), wire.Halve(1), wire.Halve(33)),
    *cases((wire.SCALE,), wire.Scale(1, 0.0), wire.Scale(5, 1 / 3)),
    *cases((wire.CLEAR,), wire.Clear(1), wire.Clear(5000)),
]

CASES: list[Case] = [*NEURON, *DROPOUT, *BATCH, *ELTWISE, *CMPOOL, *POOL, *NORM, *COST, *IMAGE, *UPDATE, *WIRE]
if find_spec("tests.kernels.cases_conv"):
    from tests.kernels import cases_conv

    CASES += [Case(*row) for row in cases_conv.CASES]
CASES += [Case(*row) for row in cases_local.CASES]
