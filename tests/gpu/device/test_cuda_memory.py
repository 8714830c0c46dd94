"""CuPy's allocations within `CudaDevice.activate` come from the arenas; host memory stands in for a device's."""

from __future__ import annotations

import inspect
import threading
from contextlib import nullcontext

import numpy as np
import pytest

from gzarr.gpu.device.memory import ALIGNMENT, Arena, OverLimitError

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture
def memory():
    """Host memory that CuPy takes for a device's."""
    whole = np.zeros(1 << 20, np.uint8)

    def allocate(nbytes: int):
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(whole.ctypes.data, nbytes, whole, 0), 0)

    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(allocate)
    yield whole
    cupy.cuda.set_allocator(before)


@pytest.fixture
def device():
    from gzarr.gpu.device.cuda import CudaDevice

    device = object.__new__(CudaDevice)  # its constructor asks the driver
    device.name = "cuda:0"
    device._local = threading.local()
    device._device = nullcontext()
    return device


def test_everything_comes_from_the_arenas(device, memory) -> None:
    arena, staging = Arena(device.allocate, 1 << 19), Arena(lambda n: np.empty(n, np.uint8))
    with device.activate(nullcontext(), arena, staging):
        places = [array.data.ptr for array in (device.empty(1000), device.empty(0), cupy.empty((3, 4), "f4"))]
        assert [place - memory.ctypes.data for place in places] == [0, 4 * ALIGNMENT, 5 * ALIGNMENT]
        assert device.staging(5).base is not None
        assert staging.mark() == (ALIGNMENT,)
        with pytest.raises(OverLimitError):
            cupy.empty(1 << 20, "u1")
    assert arena.nbytes == 1 << 19
    arena.rewind()
    with device.activate(nullcontext(), arena, staging):
        assert cupy.empty(1000, "u1").data.ptr == places[0]


def test_the_user_s_allocator_is_back_afterwards(device, memory) -> None:
    mine = cupy.cuda.get_allocator()
    with (
        pytest.raises(ZeroDivisionError),
        device.activate(nullcontext(), Arena(device.allocate, 1000), Arena(np.empty)),
    ):
        raise ZeroDivisionError
    assert cupy.cuda.get_allocator() is mine
    assert device._local.__dict__ == {}


def test_streams_of_others_are_taken(device) -> None:
    from gzarr.errors import DeviceError

    assert device.as_stream(cupy.cuda.Stream.null) is cupy.cuda.Stream.null
    assert device.as_stream(0).ptr == 0
    with pytest.raises(DeviceError, match="expected a CuPy stream"):
        device.as_stream("mine")


def test_errors_of_cupy_say_what_to_do() -> None:
    from gzarr.errors import DeviceError
    from gzarr.gpu.device.cuda import cuda_errors

    runtime, memory = cupy.cuda.runtime, cupy.cuda.memory
    for error in (memory.OutOfMemoryError(100, 200, 300), runtime.CUDARuntimeError(2)):
        with pytest.raises(DeviceError, match=r"cuda:0: memory.*lower max_device_nbytes"), cuda_errors("cuda:0"):
            raise error
    with pytest.raises(DeviceError, match=r"cudaErrorLaunchFailure.*start it anew"), cuda_errors("cuda:0"):
        raise runtime.CUDARuntimeError(719)
    with pytest.raises(OverLimitError), cuda_errors("cuda:0"):
        raise OverLimitError


def test_the_double_has_the_signatures_of_cupy() -> None:
    from tests.gpu import fake_cupy

    double = fake_cupy.module()
    for name in ("asnumpy", "asarray"):
        assert str(inspect.signature(getattr(double, name))).count(",") == str(
            inspect.signature(getattr(cupy, name))
        ).count(",")
    for name in ("Stream", "Event", "using_allocator"):
        wanted = list(inspect.signature(getattr(cupy.cuda, name)).parameters)
        assert list(inspect.signature(getattr(double.cuda, name)).parameters) == wanted
    for kind in ("Stream", "Event", "Device", "MemoryPool", "MemoryPointer", "UnownedMemory"):
        public = {name for name in vars(getattr(double.cuda, kind)) if not name.startswith("_")}
        ours = {"queue", "queues", "numbers", "made", "pending", "freed"}
        assert {name for name in public - ours if not hasattr(getattr(cupy.cuda, kind), name)} == set()
    public = {name for name in vars(double.ndarray) if not name.startswith("_")}
    assert {name for name in public if not hasattr(cupy.ndarray, name)} == set()
    for name in (
        "get_allocator",
        "set_allocator",
        "alloc_pinned_memory",
        "PinnedMemory",
        "PinnedMemoryPointer",
        "get_current_stream",
        "get_elapsed_time",
        "nvtx",
    ):
        assert hasattr(cupy.cuda, name)
        assert hasattr(double.cuda, name)
