"""The backends that tests run on. A test marked gpu (multi_gpu) is skipped without a (second) GPU."""

import functools
import signal

import pytest

from kernels.backend import Cuda, NumPy, cupy


@functools.cache
def device_count() -> int:
    try:
        return cupy().cuda.runtime.getDeviceCount()
    except ImportError:
        return 0
    except cupy().cuda.runtime.CUDARuntimeError:
        return 0


def pytest_configure(config):
    """A shell's background job ignores SIGINT, and so would every process that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item):
    for marker, needed in (("gpu", 1), ("multi_gpu", 2)):
        if item.get_closest_marker(marker) and device_count() < needed:
            pytest.skip(f"needs {needed} CUDA GPU{'s' * (needed > 1)}, found {device_count()}")


@pytest.fixture(scope="session")
def cuda():
    """The first GPU. For tests marked gpu."""
    return Cuda()


@pytest.fixture(params=["numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request):
    """Each backend in turn."""
    return NumPy() if request.param == "numpy" else request.getfixturevalue("cuda")
