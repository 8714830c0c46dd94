"""Finds what is missing for the GPU backend, without importing anything heavy.

Versions of Python packages are read from their metadata.
"""

import importlib.util
import re

from gzarr.errors import DeviceError
from gzarr.gpu.detection import driver as drivers

#: First CuPy with wheels for CUDA 13 that KvikIO accepts; first KvikIO with the interface used here.
CUPY_VERSION, KVIKIO_VERSION = (14, 0, 1), (26, 10)
#: KvikIO's Python part: of the wheels, and from conda.
KVIKIOS = ("kvikio-cu12", "kvikio-cu13", "kvikio")
#: What drives a GPU, besides CuPy.
_DRIVING = (
    *("nvidia-libnvcomp-cu12", "nvidia-libnvcomp-cu13", *(cuda.nvrtc for cuda in drivers.CUDAS.values())),
    *("numpy", "numcodecs"),
)


def find_problems(*, kvikio: bool = False) -> list[str]:
    """Reasons why the GPU cannot be used, each as a phrase with its remedy.

    kvikio: whether files will be read with KvikIO, which nothing else needs.
    """
    problems = [drivers.ask_driver().problem, _gpu_problem(), _cupy_problem(), _nvcomp_problem()]
    if not any(problems[:3]):
        problems.append(_nvrtc_problem())
    if kvikio and (lacks := kvikio_problem()):
        problems.append(f"{lacks}, or leave out reader='kvikio'")
    return [problem for problem in problems if problem]


def find_missing() -> str | None:
    """`find_problems` as one sentence; None if there are none."""
    return "; ".join(find_problems()) or None


def versions() -> dict[str, str]:
    """Versions of the installed packages that drive a GPU."""
    return {**drivers.cupys(), **drivers.installed(*_DRIVING)}


def _gpu_problem() -> str:
    if drivers.ask_driver().problem or drivers.fitting_cuda() is not None:
        return ""
    major, minor = drivers.CUDAS[min(drivers.CUDAS)].capability
    return f"the GPU is too old: compute capability {major}.{minor} or newer is needed"


def _cupy_problem() -> str:
    there = drivers.cupys()
    listed = ", ".join(f"{name} {has}" for name, has in there.items())
    if len(there) > 1:
        text = f"several packages have installed CuPy, one over the other ({listed})"
        return f"{text}: pip uninstall {' '.join(there)}, then {drivers.install_command()}"
    cuda = drivers.cuda_of_cupy()
    if there and cuda is None and "cupy" not in there:
        remedy = f"pip uninstall {' '.join(there)}, then {drivers.install_command()}"
        return f"CuPy is built for another CUDA ({listed}): {remedy}"
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is missing: {drivers.install_command()}"
    if cuda is not None and (problem := drivers.misfit("CuPy", cuda, list(there))):
        return problem
    return _too_old("CuPy", "".join(there.values()), CUPY_VERSION, drivers.install_command())


def _nvcomp_problem() -> str:
    from gzarr.gpu.device import nvcomp

    try:
        return drivers.misfit("nvCOMP", nvcomp.cuda(), list(drivers.per_cuda("nvidia-libnvcomp-cu{}")))
    except DeviceError as error:
        return str(error)  # says what was found where, and the extra


def _nvrtc_problem() -> str:
    """What is wrong with the compiler that CuPy finds, which need not be that of its own CUDA."""
    try:
        from cupy_backends.cuda.libs import nvrtc

        release = int(nvrtc.getVersion()[0])
    except Exception as error:  # noqa: BLE001 - CuPy has errors of its own if it does not find the library
        return f"CuPy finds no NVRTC, which compiles kernels ({str(error)[:80]}): {drivers.install_command()}"
    return drivers.misfit("NVRTC", release, list(drivers.installed(*(cuda.nvrtc for cuda in drivers.CUDAS.values()))))


def kvikio_problem() -> str:
    """What KvikIO lacks, with the remedy, or ""."""
    name = drivers.extra()
    remedy = f"pip install 'gzarr[{name}]' and pip install --no-deps 'kvikio-{name[:2]}{name[4:]}==26.10.*'"
    if importlib.util.find_spec("kvikio") is None:
        return f"KvikIO is missing: {remedy}"
    return _too_old("KvikIO", next(iter(drivers.installed(*KVIKIOS).values()), ""), KVIKIO_VERSION, remedy)


def _too_old(name: str, has: str, needed: tuple[int, ...], remedy: str) -> str:
    """A phrase if a version is too old, else ""; an unknown version is accepted."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", has)[: len(needed)])
    if not numbers or numbers >= needed:
        return ""
    return f"{name} {has} is too old, {'.'.join(map(str, needed))} is needed: {remedy}"
