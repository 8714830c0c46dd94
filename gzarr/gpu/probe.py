"""Finds out, without importing or starting anything heavy, whether this machine can use its GPU, and what is missing.

The driver is asked by ctypes: on a machine without one, some libraries hang or print when they are loaded first.
"""

from __future__ import annotations

import ctypes
import importlib.util

from gzarr.errors import DeviceError

_EXTRA = "install gzarr[cuda13]"


def find_missing() -> str | None:
    """What keeps the GPU from being used, with the remedy; None if nothing does."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1)"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or count.value == 0:
        return f"the NVIDIA driver sees no device (status {status})"
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is missing: {_EXTRA}"
    try:
        from gzarr.gpu import nvcomp

        nvcomp.load()
    except DeviceError as error:
        return str(error)
    return None
