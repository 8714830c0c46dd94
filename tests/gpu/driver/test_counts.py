"""The load that reads and writes put on CUDA is the one that is counted on the emulated device."""

from typing import Any

import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from tests.gpu import test_read_counts as reads
from tests.gpu import test_write_counts as writes
from tests.gpu.counted import CountingDevice


@pytest.mark.parametrize("chain", ["raw", "blosc", "gzip", "sharded crc32c"])
def test_a_batch_of_a_read_is_few_calls_and_waits(cuda: Any, chain: str) -> None:
    def open_on(stored: gzarr.Array, cap: int | None) -> gzarr.Array:
        backend = GpuBackend(CountingDevice(cuda.CudaDevice()), max_device_nbytes=cap, small_reads=NEVER)
        return gzarr.open_array(stored.store, mode="r", device=backend)

    reads.check(reads.COSTS[chain], open_on, None, encoded_go_up=True)


@pytest.mark.parametrize("partly", [False, True], ids=["whole", "partly"])
@pytest.mark.parametrize("chain", ["raw", "blosc", "gzip"])
def test_a_batch_of_a_write_is_few_calls_and_waits(cuda: Any, chain: str, partly: bool) -> None:
    writes.check(chain, cuda.CudaDevice(), cuda.cupy.asarray(reads.DATA + 1), partly=partly)
