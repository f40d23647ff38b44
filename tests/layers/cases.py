"""The table that drives the tests of all layers. A new layer adds its rows here; a test fails if it has none."""

from dataclasses import dataclass, fields

from layers.base import Layer, Shape
from layers.batch_norm import BatchNorm
from layers.cmpool import Cmpool
from layers.cmrnorm import Cmrnorm
from layers.colour import Rgb2lab, Rgb2yuv
from layers.conv import Conv
from layers.costs import Bce, Crossent, Dce, Sum2
from layers.data import Data
from layers.dropout import Dropout
from layers.fc import Fc, Sfc
from layers.image import Blur, Crop, Href, Nailbed
from layers.join import Concat, Eltmax, Eltsum, Pass
from layers.local import Local
from layers.logreg import Logreg
from layers.neuron import Neuron
from layers.options import Size
from layers.pool import GlobalPool, Pool
from layers.resize import Resize, Rscale
from layers.rnorm import Cnorm, Rnorm
from layers.softmax import Softmax
from layers.sum import Sum
from layers.window import text


@dataclass(frozen=True)
class Case:
    """A layer, the shape of one sample of each input, and the batch.

    frozen: inputs ("x0", "x1", ...) and parameters ("weight", ...) that need no gradient. within: where the values of
    the first input lie, if not anywhere.
    """

    layer: Layer
    inputs: tuple[Shape, ...]
    batch: int
    frozen: frozenset[str] = frozenset()
    within: tuple[float, float] | None = None

    @property
    def labeled(self) -> bool:
        """Whether the second input is the labels."""
        return self.layer.is_cost and len(self.inputs) > 1 and self.inputs[1] == Shape(1) != self.inputs[0]

    def __str__(self) -> str:
        parts = [_text(field.name, getattr(self.layer, field.name), field.default) for field in fields(self.layer)]
        shapes = [str(shape) for shape in self.inputs]
        return "-".join([self.layer.type, *filter(None, parts), *shapes, f"n{self.batch}", *sorted(self.frozen)])


def _text(name: str, value: object, default: object) -> str:
    """An option in the name of a row; nothing where it has its default."""
    if isinstance(value, Size):
        return "" if value in (default, (default, default)) else f"{name}{text(value)}"
    return "" if value == default else f"{name}{value}".replace(" ", "")


def case(
    layer: Layer,
    *inputs: tuple[int, ...],
    batch: int = 4,
    frozen: tuple[str, ...] = (),
    within: tuple[float, float] | None = None,
) -> Case:
    """One row; a shape is (C, H, W), or (C,) for features."""
    return Case(layer, tuple(Shape(*shape) for shape in inputs), batch, frozenset(frozen), within)


UNIT = (0.05, 0.95)  # of probabilities


