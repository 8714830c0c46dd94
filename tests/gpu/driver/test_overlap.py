"""What overlaps in a read, in a pyramid and in a loader, and what the first read pays for.

What shall overlap waits for each other, on however busy a machine.
"""

import gc
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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

pytestmark = pytest.mark.usefixtures("new_streams")
#: LZ4 can do nothing with it.
DATA = np.random.default_rng(0).integers(-(2**31), 2**31, (512, 512)).astype("i4")
N_BATCHES = 8
#: Copies to the host of each batch of a loader, which then takes the caller as long as reading it.
TIMES = 3
WAIT_S = 60


class Together:
    """Calls that meet: of each engine the one with a given number, in each of some rounds.

    The first argument is the numbers of the first round, and the other ones by how much they grow, and how many rounds
    there are.
    """

    def __init__(self, first: dict[str, int], step: dict[str, int] | None = None, n_rounds: int = 1) -> None:
        self._lock, self._came, self._met = threading.Lock(), Counter[str](), list[None]()
        self._rounds = [threading.Barrier(len(first), lambda: self._met.append(None)) for _ in range(n_rounds)]
        self._where = {
            (engine, number + k * (step or {}).get(engine, 1)): barrier
            for k, barrier in enumerate(self._rounds)
            for engine, number in first.items()
        }

    def come(self, engine: str) -> None:
        with self._lock:
            self._came[engine] += 1
            barrier = self._where.get((engine, self._came[engine]))
        if barrier is not None:
            try:
                barrier.wait(WAIT_S)
            except threading.BrokenBarrierError:
                self._where.clear()  # so that the other rounds do not wait for as long

    def check(self) -> None:
        assert len(self._met) == len(self._rounds), self._came


class WatchedReader(HostReader):
    """Tells that it reads."""

    come = staticmethod(lambda engine: None)

    def fetch(self, *args: Any) -> Any:
        self.come("read")
        return super().fetch(*args)


@pytest.fixture
def reader() -> WatchedReader:
    return WatchedReader()


def backend_of(cuda: Any, reader: WatchedReader) -> GpuBackend:
    return GpuBackend(cuda.CudaDevice(), reader=reader, small_reads=NEVER, small_writes=NEVER)


@pytest.fixture
def array(cuda: Any, tmp_path: Path, reader: WatchedReader, monkeypatch: pytest.MonkeyPatch) -> gzarr.Array:
    """An array that is read in several batches."""
    store = LocalStore(tmp_path)
    gzarr.create_array(store, data=DATA, chunks=(32, 64), compressor=LZ4(), zarr_format=2, device="cpu")
    monkeypatch.setattr("gzarr.gpu.pipeline.batches.BATCH_NBYTES", DATA.nbytes // N_BATCHES)
    monkeypatch.setattr("gzarr.gpu.pipeline.batches.BATCH_NCHUNKS", 1)
    return gzarr.open_array(store, mode="r", device=backend_of(cuda, reader))


@contextmanager
def meeting(reader: WatchedReader, together: Together) -> Iterator[None]:
    reader.come = together.come
    with driver.watched_engines(together.come):
        yield
    reader.come = WatchedReader.come
    together.check()


@pytest.mark.parametrize("numbers", [{"read": 3, "up": 2, "decode": 1}, {"up": 3, "decode": 1}])
def test_batches_overlap(array: gzarr.Array, reader: WatchedReader, numbers: dict[str, int]) -> None:
    """Three batches are read, copied and decoded at once; if decoding is slowest, two batches always wait for it."""
    with meeting(reader, Together(numbers, n_rounds=N_BATCHES - 2)):
        found = array[:]
        array.backend.current_stream().synchronize()
    np.testing.assert_array_equal(found.get(), DATA)


def test_only_the_first_read_pins_memory(array: gzarr.Array) -> None:
    gc.collect()  # what other tests have pinned
    before = driver.calls("cudaHostAlloc"), driver.live_nbytes(driver.PINNED)
    array[:]
    after = driver.calls("cudaHostAlloc"), driver.live_nbytes(driver.PINNED)
    assert 0 < after[1] - before[1] <= N_PIPELINE_SLOTS * (1.3 * DATA.nbytes / N_BATCHES + (2 << 20))
    array[:]
    assert (driver.calls("cudaHostAlloc"), driver.live_nbytes(driver.PINNED)) == after


def test_reading_computing_and_writing_overlap(cuda: Any, tmp_path: Path, reader: WatchedReader) -> None:
    data = DATA.view("u2")
    options = {"axes": "yx", "chunks": (64, 128), "compressors": LZ4(), "version": "0.4", "device": "cpu"}
    gzarr.images.create_image(tmp_path, data=data, levels=0, **options)
    image = gzarr.images.open_image(tmp_path, "r+", device=backend_of(cuda, reader))
    with meeting(reader, Together({"read": 3, "decode": 2, "encode": 1})):
        gzarr.images.build_pyramid(image, levels=1, max_nbytes=1 << 20, overwrite=True)


def loader_of(cuda: Any, reader: WatchedReader, tmp_path: Path) -> gzarr.Loader:
    """Two chunks make a batch, and memory is enough for half of the array.

    Batches are taken by a kernel of CuPy, which is interpreted here: its time goes with the number of elements.
    """
    store = LocalStore(tmp_path)
    gzarr.create_array(store, data=DATA.view("c16"), chunks=(32, 128), compressor=LZ4(), zarr_format=2, device="cpu")
    array = gzarr.open_array(store, device=backend_of(cuda, reader))
    return gzarr.Loader(array, 64, memory=DATA.nbytes // 2, prefetch=2)


def test_a_loader_reads_ahead_while_the_caller_computes(cuda: Any, reader: WatchedReader, tmp_path: Path) -> None:
    """The caller's work is copies to the host, which have an engine."""
    loader = loader_of(cuda, reader, tmp_path)
    pinned = cuda.CudaDevice().allocate_pinned(DATA.nbytes).view("c16").reshape(512, 128)

    def compute() -> None:
        for step, batch in enumerate(loader):
            for _ in range(TIMES):
                batch.get(out=pinned[64 * step : 64 * (step + 1)], blocking=False)
        cuda.cupy.cuda.get_current_stream().synchronize()

    compute()
    with meeting(reader, Together({"read": 2, "down": 1}, {"down": TIMES}, N_BATCHES - 1)):
        compute()
    np.testing.assert_array_equal(pinned.view("i4"), DATA)
