"""Chooses the backend for a device name. The only module that names ``gzarr.gpu``, and it does so lazily."""

from __future__ import annotations

import re
from functools import cache

from gzarr.backend import Backend
from gzarr.config import config
from gzarr.cpu.backend import CpuBackend
from gzarr.errors import DeviceError

_CPU = CpuBackend()


def backend_for(device: str | Backend | None = None) -> Backend:
    """The backend of a device.

    device: "cpu"; "cuda" or "cuda:N"; "auto", which is the CPU as long as the GPU backend has not run on hardware;
        None for the setting ``device`` (environment ``GZARR_DEVICE``), which is "auto" unless changed; a backend is
        taken as it is.
    Raises: DeviceError saying what is missing, and which extra installs it.
    """
    asked = config["device"] if device is None else device
    if not isinstance(asked, str):
        backend: Backend = asked
        return backend
    name = asked.lower()
    if name in ("cpu", "auto"):
        return _CPU
    if re.fullmatch(r"cuda(:\d+)?", name) is None:
        raise DeviceError(f"no device {name!r}; use 'cpu', 'cuda', 'cuda:N' or 'auto'")
    reason = _why_no_gpu()
    if reason is not None:
        raise DeviceError(f"device {name!r} cannot be used: {reason}; use device='cpu' or 'auto'")
    _, _, number = name.partition(":")
    return _cuda_backend(int(number or 0))


@cache
def _why_no_gpu() -> str | None:
    """What is missing for a GPU to be used; None if nothing is."""
    from gzarr.gpu.probe import find_missing

    return find_missing()


@cache
def _cuda_backend(number: int) -> Backend:
    from gzarr.gpu.backend import GpuBackend
    from gzarr.gpu.cuda import CudaDevice

    return GpuBackend(CudaDevice(number))
