"""Allocators that CuPy is given: whose memory is taken, how much of it is free, and what happens when there is none.

RMM and CuPy's pools are real. PyTorch, whose wheels need all of CUDA's libraries, has a double with the call shapes of
``cupy.cuda.PythonFunctionAllocator`` around ``torch.cuda.caching_allocator_alloc`` and ``_delete``.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    """The device's memory, by way of an allocator."""

    def __init__(self, set_total: Callable[[int], None]) -> None:
        self._set_total, self._base, self._refused = set_total, driver.live_nbytes(), 0
        self.limit(1 << 30)

    def limit(self, nbytes: int) -> None:
        """Leave so much besides what was taken before."""
        self._set_total(self._base + nbytes)
        self._refused = driver.calls("cudaErrorMemoryAllocation")

    @property
    def used(self) -> int:
        return driver.live_nbytes() - self._base

    @property
    def refused(self) -> int:
        """How often there was not enough since the limit was set."""
        return driver.calls("cudaErrorMemoryAllocation") - self._refused


def torch_allocator(cupy: Any) -> Callable[[int], Any]:
    def take(nbytes: int, device: int) -> int:
        try:
            return int(cupy.cuda.runtime.malloc(nbytes))
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise TorchOutOfMemoryError("CUDA out of memory.") from error

    _kept.append(cupy.cuda.PythonFunctionAllocator(take, lambda address, device: cupy.cuda.runtime.free(address)))
    return _kept[-1].malloc  # type: ignore[no-any-return]


@contextmanager
def allocating(allocator: Callable[[int], Any], cupy: Any) -> Iterator[None]:
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(allocator)
    try:
        yield
    finally:
        cupy.cuda.set_allocator(before)


@contextmanager
def rmm(cupy: Any, make: Callable[[Any], Any]) -> Iterator[Any]:
    """A context in which CuPy's memory comes from a resource that is made of RMM's classes, which this yields."""
    found = pytest.importorskip("rmm", reason="RMM is not installed (tests/gpu/driver/requirements-cuda13.txt)")
    from rmm.allocators.cupy import rmm_cupy_allocator

    found.mr.set_current_device_resource(make(found.mr))
    with allocating(rmm_cupy_allocator, cupy):
        yield found.mr
    found.reinitialize()


ALLOCATORS: dict[str, Callable[[Any], Any]] = {
    "rmm": lambda cupy: rmm(cupy, lambda mr: mr.CudaMemoryResource()),
    "rmm-pool": lambda cupy: rmm(cupy, lambda mr: mr.PoolMemoryResource(mr.CudaMemoryResource(), 1 << 20)),
    "rmm-async": lambda cupy: rmm(cupy, lambda mr: mr.CudaAsyncMemoryResource(release_threshold=0)),
    "torch": lambda cupy: allocating(torch_allocator(cupy), cupy),
    "cupy": lambda cupy: allocating(cupy.cuda.MemoryPool().malloc, cupy),
    "cupy-async": lambda cupy: allocating(cupy.cuda.MemoryAsyncPool().malloc, cupy),
}


def all_of(cupy: Any) -> list[Any]:
    """Arrays that take what pools keep."""
    found = []
    for size in (1 << 20, 1 << 16, 1 << 12):
        with suppress(MemoryError, RuntimeError):
            while True:
                found.append(cupy.empty(size, "u1"))
    return found


def let_go() -> None:
    """Wait until threads that have just ended a batch let go of it."""
    n = pipeline_slots._pool.n_threads
    meeting = Meeting(n + 1)  # of all threads
    run_in_threads(lambda _: meeting.attend(), range(n + 1), n + 1, pipeline_slots._pool, most=n)
    assert meeting.met
    gc.collect()
    driver.drain()


@pytest.fixture(params=ALLOCATORS)
def memory(request: pytest.FixtureRequest, cuda: Any) -> Iterator[Memory]:
    """Memory that is CuPy's, by way of each kind of allocator."""
    let_go()
    cuda.cupy.get_default_memory_pool().free_all_blocks()
    with driver.memory() as set_total, ALLOCATORS[request.param](cuda.cupy):
        cuda.CudaDevice()._empty_pools()  # CUDA's own pool keeps what tests before this have freed
        yield Memory(set_total)
        cuda.CudaDevice()._empty_pools()


def test_all_memory_comes_from_the_allocator_and_the_cap_holds(cuda: Any, memory: Memory) -> None:
    cap = 3 << 20
    array = opened(cuda, max_device_nbytes=cap)
    array[:] = cuda.cupy.asarray(DATA)
    default = cuda.cupy.get_default_memory_pool().used_bytes()
    before = driver.live_nbytes()
    driver.peak_nbytes()
    found = array[:]
    assert driver.peak_nbytes() - before <= DATA.nbytes + cap
    assert cuda.cupy.get_default_memory_pool().used_bytes() == default
    np.testing.assert_array_equal(found.get(), DATA)
    array.backend.release()


