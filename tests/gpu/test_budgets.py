"""What reads and writes of the GPU backend may cost the host, as counts, which do not depend on the machine.

A device that does nothing takes the place of a GPU, and one thread carries out all batches. See also
`tests.gpu.test_read_counts` and `tests.gpu.test_write_counts` (launches, copies and waits of a batch),
`tests.gpu.test_reuse` (allocations of a second read) and `tests.gpu.driver.test_overlap` (what overlaps).
"""

import ctypes
import gc
import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import Blosc, Zstd

import gzarr
from benchmarks.gpu.host_worker import StubDevice
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device import pipeline_slots
from gzarr.gpu.device.memory import MIN_BLOCK_NBYTES
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline import batches as sizing
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import LocalStore, MemoryStore

SIDE = 16
CODECS: dict[str, Any] = {"raw": None, "zstd": Zstd(1), "blosc": Blosc("lz4", 5, Blosc.SHUFFLE)}
LAYOUTS: dict[str, dict[str, Any]] = {"plain": {}, "sharded": {"shards": (16 * SIDE, 16 * SIDE)}}


def opened(device: Any, where: Path | None, data: np.ndarray, chunks: tuple[int, ...], **options: Any) -> gzarr.Array:
    """An array in files or in memory, filled by the host."""
    cap = options.pop("cap", None)
    store = MemoryStore() if where is None else LocalStore(where)
    gzarr.create_array(store, data=data, chunks=chunks, device="cpu", overwrite=True, **options)
    backend = GpuBackend(device, small_reads=NEVER, small_writes=NEVER, reader="host", max_device_nbytes=cap)
    return gzarr.open_array(store, mode="r+", device=backend)


def noise(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1 << 20, (rows, columns)).astype("i4")


def batches_of(array: gzarr.Array, task: Callable[[], Any]) -> int:
    """How many batches a read has."""
    n = 0
    run = array.backend.run

    def count(batch_task: Callable[[Any], None], batches: Iterable[Any], work: Any) -> None:
        def counted(context: Any) -> None:
            nonlocal n
            n += 1
            batch_task(context)

        run(counted, batches, work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array.backend, "run", count)
        task()
    return n


@pytest.fixture
def on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(task: Callable[[Any], None], batches: Iterable[Any], *_: Any, **__: Any) -> None:
        for context in batches:
            task(context)

    monkeypatch.setattr(pipeline_slots, "run_in_threads", run)


def calls_of(task: Callable[[], Any]) -> int:
    """Calls of functions, in Python and C, that a task makes on this thread, after a first time."""
    task()
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, argument: Any) -> None:
        calls[event] += 1

    gc.disable()  # finalizers would be counted
    sys.setprofile(count)
    try:
        task()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls["call"] + calls["c_call"]


#: Most calls for each chunk beyond those of a batch. By the reference path, reads make 60 for a file and 30 in a shard,
#: writes 77 and 32.
FILES, MEMORY = 0.5, 12
MEMORY_WRITE = 20


def calls_per_chunk(where: Path | None, task: Callable[[gzarr.Array], Any], **options: Any) -> float:
    """Calls that each chunk adds to a read or write of one batch."""
    made = []
    for number, nchunks in enumerate((64, 1024)):
        side = int(nchunks**0.5) * SIDE
        array = opened(StubDevice(), where and where / str(number), noise(side, side), (SIDE, SIDE), **options)
        made.append(calls_of(lambda array=array: task(array)))
    return (made[1] - made[0]) / (1024 - 64)


def overwrite(array: gzarr.Array) -> None:
    array[:] = array.backend.empty(array.shape, array.dtype)


@pytest.mark.usefixtures("on_one_thread")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chunk_of_a_local_file_costs_the_interpreter_nothing(tmp_path, layout, codec) -> None:
    options = {"compressor": CODECS[codec], **LAYOUTS[layout]}
    assert calls_per_chunk(tmp_path, lambda array: array[:], **options) <= FILES
    assert calls_per_chunk(tmp_path, lambda array: array[3:-3, 5:-1], **options) <= FILES


@pytest.mark.usefixtures("on_one_thread")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_writing_a_chunk_of_a_local_file_costs_the_interpreter_nothing(tmp_path, layout) -> None:
    assert calls_per_chunk(tmp_path, overwrite, compressor=CODECS["blosc"], **LAYOUTS[layout]) <= FILES


@pytest.mark.usefixtures("on_one_thread")
def test_a_chunk_of_another_store_costs_the_interpreter_little(tmp_path) -> None:
    assert calls_per_chunk(None, lambda array: array[:], compressor=None) <= MEMORY
    assert calls_per_chunk(None, overwrite, compressor=None) <= MEMORY_WRITE


def seconds_of(task: Callable[[], Any]) -> float:
    """CPU time of a task on this thread, the least of several times."""
    task()
    return min(_once(task) for _ in range(7))


def _once(task: Callable[[], Any]) -> float:
    start = time.thread_time()
    task()
    return time.thread_time() - start


