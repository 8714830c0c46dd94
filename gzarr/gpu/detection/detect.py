"""Detects whether this machine can use its GPU, and what is missing, without importing anything heavy.

The driver is queried with ctypes first, because without a driver some libraries hang or print when they are loaded.
Versions of Python packages are read from their metadata.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from gzarr.concurrency import after_fork
from gzarr.errors import DeviceError

_EXTRA = "pip install 'gzarr[cuda13]'"
_KVIKIO = f"{_EXTRA} and pip install --no-deps 'kvikio-cu13==26.10.*', or leave out reader='kvikio'"

#: CUDA version that the libraries are built for, as the driver reports it, and the first driver that has it.
CUDA_VERSION, DRIVER_VERSION = 13000, "580"
#: Status of the driver in a process that was forked after cuInit (CUDA_ERROR_NOT_INITIALIZED).
_NOT_INITIALIZED = 3
#: First CuPy with wheels for CUDA 13 that KvikIO accepts; first KvikIO with the interface used here.
CUPY_VERSION, KVIKIO_VERSION = (14, 0, 1), (26, 10)
#: Names of CuPy's distributions: for CUDA 13, and from source or conda.
_CUPY_NAMES = ("cupy-cuda13x", "cupy")
_DRIVING = ("nvidia-libnvcomp-cu13", "nvidia-cuda-nvrtc", "numpy", "numcodecs")
_OTHER_CUPY = ("cupy-cuda12x", "cupy-cuda11x", "cupy-rocm-7-0", "cupy-rocm-5-0")


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
        remedy = f"install driver {DRIVER_VERSION} or newer from nvidia.com or your distribution"
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
        has = f"{cuda.value // 1000}.{cuda.value % 1000 // 10}"
        text = f"the NVIDIA driver is too old: it runs CUDA {has}, CUDA 13 is needed: install driver {DRIVER_VERSION}"
        return Driver(cuda.value, count.value, f"{text} or newer")
    return Driver(cuda.value, count.value, "")


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
    """

    name: str
    uuid: str
    driver: str


@cache
def identify(number: int) -> Gpu:
    """Identify the GPU with a number, without starting anything on it."""
    if number >= ask_driver().devices:
        return Gpu("", "", "")
    driver = ctypes.CDLL("libcuda.so.1")
    handle, name, uuid = ctypes.c_int(0), ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    try:
        known = driver.cuDeviceGet(ctypes.byref(handle), number) == 0
        named = known and driver.cuDeviceGetName(name, len(name), handle) == 0
        numbered = known and driver.cuDeviceGetUuid(uuid, handle) == 0
    except AttributeError:  # a stand-in for the driver may lack them
        return Gpu("", "", _driver_version())
    return Gpu(name.value.decode() if named else "", uuid.raw.hex() if numbered else "", _driver_version())


def _driver_version() -> str:
    """The version of the kernel module; the driver's library only reports that of CUDA."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""


def device_count() -> int:
    """Number of CUDA devices; 0 without a driver."""
    return ask_driver().devices


def find_problems(*, kvikio: bool = False) -> list[str]:
    """Reasons why the GPU cannot be used, each as a phrase with its remedy.

    kvikio: whether files will be read with KvikIO, which nothing else needs.
    """
    problems = [ask_driver().problem, _cupy_problem(), _nvcomp_problem()]
    if kvikio:
        problems.append(_kvikio_problem())
    return [problem for problem in problems if problem]


def versions() -> dict[str, str]:
    """Versions of the installed packages that drive a GPU."""
    return {name: has for name in (*_CUPY_NAMES, *_DRIVING) if (has := _version(name)) is not None}


def find_missing() -> str | None:
    """`find_problems` as one sentence; None if there are none."""
    return "; ".join(find_problems()) or None


def _cupy_problem() -> str:
    others = [f"{name} {has}" for name in _OTHER_CUPY if (has := _version(name)) is not None]
    installed = next((has for name in _CUPY_NAMES if (has := _version(name)) is not None), None)
    if installed is None and others:
        return f"CuPy is built for another CUDA ({', '.join(others)}): pip uninstall it, then {_EXTRA}"
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is missing: {_EXTRA}"
    return _too_old("CuPy", installed, CUPY_VERSION, _EXTRA)


def _nvcomp_problem() -> str:
    try:
        from gzarr.gpu.device import nvcomp

        nvcomp.load()
    except DeviceError as error:
        return str(error)  # says what was found where, and the extra
    return ""


def _kvikio_problem() -> str:
    if importlib.util.find_spec("kvikio") is None:
        return f"KvikIO is missing: {_KVIKIO}"
    return _too_old("KvikIO", _version("kvikio-cu13"), KVIKIO_VERSION, _KVIKIO)


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _too_old(name: str, installed: str | None, needed: tuple[int, ...], remedy: str) -> str:
    """A phrase if a version is too old, else ""; an unknown version is accepted."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", installed or "")[: len(needed)])
    if not numbers or numbers >= needed:
        return ""
    return f"{name} {installed} is too old, {'.'.join(map(str, needed))} is needed: {remedy}"


after_fork(ask_driver.cache_clear)
