"""The table that drives the tests of all layers. A new layer adds its rows here; a test fails if it has none."""

from dataclasses import dataclass, fields

from layers.base import Layer, Shape
from layers.batch_norm import BatchNorm
from layers.cmrnorm import Cmrnorm
from layers.conv import Conv
from layers.data import Data
from layers.dropout import Dropout
from layers.fc import Fc
from layers.join import Concat, Eltsum
from layers.logreg import Logreg
from layers.neuron import Neuron
from layers.options import Size
from layers.pool import Pool
from layers.softmax import Softmax
from layers.window import text


@dataclass(frozen=True)
class Case:
    """A layer, the shape of one sample of each input, and the batch.

    frozen: inputs ("x0", "x1", ...) and parameters ("weight", ...) that need no gradient.
    """

    layer: Layer
    inputs: tuple[Shape, ...]
    batch: int
    frozen: frozenset[str] = frozenset()

    def __str__(self) -> str:
        parts = [_text(field.name, getattr(self.layer, field.name), field.default) for field in fields(self.layer)]
        shapes = [str(shape) for shape in self.inputs]
        return "-".join([self.layer.type, *filter(None, parts), *shapes, f"n{self.batch}", *sorted(self.frozen)])


def _text(name: str, value: object, default: object) -> str:
    """An option in the name of a row; nothing where it has its default."""
    if isinstance(value, Size):
        return "" if value in (default, (default, default)) else f"{name}{text(value)}"
    return "" if value == default else f"{name}{value}".replace(" ", "")


def case(layer: Layer, *inputs: tuple[int, ...], batch: int = 4, frozen: tuple[str, ...] = ()) -> Case:
    """One row; a shape is (C, H, W), or (C,) for features."""
    return Case(layer, tuple(Shape(*shape) for shape in inputs), batch, frozenset(frozen))


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
    case(Pool(size=2), (3, 6, 8)),
    case(Pool(size=3, stride=2), (5, 7, 9), batch=1),
    case(Pool(size=3, stride=2, rounding="ceil"), (2, 8, 6), batch=33),
    case(Pool(size=3, stride=1, pad=1), (3, 5, 4), batch=2),
    case(Pool(size=(1, 2), stride=(2, 3), rounding="ceil"), (3, 6, 7)),
    case(Pool(mode="avg", size=(5, 4)), (7, 5, 4), batch=3),
    case(Pool(mode="avg", size=3, stride=2, pad=1), (3, 7, 6), batch=1),
    case(Pool(mode="avg", size=3, stride=2, pad=1, rounding="ceil", count_pad=True), (2, 8, 6)),
    case(Pool(mode="avg", size=(2, 3), stride=(1, 2), rounding="ceil"), (3, 6, 8), batch=5),
    case(Fc(outputs=5), (7,)),
    case(Fc(outputs=1), (3, 2, 4), batch=1),
    case(Fc(outputs=33, bias=False), (3, 3, 2), batch=3),
    case(Fc(outputs=4), (6,), frozen=("x0",)),
    case(Fc(outputs=4), (6,), frozen=("weight", "bias")),
    case(Neuron(kind="relu"), (3, 4, 5)),
    case(Neuron(kind="tanh"), (5,), batch=1),
    case(Neuron(kind="logistic"), (2, 3, 3), batch=7),
    case(Cmrnorm(size=5), (7, 3, 4)),
    case(Cmrnorm(size=3, scale=0.5, min_div=2), (3, 2, 2), batch=1),
    case(Cmrnorm(size=4, scale=0.3, pow=0.5, divide=False), (9, 3, 2), batch=3),
    case(Cmrnorm(size=9, scale=1), (4, 1, 2), batch=2),
    case(BatchNorm(), (3, 4, 5)),
    case(BatchNorm(eps=1e-3, momentum=0.3), (5,), batch=8),
    case(BatchNorm(), (3, 2, 3), batch=1),
    case(BatchNorm(), (2, 3, 3), frozen=("x0",)),
    case(BatchNorm(), (2, 3, 3), frozen=("weight", "bias")),
    case(BatchNorm(), (2, 3, 3), frozen=("weight",)),
    case(Dropout(), (3, 5, 4), batch=3),
    case(Dropout(keep=0.75), (11,), batch=1),
    case(Dropout(keep=1), (2, 2, 2)),
    case(Eltsum(), (3, 4, 5), (3, 4, 5)),
    case(Eltsum(coefficients=(0.5, -2, 1)), (2, 3, 3), (2, 3, 3), (2, 3, 3), batch=1),
    case(Eltsum(), (2, 3, 3), (2, 3, 3), frozen=("x0",)),
    case(Concat(), (3, 4, 5), (2, 4, 5)),
    case(Concat(), (1,), (4,), (2,), batch=1),
    case(Concat(), (2, 3, 3), (3, 3, 3), frozen=("x1",)),
    case(Softmax(), (10,)),
    case(Softmax(), (3, 4, 2), batch=1),
    case(Logreg(), (10,), (1,), batch=6, frozen=("x1",)),
    case(Logreg(topk=2, smoothing=0.1, coeff=0.3), (3,), (1,), batch=1, frozen=("x1",)),
    case(Logreg(smoothing=0.2), (130,), (1,), batch=33, frozen=("x1",)),
]

assert len({str(c) for c in CASES}) == len(CASES), "two rows have one name"
