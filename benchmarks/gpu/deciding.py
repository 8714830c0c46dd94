"""Questions whose answers decide the design of the GPU backend; `make gpu-check` asks them before anything else.

`placement_rates`: whether the placement kernels reach 0.7 of a copy within the device. `pinned_memory`: what the first
read pays for its staging buffers. `batch_sizes`: how large batches should be. `cufile_opens`: from which size of a file
the KvikIO reader can win. `cufile_content`: whether cuFile reads what is in the file; on tmpfs, it is known to return
zeros.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs import Blosc

import gzarr
from benchmarks.gpu import reads
from benchmarks.gpu.measure import device_seconds, wall_seconds
from benchmarks.gpu.sizes import rounds, sized, sized_side
from benchmarks.gpu.stages import batches_of, one_batch_at_a_time
from benchmarks.gpu.streams import Gpu
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.gpu.reading.select import find_missing_kvikio

#: Bytes of the arrays that are placed, of pinned memory, and of the array that is read in batches.
PLACED_NBYTES, READ_NBYTES = sized(256 << 20), sized(1 << 30)
PINNED_NBYTES = tuple(map(sized, (16 << 20, 65 << 20, 1 << 30)))
#: Launches that are timed together.
N_LAUNCHES = rounds(8)
#: Sizes of batches, decoded, and of the chunks that are read.
BATCH_NBYTES = tuple(sized(n << 20) for n in (32, 64, 128, 256, 512, 1024))
CHUNK_NBYTES = tuple(map(sized_side, (256 << 10, 1 << 20)))
#: Files that cuFile opens, and the sizes that are compared with those of the operating system.
N_FILES, FILE_NBYTES = max(sized(256), 16), 64 << 10
#: What is placed: dtype, order of the chunks, compressor, and the shape of chunks in an array of two dimensions.
PLACED: dict[str, tuple[str, str, Any, tuple[int, int]]] = {
    "f4 plain": ("f4", "C", None, (512, 512)),
    "f8 plain": ("f8", "C", None, (512, 512)),
    "u2 plain": ("u2", "C", None, (512, 512)),
    "u1 plain": ("u1", "C", None, (512, 512)),
    "f4 byte-shuffled": ("f4", "C", Blosc("lz4", 1, Blosc.SHUFFLE), (512, 512)),
    "f8 byte-shuffled": ("f8", "C", Blosc("lz4", 1, Blosc.SHUFFLE), (512, 512)),
    "u2 byte-shuffled": ("u2", "C", Blosc("lz4", 1, Blosc.SHUFFLE), (512, 512)),
    "f4 bit-shuffled": ("f4", "C", Blosc("lz4", 1, Blosc.BITSHUFFLE), (512, 512)),
    "f4 F-order": ("f4", "F", None, (512, 512)),
    "u2 F-order": ("u2", "F", None, (512, 512)),
    "f4 odd rows": ("f4", "C", None, (509, 507)),
    "f4 whole rows": ("f4", "C", None, (16, -1)),
}


def placement_rates(gpu: Gpu) -> Any:
    """GB/s written by every kernel that a read launches, by layout, beside a copy within the device."""
    copy, answer = _copy_GB_per_s(gpu), {}
    for name, (dtype, order, compressor, shape) in PLACED.items():
        side = int((PLACED_NBYTES // np.dtype(dtype).itemsize) ** 0.5)
        tile = np.random.default_rng(0).integers(0, 1000, (side, min(side, 512))).astype(dtype)
        data = np.tile(tile, (1, -(-side // tile.shape[1])))[:, :side]
        chunks = tuple(side if n < 0 else min(n, side) for n in shape)
        layout: dict[str, Any] = {"chunks": chunks, "order": order, "compressor": compressor, "zarr_format": 2}
        array = gzarr.create_array(data=data, device="cpu", **layout)
        with one_batch_at_a_time():
            rates = _rates_of_kernels(gpu, array.store, data)
        best = {kernel: {"GB_per_s": rate, "of_copy": rate / copy} for kernel, rate in rates.items()}
        answer[name] = best
    return {"device copy GB_per_s": copy, "goal": "0.7 of the copy", **answer}


def _copy_GB_per_s(gpu: Gpu) -> float:  # noqa: N802 - the unit
    one, two = (gpu.cupy.zeros(PLACED_NBYTES, np.uint8) for _ in range(2))
    seconds = device_seconds(gpu.cupy, lambda: two.data.copy_from_device_async(one.data, PLACED_NBYTES), 3, N_LAUNCHES)
    return PLACED_NBYTES / seconds / 1e9


def _rates_of_kernels(gpu: Gpu, store: Any, data: np.ndarray) -> dict[str, float]:
    """Kernel -> GB/s of decoded bytes, for a read of a whole array."""
    seconds: dict[str, float] = {}

    class Timing(type(gpu.device)):  # type: ignore[misc]
        def launch(self, kernel: str, *args: Any, **keywords: Any) -> None:
            once = device_seconds(
                gpu.cupy, lambda: super(Timing, self).launch(kernel, *args, **keywords), 3, N_LAUNCHES
            )
            seconds[kernel] = seconds.get(kernel, 0.0) + once

    backend = GpuBackend(Timing(), max_device_nbytes=32 * data.nbytes, reader="host", small_reads=NEVER)
    _check(gpu, gzarr.open_array(store, mode="r", device=backend)[...], data)
    return {kernel: data.nbytes / time / 1e9 for kernel, time in seconds.items()}


def pinned_memory(gpu: Gpu) -> Any:
    """Seconds for each GiB of pinned memory, from CuPy's pool and without it, and what the pool really takes."""
    cupy, answer = gpu.cupy, {}
    for nbytes in PINNED_NBYTES:
        per_GiB = (1 << 30) / nbytes  # noqa: N806 - the unit
        kinds: dict[str, Callable[[], Any]] = {"pool": lambda n=nbytes: cupy.cuda.alloc_pinned_memory(n)}
        if hasattr(cupy.cuda, "PinnedMemory"):
            kinds["unpooled"] = lambda n=nbytes: cupy.cuda.PinnedMemory(n)
        for kind, allocate in kinds.items():
            start = time.perf_counter()
            memory = allocate()
            taken = time.perf_counter()
            del memory
            freed = time.perf_counter()
            answer[f"{kind}, {nbytes} bytes"] = {
                "allocate_s_per_GiB": (taken - start) * per_GiB,
                "free_s_per_GiB": (freed - taken) * per_GiB,
            }
    return answer


