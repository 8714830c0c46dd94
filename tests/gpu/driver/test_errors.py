"""Every call that may fail fails once: the error says what to do, nothing leaks, and the next read is right."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4, Blosc

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.detection.thresholds import NEVER
from tests.gpu.driver import driver

DATA = np.cumsum(np.random.default_rng(0).integers(0, 9, (64, 64)), axis=0).astype("i4")
#: cudaErrorMemoryAllocation, after which the device works on.
NO_MEMORY = 2
#: cudaErrorECCUncorrectable, cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorLaunchFailure: all that
#: follows fails, too.
LASTING = (214, 700, 716, 719)
#: What reads and writes call, but for what destroys: its errors have nobody to go to.
CALLS = (
    *("cudaMalloc", "cudaHostAlloc", "cudaMemGetInfo", "cudaMemcpyAsync", "cudaStreamCreateWithPriority"),
    *("cudaStreamSynchronize", "cudaStreamSynchronize (end)", "cudaStreamWaitEvent", "cudaEventCreateWithFlags"),
    *("cudaEventRecord", "cudaEventQuery", "cuLaunchKernel", "decompress LZ4", "compress LZ4"),
)


def opened(cuda: Any, compressor: Any) -> gzarr.Array:
    stored = gzarr.create_array({}, data=DATA, chunks=(16, 32), compressor=compressor, zarr_format=2, device="cpu")
    backend = GpuBackend(cuda.CudaDevice(), small_reads=NEVER, small_writes=NEVER, max_device_nbytes=2_000_000)
    return gzarr.open_array(stored.store, mode="r+", device=backend)


def used(array: gzarr.Array) -> np.ndarray:
    array[:32] = array[32:]
    array[:32] = DATA[:32]
    found: np.ndarray = array[:].get()
    return found


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
