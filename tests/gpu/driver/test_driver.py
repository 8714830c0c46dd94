"""The driver made of software notices what a device would do wrong, or might do later than a program expects."""

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.gpu.driver import driver
from tests.support.processes import output_of

cupy: Any = pytest.importorskip("cupy")

N = 1000


def streams(n: int, **options: Any) -> list[Any]:
    return [cupy.cuda.Stream(**({"non_blocking": True} | options)) for _ in range(n)]


@pytest.fixture(autouse=True)
def only_what_is_needed() -> Iterator[None]:
    """Nothing is done on a stream before something waits for it."""
    driver.drain()
    with driver.schedule(None):
        yield


def filled(value: int) -> Any:
    """An array whose values are there."""
    array = cupy.full(N, value, "i4")
    cupy.cuda.Device().synchronize()
    return array


def copied(source: Any, stream: Any) -> Any:
    with stream:
        target = cupy.empty(N, "i4")
        target.data.copy_from_device_async(source.data, source.nbytes)
    return target


def test_work_of_streams_without_an_event_comes_late() -> None:
    first, second = streams(2)
    source = filled(1)
    with first:
        source.fill(2)
    wrong = copied(source, second)
    second.synchronize()
    assert not first.done
    assert set(wrong.get(stream=second).tolist()) == {1}
    first.synchronize()
    with first:
        source.fill(3)
        event = first.record(cupy.cuda.Event(disable_timing=True))
        source.fill(4)
    second.wait_event(event)
    right = copied(source, second)
    second.synchronize()
    assert set(right.get(stream=second).tolist()) == {3}


def test_the_default_stream_waits_for_blocking_streams_only() -> None:
    (blocking,), (free,) = streams(1, non_blocking=False), streams(1)
    null = cupy.cuda.Stream.null
    for stream, waits in ((blocking, True), (free, False), (cupy.cuda.Stream.ptds, True)):
        source = filled(1)
        with stream:
            source.fill(2)
        found = copied(source, null)
        null.synchronize()
        assert set(found.get(stream=null).tolist()) == {2 if waits else 1}
        with null:
            source.fill(5)
        found = copied(source, stream)
        stream.synchronize()
        assert (set(found.get(stream=stream).tolist()) == {5}) == waits
        driver.drain()


def test_orders_differ_by_seed() -> None:
    found = set()
    for seed in range(20):
        three, array = streams(3), filled(0)
        with driver.schedule(seed):
            for number, stream in enumerate(three):
                with stream:
                    array[:1].fill(number + 1)
            three[1].synchronize()
            driver.drain()
            found.add(int(array[0]))
    assert len(found) > 1


def test_pinned_memory_that_is_changed_or_freed_too_early_is_seen() -> None:
    (stream,), target = streams(1), filled(0)
    for change in ("changed", "freed"):
        pinned = cupy.cuda.alloc_pinned_memory(4 * N) if change == "changed" else cupy.cuda.PinnedMemory(4 * N)
        address = pinned.ptr
        ctypes.memset(address, 1, 4 * N)
        target.data.copy_from_host_async(ctypes.c_void_p(address), 4 * N, stream)
        if change == "changed":
            ctypes.memset(address, 2, 1)
        else:
            del pinned
        stream.synchronize()
        assert "before a queued copy" in driver.faults()


def test_memory_that_is_gone_is_not_read() -> None:
    pointer = cupy.cuda.runtime.malloc(4 * N)
    gone = cupy.ndarray(N, "i4", cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(pointer, 4 * N, None, 0), 0))
    cupy.cuda.runtime.free(pointer)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        gone.get()
    assert "beyond an allocation" in driver.faults()
    kernel = cupy.ElementwiseKernel("int32 x", "int32 y", "y = x", "reads_what_is_gone")
    kernel(gone)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="IllegalAddress"):
        cupy.cuda.Stream.null.synchronize()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="IllegalAddress"):  # as all that follows
        cupy.cuda.runtime.malloc(1)
    assert "outside every allocation" in driver.faults()
    assert filled(3).get()[0] == 3


def test_kernels_of_gzarr_that_go_astray_are_seen(cuda: Any) -> None:
    device = cuda.CudaDevice()
    good = device.upload(np.zeros(64, np.uint64))
    place = device.address(good)
    for bad, words in ((1 << 40, "unmapped memory"), (place + 1, "not aligned")):
        device.launch("copy_streams", 32, (1, place, place, place, bad))
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
            cupy.cuda.Stream.null.synchronize()
        assert words in driver.faults()
    assert not device.download(good).any()


@pytest.mark.parametrize(
    "launch", [((1,), (1025,)), ((1, 65536), (32,)), ((1, 1, 65536), (32,)), ((1,), (32,), 50_000)]
)
def test_launches_that_no_device_takes_are_refused(launch: tuple[Any, ...]) -> None:
    code = 'extern "C" __global__ void f() {}'
    kernel = cupy.RawKernel(code, "f")
    kernel((1,), (32,), ())
    grid, block, *shared = launch
    with pytest.raises(cupy.cuda.driver.CUDADriverError):
        kernel(grid, block, (), shared_mem=shared[0] if shared else 0)
    assert "no device takes" in driver.faults()


def test_what_belongs_to_another_device_is_refused() -> None:
    with cupy.cuda.Device(1):
        (stream,) = streams(1)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        stream.record(cupy.cuda.Event())
    pointer = stream.ptr
    del stream
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.runtime.streamSynchronize(pointer)
    assert "destroyed" in driver.faults()


def test_functions_that_are_missing_say_so() -> None:
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.runtime.deviceEnablePeerAccess(1)
    assert "does not have" in driver.faults()


def test_processes_that_are_started_run_on_it_too() -> None:
    code = "import cupy; print(int(cupy.arange(10).sum()), cupy.cuda.runtime.getDeviceCount())"
    assert output_of([sys.executable, "-c", code]).split() == ["45", "2"]
