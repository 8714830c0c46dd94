"""Chooses the backend for a device name. The only module that names ``gzarr.gpu``, and it does so lazily."""

from __future__ import annotations

import importlib.util
import re
from functools import cache

from gzarr.backend import Backend
from gzarr.config import config
from gzarr.cpu.backend import CpuBackend
from gzarr.errors import DeviceError

_CPU = CpuBackend()


def backend_for(device: str | Backend | None = None) -> Backend:
    """The backend of a device.

    device: "cpu"; "cuda" or "cuda:N"; "auto" for the first usable CUDA device, else the CPU; None for the setting
        ``device`` (environment ``GZARR_DEVICE``), which is "auto" unless changed.
    Raises: DeviceError saying what is missing.
    """
    if device is not None and not isinstance(device, str):
        return device
    name = str(device or config.get("device")).lower()
    if name == "cpu" or (name == "auto" and not _has_gpu()):
        return _CPU
    if re.fullmatch(r"cuda(:\d+)?|auto", name) is None:
        raise DeviceError(f"no device {device!r}; use 'cpu', 'cuda', 'cuda:N' or 'auto'")
    raise DeviceError(
        f"device {name!r} cannot be used: this version of gzarr has no GPU backend yet; use device='cpu' or 'auto'"
    )


@cache
def _has_gpu() -> bool:
    return importlib.util.find_spec("gzarr.gpu") is not None