@pytest.mark.parametrize("slack", [3 << 20, 1 << 20, 700_000])
def test_a_read_does_with_what_is_left(cuda: Any, memory: Memory, slack: int) -> None:
    """The cap allows far more than there is. What idle pipeline slots of others hold is given back first."""
    device = cuda.CudaDevice()
    other, array = (opened(cuda, device, max_device_nbytes=cap) for cap in (30 << 20, 300 << 20))
    other[:]
    assert memory.used
    let_go()
    memory.limit(DATA.nbytes + slack)
    found = array[:]
    assert memory.refused
    np.testing.assert_array_equal(found.get(), DATA)
    array[:] = found
    np.testing.assert_array_equal(array[:16].get(), DATA[:16])
    del found
    memory.limit(1 << 30)
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
    memory.limit(memory.used)
    rest = all_of(cuda.cupy)
    for read in (lambda: array[:], lambda: array.get_basic_selection(..., out=out)):
        with pytest.raises(gzarr.errors.OutOfMemoryError, match=r"lower max_device_nbytes.*empty_cache") as raised:
            read()
        assert isinstance(raised.value, MemoryError)
        assert isinstance(raised.value, gzarr.DeviceError)
        del raised
    del rest
    memory.limit(1 << 30)
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
    let_go()
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
    with allocating(torch_allocator(cupy), cupy):
        assert device.free_nbytes() == free
        torch = SimpleNamespace(
            is_initialized=lambda: True, memory_reserved=lambda n: 5000 + n, memory_allocated=lambda n: 3000
        )
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=torch))
        assert device.free_nbytes() == free + 2000


def test_rmm_says_what_is_free(cuda: Any) -> None:
    cupy, device = cuda.cupy, cuda.CudaDevice()
    let_go()
    cupy.get_default_memory_pool().free_all_blocks()
    with rmm(cupy, lambda mr: mr.CudaMemoryResource()) as mr:
        assert device.free_nbytes() == cupy.cuda.runtime.memGetInfo()[0]
        pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), 9 << 20)
        free = cupy.cuda.runtime.memGetInfo()[0] + (9 << 20)
        tracking, statistics = mr.TrackingResourceAdaptor(pool), mr.StatisticsResourceAdaptor(pool)
        limiting = mr.LimitingResourceAdaptor(tracking, 1 << 20)
        for resource, before, after in (
            (pool, free, free),  # it does not say how much of it is used
            (tracking, free, free - (1 << 18)),
            (statistics, free, free - (1 << 18)),
            (limiting, 1 << 20, 3 << 18),
        ):
            mr.set_current_device_resource(resource)
            assert device.free_nbytes() == before
            mine = cupy.empty(1 << 18, "u1")
            assert device.free_nbytes() == after
            del mine


def test_a_read_does_with_what_rmm_allows(cuda: Any) -> None:
    """A limit of the adaptor's, in a pool with more."""
    with rmm(
        cuda.cupy,
        lambda mr: mr.LimitingResourceAdaptor(mr.PoolMemoryResource(mr.CudaMemoryResource(), 9 << 20), 5 << 20),
    ):
        array = opened(cuda, max_device_nbytes=30 << 20)
        found = array[:]
        np.testing.assert_array_equal(found.get(), DATA)
        with pytest.raises(gzarr.errors.OutOfMemoryError, match="Exceeded memory limit"):
            array[:]
        array.backend.release()


@pytest.mark.parametrize("kind", ["rmm", "rmm-async"])
def test_a_device_that_has_failed_is_not_one_without_memory(cuda: Any, kind: str) -> None:
    """RMM reports both as a MemoryError."""
    with ALLOCATORS[kind](cuda.cupy):
        array = opened(cuda)
        call = {"rmm": "cudaMalloc", "rmm-async": "cudaMallocFromPoolAsync"}[kind]
        with driver.failing(call, 700), pytest.raises(gzarr.DeviceError, match="start it anew") as raised:
            array[:]
        assert not isinstance(raised.value, MemoryError)
        driver.faults()


@pytest.mark.parametrize("is_released", [False, True])
def test_a_backend_that_is_garbage_frees_its_memory_before_its_streams(cuda: Any, is_released: bool) -> None:
    """RMM frees in the order of the stream, which it does not keep from the collector."""
    with ALLOCATORS["rmm-async"](cuda.cupy):
        array = opened(cuda)
        array[:] = array[:]
        pieces = [slot.memory.take(1) for slot in array.backend._pipeline_slots._all if slot.memory.nbytes]
        assert pieces
        if is_released:
            array.backend.release()
        array.store.cycle = array, pieces  # type: ignore[attr-defined]
        del pieces, array
        gc.collect()
        assert not driver.faults()
