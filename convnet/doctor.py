"""`convnet doctor`: what works on this machine, what is missing, and how to get it."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

from convnet import __version__
from convnet.cpus import available_cpus
from convnet.device import cuda_fault
from convnet.errors import UserError
from convnet.parallel.world import from_environment
from kernels import neuron
from kernels.backend import Cuda, cupy, nccl
from kernels.op import Launch

OK, MISSING, BROKEN = "ok", "missing", "broken"
ESSENTIAL = ("numpy", "PyYAML", "pillow", "tqdm", "safetensors")
PROBE = neuron.Neuron(1, 1, 1, batch=100, kind=neuron.KINDS.index("relu"))


@dataclass(frozen=True)
class Finding:
    """state: ok, missing (optional, not there) or broken (there, does not work). essential: nothing runs without it."""

    what: str
    state: str
    detail: str
    remedy: str = ""
    essential: bool = False


def examine() -> list[Finding]:
    """All findings. A check that fails in an unforeseen way is a finding, too."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (_python, _packages, _decoder, _host, _cuda, _ranks)
    found: list[Finding] = []
    for check in checks:
        try:
            found += check()
        except Exception as error:
            found.append(Finding(check.__name__.strip("_"), BROKEN, f"{type(error).__name__}: {error}"))
    return found


