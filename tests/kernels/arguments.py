"""Random arguments for any (operation, geometry): a dict of float64, integer or None by name, maps in logical shape.

Floats are representable in float32, so that every precision starts from the same numbers.
"""

from collections.abc import Callable
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np

from kernels import cost, pool
from kernels.op import Op

Shapes = dict[str, tuple[int, ...]]

# Written arguments whose old values count even when beta is 0; the others start as NaN.
KEPT = {
    ("norm.batch_stats", "running_mean"),
    ("norm.batch_stats", "running_var"),
    ("cost.report", "history"),
    ("cost.report", "healthy"),
    ("update.sgd", "w"),
    ("update.sgd", "v"),
}
PARTIAL = {("eltwise.copy", "y")}  # written in part
DOUBLE = {("cost.report", "history")}  # float64 in every precision
DENSE = {"fc"}  # families whose maps are read as plain matrices: no gaps, C, H, W, N


def arguments(op: Op, g: Any, rng: np.random.Generator, optional: bool = True) -> dict[str, Any]:
    """All arguments but beta. Arguments that may be None are, unless `optional`."""
    shapes = SHAPES.get(op.name, SHAPES.get(op.family, map_shapes))(op, g)
    values = {name: _normal(rng, shape) for name, shape in shapes.items() if name in op.arguments}
    values |= SPECIAL.get(op.name, lambda g, rng, values: {})(g, rng, values)
    if not optional:
        values |= dict.fromkeys(optionals(op))
    return {name: values[name] for name in op.arguments if name != "beta"}


def optionals(op: Op) -> list[str]:
    """The arguments that may be None."""
    hints = get_type_hints(op.reference)
    return [name for name in op.arguments if NoneType in get_args(hints[name])]


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape, np.float32).astype(np.float64)


