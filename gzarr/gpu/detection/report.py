"""What there is of a GPU and its software, whether it is trusted, what runs on it, and what is missing: `gzarr gpu`."""

import os
from dataclasses import asdict
from typing import Any

from gzarr.config import config
from gzarr.errors import DeviceError
from gzarr.gpu.codecs import TABLE
from gzarr.gpu.detection import driver as drivers
from gzarr.gpu.detection import verify
from gzarr.gpu.detection.detect import KVIKIOS, find_problems, kvikio_problem, versions
from gzarr.gpu.detection.driver import ask_driver, identify, version_text
from gzarr.gpu.kernels.sources import KERNELS
from gzarr.gpu.pipeline.batches import SMALL


def gpu_report(*, check: bool = False, warm: bool = False) -> dict[str, Any]:
    """Everything that is known of GPUs here, for JSON. Starts nothing on a GPU unless it is asked to.

    check: check the first GPU, even if it has passed before. warm: compile all kernels for each GPU.
    Raises: DeviceError if either is asked for and the GPU cannot be used.
    """
    problems = find_problems()
    if problems and (check or warm):
        raise DeviceError(f"the GPU cannot be used: {'; '.join(problems)}")
    if check:
        verify.find_faults(anew=True)
    driver = ask_driver()
    about = {
        "usable": not problems,
        "problems": problems,
        "driver": {"cuda": version_text(driver.version), "version": identify(0).driver} if driver.version else None,
        "devices": [_device(number) for number in range(driver.devices)],
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "packages": {**versions(), **drivers.installed(*KVIKIOS)},
        "cuda": {"the driver and the GPU": drivers.fitting_cuda(), **_built_for()},
        "self_check": None if problems else _self_check(),
        "kernels": {"number": len(KERNELS), "compiled_s": _compile(driver.devices) if warm else None},
        "reader": _reader(usable=not problems),
        "codecs": sorted({name.removeprefix("numcodecs.") for name in TABLE}),
        "small": asdict(SMALL),
    }
    return about | {"auto": _auto(about)}


def _device(number: int) -> dict[str, Any]:
    gpu = identify(number)
    return {
        "device": f"cuda:{number}",
        "name": gpu.name,
        "uuid": gpu.uuid,
        "compute_capability": ".".join(map(str, gpu.capability)),
        "nbytes": gpu.nbytes,
    }


def _built_for() -> dict[str, int | None]:
    """The CUDA that each library is built for."""
    from gzarr.gpu.device import nvcomp

    try:
        of_nvcomp = nvcomp.cuda()
    except DeviceError:
        of_nvcomp = None
    return {"CuPy": drivers.cuda_of_cupy(), "nvCOMP": of_nvcomp}


def _self_check() -> dict[str, Any] | None:
    verdict = verify.last_verdict()
    return None if verdict is None else {**verdict._asdict(), "valid": verdict.is_valid}


def _reader(*, usable: bool) -> dict[str, str | None]:
    """Which reader files are read by, why, and what KvikIO lacks."""
    from gzarr.gpu.reading.select import choose_reader

    lacks = kvikio_problem() or None
    if not usable:
        return {"name": None, "why": "there is no usable GPU", "kvikio_lacks": lacks}
    return {**choose_reader(str(config["gpu.reader"]))[1]._asdict(), "kvikio_lacks": lacks}


def _auto(about: dict[str, Any]) -> dict[str, str]:
    """The device that "auto" takes, and why."""
    check = about["self_check"]
    if not about["usable"]:
        return {"device": "cpu", "why": "the GPU cannot be used"}
    if check is None or not check["valid"]:
        return {"device": "cuda:0", "why": "if it passes a self-check first, which takes some seconds"}
    if check["faults"]:
        return {"device": "cpu", "why": "the GPU has failed the self-check"}
    return {"device": "cuda:0", "why": "it has passed the self-check"}


def _compile(n_devices: int) -> float:
    """Compile all kernels. Returns: the seconds of CPU that this takes, next to nothing if CuPy has them."""
    import time

    from gzarr.gpu.device.cuda import CudaDevice

    begin = time.process_time()
    for number in range(n_devices):
        CudaDevice(number).compile_all()
    return round(time.process_time() - begin, 2)
