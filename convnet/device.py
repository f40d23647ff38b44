"""Which device a command runs on: `auto`, `cpu`, `cuda` or `cuda:1`; for planning alone, also `sm_90`."""

import functools
import re
from typing import Any

import numpy as np

from convnet.errors import UserError
from kernels.backend import Cuda, NumPy, cupy
from kernels.op import Op, Plan, Variant

HELP = "auto (a GPU where one works), cpu, cuda or cuda:INDEX"


class Planner(NumPy):
    """Plans memory without taking any: its arrays have a size but no content.

    arch: of the GPU for which CUDA variants are chosen, one that need not be here; None: the references.
    says: what it plans for.
    """

    name = "planner"
    capture: Any  # of a backend that has it

    def __init__(self, arch: int | None, says: str = ""):
        self.arch, self.says = arch, says or f"sm_{arch} (planned, not run)"

    def zeros(self, size: int, dtype: Any = np.uint8) -> np.ndarray:
        return np.broadcast_to(np.zeros(1, dtype), size)

    def choose(self, op: Op, g: Any) -> tuple[Variant | None, Plan]:
        return super().choose(op, g) if self.arch is None else op.choose(g, self.arch)


def open_device(name: str) -> Any:
    """The backend of that name; raises UserError, with the reason, where a GPU is asked for and does not work."""
    if name == "cpu":
        return NumPy()
    if name == "auto":
        return NumPy() if cuda_fault() else Cuda(0)
    if match := re.fullmatch(r"cuda(?::(\d+))?", name):
        index = int(match[1] or 0)
        if fault := cuda_fault(index):
            raise UserError(f"--device {name}: {fault}; `convnet doctor` says more")
        return Cuda(index)
    raise UserError(f"--device {name}: expected {HELP}")


def open_planner(name: str) -> Any:
    """A backend that plans but cannot run: for what `open_device` opens, or for `sm_80` and the like."""
    if match := re.fullmatch(r"sm_(\d{2,3})", name):
        return Planner(int(match[1]))
    backend = open_device(name)
    planner = Planner(getattr(backend, "arch", None), describe(backend))
    if hasattr(backend, "capture"):
        planner.capture = backend.capture
    return planner


@functools.cache
def cuda_fault(index: int = 0) -> str:
    """Why the GPU of that index cannot be used; empty when it can."""
    try:
        cp = cupy()
    except ImportError as error:
        return f"CuPy is not installed ({error})"
    try:
        count = cp.cuda.runtime.getDeviceCount()
        if index >= count:
            return f"there is no GPU {index}; found {count}"
        with cp.cuda.Device(index):
            cp.zeros(1).fill(1)
            cp.cuda.runtime.deviceSynchronize()
        return ""
    except Exception as error:  # whatever a driver that is missing, old or broken makes CuPy raise
        return f"{type(error).__name__}: {error}".splitlines()[0]


def describe(backend: Any) -> str:
    """What the backend runs on: "cuda:0 NVIDIA H200 (sm_90)"."""
    if isinstance(backend, Planner):
        return backend.says
    if not isinstance(backend, Cuda):
        return "cpu"
    name = cupy().cuda.runtime.getDeviceProperties(backend.device.id)["name"].decode()
    return f"cuda:{backend.device.id} {name} (sm_{backend.arch})"


def gpu_count() -> int:
    """GPUs that CUDA shows to this process; 0 without CUDA. Takes none of them."""
    try:
        return int(cupy().cuda.runtime.getDeviceCount())
    except Exception:  # whatever a driver that is missing, old or broken makes CuPy raise
        return 0


def identity(backend: Any) -> str:
    """What tells a GPU from all others of its machine; empty for a CPU."""
    if not isinstance(backend, Cuda):
        return ""
    return str(cupy().cuda.runtime.deviceGetPCIBusId(backend.device.id))
