"""Allocators that CuPy is given: whose memory is taken, how much of it is free, and what happens when there is none.

RMM's and PyTorch's libraries have the CUDA runtime inside, stripped of its names, so they cannot run on this driver.
The doubles here have their call shapes: `rmm.allocators.cupy.rmm_cupy_allocator` of RMM 26.10 and its resources, and
``cupy.cuda.PythonFunctionAllocator`` around ``torch.cuda.caching_allocator_alloc`` and ``_delete``.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4

import gzarr
from gzarr.concurrency import run_in_threads
from gzarr.gpu.backend import DEFAULT_MEMORY_SHARE, GpuBackend
from gzarr.gpu.device import pipeline_slots
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.batches import NEVER
from tests.gpu.driver import driver
from tests.support.meeting import Meeting

#: CuPy complains of its own object if a function that it was given raises an error.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
#: 4 MiB, in 256 chunks.
DATA = np.random.default_rng(0).integers(0, 200, (1024, 1024)).astype("i4")


def opened(cuda: Any, device: Any = None, **options: Any) -> gzarr.Array:
    stored = gzarr.create_array({}, data=DATA, chunks=(64, 64), compressor=LZ4(), zarr_format=2, device="cpu")
    backend = GpuBackend(device or cuda.CudaDevice(), small_reads=NEVER, small_writes=NEVER, **options)
    return gzarr.open_array(stored.store, mode="r+", device=backend)


class TorchOutOfMemoryError(RuntimeError):
    """torch.OutOfMemoryError is a RuntimeError."""


TorchOutOfMemoryError.__name__ = "OutOfMemoryError"


#: Allocators outlive what they have allocated: CuPy frees by them even if they are garbage as well.
_kept: list[Any] = []


class Memory:
    """Device memory with a limit, from which doubles of libraries allocate."""

    def __init__(self, cupy: Any, limit: int, error: Callable[[], Exception]) -> None:
        self.cupy, self.limit, self.error = cupy, limit, error
        _kept.append(self)
        self.live: dict[int, int] = {}
        self.peak = self.refused = 0

    @property
    def used(self) -> int:
        return sum(self.live.values())

    def take(self, nbytes: int) -> int:
        if self.used + nbytes > self.limit:
            self.refused += 1
            raise self.error()
        address = int(self.cupy.cuda.runtime.malloc(nbytes))
        self.live[address] = nbytes
        self.peak = max(self.peak, self.used)
        return address

    def free(self, address: int) -> None:
        self.cupy.cuda.runtime.deviceSynchronize()
        del self.live[address]
        self.cupy.cuda.runtime.free(address)


class _Buffer:
    """rmm.DeviceBuffer, which is freed when nothing refers to it."""

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.memory = memory
        self.ptr, self.size = memory.take(nbytes), nbytes

    def __del__(self) -> None:
        if hasattr(self, "ptr"):
            self.memory.free(self.ptr)


def rmm_allocator(memory: Memory) -> Callable[[int], Any]:
    def rmm_cupy_allocator(nbytes: int) -> Any:
        buf = _Buffer(memory, nbytes)
        dev_id = -1 if buf.ptr else memory.cupy.cuda.device.get_device_id()
        mem = memory.cupy.cuda.UnownedMemory(ptr=buf.ptr, size=buf.size, owner=buf, device_id=dev_id)
        return memory.cupy.cuda.MemoryPointer(mem, 0)

    return rmm_cupy_allocator


def torch_allocator(memory: Memory) -> Callable[[int], Any]:
    allocator = memory.cupy.cuda.PythonFunctionAllocator(
        lambda nbytes, device: memory.take(nbytes), lambda address, device: memory.free(address)
    )
    _kept.append(allocator)
    return allocator.malloc  # type: ignore[no-any-return]


def pool_allocator(memory: Memory) -> Callable[[int], Any]:
    pool = memory.cupy.cuda.MemoryPool(torch_allocator(memory))
    return pool.malloc  # type: ignore[no-any-return]


def no_memory(cupy: Any) -> dict[str, tuple[Callable[[Memory], Callable[[int], Any]], Callable[[], Exception]]]:
    return {
        "rmm": (rmm_allocator, lambda: MemoryError("std::bad_alloc: out_of_memory: RMM failure")),
        "torch": (torch_allocator, lambda: TorchOutOfMemoryError("CUDA out of memory.")),
        "cupy": (pool_allocator, lambda: cupy.cuda.memory.OutOfMemoryError(1, 2)),
    }


@contextmanager
def allocating(allocator: Callable[[int], Any], cupy: Any) -> Iterator[None]:
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(allocator)
    try:
        yield
    finally:
        cupy.cuda.set_allocator(before)


@pytest.fixture(params=["rmm", "torch", "cupy"])
def memory(request: pytest.FixtureRequest, cuda: Any) -> Iterator[Memory]:
    """Memory that is CuPy's, by way of each kind of allocator."""
    make, error = no_memory(cuda.cupy)[request.param]
    memory = Memory(cuda.cupy, 1 << 30, error)
    with allocating(make(memory), cuda.cupy):
        yield memory


