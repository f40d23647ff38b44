"""Which device a command runs on: `auto`, `cpu`, `cuda` or `cuda:1`; for planning alone, also `sm_90`."""

import functools
import re
from typing import Any

from convnet.errors import UserError
from kernels.backend import Cuda, NumPy, cupy
from kernels.op import Op, Plan, Variant

HELP = "auto (a GPU where one works), cpu, cuda or cuda:INDEX"


class Planner(NumPy):
    """Chooses CUDA variants for an architecture, so that their memory can be planned where there is no such GPU."""

    name = "planner"

    def __init__(self, arch: int):
        self.arch = arch

    def choose(self, op: Op, g: Any) -> tuple[Variant | None, Plan]:
        return op.choose(g, self.arch)


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
    """As `open_device`; or `sm_80` and the like, a backend that plans but cannot run."""
    if match := re.fullmatch(r"sm_(\d{2,3})", name):
        return Planner(int(match[1]))
    return open_device(name)


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
        return f"sm_{backend.arch} (planned, not run)"
    if not isinstance(backend, Cuda):
        return "cpu"
    name = cupy().cuda.runtime.getDeviceProperties(backend.device.id)["name"].decode()
    return f"cuda:{backend.device.id} {name} (sm_{backend.arch})"
