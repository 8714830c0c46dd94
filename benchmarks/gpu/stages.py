"""Times the stages of one read on the device: nvCOMP's call alone, gzarr's call around it, and every kernel.

The device is wrapped. When the read reaches a stage, the stage runs repeatedly on the data in memory at that moment.
Stages write only their own output, so that the answer stays right. It is compared with the source all the same.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import gzarr
from benchmarks.gpu.measure import device_seconds
from benchmarks.gpu.streams import Gpu
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device import pipeline_slots
from gzarr.gpu.pipeline import batches as sizing
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import MemoryStore

#: Rounds of a stage, and launches of a kernel in each.
ROUNDS, N_LAUNCHES = 3, 8


#: The kernels of which a read launches some.
PLACING = ("copy_plain", "copy_bytes", "copy_bits")


def time_stages(device: Any, store: Any, there: Any) -> dict[str, Any]:
    """Seconds by stage for reading a whole array in memory. device: see benchmarks.gpu.run.Device."""
    timed = _timing(type(device.device), device.gpu)
    with one_batch_at_a_time():
        array = gzarr.open_array(store, mode="r", device=GpuBackend(timed, reader="host", small_reads=NEVER))
        if not device.equal(array[...], there):
            raise AssertionError("the answer is wrong")
    stages = {name: {"seconds": sum(times), "calls": len(times)} for name, times in timed.times.items()}
    decode = sum(s["seconds"] for name, s in stages.items() if name.startswith("decode "))
    bare = sum(s["seconds"] for name, s in stages.items() if name.startswith("nvcomp "))
    kernels = sum(s["seconds"] for name, s in stages.items() if name.startswith("kernel "))
    place = sum(stages.get(f"kernel {name}", {"seconds": 0.0})["seconds"] for name in PLACING)
    return {
        "stages": stages,
        "streams": timed.n_streams,
        "seconds": decode + kernels,
        "GB_per_s": there.nbytes / max(decode + kernels, 1e-12) / 1e9,
        "bare_nvcomp_seconds": bare,
        "bare_nvcomp_GB_per_s": there.nbytes / bare / 1e9 if bare else None,
        "placement_GB_per_s": there.nbytes / place / 1e9 if place else None,
    }


@contextmanager
def one_batch_at_a_time() -> Iterator[None]:
    """Give the backends made in this context one pipeline slot (pipeline slot), so that nothing runs beside a stage."""
    with batches_at_once(1):
        yield


@contextmanager
def batches_of(nbytes: int | None) -> Iterator[None]:
    """Give backends that are made in this context batches of a size; None for what they choose."""
    if nbytes is None:
        yield
        return
    with mock.patch.multiple(sizing, BATCH_NBYTES=nbytes, BATCH_NCHUNKS=0, BATCHES_PER_READ=1):
        yield


@contextmanager
def batches_at_once(n: int) -> Iterator[None]:
    """Give the backends made in this context a number of pipeline slots. They must be used in it."""
    with mock.patch.object(pipeline_slots, "N_PIPELINE_SLOTS", n):
        yield


def in_memory(path: Path) -> MemoryStore:
    """The objects of a local store, in memory."""
    return MemoryStore({p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()})


def _timing(base: type, gpu: Gpu | None) -> Any:
    """A subclass of a device that times its stages. gpu: None for the emulated device."""
    cupy = None if gpu is None else gpu.cupy

    class Timing(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.times: dict[str, list[float]] = {}
            self.n_streams = 0
            self.arenas: tuple[Any, ...] = ()

        @contextmanager
        def activate(self, stream: Any, memory: Any, staging: Any) -> Iterator[None]:
            self.arenas = memory, staging
            with super().activate(stream, memory, staging):
                yield

        def note(self, stage: str, task: Callable[[], Any], times_each: int = 1) -> None:
            """Time a stage. Its allocations are released after each time, so that the batch still fits."""
            marks = [arena.mark() for arena in self.arenas]

            def once() -> None:
                task()
                for arena, mark in zip(self.arenas, marks, strict=True):
                    arena.rewind(mark)

            self.times.setdefault(stage, []).append(_seconds(cupy, once, times_each))

        def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
            self.note(f"kernel {kernel}", lambda: base.launch(self, kernel, n_threads, args), N_LAUNCHES)

        def decompress(self, decoder: str, source: Any, nbytes: Any, target: Any, capacity: Any, **options: Any) -> Any:
            def call() -> Any:
                return base.decompress(self, decoder, source, nbytes, target, capacity, **options)

            outcome = call()
            self.n_streams += source.size
            self.note(f"decode {decoder}", call)
            if gpu is not None:
                marks = [arena.mark() for arena in self.arenas]
                self.note(f"nvcomp {decoder}", bare_call(gpu, decoder, source, nbytes, target, capacity))
                for arena, mark in zip(self.arenas, marks, strict=True):
                    arena.rewind(mark)
            return outcome

    return Timing()


def bare_call(gpu: Gpu, decoder: str, source: Any, nbytes: Any, target: Any, capacity: Any) -> Callable[[], None]:
    """nvCOMP's batched call with all its arguments on the device."""
    cupy, nvcomp = gpu.cupy, gpu.nvcomp
    n = source.size
    tables = [cupy.asarray(table.astype(np.uint64)) for table in (source, nbytes, capacity, target)]
    in_ptrs, in_sizes, room, out = (table.data.ptr for table in tables)
    temp_nbytes = nvcomp.query_temp_nbytes(decoder, n, int(capacity.max()), int(capacity.sum()))
    temp, sizes = cupy.empty(max(temp_nbytes, 1), np.uint8), cupy.empty(n, np.uint64)
    statuses = cupy.empty(n, np.int32)
    kept = (tables, temp, sizes, statuses)

    def call() -> None:
        _ = kept
        stream = cupy.cuda.get_current_stream().ptr
        results = out, sizes.data.ptr, statuses.data.ptr, stream
        batch = nvcomp.StreamBatch(in_ptrs, in_sizes, n, temp.data.ptr, temp_nbytes, *results)
        nvcomp.decompress_async(decoder, batch, room)

    return call


def _seconds(cupy: Any, task: Callable[[], Any], times_each: int) -> float:
    if cupy is not None:
        return device_seconds(cupy, task, ROUNDS, times_each)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        task()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
