"""The measurements of the GPU benchmark. Each compares its answer with the source, then returns the fields of a row."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from benchmarks.gpu.cases import CODECS, STREAM_NBYTES, Case, Selection, StreamsCase, make_source
from benchmarks.gpu.measure import device_seconds, summary, wall_seconds, wall_times
from benchmarks.gpu.stages import time_stages
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import MemoryStore

#: Seconds for the rounds of one row, after the first.
ROW_S = 1.0
ROUNDS = 5
#: Files that KvikIO opens at once. Each takes two descriptors, and a process often has 1024.
KVIKIO_FILES = 200
#: Distinct chunks of an array of many streams; they are stored repeatedly.
N_DIFFERENT = 64

Fields = dict[str, Any]


class WrongAnswerError(Exception):
    """The array read or written differs from the source, so that its time is worth nothing."""


def timed_read(device: Any, read: Callable[[Selection], Any], selection: Selection, wanted: Any) -> Fields:
    """Time a read into device memory. A result on the host is uploaded, and the upload counts."""

    def whole() -> Any:
        array = read(selection)
        return array if isinstance(array, device.xp.ndarray) and device.gpu is not None else device.upload(array)

    start = time.perf_counter()
    array = whole()
    device.wait()
    first = time.perf_counter() - start
    if not device.equal(array, wanted):
        raise WrongAnswerError("the answer is wrong")
    del array
    # For the slowest contenders, the first read must do.
    times = [first] if first > ROW_S else wall_times(whole, device.wait, ROUNDS, ROW_S)
    return rated(times, wanted.nbytes)


def rated(times: list[float], nbytes: int) -> Fields:
    """The fields of times, with GB/s decoded by the median."""
    fields = summary(times)
    return {**fields, "decoded_nbytes": nbytes, "GB_per_s": nbytes / fields["seconds"] / 1e9}


def timed_write(device: Any, put: Callable[[Any], None], path: Path, values: Any, source: np.ndarray) -> Fields:
    """Time repeated writes of a whole array. values: on the device or the host; source: the same on the host."""

    def write() -> None:
        put(values)

    start = time.perf_counter()
    write()
    device.wait()
    first = time.perf_counter() - start
    if not np.array_equal(gzarr.open_array(path, mode="r", device="cpu")[...], source):
        raise WrongAnswerError("what was written is wrong")
    times = [first] if first > ROW_S else wall_times(write, device.wait, ROUNDS, ROW_S)
    return {**rated(times, source.nbytes), "encoded_nbytes": encoded_nbytes(path)}


def files_of(path: Path) -> list[Path]:
    """The files of a stored array that hold chunks."""
    return [p for p in path.rglob("*") if p.is_file() and p.name != "zarr.json"]


def encoded_nbytes(path: Path) -> int:
    """Bytes of all chunks of a stored array."""
    return sum(p.stat().st_size for p in files_of(path))


def written_empty(path: Path, case: Case, n: int, device: Any) -> Any:
    """Create the array of a case without chunks, in an emptied folder."""
    shutil.rmtree(path, ignore_errors=True)
    return gzarr.create_array(path, shape=(n, n), dtype="f4", fill_value=0, device=device, **case.keywords())


def raw_reads(device: Any, files: list[Path]) -> dict[str, Callable[[], Fields]]:
    """Time the transfer of the same encoded bytes: from pinned memory, from files by threads, from files by KvikIO."""
    sizes = [p.stat().st_size for p in files]
    starts = np.cumsum([0, *sizes])[:-1].tolist()
    encoded = sum(sizes)

    def result(task: Callable[[], Any]) -> Fields:
        task()
        device.wait()
        fields = summary(wall_times(task, device.wait, ROUNDS, ROW_S))
        return {**fields, "GB_per_s_encoded": encoded / fields["seconds"] / 1e9}

    def pinned() -> Fields:
        staging = device.device.staging(encoded)
        staging[:] = 1
        return result(lambda: device.device.upload(staging))

    def threads() -> Fields:
        staging = device.device.staging(encoded)

        def read_one(item: tuple[Path, int, int]) -> None:
            path, start, size = item
            with path.open("rb", buffering=0) as file:
                file.readinto(memoryview(staging)[start : start + size])

        def read() -> None:
            list(pool.map(read_one, zip(files, starts, sizes, strict=True)))
            device.device.upload(staging)

        with ThreadPoolExecutor(16) as pool:
            return result(read)

    def kvikio() -> Fields:
        import kvikio
        import kvikio.defaults

        kvikio.defaults.set("num_threads", 16)
        staging_buffer = device.device.empty(encoded)

        def read_some(some: slice) -> None:
            opened = [kvikio.CuFile(str(path), "r") for path in files[some]]
            futures = [
                file.pread(staging_buffer[start : start + size], size)
                for file, start, size in zip(opened, starts[some], sizes[some], strict=True)
            ]
            for future in futures:
                future.get()
            for file in opened:
                file.close()

        def read() -> None:
            for first in range(0, len(files), KVIKIO_FILES):
                read_some(slice(first, first + KVIKIO_FILES))

        return result(read)

    measurements = {"raw pinned upload": pinned, "raw read by threads": threads}
    return {**measurements, "raw KvikIO": kvikio} if device.has_kvikio else measurements


def ceilings(device: Any, nbytes: int) -> dict[str, float]:
    """GB/s of a copy within the device, counted once, and of an upload from pinned memory."""
    staging = device.device.staging(nbytes)
    staging[:] = 1
    one, two = device.device.upload(staging), device.device.empty(nbytes)
    if device.gpu is None:
        seconds = wall_seconds(lambda: two.__setitem__(slice(None), one), device.wait, 3, 1)[0]
        upload = wall_seconds(lambda: device.device.upload(staging), device.wait, 3, 1)[0]
    else:
        seconds = device_seconds(device.xp, lambda: two.data.copy_from_device_async(one.data, nbytes))
        upload = device_seconds(device.xp, lambda: one.set(staging))
    return {"device copy GB_per_s": nbytes / seconds / 1e9, "pinned upload GB_per_s": nbytes / upload / 1e9}


def peak_memory(device: Any, path: Path, cap: int, there: Any) -> Fields:
    """Peak device memory of reading a whole array, beyond the result, and the cap, in bytes."""
    with counted_memory(device) as (counted, peak):
        array = gzarr.open_array(path, mode="r", device=GpuBackend(counted, max_device_nbytes=cap, small_reads=NEVER))
        start = time.perf_counter()
        values = array[...]
        device.wait()
        seconds = time.perf_counter() - start
        # Before the comparison, which allocates memory itself.
        beyond = peak() - (values.nbytes if device.gpu is not None else 0)
        if not device.equal(values, there):
            raise WrongAnswerError("the answer is wrong")
    return {"cap_nbytes": cap, "peak_nbytes": beyond, "under_cap": beyond <= cap, **rated([seconds], there.nbytes)}


@contextmanager
def counted_memory(device: Any) -> Iterator[tuple[Any, Callable[[], int]]]:
    """(the device, a function that returns its peak of allocated bytes). Results count on CUDA only."""
    if device.gpu is None:
        fresh = type(device.device)()
        yield fresh, lambda: fresh.memory.peak
        return
    cuda = device.xp.cuda
    before, pool = cuda.get_allocator(), CountedPool(cuda.MemoryPool())
    cuda.set_allocator(pool.malloc)
    try:
        yield device.device, lambda: pool.peak
    finally:
        cuda.set_allocator(before)


class CountedPool:
    """A memory pool, and the most bytes that it ever had."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.peak = 0

    def malloc(self, nbytes: int) -> Any:
        memory = self._pool.malloc(nbytes)
        self.peak = max(self.peak, self._pool.total_bytes())
        return memory

    def free_all_blocks(self, stream: Any = None) -> None:
        self._pool.free_all_blocks(stream=stream)


def streams(device: Any, case: StreamsCase) -> Fields:
    """Time the stages of reading many chunks of 16 KiB from memory; 64 of them are distinct."""
    each = STREAM_NBYTES // 4
    data = make_source(256).reshape(-1)[: N_DIFFERENT * each]
    stored = gzarr.create_array({}, data=data, chunks=each, device="cpu", **CODECS[case.codec])
    chunks = [stored.store[f"c/{i}"] for i in range(data.size // each)]
    made = MemoryStore({f"c/{i}": chunks[i % len(chunks)] for i in range(case.nchunks)})
    array = gzarr.create_array(
        {}, shape=case.nchunks * each, dtype="f4", chunks=each, device="cpu", **CODECS[case.codec]
    )
    made["zarr.json"] = array.store["zarr.json"]
    which = np.arange(case.nchunks) % len(chunks)
    there = device.upload(data.reshape(-1, each))[device.upload(which)].reshape(-1)
    encoded = sum(len(chunks[i]) for i in which.tolist())
    return {"encoded_nbytes": encoded, "decoded_nbytes": there.nbytes, **time_stages(device, made, there)}
