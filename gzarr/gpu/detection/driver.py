"""The NVIDIA driver, its devices, and the packages that drive them: which CUDA those are for, and which are needed.

The driver is asked by ctypes: without a driver, some libraries hang or print when loaded. Versions of packages are read
from their metadata. Here is also the folder of files that the GPU backend caches between processes.
"""

import ctypes
import importlib.util
import os
import re
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
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


def cache_folder(name: str) -> Path | None:
    """A folder in the user's cache, created if necessary; None if there is none that only the user can write."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # A relative path must be ignored (XDG Base Directory Specification).
        folder = (base if base.is_absolute() else Path.home() / ".cache") / "gzarr" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        if os.access(folder, os.W_OK) and about.st_uid == os.getuid() and not about.st_mode & 0o022:
            return folder
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        pass
    return None


class Cuda(NamedTuple):
    """A version of CUDA that gzarr has an extra for.

    Attributes
    ----------
    driver : str
        The first driver that runs it (CUDA Compatibility, "Minor version compatibility").
    capability : tuple of int
        Of the oldest GPUs that its compiler and nvCOMP have code for.
    nvrtc : str
        The distribution with its compiler.
    """

    driver: str
    capability: tuple[int, int]
    nvrtc: str


#: By major version.
CUDAS = {12: Cuda("525", (7, 0), "nvidia-cuda-nvrtc-cu12"), 13: Cuda("580", (7, 5), "nvidia-cuda-nvrtc")}
#: CuPy from source or conda, and for versions of CUDA and makers of GPUs that gzarr has no extra for.
_ANY_CUPY, _OTHER_CUPYS = "cupy", ("cupy-cuda11x", "cupy-rocm-7-0", "cupy-rocm-5-0")


def installed(*names: str) -> dict[str, str]:
    """The versions of those distributions that are installed."""
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def per_cuda(name: str) -> dict[str, str]:
    """The versions of what is installed of a package that has a distribution for each CUDA, by their names."""
    return installed(*(name.format(cuda) for cuda in CUDAS))


def cupys() -> dict[str, str]:
    """The versions of all distributions of CuPy that are installed, by their names."""
    return {**per_cuda("cupy-cuda{}x"), **installed(_ANY_CUPY, *_OTHER_CUPYS)}


def cuda_of_cupy() -> int | None:
    """The major version of CUDA that CuPy is built for; None if it is not installed, or for none that gzarr supports.

    A CuPy from source or conda is imported to be asked.
    """
    for name in cupys():
        if name == _ANY_CUPY:
            with suppress(Exception):  # whatever it raises, the read that needs it will
                import cupy

                return int(cupy.cuda.runtime.runtimeGetVersion()) // 1000
        if found := re.fullmatch(r"cupy-cuda(\d+)x", name):
            return int(found[1]) if int(found[1]) in CUDAS else None
    return None


def fitting_cuda() -> int | None:
    """The newest CUDA that the driver and one of its devices run; None without them."""
    driver = ask_driver()
    capabilities = [identify(number).capability for number in range(driver.devices)]
    return max((cuda for cuda in CUDAS if _runs(cuda, driver.version, capabilities)), default=None)


def extra() -> str:
    """The extra of gzarr for CuPy's CUDA, or else the newest one that the driver runs."""
    return f"cuda{cuda_of_cupy() or fitting_cuda() or max(CUDAS)}"


def _runs(cuda: int, driver: int, capabilities: list[tuple[int, int]]) -> bool:
    # That of a device is (0, 0) if it is not known.
    has_device = any(one >= CUDAS[cuda].capability or one == (0, 0) for one in capabilities)
    return driver // 1000 >= cuda and has_device


def install_command() -> str:
    """How to install what is missing: with the extra for CuPy's CUDA if the driver runs that, or else the driver's."""
    cuda, fitting = cuda_of_cupy(), fitting_cuda()
    if fitting is None and cuda is None:
        return "pip install 'gzarr[cuda13]', or 'gzarr[cuda12]' for drivers older than 580"
    chosen = cuda if cuda is not None and (fitting is None or cuda <= fitting) else fitting
    return f"pip install 'gzarr[cuda{chosen}]'"


def misfit(library: str, cuda: int, packages: list[str]) -> str:
    """What is wrong with a library for a CUDA, or "".

    library: its name. packages: the distributions that have installed it.
    """
    fitting = fitting_cuda()
    if fitting is None or cuda <= fitting:
        return ""
    driver = ask_driver().version
    why = f"the driver runs CUDA {version_text(driver)}"
    newer = f", or install driver {CUDAS[cuda].driver} or newer" if cuda in CUDAS else ""
    if driver // 1000 >= cuda:
        major, minor = max(identify(number).capability for number in range(ask_driver().devices))
        why, newer = f"the GPU has compute capability {major}.{minor}, which CUDA {fitting} is the last to support", ""
    remove = f"pip uninstall {' '.join(packages)}, then " if packages else ""
    return f"{library} is built for CUDA {cuda}, and {why}: {remove}pip install 'gzarr[cuda{fitting}]'{newer}"