def report(findings: list[Finding]) -> str:
    """One line a finding, and what to do about it."""
    width = max(len(finding.what) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:7}  {finding.what:{width}}  {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':7}  {'':{width}}  -> {finding.remedy}")
    return "\n".join(lines)


def fatal(findings: list[Finding]) -> bool:
    """Whether something is missing without which nothing runs."""
    return any(finding.essential and finding.state != OK for finding in findings)


def _python() -> Iterator[Finding]:
    good = sys.version_info >= (3, 10)
    remedy = "" if good else "Python 3.10 or later is needed"
    where = f"{platform.python_version()} on {platform.platform()}"
    yield Finding("Python", OK if good else BROKEN, where, remedy, essential=True)
    yield Finding("convnet", OK, __version__)


def _packages() -> Iterator[Finding]:
    for name in ESSENTIAL:
        # pillow-simd replaces Pillow under another name
        version = _version(name) or (_version("pillow-simd") if name == "pillow" else "")
        yield Finding(
            name, OK if version else MISSING, version, "" if version else f"pip install {name}", essential=True
        )
    version = _version("matplotlib")
    yield Finding("matplotlib", OK if version else MISSING, version or "plots", "" if version else _extra("plot"))


def _decoder() -> Iterator[Finding]:
    from PIL import Image, features

    codec = features.version("libjpeg_turbo") if features.check_feature("libjpeg_turbo") else None
    kind = f"libjpeg-turbo {codec}" if codec else f"libjpeg {features.version('jpg')}"
    speed = "" if codec else "slow without libjpeg-turbo: pip install --force-reinstall pillow"
    good = features.check("jpg")
    remedy = speed if good else "pip install --force-reinstall pillow"
    name = "pillow-simd" if _version("pillow-simd") else "Pillow"
    yield Finding("decoder", OK if good else BROKEN, f"{name} {Image.__version__}, {kind}", remedy, essential=True)
    faster = _version("simplejpeg")
    used = f"{faster}, used where data.decoder is auto" if faster else "decodes JPEGs faster"
    yield Finding("simplejpeg", OK if faster else MISSING, used, "" if faster else _extra("simplejpeg"))


def _host() -> Iterator[Finding]:
    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB of memory"
    disk = shutil.disk_usage(".").free / 2**30
    yield Finding("host", OK, f"{available_cpus()} CPUs{memory}, {disk:.1f} GiB free on this disk")


def _cuda() -> Iterator[Finding]:
    try:
        cp = cupy()
    except ImportError as error:
        yield Finding(
            "CuPy", MISSING, f"GPUs cannot be used ({error})", f"{_extra('cuda13')} (driver 580 or later), or cuda12"
        )
        return
    yield Finding("CuPy", OK, cp.__version__)
    yield from _compiler()
    try:
        count = cp.cuda.runtime.getDeviceCount()
    except Exception as error:
        remedy = "install the NVIDIA driver: https://www.nvidia.com/drivers (nvidia-smi must list the GPU)"
        yield Finding("GPU", MISSING, f"{error}".splitlines()[0], remedy)
        return
    yield Finding("driver", OK, f"CUDA {_cuda_version(cp.cuda.runtime.driverGetVersion())}")
    for index in range(count):
        yield _gpu(cp, index)


def _gpu(cp: Any, index: int) -> Finding:
    properties = cp.cuda.runtime.getDeviceProperties(index)
    name = f"{properties['name'].decode()}, sm_{properties['major']}{properties['minor']}"
    if fault := cuda_fault(index):
        return Finding(f"GPU {index}", BROKEN, f"{name}: {fault}")
    backend = Cuda(index)
    free, total = cp.cuda.runtime.memGetInfo()
    memory = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    if fault := _kernel_fault(backend):
        return Finding(f"GPU {index}", BROKEN, f"{name}, {memory}: {fault}")
    return Finding(f"GPU {index}", OK, f"{name}, {memory}, our kernels run")


def _kernel_fault(backend: Cuda) -> str:
    """What is wrong with the result of one of our kernels on this GPU; empty when nothing is."""
    x, y = backend.zeros(PROBE.batch, np.float32), backend.zeros(PROBE.batch, np.float32)
    source = np.linspace(-1, 1, PROBE.batch, dtype=np.float32)
    backend.upload(x, source)
    maps = {name: array.reshape(1, 1, 1, -1) for name, array in (("x", x), ("y", y))}
    try:
        backend.bind(neuron.FORWARD, PROBE, maps)()
        found = backend.download(y)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "" if (found == np.maximum(source, 0)).all() else "one of our kernels gives wrong results"


def _compiler() -> Iterator[Finding]:
    """NVRTC needs no GPU: compile a kernel for a common architecture."""
    from kernels.compile import cubin

    variant, plan = neuron.FORWARD.choose(PROBE, 80)
    (launch,) = plan.launches
    try:
        if isinstance(launch, Launch):
            cubin(variant, launch, "80")
    except Exception as error:
        yield Finding(
            "compiler", BROKEN, f"{type(error).__name__}: {error}".splitlines()[0], _extra("cuda13") + " or cuda12"
        )
        return
    yield Finding("compiler", OK, f"NVRTC {'.'.join(map(str, cupy().cuda.nvrtc.getVersion()))} compiles our kernels")


def _ranks() -> Iterator[Finding]:
    yield _launch()
    yield _optional("MPI", "ranks on CPUs", _mpi, _extra("mpi") + ", which has MPICH; or mpi4py with an MPI of yours")
    yield _optional("NCCL", "several GPUs", _nccl, "pip install nvidia-nccl-cu13 (or -cu12, as your CuPy), beside it")


def _launch() -> Finding:
    """What a command would be here: a process of its own, or a rank."""
    try:
        world = from_environment(os.environ)
    except UserError as error:
        return Finding("launch", BROKEN, str(error), "unset what no launcher has set")
    return Finding("launch", OK, world.told if world.launcher else "a process of its own, of no launcher")


def _optional(what: str, use: str, probe: Callable[[], str], remedy: str) -> Finding:
    """use: for what it is needed. remedy: where the error has none of its own."""
    try:
        return Finding(what, OK, f"{probe()}, for {use}")
    except ImportError as error:
        reason, _, told = " ".join(str(error).split()).partition(" You can install the library by: $ ")
        return Finding(what, MISSING, f"for {use} ({reason})", told or remedy)
    except Exception as error:
        return Finding(what, BROKEN, f"{type(error).__name__}: {error}".splitlines()[0], remedy)


def _mpi() -> str:
    import mpi4py

    mpi4py.rc.initialize = False  # which would wait for all ranks, where a launcher has started this process
    from mpi4py import MPI

    library = " ".join(MPI.Get_library_version().splitlines()[0].split())
    return f"mpi4py {_version('mpi4py')}, {library}"


def _nccl() -> str:
    try:
        number = nccl().get_version()
    except RuntimeError as error:  # which tells why the library cannot be loaded, and how to get it
        raise ImportError(error) from None
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _extra(name: str) -> str:
    """From the clone: a package index may have another project of our name."""
    return f"pip install '.[{name}]' in the clone of convnet"
