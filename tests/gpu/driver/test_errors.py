"""Every call that may fail fails once: the error says what to do, nothing leaks, and the next read is right."""

import gc
import re
from typing import Any

import cupy
import numpy as np
import pytest
from numcodecs import LZ4, Blosc

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from tests.gpu.driver import driver

DATA = np.cumsum(np.random.default_rng(0).integers(0, 9, (64, 64)), axis=0).astype("i4")
#: cudaErrorMemoryAllocation, after which the device works on.
NO_MEMORY = 2
#: cudaErrorECCUncorrectable, cudaErrorIllegalAddress, cudaErrorLaunchFailure: all that follows fails, too.
LASTING = (214, 700, 719)
#: Calls that reads and writes make when nothing is kept.
ALLOCATING = ("cudaMalloc", "cudaHostAlloc", "cudaMemGetInfo", "cudaStreamCreateWithPriority")
#: What reads and writes call, but for what destroys: its errors have nobody to go to.
CALLS = (
    *("cudaMalloc", "cudaHostAlloc", "cudaMemGetInfo", "cudaMemcpyAsync", "cudaStreamCreateWithPriority"),
    *("cudaStreamSynchronize", "cudaStreamSynchronize (end)", "cudaStreamWaitEvent", "cudaEventCreateWithFlags"),
    *("cudaEventRecord", "cudaEventQuery", "cuLaunchKernel", "decompress LZ4", "compress LZ4"),
)


def opened(cuda: Any, compressor: Any, cap: int | None = 2_000_000) -> gzarr.Array:
    stored = gzarr.create_array({}, data=DATA, chunks=(16, 32), compressor=compressor, zarr_format=2, device="cpu")
    backend = GpuBackend(cuda.CudaDevice(), small_reads=NEVER, small_writes=NEVER, max_device_nbytes=cap)
    return gzarr.open_array(stored.store, mode="r+", device=backend)


def used(array: gzarr.Array) -> np.ndarray:
    array[:32] = array[32:]
    array[:32] = DATA[:32]
    return array[:].get()


def live() -> tuple[int, int]:
    gc.collect()
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    return driver.live_nbytes(driver.DEVICE), driver.live_nbytes(driver.PINNED)


def test_all_calls_that_are_made_are_known(cuda: Any) -> None:
    before = {name: driver.calls(name) for name in driver.called()}
    for compressor in (None, LZ4(), Blosc("lz4", 5, Blosc.SHUFFLE)):
        np.testing.assert_array_equal(used(opened(cuda, compressor)), DATA)
    made = {name for name in driver.called() if driver.calls(name) > before.get(name, 0)}
    ends = {"cudaStreamDestroy", "cudaEventDestroy", "cudaFree", "cudaFreeHost", "cudaSetDevice", "cudaGetDeviceCount"}
    ends |= {"cudaDeviceSynchronize", "cudaDeviceSynchronize (end)"}  # before pinned memory is freed
    assert made - ends <= {*CALLS, "cuModuleLoadData", "cuModuleGetFunction", "cudaMemsetAsync"}


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_once(cuda: Any, call: str, after: int) -> None:
    """It may be tried again."""
    array = opened(cuda, LZ4())
    before = live()
    with driver.failing(call, NO_MEMORY, after):
        try:
            np.testing.assert_array_equal(used(array), DATA)
        except gzarr.DeviceError as failed:
            assert re.search("lower max_device_nbytes|nvCOMP|nvcomp", str(failed))  # noqa: PT017 - it may be none
    array[:] = DATA
    np.testing.assert_array_equal(used(array), DATA)
    array.backend.release()
    del array
    driver.drain()
    assert live() <= before


@pytest.mark.parametrize("error", LASTING)
@pytest.mark.parametrize("call", CALLS)
def test_a_device_that_fails(cuda: Any, call: str, error: int) -> None:
    array = opened(cuda, LZ4())
    for after in (0, 3):
        n = driver.calls(call)
        with driver.failing(call, error, after):
            try:
                used(array)
            except gzarr.DeviceError as failed:
                assert re.search("start it anew|nvCOMP|nvcomp", str(failed))  # noqa: PT017
                with pytest.raises(gzarr.DeviceError, match="start it anew"):
                    used(array)
            else:
                assert driver.calls(call) - n <= after
            driver.faults()
    np.testing.assert_array_equal(used(opened(cuda, LZ4())), DATA)


@pytest.mark.filterwarnings("ignore:Exception ignored in.*Stream:pytest.PytestUnraisableExceptionWarning")  # of CuPy
@pytest.mark.parametrize("call", CALLS)
def test_every_error_that_cuda_has(cuda: Any, call: str) -> None:
    """Each is told in gzarr's words, or what was to be done is done all the same; the next read is right."""
    array = opened(cuda, LZ4())
    told = set()
    for error in driver.errors():
        if call in ALLOCATING:
            array.backend.release()
            cupy.get_default_memory_pool().free_all_blocks()
            cuda._streams.clear()
        before = driver.calls(call)
        with driver.failing(call, error):
            try:
                array = opened(cuda, LZ4(), None) if call in ALLOCATING else array
                array[:32] = DATA[:32]
                found = array[:].get()
                is_done = array.backend.record().done
            except gzarr.DeviceError as failed:
                told.add(error)
                assert re.search("lower max_device_nbytes|start it anew|nvCOMP|nvcomp", str(failed))  # noqa: PT017
            except cupy.cuda.runtime.CUDARuntimeError:  # of what the caller does with the result
                told.add(error)
            else:
                np.testing.assert_array_equal(found, DATA)
                assert is_done in (False, True)
        assert driver.calls(call) > before, error
        driver.faults()
    np.testing.assert_array_equal(used(array), DATA)
    # CuPy takes all errors of a query for a no; the next call tells the one that lasts.
    assert told >= driver.lasting_errors() or call == "cudaEventQuery"
