"""What overlaps in a read and in a pyramid, and what the first read pays for, on a device that takes its time.

Times are slept, and much longer than what the host computes meanwhile, so proportions can be asserted.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4

import gzarr
import gzarr.images
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.gpu.reading.host import HostReader
from gzarr.storage import LocalStore
from tests.gpu.driver import driver

#: All stages are as fast: each batch takes some 40 ms in each.
SECONDS_PER_BYTE = 0.04 / (1 << 17)
#: LZ4 can do nothing with it.
DATA = np.random.default_rng(0).integers(-(2**31), 2**31, (512, 512)).astype("i4")
N_BATCHES = 8
#: Copies to the host of each batch of a loader, which then takes the caller as long as reading it.
TIMES = 3
#: A busy machine may disturb an attempt.
ATTEMPTS = 3


class SlowReader(HostReader):
    """Takes its time to read files."""

    def __init__(self, seconds_per_byte: float = SECONDS_PER_BYTE) -> None:
        super().__init__()
        self._rate = seconds_per_byte
        self.spent = 0.0

    def fetch(self, *args: Any) -> Any:
        batch = super().fetch(*args)
        seconds = self._rate * int(batch.sizes[batch.offsets >= 0].sum())
        time.sleep(seconds)
        self.spent += seconds
        return batch


@pytest.fixture
def reader() -> SlowReader:
    return SlowReader()


def backend_of(cuda: Any, reader: SlowReader) -> GpuBackend:
    return GpuBackend(cuda.CudaDevice(), reader=reader, small_reads=NEVER, small_writes=NEVER)


@pytest.fixture
def array(cuda: Any, tmp_path: Path, reader: SlowReader, monkeypatch: pytest.MonkeyPatch) -> gzarr.Array:
    """An array that is read in several batches."""
    store = LocalStore(tmp_path)
    gzarr.create_array(store, data=DATA, chunks=(32, 64), compressor=LZ4(), zarr_format=2, device="cpu")
    monkeypatch.setattr("gzarr.gpu.pipeline.batches.BATCH_NBYTES", DATA.nbytes // N_BATCHES)
    monkeypatch.setattr("gzarr.gpu.pipeline.batches.BATCH_NCHUNKS", 1)
    return gzarr.open_array(store, mode="r", device=backend_of(cuda, reader))


def seconds(array: gzarr.Array) -> tuple[float, Counter[str]]:
    """What a read takes, and what each engine takes of it."""
    with driver.slow(SECONDS_PER_BYTE) as spent:
        start = time.perf_counter()
        found = array[:]
        array.backend.current_stream().synchronize()
        taken = time.perf_counter() - start
    np.testing.assert_array_equal(found.get(), DATA)
    return taken, spent


def once(holds: Callable[[], bool]) -> bool:
    """Whether something holds in one of a few attempts."""
    return any(holds() for _ in range(ATTEMPTS))


def test_batches_overlap(array: gzarr.Array, reader: SlowReader) -> None:
    """Reading, uploading and decoding each take a third of one batch."""

    def holds() -> bool:
        reader.spent = 0.0
        taken, spent = seconds(array)
        assert spent["up"] > 0.9 * SECONDS_PER_BYTE * DATA.nbytes
        return taken < 0.75 * (reader.spent + spent["up"] + spent["decode"])

    array[:]
    assert once(holds)


def test_the_slowest_stage_sets_the_time(array: gzarr.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    def holds() -> bool:
        taken, spent = seconds(array)
        return spent["decode"] > 0.7 * (taken - SECONDS_PER_BYTE * DATA.nbytes / N_BATCHES)

    monkeypatch.setattr("tests.gpu.driver.python.DECODE_FACTOR", 3)
    assert once(holds)


def test_only_the_first_read_pins_memory(array: gzarr.Array) -> None:
    gc.collect()  # what other tests have pinned
    before = driver.calls("cudaHostAlloc"), driver.live_nbytes(driver.PINNED)
    array[:]
    after = driver.calls("cudaHostAlloc"), driver.live_nbytes(driver.PINNED)
    assert 0 < after[1] - before[1] <= N_PIPELINE_SLOTS * (1.3 * DATA.nbytes / N_BATCHES + (2 << 20))
    array[:]
    assert (driver.calls("cudaHostAlloc"), driver.live_nbytes(driver.PINNED)) == after


def test_reading_computing_and_writing_overlap(cuda: Any, tmp_path: Path) -> None:
    rate, data = 4 * SECONDS_PER_BYTE, DATA.view("u2")  # CuPy's kernels take their time as well
    reader = SlowReader(rate)
    options = {"axes": "yx", "chunks": (64, 128), "compressors": LZ4(), "version": "0.4", "device": "cpu"}
    gzarr.images.create_image(tmp_path, data=data, levels=0, **options)
    image = gzarr.images.open_image(tmp_path, "r+", device=backend_of(cuda, reader))

    def holds() -> bool:
        reader.spent = 0.0
        with driver.slow(rate) as spent:
            start = time.perf_counter()
            gzarr.images.build_pyramid(image, levels=1, max_nbytes=1 << 20, overwrite=True)
            taken = time.perf_counter() - start
        return taken < 0.9 * (reader.spent + sum(spent.values()))

    assert once(holds)


def loader_of(cuda: Any, reader: SlowReader, tmp_path: Path) -> gzarr.Loader:
    """Two chunks make a batch, and memory is enough for half of the array.

    Batches are taken by a kernel of CuPy, which is interpreted here: its time goes with the number of elements.
    """
    store = LocalStore(tmp_path)
    gzarr.create_array(store, data=DATA.view("c16"), chunks=(32, 128), compressor=LZ4(), zarr_format=2, device="cpu")
    array = gzarr.open_array(store, device=backend_of(cuda, reader))
    return gzarr.Loader(array, 64, memory=DATA.nbytes // 2, prefetch=2)


def test_a_loader_reads_ahead_while_the_caller_computes(cuda: Any, reader: SlowReader, tmp_path: Path) -> None:
    """The caller's work is copies to the host, which have an engine."""
    loader = loader_of(cuda, reader, tmp_path)
    pinned = cuda.CudaDevice().allocate_pinned(DATA.nbytes).view("c16").reshape(512, 128)

    def compute() -> None:
        for step, batch in enumerate(loader):
            for _ in range(TIMES):
                batch.get(out=pinned[64 * step : 64 * (step + 1)], blocking=False)
        cuda.cupy.cuda.get_current_stream().synchronize()

    def holds() -> bool:
        reader.spent = 0.0
        with driver.slow(SECONDS_PER_BYTE) as spent:
            start = time.perf_counter()
            compute()
            taken = time.perf_counter() - start
        assert spent["down"] > 0.9 * TIMES * SECONDS_PER_BYTE * DATA.nbytes
        return taken < 0.75 * (reader.spent + sum(spent.values()))

    compute()
    assert once(holds)
    np.testing.assert_array_equal(pinned.view("i4"), DATA)
