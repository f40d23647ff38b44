"""Where arrays live and operations run: NumPy on the host, CuPy and our own kernels on a GPU.

Both backends offer the same few methods; `bind` turns an operation with its arrays into a function of no arguments
that runs it, so that a step costs one Python call.
"""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kernels import abi
from kernels.op import Call, Launch, Op, Plan, Variant
from kernels.staging import Staging


@functools.cache
def cupy() -> Any:
    """The module cupy: imported here alone and on first use, so that machines without CUDA run all the rest."""
    import cupy

    return cupy


@functools.cache
def nccl() -> Any:
    """The module cupy.cuda.nccl; RuntimeError, with the reason, where the library cannot be loaded."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from cupy.cuda import nccl
    if not nccl.available:
        raise RuntimeError(" ".join(str(caught[0].message).split()) if caught else "the NCCL library cannot be loaded")
    return nccl


class NumPy:
    """Operations by their references, in whatever precision the arrays have."""

    name = "numpy"

    def zeros(self, size: int, dtype: Any = np.uint8) -> np.ndarray:
        """A contiguous 1-d array of zeros."""
        return np.zeros(size, dtype)

    def choose(self, op: Op, g: Any) -> tuple[Variant | None, Plan]:
        """The variant and its plan (with the workspace it needs); no variant means the reference."""
        return None, Plan(())

    def bind(
        self, op: Op, g: Any, arguments: Mapping[str, Any], workspace: Any = None, chosen: Any = None
    ) -> Callable[[], None]:
        """A function that runs `op` on these arrays; like a GPU, it makes infinities and NaNs without a word."""
        for name, kind in op.arguments.items():
            abi.check(kind, name, arguments[name])
        run = functools.partial(op.reference, g, *(arguments[name] for name in op.arguments))
        return np.errstate(all="ignore")(run)

    def upload(self, target: Any, source: np.ndarray) -> None:
        target[...] = source

    def feed(self, target: Any, source: np.ndarray) -> None:
        """As `upload`, for the inputs of a step: on a GPU it does not wait for the step before."""
        target[...] = source

    def download(self, source: Any) -> np.ndarray:
        """A host copy that later steps do not change."""
        return np.array(source)

    def synchronize(self) -> None:
        pass

    def host(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """A host array from which uploads are fast."""
        return np.zeros(shape, dtype)

    def pin(self, array: np.ndarray) -> Callable[[], object]:
        """Make uploads fast from an array that exists already; what is returned undoes it, before its memory goes."""
        return lambda: None

    def fence(self) -> Callable[[], object]:
        """A function that waits until all feeds so far have read their sources."""
        return lambda: None


class Cuda:
    """Operations by CUDA kernels on one GPU, in order, on one stream."""

    name = "cuda"

    def __init__(self, device: int = 0):
        cp = cupy()
        self.device = cp.cuda.Device(device)
        self.device.use()
        self.arch = int(self.device.compute_capability)
        self.target = "90a" if self.arch == 90 else str(self.arch)
        self.stream = cp.cuda.Stream(non_blocking=True)
        self._staging = Staging(cp, self.stream)

    def zeros(self, size: int, dtype: Any = np.uint8) -> Any:
        with self.stream:
            return cupy().zeros(size, dtype)

    def choose(self, op: Op, g: Any) -> tuple[Variant, Plan]:
        return op.choose(g, self.arch)

    def bind(
        self,
        op: Op,
        g: Any,
        arguments: Mapping[str, Any],
        workspace: Any = None,
        chosen: tuple[Variant, Plan] | None = None,
    ) -> Callable[[], None]:
        variant, plan = chosen or self.choose(op, g)
        if plan.workspace and (workspace is None or workspace.nbytes < plan.workspace):
            raise ValueError(f"{op}: variant '{variant.name}' needs a workspace of {plan.workspace} bytes")
        packed = [abi.pack_geometry(g), *(abi.pack(kind, name, arguments[name]) for name, kind in op.arguments.items())]
        if plan.workspace:
            packed.append(np.uint64(workspace.data.ptr))
        starts: list[Callable[[], Any]] = []
        for launch in plan.launches:
            if isinstance(launch, Call):
                values = [*(arguments[name] for name in op.arguments), *([workspace] if plan.workspace else ())]
                starts.append(functools.partial(launch.function, self.stream, g, *values))
            else:
                starts.append(self._start(variant, launch, tuple(packed)))
        # Launches hold raw pointers: the arrays behind them must live as long.
        return functools.partial(_run_all, starts, (arguments, workspace))

    def _start(self, variant: Variant, launch: Launch, packed: tuple) -> Callable[[], None]:
        kernel = self._kernel(variant, launch)
        return functools.partial(kernel, launch.grid, launch.block, packed, launch.shared, self.stream)

    def _kernel(self, variant: Variant, launch: Launch) -> Any:
        from kernels.compile import cubin  # compile needs cupy() from here

        path = str(cubin(variant, launch, self.target))
        kernel = _module(path).get_function(launch.kernel or variant.op.entry)
        if launch.shared > 48 * 1024:
            kernel.max_dynamic_shared_size_bytes = launch.shared
        return kernel.kernel  # the driver function itself: it takes the stream, and costs less per start

    def capture(self, starts: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """All of `starts` as one CUDA graph: a function that replays it. Each must have run before."""
        with self.stream:
            self.stream.begin_capture()
            for start in starts:
                start()
            graph = self.stream.end_capture()
        return functools.partial(graph.launch, self.stream)

    def upload(self, target: Any, source: np.ndarray) -> None:
        target.set(source, stream=self.stream)

    def feed(self, target: Any, source: np.ndarray) -> None:
        self._staging.feed(target, source)

    def download(self, source: Any) -> np.ndarray:
        with self.stream:  # where CuPy first brings an array that is not contiguous into order
            return source.get()

    def synchronize(self) -> None:
        self.stream.synchronize()

    def host(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        memory = cupy().cuda.alloc_pinned_memory(max(count, 1) * np.dtype(dtype).itemsize)
        array = np.frombuffer(memory, dtype, count).reshape(shape)
        array[...] = 0
        return array

    def pin(self, array: np.ndarray) -> Callable[[], object]:
        runtime, address = cupy().cuda.runtime, array.ctypes.data
        runtime.hostRegister(address, array.nbytes, 0)
        return functools.partial(runtime.hostUnregister, address)

    def fence(self) -> Callable[[], object]:
        event = cupy().cuda.Event(block=True, disable_timing=True)
        event.record(self._staging.copies)
        return event.synchronize


def _run_all(starts: Sequence[Callable[[], Any]], owners: Any) -> None:
    for start in starts:
        start()


@functools.cache
def _module(path: str) -> Any:
    return cupy().RawModule(path=path)