def test_all_memory_comes_from_the_allocator_and_the_cap_holds(cuda: Any, memory: Memory) -> None:
    cap = 3 << 20
    array = opened(cuda, max_device_nbytes=cap)
    array[:] = cuda.cupy.asarray(DATA)
    memory.peak = memory.used
    default = cuda.cupy.get_default_memory_pool().used_bytes()
    before = memory.used
    found = array[:]
    assert memory.peak >= DATA.nbytes
    assert memory.peak <= before + DATA.nbytes + cap
    assert cuda.cupy.get_default_memory_pool().used_bytes() == default
    np.testing.assert_array_equal(found.get(), DATA)
    array.backend.release()


@pytest.mark.parametrize("slack", [3 << 20, 1 << 20, 700_000])
def test_a_read_does_with_what_is_left(cuda: Any, memory: Memory, slack: int) -> None:
    """The cap allows far more than there is. What idle pipeline slots of others hold is given back first."""
    device = cuda.CudaDevice()
    other, array = (opened(cuda, device, max_device_nbytes=cap) for cap in (30 << 20, 300 << 20))
    other[:]
    kept = memory.used
    assert kept
    n = pipeline_slots._pool.n_threads
    meeting = Meeting(n + 1)  # of all threads: those that have just ended a batch let go of it
    run_in_threads(lambda _: meeting.attend(), range(n + 1), n + 1, pipeline_slots._pool, most=n)
    assert meeting.met
    memory.limit = DATA.nbytes + slack
    found = array[:]
    assert memory.refused
    np.testing.assert_array_equal(found.get(), DATA)
    array[:] = found
    np.testing.assert_array_equal(array[:16].get(), DATA[:16])
    del found
    memory.limit, memory.refused = 1 << 30, 0
    np.testing.assert_array_equal(array[:].get(), DATA)
    assert not memory.refused
    for one in (array, other):
        one.backend.release()


def test_no_memory_is_an_error_that_says_what_to_do(cuda: Any, memory: Memory) -> None:
    device = cuda.CudaDevice()
    array = opened(cuda, device, max_device_nbytes=30 << 20)
    out = array[:]
    array.backend.release()
    device._empty_pools()
    memory.limit = memory.used + 5000
    for read in (lambda: array[:], lambda: array.get_basic_selection(..., out=out)):
        with pytest.raises(gzarr.errors.OutOfMemoryError, match=r"lower max_device_nbytes.*empty_cache") as raised:
            read()
        assert isinstance(raised.value, MemoryError)
        assert isinstance(raised.value, gzarr.DeviceError)
        del raised
    memory.limit = 1 << 30
    np.testing.assert_array_equal(array[:].get(), DATA)
    array.backend.release()


def test_the_default_cap_follows_what_is_free(cuda: Any) -> None:
    cupy, device = cuda.cupy, cuda.CudaDevice()
    array = opened(cuda)
    slots = array.backend._pipeline_slots
    before = slots.limit
    assert before == pytest.approx(device.free_nbytes() * DEFAULT_MEMORY_SHARE / N_PIPELINE_SLOTS, rel=0.01)
    taken = cupy.empty(1 << 30, "u1")
    assert slots.limit < 0.8 * before
    np.testing.assert_array_equal(array[:].get(), DATA)
    assert all(one.memory.limit == slots.limit for one in slots._all if one.memory.nbytes)
    del taken
    assert slots.limit >= before  # CuPy's pool keeps it, and hands it out again


def test_a_device_that_does_not_say_what_is_free_has_failed(cuda: Any) -> None:
    array = opened(cuda)
    with driver.failing("cudaMemGetInfo", 700), pytest.raises(gzarr.DeviceError, match="start it anew"):
        array[:]
    driver.faults()
    np.testing.assert_array_equal(opened(cuda)[:].get(), DATA)


def test_what_pools_keep_is_free(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy, device = cuda.cupy, cuda.CudaDevice()
    cupy.get_default_memory_pool().free_all_blocks()
    free = cupy.cuda.runtime.memGetInfo()[0]
    assert device.free_nbytes() == free
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=1 << 20)
    with allocating(pool.malloc, cupy):
        mine = cupy.empty(1 << 18, "u1")
        assert device.free_nbytes() == (1 << 20) - (1 << 18), mine
        del mine
        pool.free_all_blocks()
    with allocating(rmm_allocator(Memory(cupy, 1 << 30, MemoryError)), cupy):
        assert device.free_nbytes() == free
        torch = SimpleNamespace(
            is_initialized=lambda: True, memory_reserved=lambda n: 5000 + n, memory_allocated=lambda n: 3000
        )
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=torch))
        assert device.free_nbytes() == free + 2000
        pool = SimpleNamespace(pool_size=lambda: 9000, upstream_mr=SimpleNamespace())
        counting = SimpleNamespace(get_allocated_bytes=lambda: 4000, upstream_mr=pool)
        limiting = SimpleNamespace(
            get_allocated_bytes=lambda: 4000, get_allocation_limit=lambda: 4700, upstream_mr=counting
        )
        for resource, more in ((pool, 9000), (counting, 5000)):
            rmm = SimpleNamespace(get_current_device_resource=lambda resource=resource: resource)
            monkeypatch.setitem(sys.modules, "rmm", SimpleNamespace(mr=rmm))
            assert device.free_nbytes() == free + 2000 + more
        rmm = SimpleNamespace(get_current_device_resource=lambda: limiting)
        monkeypatch.setitem(sys.modules, "rmm", SimpleNamespace(mr=rmm))
        assert device.free_nbytes() == 700
