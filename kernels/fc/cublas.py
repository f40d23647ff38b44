"""Matrix products of row-major matrices by cuBLAS, in IEEE fp32, on a handle of our own.

CuPy's cuBLAS refuses to be captured in a CUDA graph.  With our own handle, stream and workspace it is captured like a
kernel, and a fixed workspace makes its choice of algorithm, and so its bits, the same in every run.
"""

import ctypes
import functools
from typing import Any

WORKSPACE = 32 << 20  # bytes; what NVIDIA advises for Hopper
N, T = 0, 1  # cublasOperation_t


class CublasError(RuntimeError):
    """A cuBLAS call failed, or the library is missing."""


def gemm(
    stream: Any, workspace: Any, a: Any, b: Any, out: Any, sizes: tuple[int, int, int], ops: str, beta: float,
    count: int = 1,
) -> None:  # fmt: skip
    """out[m, n] = op(a)[m, k] op(b)[k, n] + beta out[m, n], all row-major and contiguous; sizes (m, n, k).

    ops: "N" or "T" for each of a and b: T means that the array holds the transpose. out is not read when beta is 0.
    count: so many products; the matrices of each array lie one after the other.
    """
    m, n, k = sizes
    op_a, op_b = (T if op == "T" else N for op in ops)
    handle = _handle(stream.device_id)
    _check("cublasSetStream_v2", handle, ctypes.c_void_p(stream.ptr))
    _check("cublasSetWorkspace_v2", handle, ctypes.c_void_p(workspace.data.ptr), ctypes.c_size_t(workspace.nbytes))
    # cuBLAS is column-major: what is row-major [m, n] to us is its [n, m], so it computes out' = op(b)' op(a)'.
    strides = [(ctypes.c_longlong(size),) if count > 1 else () for size in (k * n, m * k, m * n)]
    _check(
        "cublasSgemmStridedBatched" if count > 1 else "cublasSgemm_v2",
        handle,
        *(op_b, op_a, n, m, k),
        ctypes.byref(ctypes.c_float(1.0)),
        *(ctypes.c_void_p(b.data.ptr), k if op_b == T else n, *strides[0]),
        *(ctypes.c_void_p(a.data.ptr), m if op_a == T else k, *strides[1]),
        ctypes.byref(ctypes.c_float(beta)),
        *(ctypes.c_void_p(out.data.ptr), n, *strides[2]),
        *((count,) if count > 1 else ()),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    except Exception as error:
        raise CublasError(f"fully connected layers need cuBLAS: {error}; install nvidia-cublas") from error


@functools.cache
def _handle(device: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _check("cublasCreate_v2", ctypes.byref(handle))
    return handle


def _check(function: str, *arguments: Any) -> None:
    status = getattr(_library(), function)(*arguments)
    if status:
        raise CublasError(f"{function} failed with status {status}")
