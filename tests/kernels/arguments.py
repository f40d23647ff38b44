"""Random arguments for any (operation, geometry): a dict of float64, integer or None by name, maps in logical shape.

Floats are representable in float32, so that every precision starts from the same numbers.
"""

from collections.abc import Callable
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np

from kernels import bfloat16, cmpool, cost, neuron, pool, update
from kernels.image import HEAD, MOST
from kernels.op import Op

Shapes = dict[str, tuple[int, ...]]

# Written arguments whose old values count even when beta is 0; the others start as NaN.
KEPT = {
    ("norm.batch_stats", "running_mean"),
    ("norm.batch_stats", "running_var"),
    ("norm.batch_join", "running_mean"),
    ("norm.batch_join", "running_var"),
    ("cost.count", "counts"),
    ("cost.report", "history"),
    ("cost.report", "healthy"),
    ("eltwise.maximum", "y"),
    ("eltwise.maximum", "winner"),
    ("update.sgd", "w"),
    ("update.sgd", "v"),
    ("update.collect", "dw"),
    ("update.collect", "pending"),
    ("update.gradient_norm", "norms"),
    ("update.rescale", "w"),
    ("update.average", "e"),
    ("wire.scale", "x"),
}
PARTIAL = {("eltwise.copy", "y"), ("batch.join", "y")}  # written in part
# float64 in every precision
DOUBLE = {
    ("cost.report", "history"),
    ("norm.batch_join", "moments"),
    ("norm.batch_moments", "moments"),
    ("update.gradient_norm", "norms"),
    ("update.sgd", "norms"),
}
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


def resize_shapes(op: Op, g: Any) -> Shapes:
    return map_shapes(op, g) | {"y": (g.channels, g.out_h, g.out_w, g.batch)}


def cmpool_shapes(op: Op, g: Any) -> Shapes:
    outputs = (g.outputs, g.height, g.width, g.batch)
    return map_shapes(op, g) | {"y": outputs, "dy": outputs}


def copy_shapes(op: Op, g: Any) -> Shapes:
    rest = (g.height, g.width, g.batch)
    return {"x": (g.channels + g.x_offset + 1, *rest), "y": (g.channels + g.y_offset + 2, *rest)}


def share_shapes(op: Op, g: Any) -> Shapes:
    """Of maps and their shares."""
    whole, shares = (g.channels, g.height, g.width, g.batch), (g.parts * g.channels, g.height, g.width)
    if op.entry == "split":
        return {"x": whole, "y": (*shares, g.share)}
    return {"x": (*shares, g.length or g.share), "y": whole}


def logreg_shapes(op: Op, g: Any) -> Shapes:
    logits = (g.classes, 1, 1, g.batch)
    of_samples = dict.fromkeys(("labels", "second", "share"), (g.batch,))
    return {"x": logits, "p": logits, "dx": logits, **of_samples, "y": (1 + len(g.topk), 1, 1, g.batch)}


def target_shapes(op: Op, g: Any) -> Shapes:
    """Of costs against targets: maps alike, and a few results a sample."""
    shape = (g.classes, 1, 1, g.batch) if hasattr(g, "classes") else (g.channels, g.height, g.width, g.batch)
    rows = {cost.Crossent: 2, cost.Sum2: 1}.get(type(g), 2 + getattr(g, "top1", 0))
    return dict.fromkeys(("x", "t", "p", "dx"), shape) | {"y": (rows, 1, 1, g.batch)}


