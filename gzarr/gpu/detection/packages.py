"""The packages that drive a GPU: which CUDA those that are installed are for, and which ones the driver needs."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from gzarr.gpu.detection.driver import ask_driver, identify, version_text


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