def _uniform(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(low, high, shape).astype(np.float32).astype(np.float64)


def map_shapes(op: Op, g: Any) -> Shapes:
    """Maps of the geometry's axes; other arrays have one element a channel."""
    shape = (g.channels, g.height, g.width, g.batch)
    return {name: shape if kind == "map" else shape[:1] for name, kind in op.arguments.items()}


def pool_shapes(op: Op, g: Any) -> Shapes:
    outputs = (g.channels, g.out_h, g.out_w, g.batch)
    return map_shapes(op, g) | {"y": outputs, "dy": outputs}


def copy_shapes(op: Op, g: Any) -> Shapes:
    rest = (g.height, g.width, g.batch)
    return {"x": (g.channels + g.x_offset + 1, *rest), "y": (g.channels + g.y_offset + 2, *rest)}


def logreg_shapes(op: Op, g: Any) -> Shapes:
    logits = (g.classes, 1, 1, g.batch)
    return {"x": logits, "p": logits, "dx": logits, "labels": (g.batch,), "y": (3, 1, 1, g.batch)}


def conv_shapes(op: Op, g: Any) -> Shapes:
    image, outputs = (g.channels, g.height, g.width, g.batch), (g.filters, g.out_h, g.out_w, g.batch)
    weights, bias = (g.filters, g.channels // g.groups, g.rows, g.cols), (g.filters,)
    return {"x": image, "dx": image, "y": outputs, "dy": outputs, "w": weights, "dw": weights, "b": bias, "db": bias}


def fc_shapes(op: Op, g: Any) -> Shapes:
    features, outputs = (g.features, 1, 1, g.batch), (g.outputs, 1, 1, g.batch)
    weights, bias = (g.outputs, g.features), (g.outputs,)
    return {"x": features, "dx": features, "y": outputs, "dy": outputs, "w": weights, "dw": weights} | {
        "b": bias,
        "db": bias,
    }


def prepare_shapes(op: Op, g: Any) -> Shapes:
    return map_shapes(op, g) | {"pixels": (g.batch, g.height, g.width, g.channels), "mirror": (g.batch,)}


def sgd_shapes(op: Op, g: Any) -> Shapes:
    return dict.fromkeys(("w", "dw", "v"), (1024 * g.blocks,)) | {"rates": (g.parameters, 3)}


# By operation, else by family; else map_shapes.
SHAPES: dict[str, Callable[[Op, Any], Shapes]] = {
    "pool": pool_shapes,
    "conv": conv_shapes,
    "fc": fc_shapes,
    "eltwise.copy": copy_shapes,
    "cost.logreg_forward": logreg_shapes,
    "cost.logreg_backward": logreg_shapes,
    "cost.report": lambda op, g: {"y": (3, 1, 1, g.batch), "history": (3, g.ring)},
    "image.prepare": prepare_shapes,
    "update.sgd": sgd_shapes,
    "update.magnitude": lambda op, g: {
        "w": (3000 * g.parameters,),
        "v": (3000 * g.parameters,),
        "out": (g.parameters, 2),
    },
}


def with_ties(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Small whole numbers, so that maxima tie; y is what the forward pass makes of x."""
    x = rng.integers(-3, 3, values["x"].shape).astype(np.float64)
    y = np.empty(values["y"].shape)
    if isinstance(g, pool.Pool):
        pool.MAX_FORWARD.reference(g, x, y)
    return {"x": x, "y": y}


def labels(g: cost.Logreg, rng: np.random.Generator, values: dict) -> dict:
    """Every kind of label, most of them classes; logits that tie, probabilities that do not sum to 1."""
    chosen = rng.integers(0, g.classes, g.batch, np.int32)
    chosen[:: max(5, g.batch // 3)] = -1
    chosen[2::7] = g.classes
    tied = {"x": np.round(4 * values["x"]) / 4} if "x" in values else {}
    return {"labels": chosen, "p": _uniform(rng, 0, 1, values["p"].shape), **tied}


def clock(g: Any, rng: np.random.Generator, values: dict) -> dict:
    return {"clock": rng.integers(0, 2**32, 4, np.uint32)}


def positive(*names: str) -> Callable:
    return lambda g, rng, values: {name: _uniform(rng, 0.5, 2, values[name].shape) for name in names}


def far_from_zero(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Means of several standard deviations, where a naive variance cancels."""
    return {"x": values["x"] + 16} | positive("running_var")(g, rng, values)


def pixels(g: Any, rng: np.random.Generator, values: dict) -> dict:
    return {
        "pixels": rng.integers(0, 256, values["pixels"].shape, np.uint8),
        "mirror": rng.integers(0, 2, g.batch, np.uint8),
        "mean": _uniform(rng, 90, 130, (g.channels,)),
        "std": _uniform(rng, 40, 70, (g.channels,)),
    }


def rates(g: Any, rng: np.random.Generator, values: dict) -> dict:
    owner = np.sort(rng.integers(0, g.parameters, g.blocks)).astype(np.int32)
    return {"owner": owner, "rates": _uniform(rng, 0, 1, (g.parameters, 3)), "healthy": np.ones(1, np.int32)}


def spans(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Disjoint spans of 0 to 2999 elements, the first of them empty."""
    sizes = np.concatenate([[0], rng.integers(1, 3000, g.parameters)])[: g.parameters]
    return {"spans": np.stack([3000 * np.arange(g.parameters), sizes], 1).astype(np.int64)}


SPECIAL: dict[str, Callable[[Any, np.random.Generator, dict], dict]] = {
    "pool.max_forward": with_ties,
    "pool.max_backward": with_ties,
    "norm.batch_stats": far_from_zero,
    "norm.batch_infer": positive("running_var"),
    "norm.batch_forward": positive("inv_std"),
    "norm.batch_sums": positive("inv_std"),
    "norm.batch_dgrad": positive("inv_std"),
    "random.dropout": clock,
    "random.dropout_backward": clock,
    "cost.logreg_forward": labels,
    "cost.logreg_backward": labels,
    "cost.report": lambda g, rng, values: clock(g, rng, values) | {"healthy": np.ones(1, np.int32)},
    "image.prepare": pixels,
    "update.sgd": rates,
    "update.magnitude": spans,
}