@pytest.mark.usefixtures("on_one_thread")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chunk_of_a_local_file_costs_less_than_some_steps_of_python(tmp_path, layout) -> None:
    """Its tables are arithmetic on columns: most of the time goes into system calls, which other threads share."""
    data = noise(64 * SIDE, 64 * SIDE)
    array = opened(StubDevice(), tmp_path, data, (SIDE, SIDE), compressor=None, **LAYOUTS[layout])
    n = array.nchunks
    paths = [str(path) for path in (tmp_path / "c").rglob("*") if path.is_file()]

    def system_calls() -> None:
        for path in paths:
            file = os.open(path, os.O_RDONLY)
            for _ in range(n // len(paths)):
                os.pread(file, data.nbytes // n, 0)
            os.close(file)

    def steps() -> None:
        for number in range(n):
            str(number)

    read = seconds_of(lambda: array[:])
    assert read <= 1.5 * seconds_of(system_calls) + 30 * seconds_of(steps)


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 50, (4096, 2048)).astype("i4")


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_read_pins_little_more_than_its_batches(tmp_path, large, codec, layout, monkeypatch) -> None:
    """At most 1.3 times the encoded chunks of the batches under way, and a block of tables for each pipeline slot."""
    monkeypatch.setattr(sizing, "BATCH_NBYTES", large.nbytes)
    monkeypatch.setattr(sizing, "BATCH_NCHUNKS", 1)
    shards = {"shards": (512, 512)} if layout == "sharded" else {}
    device = StubDevice()
    array = opened(device, tmp_path, large, (128, 128), compressor=CODECS[codec], **shards)
    n_batches = [batches_of(array, lambda: array[:]) for _ in range(3)]
    encoded = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert min(n_batches) > N_PIPELINE_SLOTS
    assert device.pinned.peak <= N_PIPELINE_SLOTS * (1.3 * encoded / max(n_batches) + MIN_BLOCK_NBYTES)
    array.backend.release()
    assert device.pinned.live == 0


# -- files -----------------------------------------------------------------------------------------------------------

#: Of inotify(7): a file is opened, or renamed to its name.
_IN_OPEN, _IN_MOVED_TO, _IN_NONBLOCK = 0x20, 0x80, 0o4000


@contextmanager
def counted(folder: Path, event: int) -> Iterator[Counter[str]]:
    """A context that counts how often something happens to the files below a folder. Filled in when it ends."""
    library = ctypes.CDLL(None, use_errno=True)
    notes = library.inotify_init1(_IN_NONBLOCK)
    assert notes >= 0
    counts: Counter[str] = Counter()
    try:
        folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        names = {library.inotify_add_watch(notes, os.fsencode(path), event): path for path in folders}
        yield counts
        while True:
            try:
                data = os.read(notes, 1 << 16)
            except BlockingIOError:
                break
            while data:
                watch, _, _, nbytes = struct.unpack_from("iIII", data)
                name = data[16 : 16 + nbytes].rstrip(b"\0").decode()
                if name:
                    counts[str((names[watch] / name).relative_to(folder))] += 1
                data = data[16 + nbytes :]
    finally:
        os.close(notes)


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_is_opened_once_in_a_read_and_replaced_once_in_a_write(tmp_path, layout) -> None:
    data = noise(32 * SIDE, 32 * SIDE)
    array = opened(StubDevice(), tmp_path, data, (SIDE, SIDE), compressor=None, **LAYOUTS[layout])
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} - {"zarr.json"}
    array[:1]  # whatever is looked at once
    for first in (True, False):
        with counted(tmp_path, _IN_OPEN) as counts:
            array[:]
        assert {name for name in counts if not (tmp_path / name).is_dir()} - {"zarr.json"} == files
        # The index of a shard is read by itself, and then cached.
        assert {counts[name] for name in files} == ({1, 2} if first and layout == "sharded" else {1})
    with counted(tmp_path, _IN_MOVED_TO) as counts:
        overwrite(array)
    assert counts == dict.fromkeys(files, 1)


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_one_thread")
@pytest.mark.parametrize(
    ("nbytes", "chunk_nbytes", "fewest", "most"),
    [(1 << 30, 1 << 20, 4, 16), (1 << 30, 1 << 16, 4, 16), (1 << 28, 1 << 20, 2, 8), (1 << 20, 1 << 14, 1, 1)],
)
def test_a_read_has_batches_to_overlap_and_no_more(nbytes, chunk_nbytes, fewest, most) -> None:
    """Nothing is stored, and the device does nothing, so that only batches are cut."""
    array = gzarr.create_array(
        MemoryStore(),
        shape=(nbytes // 4,),
        dtype="i4",
        chunks=(chunk_nbytes // 4,),
        compressor=Blosc("lz4", 5, Blosc.SHUFFLE),
        device=GpuBackend(StubDevice(), small_reads=NEVER, reader="host"),
    )
    assert fewest <= batches_of(array, lambda: array[:]) <= most