def batch_sizes(gpu: Gpu) -> Any:
    """GB/s of whole reads of files in the page cache, by codec, bytes of a chunk, and decoded bytes of a batch."""
    answer: dict[str, Any] = {}
    side = int((READ_NBYTES // 4) ** 0.5)
    tile = np.round(np.cumsum(np.random.default_rng(0).normal(size=(side, min(side, 2048))), axis=1) * 64) / 64
    data = np.tile(tile.astype("f4"), (1, -(-side // tile.shape[1])))[:, :side]
    there = gpu.cupy.asarray(np.ascontiguousarray(data))
    with tempfile.TemporaryDirectory() as folder:
        for codec in ("none", "blosc-lz4", "zstd"):
            for nbytes in CHUNK_NBYTES:
                path = Path(folder) / f"{codec} {nbytes}"
                chunk = min(int((nbytes // 4) ** 0.5), side)
                options: dict[str, Any] = {"chunks": (chunk, chunk), "compressor": reads.COMPRESSORS[codec]}
                gzarr.create_array(path, data=data, zarr_format=2, device="cpu", **options)
                answer[f"{codec}, chunks of {nbytes}"] = dict(_rates_of_batches(gpu, path, there))
    return answer


def _rates_of_batches(gpu: Gpu, path: Path, there: Any) -> Iterator[tuple[str, Any]]:
    """(bytes of a batch, GB/s), and what gzarr chooses by itself. there: the numbers, on the device."""
    for nbytes in (None, *BATCH_NBYTES):
        with batches_of(nbytes):
            backend = GpuBackend(gpu.device, reader="host", small_reads=NEVER)
            array = gzarr.open_array(path, mode="r", device=backend)
            if not bool((array[...] == there).all()):  # to download a GiB takes longer than all reads
                raise AssertionError("the answer is wrong")
            wait = gpu.cupy.cuda.get_current_stream().synchronize
            seconds = wall_seconds(lambda a=array: a[...], wait, rounds(5), 0.3)[0]
        yield "as chosen" if nbytes is None else str(nbytes), there.nbytes / seconds / 1e9
        backend.release()


def cufile_opens(gpu: Gpu) -> Any:
    """Microseconds to open and register, to read, and to close small files, one at a time and by 16 threads."""
    missing = find_missing_kvikio()
    if missing is not None:
        return {"kvikio lacks": missing}
    import kvikio
    import kvikio.defaults

    with tempfile.TemporaryDirectory() as folder:
        return {
            "compat_mode": str(kvikio.defaults.get("compat_mode")),
            **opens(gpu, lambda path: kvikio.CuFile(path, "r"), Path(folder)),
        }


def opens(gpu: Gpu, open_file: Callable[[str], Any], folder: Path) -> dict[str, Any]:
    """The same for files in a folder. open_file: opens a file as KvikIO does."""
    paths = [folder / str(i) for i in range(N_FILES)]
    for path in paths:
        path.write_bytes(os.urandom(FILE_NBYTES))
    target = gpu.cupy.zeros(N_FILES * FILE_NBYTES, np.uint8)
    views = [target[i * FILE_NBYTES : (i + 1) * FILE_NBYTES] for i in range(N_FILES)]
    answer: dict[str, Any] = {}
    for n_threads in (1, 16):
        with ThreadPoolExecutor(n_threads) as pool:
            start = time.perf_counter()
            files = list(pool.map(open_file, map(str, paths)))
            opened = time.perf_counter()
            futures = [file.pread(view, FILE_NBYTES) for file, view in zip(files, views, strict=True)]
            for future in futures:
                future.get()
            done = time.perf_counter()
            list(pool.map(lambda file: file.close(), files))
            closed = time.perf_counter()
        spans = {"open": opened - start, "read": done - opened, "close": closed - done}
        answer[f"{n_threads} threads"] = {f"{name}_us": span / N_FILES * 1e6 for name, span in spans.items()}
    return answer


def cufile_content(gpu: Gpu) -> Any:
    """Whether cuFile reads the same bytes as the operating system, by file system."""
    missing = find_missing_kvikio()
    if missing is not None:
        return {"kvikio lacks": missing}
    import kvikio

    folders = dict.fromkeys([tempfile.gettempdir(), "/dev/shm", str(Path.cwd())])
    return {
        name: content(gpu, lambda path: kvikio.CuFile(path, "r"), Path(name))
        for name in folders
        if os.access(name, os.W_OK)
    }


def content(gpu: Gpu, open_file: Callable[[str], Any], folder: Path) -> dict[str, Any]:
    """The same for one folder."""
    with tempfile.NamedTemporaryFile(dir=folder) as made:
        wanted = os.urandom(FILE_NBYTES)
        made.write(wanted)
        made.flush()
        target = gpu.cupy.zeros(FILE_NBYTES, np.uint8)
        times = []
        with open_file(made.name) as file:
            for _ in range(3):
                start = time.perf_counter()
                file.pread(target, FILE_NBYTES).get()
                times.append(time.perf_counter() - start)
        found = gpu.cupy.asnumpy(target).tobytes()
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True).stdout
    return {
        "file system": kind.strip(),
        "right": found == wanted,
        "zeros": not any(found),
        "read_us": statistics.median(times) * 1e6,
    }


def _check(gpu: Gpu, found: Any, wanted: np.ndarray) -> None:
    if not np.array_equal(gpu.cupy.asnumpy(found), wanted):
        raise AssertionError("the answer is wrong")


QUESTIONS: dict[str, Callable[[Gpu], Any]] = {
    "placement_rates": placement_rates,
    "pinned_memory": pinned_memory,
    "batch_sizes": batch_sizes,
    "cufile_opens": cufile_opens,
    "cufile_content": cufile_content,
}
