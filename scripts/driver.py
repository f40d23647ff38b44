"""Print the extra of this project that suits the NVIDIA driver: cuda13, cuda12, or nothing without a usable GPU.

Asks the driver itself, by its library, so that neither CuPy nor nvidia-smi is needed.
"""

import ctypes
import sys


def driver_version() -> int:
    """The newest CUDA that the driver supports, 13020 for 13.2; 0 without a driver or a GPU."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return 0
    version, count = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return 0
    driver.cuDriverGetVersion(ctypes.byref(version))
    return version.value


def main() -> None:
    """Print the name of the extra, and on stderr why there is none although there is a GPU."""
    major = driver_version() // 1000
    if major >= 12:
        print(f"cuda{min(major, 13)}")
    elif major:
        print(f"the NVIDIA driver supports CUDA {major}, 12 or later is needed: using the CPU", file=sys.stderr)


if __name__ == "__main__":
    main()
