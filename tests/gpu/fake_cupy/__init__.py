"""A double of CuPy on NumPy memory, with CuPy's signatures and refusals, to run `CudaDevice` where there is no GPU.

It shows wrong calls: arrays that are not NumPy's and do not become so by themselves, NumPy arrays handed to device
functions, arguments of kernels that are not 64 bits wide, tables in the wrong order, copies that have not happened yet.
Work is queued on streams, done only when something waits for it, and ordered between streams by events alone, so that
a missing event and host memory that is given back or changed too early are seen. With a virtual clock
(`tests.gpu.fake_cupy.clock`) it shows what overlaps. It shows nothing about CUDA itself, and no speed.
"""

from __future__ import annotations

import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.gpu.fake_cupy import arrays
from tests.gpu.fake_cupy.errors import CUDADriverError, CUDARuntimeError, OutOfMemoryError
from tests.gpu.fake_cupy.kernels import RawKernel, RawModule
from tests.gpu.fake_cupy.memory import (
    PINNED_POOL,
    POOL,
    Memory,
    MemoryHook,
    MemoryPointer,
    MemoryPool,
    PinnedMemory,
    PinnedMemoryPointer,
    PinnedMemoryPool,
    UnownedMemory,
    alloc_pinned_memory,
    get_allocator,
    set_allocator,
    using_allocator,
)
from tests.gpu.fake_cupy.streams import N_DEVICES, Device, Event, Stream, get_current_stream, get_elapsed_time


class Nvtx(threading.local):
    """Like cupy.cuda.nvtx: ranges that are open on this thread; those that ever were, in `ended`."""

    ended: list[tuple[str, ...]] = []

    def __init__(self) -> None:
        self.open: list[str] = []

    def RangePush(self, message: str, id_color: int = -1) -> None:  # noqa: N802 - CuPy's name
        if not isinstance(message, str):
            raise TypeError("Argument 'message' has incorrect type")
        self.open.append(message)

    def RangePop(self) -> None:  # noqa: N802 - CuPy's name
        Nvtx.ended.append(tuple(self.open))
        self.open.pop()


nvtx = Nvtx()


#: What has CuPy's own name in `tests.gpu.fake_cupy.arrays`.
_ARRAYS = (
    *("ndarray", "empty", "zeros", "full", "asarray", "array", "from_dlpack", "asnumpy", "ascontiguousarray", "cumsum"),
    *("packbits", "rint", "isnan", "unpackbits", "may_share_memory", "pad"),
)
_DTYPES = ("bool_", "uint8", "int8", "uint32", "int32", "uint64", "int64", "float32", "float64")
_PROPERTIES = {"name": b"no GPU: a double", "totalGlobalMem": 0, "multiProcessorCount": 0, "major": 0, "minor": 0}


def module() -> ModuleType:
    """The double as a module named cupy."""
    fake: Any = ModuleType("cupy")
    for name in _ARRAYS:
        setattr(fake, name, getattr(arrays, name))
    for name in _DTYPES:
        setattr(fake, name, getattr(np, name))
    fake.RawKernel, fake.RawModule = RawKernel, RawModule
    fake.__version__ = "a double"
    fake.get_default_memory_pool = lambda: POOL
    fake.get_default_pinned_memory_pool = lambda: PINNED_POOL
    runtime = SimpleNamespace(
        getDeviceCount=lambda: N_DEVICES,
        memGetInfo=lambda: (1 << 30, 2 << 30),
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 0,
        runtimeGetVersion=lambda: 0,
        pointerGetAttributes=lambda address: SimpleNamespace(device=Device().id),
        getDeviceProperties=lambda _: _PROPERTIES,
    )
    fake.cuda = SimpleNamespace(
        Device=Device,
        Stream=Stream,
        Event=Event,
        get_current_stream=get_current_stream,
        get_allocator=get_allocator,
        set_allocator=set_allocator,
        using_allocator=using_allocator,
        Memory=Memory,
        MemoryHook=MemoryHook,
        MemoryPointer=MemoryPointer,
        MemoryPool=MemoryPool,
        UnownedMemory=UnownedMemory,
        PinnedMemory=PinnedMemory,
        PinnedMemoryPointer=PinnedMemoryPointer,
        PinnedMemoryPool=PinnedMemoryPool,
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        driver=SimpleNamespace(CUDADriverError=CUDADriverError),
        alloc_pinned_memory=alloc_pinned_memory,
        get_elapsed_time=get_elapsed_time,
        runtime=runtime,
        nvtx=nvtx,
    )
    return fake
