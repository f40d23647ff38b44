"""What a layer is: a frozen dataclass of options that infers its output shape and emits operations.

A layer runs nothing.  `forward` and `backward` call `emit(OP, geometry, name=value, ...)`, which appends a step to a
list; the same list is planned, executed on NumPy or CUDA, and captured.  Values are symbolic: they have a `shape`
(maps: C, H, W, N) and are bound to memory later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from kernels.op import Op
from layers.initializers import Initializer
from layers.options import LAYERS, Options, Registry

LABELS = "labels"  # the reserved input name of the label vector


@dataclass(frozen=True)
class Shape:
    """The shape of one sample of a map; a vector of features is `Shape(features, 1, 1)`."""

    channels: int
    height: int = 1
    width: int = 1

    @property
    def features(self) -> int:
        return self.channels * self.height * self.width

    def __str__(self) -> str:
        return f"{self.channels}x{self.height}x{self.width}"


@dataclass(frozen=True)
class Param:
    """A learned array, stored in PyTorch's order; `init` fills it, fan_in being the inputs that one output sums.

    decays: weight decay applies (weights yes; biases and normalisation parameters no).
    """

    shape: tuple[int, ...]
    init: Initializer
    fan_in: int
    decays: bool = True


@dataclass(frozen=True)
class State:
    """An array that training updates and a checkpoint keeps, but no gradient reaches (running statistics)."""

    shape: tuple[int, ...]
    fill: float = 0.0


class Value(Protocol):
    """A symbolic array; maps have the shape (C, H, W, N)."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def axes(value: Value) -> dict[str, int]:
    """The sides of a map under the names that geometries give them."""
    return dict(zip(("channels", "height", "width", "batch"), value.shape, strict=True))


class Emit(Protocol):
    """The recorder that a layer's forward and backward write to."""

    training: bool
    key: int  # of this layer: the purpose under which it draws random numbers
    nominal_batch: int  # the configured global batch: what a sum over samples is divided by to give the mean gradient
    ranks: int  # processes that share the batch; a layer sees the samples of its own
    total: int  # samples of this step at all ranks together

    def __call__(self, op: Op, geometry: Any, **arguments: Any) -> None:
        """Append a step. `beta` is supplied: 0 for the first writer of a gradient, 1 for the next ones."""

    def all_reduce(self, *values: Value) -> None:
        """Append what replaces each value, at every rank, by its sum over the ranks; `ranks` must be above 1."""

    def param(self, name: str) -> Value: ...

    def grad(self, name: str) -> Value | None:
        """Where to write a parameter's gradient; None when the parameter is frozen."""

    def state(self, name: str) -> Value: ...

    def keep(self, name: str, shape: tuple[int, ...], dtype: str = "", layout: str = "") -> Value:
        """An array of the layer's own, written in forward and read in backward (a map if `layout` is given)."""

    def input(self, name: str) -> Value:
        """An array that the data pipeline fills before each step (see layers/data.py), or a step's constant."""

    def optional(self, name: str) -> Value | None:
        """An input that not every program has: what augmentation brings in training (see layers/data.py)."""


@dataclass(frozen=True)
class Layer(Options):
    """Base of all layers. arity: how many inputs it takes, (least, most), most None for any number."""

    registry: ClassVar[Registry | None] = LAYERS
    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    is_cost: ClassVar[bool] = False  # its output is per-sample results (loss, errors); backward starts here
    differentiable: ClassVar[bool] = True  # else no gradient passes, and nothing below it may learn
    flat_input: ClassVar[bool] = False  # reads its input as a [features, N] matrix: the map is laid out C, H, W, N

    def output(self, *inputs: Shape) -> Shape:
        """Shape of the output; raises ConfigError where the inputs do not suit."""
        raise NotImplementedError

    def fused(self, source: "Layer") -> "Layer | None":
        """The layer that does the work of this one and of `source`, its first input, whose input it reads; or None."""
        return None

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {}

    def states(self, *inputs: Shape) -> dict[str, State]:
        return {}

    def multiply_adds(self, *inputs: Shape) -> int:
        """Multiply-adds of the forward pass of one sample, as papers count them: those of weights alone."""
        return 0

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        raise NotImplementedError

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        """Emit the gradients of the inputs (`dxs[i]` is None where nobody needs it) and of the parameters."""
        raise NotImplementedError