def conv_shapes(op: Op, g: Any) -> Shapes:
    image, outputs = (g.channels, g.height, g.width, g.batch), (g.filters, g.out_h, g.out_w, g.batch)
    weights, bias = (g.filters, g.channels // g.groups, g.rows, g.cols), (g.filters,)
    return {"x": image, "dx": image, "y": outputs, "dy": outputs, "w": weights, "dw": weights, "b": bias, "db": bias}


def local_shapes(op: Op, g: Any) -> Shapes:
    weights, bias = (g.out_h, g.out_w, *conv_shapes(op, g)["w"]), (g.filters, g.out_h, g.out_w)
    return conv_shapes(op, g) | {"w": weights, "dw": weights, "b": bias}


def unit_shapes(op: Op, g: Any) -> Shapes:
    units = (g.channels, g.height, g.width)
    return map_shapes(op, g) | {"b": units, "db": units}


def fc_shapes(op: Op, g: Any) -> Shapes:
    features, outputs = (g.features, 1, 1, g.batch), (g.outputs, 1, 1, g.batch)
    weights, bias = (g.outputs, g.part_features), (g.outputs,)
    return {"x": features, "dx": features, "y": outputs, "dy": outputs, "w": weights, "dw": weights} | {
        "b": bias,
        "db": bias,
    }


def prepare_shapes(op: Op, g: Any) -> Shapes:
    y, n, channels = (g.channels, g.height, g.width, g.batch), (g.batch,), (g.channels,)
    images = {"pixels": (*n, g.source_h, g.source_w, *channels), "corner": (*n, 2), "mirror": n}
    colours = {"colour": (*n, g.channels, g.channels + 2), "pull": n + channels}
    boxes = {"erased": (*n, 4), "partner": n, "patch": (*n, 4), "blend": n}
    return images | colours | boxes | {"mean": y[:3] if g.mean_image else channels, "std": channels, "y": y}


def resample_shapes(op: Op, g: Any) -> Shapes:
    return {"cells": (g.batch, g.cell), "pixels": (g.batch, g.height, g.width, g.channels)}


def flat_shapes(op: Op, g: Any) -> Shapes:
    flat = dict.fromkeys(("w", "dw", "v", "e", "pending"), (1024 * getattr(g, "blocks", 0),))
    return flat | {"rates": (getattr(g, "parameters", 3), 4), "norms": (getattr(g, "ring", 1),)}


def wire_shapes(op: Op, g: Any) -> Shapes:
    return dict.fromkeys(("x", "y"), (g.size,) if hasattr(g, "size") else (1024 * g.blocks,))


def rescale_shapes(op: Op, g: Any) -> Shapes:
    return {"w": (g.rows, g.columns), "rates": (3, 4)}


# By operation, else by family; else map_shapes.
SHAPES: dict[str, Callable[[Op, Any], Shapes]] = {
    "pool": pool_shapes,
    "cmpool": cmpool_shapes,
    "conv": conv_shapes,
    "fc": fc_shapes,
    "local": local_shapes,
    "local.bias": unit_shapes,
    "local.bgrad": unit_shapes,
    "eltwise.copy": copy_shapes,
    "batch": share_shapes,
    **dict.fromkeys(("batch.labels", "batch.amounts"), lambda op, g: {"x": (g.batch,), "y": (g.count,)}),
    "cost.logreg_forward": logreg_shapes,
    "cost.logreg_backward": logreg_shapes,
    "cost.report": lambda op, g: {"y": (g.rows, 1, 1, g.batch), "history": (g.offset + g.rows + 1, g.ring)},
    "cost.softmax_forward": map_shapes,
    "cost.softmax_backward": map_shapes,
    "cost": target_shapes,
    "image.resample": resample_shapes,
    "image.prepare": prepare_shapes,
    "image.augment": prepare_shapes,
    "image.resize": resize_shapes,
    "image.rscale": resize_shapes,
    "update": flat_shapes,
    "update.rescale": rescale_shapes,
    "wire": wire_shapes,
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


def tied_channels(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Small whole numbers, so that maxima tie; y is what the forward pass makes of x."""
    x, y = rng.integers(-3, 3, values["x"].shape).astype(np.float64), np.empty(values["y"].shape)
    cmpool.FORWARD.reference(g, x, y)
    return {"x": x, "y": y}


def tied_maps(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Small whole numbers, so that maxima tie; winners among which the index is."""
    small = {name: rng.integers(-3, 3, values[name].shape).astype(np.float64) for name in values if name != "winner"}
    return small | {"winner": rng.integers(0, 3, values["winner"].shape, np.uint8)}


def labels(g: cost.Logreg, rng: np.random.Generator, values: dict) -> dict:
    """Every kind of label, most of them classes; logits that tie, probabilities that do not sum to 1."""
    chosen = rng.integers(0, g.classes, g.batch, np.int32)
    chosen[:: max(5, g.batch // 3)] = -1
    chosen[2::7] = g.classes
    second = rng.integers(-1, g.classes, g.batch, np.int32)
    second[3::11] = g.classes
    share = rng.choice([0, 0.25, 0.5, 0.7, 1], g.batch).astype(np.float32).astype(np.float64)
    mixed = {"second": second, "share": share}
    tied = {"x": np.round(4 * values["x"]) / 4} if "x" in values else {}
    return {"labels": chosen, **mixed, "p": _uniform(rng, 0, 1, values["p"].shape), **tied}


def targets(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Targets in 0..1, whole ones and none among them; probabilities, some of them 0 or 1; logits that tie."""
    t = _uniform(rng, 0, 1, values["t"].shape)
    kind = rng.integers(0, 6, t.shape)
    t[kind < 2] = kind[kind < 2]
    t[kind == 2] = -1
    t[..., 1::5] = -1
    p = _uniform(rng, 0, 1, t.shape)
    p[rng.random(t.shape) < 0.1] = 0
    p[rng.random(t.shape) < 0.1] = 1
    return {"t": t, "p": p, "x": np.round(4 * values["x"]) / 4 if "x" in values else p}


def probabilities(g: Any, rng: np.random.Generator, values: dict) -> dict:
    found = targets(g, rng, values)
    return found | {"x": found["p"]}


def counted(g: Any, rng: np.random.Generator, values: dict) -> dict:
    return targets(g, rng, values) | {"counts": rng.integers(0, 10**12, (3, g.classes))}


def defined(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Where a neuron has a value and a slope, and where these are not as large as to hide all others."""
    if neuron.KINDS[g.kind] not in ("sqrt", "log"):
        return {}
    return {name: _uniform(rng, 0.3, 2, values[name].shape) for name in ("x", "y") if name in values}


def clock(g: Any, rng: np.random.Generator, values: dict) -> dict:
    return {"clock": rng.integers(0, 2**32, 4, np.uint32)}


def positive(*names: str) -> Callable:
    return lambda g, rng, values: {name: _uniform(rng, 0.5, 2, values[name].shape) for name in names}


def far_from_zero(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Means of several standard deviations, where a naive variance cancels."""
    return {"x": values["x"] + 16} | positive("running_var")(g, rng, values)


def moments(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """The sums of numbers and of their squares, as of so many values."""
    means, variances = rng.standard_normal(g.channels), rng.uniform(0.1, 2, g.channels)
    sums = {"moments": g.count * np.stack([means, means**2 + variances])}
    return sums | positive("running_var")(g, rng, values)


def pixels(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Windows on the image and over its edges; where it is as large as they are, most of them are all of it."""
    spare = np.array([g.source_h - g.height, g.source_w - g.width])
    corner = rng.integers(np.minimum(spare, 0) - 2, np.maximum(spare, 0) + 3, (g.batch, 2), np.int32)
    corner[rng.random(g.batch) < 0.6] = 0
    return {
        "pixels": rng.integers(0, 256, values["pixels"].shape, np.uint8),
        "corner": corner,
        "mirror": rng.integers(0, 2, g.batch, np.uint8),
        "mean": _uniform(rng, 90, 130, values["mean"].shape),
        "std": _uniform(rng, 40, 70, (g.channels,)),
    }


def cells(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Images of the most lines, of no pixels, of the result's size and of any; behind each, bytes that are not its."""
    found = rng.integers(0, 256, values["cells"].shape, np.uint8)
    room = (g.cell - HEAD) // g.channels
    for n, cell in enumerate(found):
        height = min(int(rng.integers(1, MOST * g.height + 1)), room)
        width = min(int(rng.integers(1, MOST * g.width + 1)), room // height)
        sides = ((height, width), (min(MOST * g.height, room), 1), (0, 0), (g.height, g.width))[n % 4 if n < 4 else 0]
        cell[:8].view(np.int32)[:] = sides
    return {"cells": found, "pixels": np.full(values["pixels"].shape, 171, np.uint8)}


def augmented(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Colours that leave 0..255, boxes that are empty or all, partners anywhere in the batch."""
    colour = _uniform(rng, -0.5, 1.2, values["colour"].shape)
    colour[..., g.channels] *= 20
    partner = rng.integers(0, g.batch, g.batch) - np.arange(g.batch)
    return pixels(g, rng, values) | {
        "colour": colour,
        "pull": _uniform(rng, -0.3, 0.6, values["pull"].shape),
        "erased": _boxes(g, rng),
        "partner": partner.astype(np.int32),
        "patch": _boxes(g, rng),
        "blend": _uniform(rng, 0, 1, (g.batch,)),
    }


def _boxes(g: Any, rng: np.random.Generator) -> np.ndarray:
    """Top, left, height, width."""
    sides = (g.height, g.width)
    ends = np.sort(rng.integers(0, np.add(sides, 1), (2, g.batch, 2), np.int32), axis=0)
    boxes = np.concatenate([ends[0], ends[1] - ends[0]], axis=1)
    boxes[::3] = (0, 0, *sides)
    return boxes


def rates(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Of several parameters, the first does not move at this step."""
    owner = np.sort(rng.integers(0, g.parameters, g.blocks)).astype(np.int32)
    table = _uniform(rng, 0.1, 1, (g.parameters, 4))
    if g.parameters > 1:
        table[0, 3] = 0
    norms = {"norms": _uniform(rng, 0.5, 2, values["norms"].shape)} if "norms" in values else {}
    return {"owner": owner, "rates": table, **healthy(g, rng, values), **clock(g, rng, values), **norms}


def healthy(g: Any, rng: np.random.Generator, values: dict) -> dict:
    return {"healthy": np.ones(1, np.int32)}


def unequal(g: update.Rescale, rng: np.random.Generator, values: dict) -> dict:
    """Rows of several norms, one of them 0, and one of equal weights. The last parameter does not move."""
    w = values["w"] * _uniform(rng, 0.01, 4, (g.rows, 1)).astype(np.float32)
    w = w.astype(np.float32).astype(np.float64)
    if g.rows > 1:
        w[0], w[1] = 0, 0.1 if g.centered else w[1]
    return {"w": w, "rates": np.array([[1, 0, 0, 1], [1, 0, 0, 0.5], [1, 0, 0, 0]], float), **healthy(g, rng, values)}


def spans(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Disjoint spans of 0 to 2999 elements, the first of them empty."""
    sizes = np.concatenate([[0], rng.integers(1, 3000, g.parameters)])[: g.parameters]
    return {"spans": np.stack([3000 * np.arange(g.parameters), sizes], 1).astype(np.int64)}


def halves(g: Any, rng: np.random.Generator, values: dict) -> dict:
    """Numbers of every magnitude; some lie between two bfloat16, and there are infinities and NaNs."""
    x = (values["x"] * 2.0 ** rng.integers(-130, 120, values["x"].shape)).astype(np.float32)
    bits = x.view(np.uint32)
    bits[::3] = bits[::3] & 0xFFFF0000 | 0x8000
    x[:6] = np.inf, -np.inf, np.nan, 0, -0.0, np.finfo(np.float32).max
    return {"x": x.astype(np.float64)}


SPECIAL: dict[str, Callable[[Any, np.random.Generator, dict], dict]] = {
    "neuron.forward": defined,
    "neuron.backward": defined,
    "pool.max_forward": with_ties,
    "pool.max_backward": with_ties,
    "cmpool.forward": tied_channels,
    "cmpool.backward": tied_channels,
    "eltwise.maximum": tied_maps,
    "eltwise.maximum_backward": tied_maps,
    "norm.batch_stats": far_from_zero,
    "norm.batch_join": moments,
    "norm.batch_moments": lambda g, rng, values: {
        "x": values["x"] + 16,
        "running_mean": values["running_mean"] + 15,
        "moments": np.empty((2, g.channels)),
    },
    "norm.batch_infer": positive("running_var"),
    "norm.batch_forward": positive("inv_std"),
    "norm.batch_sums": positive("inv_std"),
    "norm.batch_dgrad": positive("inv_std"),
    "batch.labels": lambda g, rng, values: {
        "x": rng.integers(-1, 1000, g.batch, np.int32),
        "y": np.full(g.count, -7, np.int32),
    },
    "random.dropout": clock,
    "random.dropout_backward": clock,
    "cost.logreg_forward": labels,
    "cost.logreg_backward": labels,
    "cost.one_hot": lambda g, rng, values: labels(g, rng, {"p": values["t"]}),
    "cost.crossent_forward": probabilities,
    "cost.crossent_backward": probabilities,
    "cost.crossent_logits_forward": targets,
    "cost.crossent_logits_backward": targets,
    "cost.bce_forward": probabilities,
    "cost.bce_backward": probabilities,
    "cost.bce_logits_forward": targets,
    "cost.bce_logits_backward": targets,
    "cost.count": counted,
    "cost.report": lambda g, rng, values: clock(g, rng, values) | {"healthy": np.ones(1, np.int32)},
    "image.resample": cells,
    "image.prepare": pixels,
    "image.augment": augmented,
    "image.rscale": clock,
    "update.sgd": rates,
    "update.collect": rates,
    "update.gradient_norm": clock,
    "update.rescale": unequal,
    "update.average": lambda g, rng, values: {"clock": np.array([1, 2, 40, 0], np.uint32), **healthy(g, rng, values)},
    "update.magnitude": spans,
    "wire.narrow": lambda g, rng, values: halves(g, rng, values) | {"y": np.zeros(1024 * g.blocks, np.uint16)},
    "wire.widen": lambda g, rng, values: {"x": bfloat16.narrow(halves(g, rng, values)["x"])},
}
