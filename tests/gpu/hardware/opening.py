"""Backends on CUDA that decode everything on the device, small reads included, in a pipeline slot of one's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.pipeline.batches import NEVER


def cuda_backend(cuda: Any, **options: Any) -> GpuBackend:
    """A backend on the first CUDA device. cuda: the module gzarr.gpu.device.cuda, or one like it."""
    options.setdefault("small_reads", NEVER)
    return GpuBackend(cuda.CudaDevice(), **options)


def on_cuda(stored: gzarr.Array, cuda: Any, **options: Any) -> gzarr.Array:
    """An array opened on the first CUDA device."""
    return gzarr.open_array(stored.store, mode="r", device=cuda_backend(cuda, **options))


@contextmanager
def pipeline_slot_of(device: Any) -> Iterator[PipelineSlot]:
    """A pipeline slot, with work and memory going to it; its stream is idle afterwards."""
    pipeline_slot = PipelineSlot(device, 1 << 30)
    with pipeline_slot.active():
        yield pipeline_slot
        device.synchronize()


def is_software(cuda: Any) -> bool:
    """Whether the device is a stand-in, on which much work takes long."""
    return b"no GPU" in cuda.cupy.cuda.runtime.getDeviceProperties(0)["name"]
