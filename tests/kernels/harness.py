"""Runs an operation on a backend with arguments inside guarded buffers, and compares with the reference in float64.

A buffer is filled with bytes of ones, which are NaN in every float type, before its values are written into the middle.
What an operation must not read is therefore NaN: the guards, the outputs when beta is 0, and the workspace. Whatever
lies outside the outputs must not have changed afterwards.

With CONVNET_SANITIZE in the environment, arguments have buffers of their exact size instead, fresh from the driver, and
outputs and workspace are left uninitialised: compute-sanitizer then sees each wrong access.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernels.backend import cupy
from kernels.layout import view
from kernels.op import Op, Plan, Variant
from tests.kernels.arguments import DENSE, DOUBLE, KEPT, PARTIAL

Shared = Mapping[str, str]
NONE: Shared = {}
SANITIZE = "CONVNET_SANITIZE" in os.environ
if SANITIZE:
    cupy().cuda.set_allocator(None)  # no pool: the sanitizer knows the driver's allocations alone
MARGIN = 256  # bytes before and after an array
LAYOUTS = ("mixed",) if SANITIZE else ("hcwn", "chwn", "mixed")

# Relative to the largest magnitude of each output. Elementwise operations round a few times; long sums more.
TOLERANCE = 2e-6
TOLERANCES = {"neuron": 4e-6, "norm": 1e-5, "cost": 4e-6, "conv": 2e-5, "local": 2e-5, "fc": 2e-5}


class Guarded:
    """`values` in the middle of a larger buffer: of rows and channels for a map, of bytes for an array."""

    def __init__(self, xp: Any, values: np.ndarray, layout: str, dense: bool, fill: bool):
        shape, inner, margin = values.shape, (), 0 if SANITIZE else MARGIN
        if layout and not dense and not SANITIZE:
            shape, inner = (shape[0] + 2, shape[1] + 2, *shape[2:]), (slice(1, -1), slice(1, -1))
        size = int(np.prod(shape)) * values.itemsize
        self.buffer = xp.empty(margin + size + margin, np.uint8)
        if not SANITIZE:
            self.buffer[...] = 255
        self.array = view(self.buffer[margin : margin + size].view(values.dtype), shape, layout)[inner]
        if fill:
            self.array[...] = xp.asarray(values)
        self.before = None if SANITIZE else (self.buffer.copy(), self.array.copy())

    def intact(self, written: bool) -> bool:
        """Whether the buffer, but for the array when that is `written`, has the bytes that it had."""
        if self.before is None:
            return True
        buffer, array = self.before
        result = self.array.copy()
        if written:
            self.array[...] = array
        same = bool((self.buffer == buffer).all())
        self.array[...] = result
        return same


def layout_of(op: Op, index: int, layout: str) -> str:
    """The layout of the map that is the op's `index`-th argument."""
    if op.family in DENSE:
        return "chwn"
    return ("hcwn", "chwn")[index % 2] if layout == "mixed" else layout


def place(op: Op, xp: Any, values: dict[str, Any], dtype: Any, layout: str, beta: float) -> dict[str, Guarded | None]:
    """Every array argument in a guarded buffer of its own; outputs that are not to be read start as NaN."""
    placed: dict[str, Guarded | None] = {}
    for i, (name, kind) in enumerate(op.arguments.items()):
        if name == "beta":
            continue
        value = values[name]
        if value is None:
            placed[name] = None
            continue
        if value.dtype.kind == "f" and (op.name, name) not in DOUBLE:
            value = value.astype(dtype)
        kept = KEPT | PARTIAL if SANITIZE else KEPT
        fill = name not in op.writes or beta != 0 or (op.name, name) in kept
        where = layout_of(op, i, layout) if kind == "map" else ""
        placed[name] = Guarded(xp, value, where, op.family in DENSE or layout == "mixed", fill)
    return placed


def reference(
    op: Op, g: Any, values: dict[str, Any], dtype: Any, layout: str, beta: float, shared: Shared = NONE
) -> dict[str, np.ndarray]:
    """What the NumPy reference writes, in `dtype`. shared: written argument -> the read one whose place it takes."""

    def start(bound: dict[str, Any]) -> None:
        op.reference(g, *(bound[name] for name in op.arguments))

    return run(op, np, values, dtype, layout, beta, shared, start)


def on_gpu(
    op: Op,
    g: Any,
    values: dict[str, Any],
    layout: str,
    beta: float,
    backend: Any,
    chosen: tuple[Variant, Plan],
    shared: Shared = NONE,
) -> dict[str, np.ndarray]:
    """What one variant with one combination of its tunables writes."""

    def launch(bound: dict[str, Any]) -> None:
        size = chosen[1].workspace
        workspace = cupy().empty(size, np.uint8) if SANITIZE else cupy().full(size, 255, np.uint8)
        start = backend.bind(op, g, bound, workspace, chosen)
        cupy().cuda.Device().synchronize()
        start()
        backend.synchronize()

    return run(op, cupy(), values, np.float32, layout, beta, shared, launch)


def run(
    op: Op, xp: Any, values: dict[str, Any], dtype: Any, layout: str, beta: float, shared: Shared,
    start: Callable[[dict], None],
) -> dict[str, np.ndarray]:  # fmt: skip
    placed = place(op, xp, values, dtype, layout, beta)
    placed |= {written: placed[read] for written, read in shared.items()}
    arrays = {name: guarded and guarded.array for name, guarded in placed.items()}
    start(arrays | ({"beta": beta} if op.accumulates else {}))
    for name, guarded in placed.items():
        written = name in op.writes or name in shared.values()
        assert guarded is None or guarded.intact(written), f"{op}: changed more than its results, near '{name}'"
    results = {name: array for name, array in arrays.items() if name in op.writes and array is not None}
    return {name: array.copy() if xp is np else array.get() for name, array in results.items()}


def compare(op: Op, got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    tolerance = TOLERANCES.get(op.name, TOLERANCES.get(op.family, TOLERANCE))
    for name, want in expected.items():
        largest = np.abs(want[np.isfinite(want)]).max(initial=0)
        np.testing.assert_allclose(
            got[name], want, rtol=tolerance, atol=tolerance * largest, equal_nan=True, err_msg=f"{op}: '{name}'"
        )
