"""What overlaps in a read, what its first one pays for, and how long batches take, on the virtual clock of the double.

A real read carries out its batches one after the other, with as many host threads in virtual time as it asks for. Costs
are guesses, so only proportions are asserted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.detection.thresholds import NEVER
from gzarr.gpu.device import pipeline_slots
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS, PipelineSlot, PipelineSlots
from gzarr.gpu.reading.host import HostReader
from gzarr.gpu.reading.kvikio import KvikioReader
from gzarr.storage import LocalStore
from tests.gpu.device.test_cuda import cuda  # noqa: F401 - a fixture
from tests.gpu.direct_files import DirectFiles
from tests.gpu.fake_cupy.clock import Clock, Costs, spend, virtual_time

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

#: A byte costs what a hundred bytes cost an H100, so that few of them outweigh the calls. All stages are as fast.
COSTS = Costs(read_rate=5e8, copy_rate=5e8, decode_rate=5e8, kernel_rate=4e9, host_alloc_s=30 / (1 << 30), open_s=0)
#: LZ4 can do nothing with it.
DATA = np.random.default_rng(0).integers(-(2**31), 2**31, (1024, 1024)).astype("i4")
CHUNKS = (64, 128)
N_BATCHES = 12


class TimedReader(HostReader):
    """Spends virtual time on opening and reading files."""

    def read(self, *args: Any) -> Any:
        items = super().read(*args)
        _spend([item.nbytes for item in items if item is not None])
        return items

    def fetch(self, *args: Any) -> Any:
        batch = super().fetch(*args)
        _spend(batch.sizes[batch.offsets >= 0].tolist())
        return batch


def _spend(sizes: list[int]) -> None:
    spend("open", lambda costs: len(sizes) * costs.open_s)
    spend("read", lambda costs: sum(sizes) / costs.read_rate)


@contextmanager
def at_once(n: int, costs: Costs = COSTS) -> Iterator[Clock]:
    """A context in which virtual time passes, with ``n`` batches under way at once."""

    def take(self: PipelineSlots) -> PipelineSlot:
        # Whoever asks in virtual time finds the pipeline slot that is idle first.
        self._idle.sort(key=lambda pipeline_slot: -pipeline_slot.stream.queue.end)
        return real(self)

    real = PipelineSlots._take
    with virtual_time(costs) as time, pytest.MonkeyPatch.context() as patch:
        patch.setattr(PipelineSlots, "_take", take)
        patch.setattr(
            pipeline_slots,
            "run_in_threads",
            lambda task, batches, _, *rest, **options: time.in_threads(task, batches, n),
        )
        yield time


def opened(cuda: Any, where: Any, **options: Any) -> gzarr.Array:  # noqa: F811
    store = LocalStore(where)
    gzarr.create_array(store, data=DATA, chunks=CHUNKS, compressor=LZ4(), zarr_format=2, device="cpu", overwrite=True)
    backend = GpuBackend(cuda.CudaDevice(), **{"reader": TimedReader(), "small_reads": NEVER} | options)
    return gzarr.open_array(store, mode="r", device=backend)


def in_n_batches(array: gzarr.Array, patch: pytest.MonkeyPatch) -> gzarr.Array:
    """The array, read in `N_BATCHES` batches."""
    patch.setattr("gzarr.gpu.pipeline.sizing.BATCH_NBYTES", DATA.nbytes // N_BATCHES)
    patch.setattr("gzarr.gpu.pipeline.sizing.BATCH_NSTREAMS", 1)
    return array


@pytest.fixture
def array(cuda, tmp_path, monkeypatch) -> gzarr.Array:  # noqa: F811
    array = in_n_batches(opened(cuda, tmp_path), monkeypatch)
    array[:]  # pins memory
    return array


def seconds(array: gzarr.Array, n: int, costs: Costs = COSTS) -> Clock:
    """The clock after a read with ``n`` batches at once."""
    with at_once(n, costs) as time:
        found = array[:]
        found._mem._queue.run()
    np.testing.assert_array_equal(found.get(), DATA)
    return time


def test_batches_overlap(array) -> None:
    one, three = seconds(array, 1), seconds(array, N_PIPELINE_SLOTS)
    assert one.busy == pytest.approx(three.busy, rel=0.01)
    assert three.elapsed < 0.6 * one.elapsed
    # Reading, uploading and decoding each take a third of one batch; placing little.
    assert three.elapsed > one.elapsed / 3


def test_two_batches_at_once_are_slower_than_three(array) -> None:
    one, two, three = (seconds(array, n).elapsed for n in (1, 2, 3))
    assert three < 0.9 * two < 0.9 * one


def test_the_slowest_stage_sets_the_chunk_time(array) -> None:
    slow = replace(COSTS, copy_rate=COSTS.copy_rate / 4)
    time = seconds(array, N_PIPELINE_SLOTS, slow)
    assert time.engines["up"].seconds > 0.8 * time.elapsed


def test_only_the_first_read_pins_memory(cuda, tmp_path, monkeypatch) -> None:  # noqa: F811
    array = in_n_batches(opened(cuda, tmp_path), monkeypatch)
    first, second = seconds(array, N_PIPELINE_SLOTS), seconds(array, N_PIPELINE_SLOTS)
    assert second.spent.get("hostAlloc", 0) == 0
    pinned = first.spent["hostAlloc"] / COSTS.host_alloc_s
    assert pinned <= N_PIPELINE_SLOTS * (1.3 * DATA.nbytes / N_BATCHES + (2 << 20))
    assert second.elapsed < first.elapsed


def test_a_second_read_opens_no_file_anew_directly(cuda, tmp_path) -> None:  # noqa: F811
    """An open of a file for direct reads takes a millisecond; handles are kept for as many files as a batch has."""
    files = DirectFiles()
    array = opened(cuda, tmp_path, reader=files.reader())
    for _ in range(2):
        np.testing.assert_array_equal(array[:].get(), DATA)
        assert files.opened == array.nchunks


def test_small_files_are_not_opened_directly(cuda, tmp_path) -> None:  # noqa: F811
    """They are read in less time than they are opened."""
    files = DirectFiles()
    array = opened(cuda, tmp_path, reader=KvikioReader(files))
    np.testing.assert_array_equal(array[:].get(), DATA)
    assert files.opened == 0