CASES = [
    case(Data(size=(5, 7)), batch=3),
    case(Data(channels=1, size=4), batch=1),
    case(Conv(filters=4, size=3), (3, 7, 7)),
    case(Conv(filters=5, size=3, pad=1), (3, 5, 8), batch=1),
    case(Conv(filters=4, size=1, bias=False), (7, 3, 3), batch=33),
    case(Conv(filters=6, size=(3, 2), stride=(2, 1), pad=(1, 0)), (2, 9, 6), batch=3),
    case(Conv(filters=6, size=3, groups=3), (9, 5, 5), batch=2),
    case(Conv(filters=8, size=3, pad=1, groups=8), (8, 4, 6), batch=5),
    case(Conv(filters=3, size=4, stride=3, pad=2, rounding="ceil"), (2, 10, 9), batch=2),
    case(Conv(filters=2, size=2, stride=3), (3, 8, 7)),
    case(Conv(filters=70, size=2), (17, 4, 3), batch=2),
    case(Conv(filters=2, size=3), (3, 6, 5), frozen=("x0",)),
    case(Conv(filters=2, size=3), (3, 6, 5), frozen=("weight", "bias")),
    case(Conv(filters=2, size=3), (3, 6, 5), frozen=("bias",)),
    case(Conv(filters=4, size=3, pad=1, shared_biases=False), (3, 4, 6)),
    case(Conv(filters=2, size=2, stride=2, shared_biases=False), (3, 5, 4), batch=3, frozen=("weight",)),
    case(Conv(filters=2, size=2, bias=False, shared_biases=False), (3, 3, 4)),
    case(Local(filters=4, size=3), (3, 5, 5)),
    case(Local(filters=5, size=3, pad=1), (4, 4, 3), batch=9),
    case(Local(filters=6, size=(3, 2), stride=(2, 1), pad=(1, 0)), (2, 5, 4), batch=1),
    case(Local(filters=8, size=2, groups=2, bias=False), (8, 3, 4), batch=8),
    case(Local(filters=3, size=2, stride=3, rounding="ceil"), (2, 7, 6), batch=2),
    case(Local(filters=2, size=3), (3, 4, 5), frozen=("x0",)),
    case(Local(filters=2, size=3), (3, 4, 5), frozen=("weight", "bias")),
    case(Pool(size=2), (3, 6, 8)),
    case(Pool(size=3, stride=2), (5, 7, 9), batch=1),
    case(Pool(size=3, stride=2, rounding="ceil"), (2, 8, 6), batch=33),
    case(Pool(size=3, stride=1, pad=1), (3, 5, 4), batch=2),
    case(Pool(size=(1, 2), stride=(2, 3), rounding="ceil"), (3, 6, 7)),
    case(Pool(mode="avg", size=(5, 4)), (7, 5, 4), batch=3),
    case(Pool(mode="avg", size=3, stride=2, pad=1), (3, 7, 6), batch=1),
    case(Pool(mode="avg", size=3, stride=2, pad=1, rounding="ceil", count_pad=True), (2, 8, 6)),
    case(Pool(mode="avg", size=(2, 3), stride=(1, 2), rounding="ceil"), (3, 6, 8), batch=5),
    case(Pool(mode="maxabs", size=3, stride=2, pad=1, rounding="caffe"), (3, 8, 6)),
    case(Pool(mode="sum", size=3, stride=2, start=-1, rounding="convnet"), (3, 8, 7), batch=3),
    case(Pool(size=3, stride=2, start=(-2, 1), rounding="convnet"), (2, 7, 8)),
    case(Pool(mode="avg", size=(5, 4), stride=3, rounding="ceil"), (2, 4, 3)),
    case(GlobalPool(), (5, 3, 4)),
    case(GlobalPool(mode="max"), (3, 4, 4), batch=1),
    case(GlobalPool(mode="maxabs"), (2, 1, 7), batch=3),
    case(GlobalPool(mode="sum"), (7,)),
    case(Crop(start=(1, 2), size=(3, 4)), (3, 5, 7)),
    case(Crop(start=0, size=4), (2, 4, 4), batch=3),
    case(Nailbed(stride=2), (3, 6, 5)),
    case(Nailbed(stride=(4, 3)), (2, 3, 8), batch=1),
    case(Href(), (3, 4, 5)),
    case(Href(), (2, 3, 4), batch=1),
    case(Blur(size=5, stdev=1.0), (3, 6, 7)),
    case(Blur(size=9, stdev=2.0), (2, 4, 3), batch=3),
    case(Resize(scale=1.3), (3, 9, 7), frozen=("x0",)),
    case(Resize(scale=0.6), (2, 4, 5), batch=1, frozen=("x0",)),
    case(Rscale(max_scale=1.6, size=6), (3, 9, 9), frozen=("x0",)),
    case(Rscale(max_scale=2, size=(5, 6)), (2, 10, 8), batch=3, frozen=("x0",)),
    case(Rgb2yuv(), (3, 4, 5), batch=3, frozen=("x0",)),
    case(Rgb2lab(), (3, 4, 5), frozen=("x0",)),
    case(Rgb2lab(center=True), (3, 3, 1), batch=1, frozen=("x0",)),
    case(Fc(outputs=5), (7,)),
    case(Fc(outputs=1), (3, 2, 4), batch=1),
    case(Fc(outputs=33, bias=False), (3, 3, 2), batch=3),
    case(Fc(outputs=4), (6,), frozen=("x0",)),
    case(Fc(outputs=4), (6,), frozen=("weight", "bias")),
    case(Sfc(outputs=3, parts=2), (8,)),
    case(Sfc(outputs=5, parts=3, bias=False), (6, 1, 2), batch=1),
    case(Sfc(outputs=4, parts=1), (3, 2, 2), batch=3),
    case(Sfc(outputs=2, parts=4), (4, 2, 2), frozen=("x0",)),
    case(Neuron(kind="relu"), (3, 4, 5)),
    case(Neuron(kind="tanh"), (5,), batch=1),
    case(Neuron(kind="logistic"), (2, 3, 3), batch=7),
    case(Neuron(kind="ident"), (3, 2, 3)),
    case(Neuron(kind="tanh[1.7159,0.6667]"), (3, 2, 3)),
    case(Neuron(kind="brelu", a=0.7), (3, 4, 5)),
    case(Neuron(kind="softrelu"), (3, 4, 5)),
    case(Neuron(kind="abs"), (3, 4, 5)),
    case(Neuron(kind="square"), (3, 4, 5), batch=1),
    case(Neuron(kind="sqrt"), (3, 2, 3), within=(0.2, 4)),
    case(Neuron(kind="linear", a=-1.5, b=0.3), (3, 2, 3)),
    case(Neuron(kind="log", a=0.1), (3, 2, 3), within=(0.1, 4)),
    case(Neuron(kind="drelu", a=0.8), (3, 4, 5)),
    case(Cmrnorm(size=5), (7, 3, 4)),
    case(Cmrnorm(size=3, scale=0.5, min_div=2), (3, 2, 2), batch=1),
    case(Cmrnorm(size=4, scale=0.3, pow=0.5, divide=False), (9, 3, 2), batch=3),
    case(Cmrnorm(size=9, scale=1), (4, 1, 2), batch=2),
    case(Cmrnorm(size=3, scale=2, blocked=True), (8, 2, 3)),
    case(Cmrnorm(size=4, scale=1, pow=0.5, divide=False, blocked=True), (4, 1, 5), batch=3),
    case(Rnorm(size=3, scale=2), (3, 5, 4)),
    case(Rnorm(size=4, scale=1, pow=0.5, min_div=2, divide=False), (2, 3, 6), batch=1),
    case(Rnorm(size=9, scale=5), (2, 3, 2), batch=3),
    case(Cnorm(size=3, scale=2), (3, 5, 4)),
    case(Cnorm(size=4, scale=1, pow=0.5, min_div=2, divide=False), (2, 3, 6), batch=1),
    case(Cnorm(size=9, scale=5), (2, 3, 2), batch=3),
    case(Cmpool(size=2), (6, 3, 4)),
    case(Cmpool(size=3), (7, 2, 3), batch=1),
    case(Cmpool(size=4, stride=2, start=-3), (9, 2, 2), batch=3),
    case(BatchNorm(), (3, 4, 5)),
    case(BatchNorm(eps=1e-3, momentum=0.3), (5,), batch=8),
    case(BatchNorm(), (3, 2, 3), batch=1),
    case(BatchNorm(), (2, 3, 3), frozen=("x0",)),
    case(BatchNorm(), (2, 3, 3), frozen=("weight", "bias")),
    case(BatchNorm(), (2, 3, 3), frozen=("weight",)),
    case(Dropout(), (3, 5, 4), batch=3),
    case(Dropout(keep=0.75), (11,), batch=1),
    case(Dropout(keep=1), (2, 2, 2)),
    case(Dropout(keep=0.7, scale="eval"), (3, 4, 2)),
    case(Eltsum(), (3, 4, 5), (3, 4, 5)),
    case(Eltsum(coefficients=(0.5, -2, 1)), (2, 3, 3), (2, 3, 3), (2, 3, 3), batch=1),
    case(Eltsum(), (2, 3, 3), (2, 3, 3), frozen=("x0",)),
    case(Eltmax(), (3, 4, 5), (3, 4, 5)),
    case(Eltmax(), (2, 3, 3), (2, 3, 3), (2, 3, 3), batch=1),
    case(Eltmax(), (5,), (5,), frozen=("x1",)),
    case(Concat(), (3, 4, 5), (2, 4, 5)),
    case(Concat(), (1,), (4,), (2,), batch=1),
    case(Concat(), (2, 3, 3), (3, 3, 3), frozen=("x1",)),
    case(Pass(), (3, 4, 5), batch=1),
    case(Pass(), (2, 3, 2), (4, 3, 2)),
    case(Sum(), (3, 4, 5)),
    case(Sum(), (2, 1, 7), batch=1),
    case(Softmax(), (10,)),
    case(Softmax(), (3, 4, 2), batch=1),
    case(Logreg(), (10,), (1,), batch=6, frozen=("x1",)),
    case(Logreg(topk=2, smoothing=0.1, coeff=0.3), (3,), (1,), batch=1, frozen=("x1",)),
    case(Logreg(smoothing=0.2), (130,), (1,), batch=33, frozen=("x1",)),
    case(Logreg(topk=(3, 5, 2)), (7,), (1,), frozen=("x1",)),
    case(Crossent(), (5,), (5,), batch=6, frozen=("x1",), within=UNIT),
    case(Crossent(coeff=0.3), (10,), (1,), batch=7, frozen=("x1",), within=UNIT),
    case(Crossent(logits=True), (5,), (5,), batch=6, frozen=("x1",)),
    case(Crossent(logits=True, coeff=2), (130,), (1,), batch=33, frozen=("x1",)),
    case(Bce(), (3, 4, 5), (3, 4, 5), batch=7, frozen=("x1",)),
    case(Bce(pos_weight=2.5), (5,), (1,), batch=6, frozen=("x1",)),
    case(Bce(logits=False, pos_weight=0.5, coeff=0.3), (2, 3, 3), (2, 3, 3), frozen=("x1",), within=UNIT),
    case(Bce(logits=False), (1,), (1,), batch=5, frozen=("x1",), within=UNIT),
    case(Dce(), (6,), (6,), batch=9, frozen=("x1",)),
    case(Sum2(), (3, 4, 5)),
    case(Sum2(coeff=0.01), (7,), batch=1),
]

assert len({str(c) for c in CASES}) == len(CASES), "two rows have one name"
