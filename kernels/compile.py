"""CUDA sources to cubins, by NVRTC, cached on disk.

The cache key is a digest of everything that can change the result: the source and every header of ours, the
geometry declaration, the constants, the architecture, the NVRTC version.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from kernels.abi import declaration
from kernels.backend import cupy
from kernels.op import FOLDER, Launch, Variant

INCLUDE = FOLDER / "include"
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", f"--include-path={INCLUDE}")


class CompileError(RuntimeError):
    """NVRTC rejected a kernel; the message is its log, with the lines of our own file."""


def cubin(variant: Variant, launch: Launch, arch: str) -> Path:
    """Path of the compiled kernel for `arch` ("80", "90a"); compiled now if the cache lacks it."""
    defines = tuple(f"-D{name}={value}" for name, value in launch.define)
    source = _source(variant.path, variant.op.geometry)
    options = (*OPTIONS, f"--gpu-architecture=sm_{arch}", *defines)
    key = hashlib.sha256("\0".join((source, _headers(), *options, str(_nvrtc_version()))).encode()).hexdigest()[:32]
    target = cache_folder() / f"{variant.op.family}-{variant.path.stem}-{key}.cubin"
    if not target.exists():
        write_atomic(target, _compile(variant.path, source, options))
    return target


def cache_folder() -> Path:
    """$CONVNET_CACHE, else $XDG_CACHE_HOME/convnet, else ~/.cache/convnet."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "convnet"
    folder = Path(os.environ.get("CONVNET_CACHE", default)) / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_atomic(target: Path, data: bytes) -> None:
    """Several processes may fill the cache at once: each writes its own file and renames it."""
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, target)


def _source(path: Path, geometry: type) -> str:
    return f'#include "map.cuh"\n{declaration(geometry)}\n#line 1 "{path.name}"\n{path.read_text()}'


@cache
def _headers() -> str:
    return "\0".join(path.read_text() for path in sorted(INCLUDE.rglob("*.cuh")))


@cache
def _nvrtc_version() -> tuple[int, int]:
    return cupy().cuda.nvrtc.getVersion()


def _compile(path: Path, source: str, options: Iterable[str]) -> bytes:
    nvrtc: Any = cupy().cuda.nvrtc
    program = nvrtc.createProgram(source, path.name, [], [])
    try:
        nvrtc.compileProgram(program, [*options, *(f"--include-path={p}" for p in _toolkit_headers())])
        return nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise CompileError(f"{path}: {error}\n{re.sub(r'^default_program', path.name, log)}") from None
    finally:
        nvrtc.destroyProgram(program)


@cache
def _toolkit_headers() -> tuple[str, ...]:
    """The folder with cuda_fp16.h and friends: a wheel's, or the installed toolkit's."""
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory("cudart")
    return (folder,) if folder else ()
