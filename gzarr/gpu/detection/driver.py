"""The NVIDIA driver and its devices, asked by ctypes: without a driver, some libraries hang or print when loaded."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gzarr.concurrency import after_fork

#: The first version of CUDA that gzarr's libraries are built for, as the driver reports it, and the driver that has it
#: (CUDA Compatibility, "Minor version compatibility").
CUDA_VERSION, DRIVER_VERSION = 12000, "525"
#: Status of the driver in a process that was forked after cuInit (CUDA_ERROR_NOT_INITIALIZED).
_NOT_INITIALIZED = 3
#: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_CAPABILITY = (75, 76)


class Driver(NamedTuple):
    """The NVIDIA driver.

    Attributes
    ----------
    version : int
        Newest CUDA version that it runs, such as 13000; 0 if there is no driver.
    devices : int
        Number of devices.
    problem : str
        What is wrong, or "".
    """

    version: int
    devices: int
    problem: str


def may_be_usable() -> bool:
    """Whether there are a driver and CuPy. Does not initialize the driver, which takes 0.1 s or more."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return importlib.util.find_spec("cupy") is not None


@cache
def ask_driver() -> Driver:
    """Ask the driver for its version and the number of devices."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        remedy = "install driver 580 or newer from nvidia.com or your distribution"
        return Driver(0, 0, f"there is no NVIDIA driver (libcuda.so.1): {remedy}")
    cuda, count = ctypes.c_int(0), ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDriverGetVersion(ctypes.byref(cuda))
    status = status or driver.cuDeviceGetCount(ctypes.byref(count))
    if status == _NOT_INITIALIZED:
        text = "this process was forked from one that had asked the NVIDIA driver, which cannot be asked again in it"
        return Driver(cuda.value, 0, f"{text}: start processes by spawn (multiprocessing.set_start_method)")
    if status or count.value == 0:
        remedy = "see whether nvidia-smi lists one, and CUDA_VISIBLE_DEVICES does not hide it"
        return Driver(cuda.value, 0, f"the NVIDIA driver sees no device (status {status}): {remedy}")
    if cuda.value < CUDA_VERSION:
        text = f"the NVIDIA driver is too old: it runs CUDA {version_text(cuda.value)}, CUDA 12 or newer is needed"
        return Driver(cuda.value, count.value, f"{text}: install driver {DRIVER_VERSION} or newer")
    return Driver(cuda.value, count.value, "")


def version_text(cuda: int) -> str:
    """A version of CUDA as people write it: 12080 is 12.8."""
    return f"{cuda // 1000}.{cuda % 1000 // 10}"


class Gpu(NamedTuple):
    """The identity of a GPU.

    Attributes
    ----------
    name : str
        Such as "NVIDIA H200"; "" if unknown.
    uuid : str
        Of this unit, in hexadecimal digits.
    driver : str
        Version of the driver, such as "580.95.05"; "" if unknown.
    capability : tuple of int
        Its compute capability, such as (9, 0); (0, 0) if unknown.
    nbytes : int
        Its memory; 0 if unknown.
    """

    name: str
    uuid: str
    driver: str
    capability: tuple[int, int]
    nbytes: int


@cache
def identify(number: int) -> Gpu:
    """Identify the GPU with a number, without starting anything on it."""
    if number >= ask_driver().devices:
        return Gpu("", "", "", (0, 0), 0)
    driver = ctypes.CDLL("libcuda.so.1")
    handle, name, uuid = ctypes.c_int(0), ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    parts, nbytes = (ctypes.c_int(0), ctypes.c_int(0)), ctypes.c_size_t(0)
    try:
        known = driver.cuDeviceGet(ctypes.byref(handle), number) == 0
        named = known and driver.cuDeviceGetName(name, len(name), handle) == 0
        numbered = known and driver.cuDeviceGetUuid(uuid, handle) == 0
        for part, attribute in zip(parts, _CAPABILITY, strict=True):
            driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, handle)
        driver.cuDeviceTotalMem_v2(ctypes.byref(nbytes), handle)
    except AttributeError:  # a stand-in for the driver may lack them
        return Gpu("", "", _driver_version(), (0, 0), 0)
    about = name.value.decode() if named else "", uuid.raw.hex() if numbered else "", _driver_version()
    return Gpu(*about, (parts[0].value, parts[1].value), nbytes.value)


def _driver_version() -> str:
    """The version of the kernel module; the driver's library only reports that of CUDA."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""


def device_count() -> int:
    """Number of CUDA devices; 0 without a driver."""
    return ask_driver().devices


after_fork(ask_driver.cache_clear)
