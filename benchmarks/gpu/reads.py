"""Questions about whole reads and writes on hardware: host or device for small ones, which reader, one batch or two."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs import Blosc, Zstd

import gzarr
from benchmarks.gpu.measure import wall_seconds
from benchmarks.gpu.sizes import rounds, sized_side
from benchmarks.gpu.stages import batches_at_once, batches_of
from benchmarks.gpu.streams import Gpu
from gzarr.codecs import BloscCodec, NumcodecsCodec
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER, Crossover, crossover_for
from gzarr.gpu.reading.select import choose_reader, find_missing_kvikio, gds_is_active

#: Everything is decoded on the host.
ALWAYS = Crossover(nchunks=1 << 40, nbytes=1 << 60)
#: Chunks of the small reads: how many, and bytes of each.
NCHUNKS, CHUNK_NBYTES = (1, 2, 4, 8, 16, 32, 64), (4 << 10, 32 << 10, 256 << 10)
#: Rows and columns of the array that readers and pipeline slots read, of float32; batches that pipeline slots take for
#: it.
SIDE, N_BATCHES = sized_side(8192), 8
#: Rounds of one read or write, and their limit in seconds; small ones have many rounds.
ROUNDS, LIMIT_S, SMALL_LIMIT_S = rounds(20), 0.3, 0.1
COMPRESSORS = {"none": None, "blosc-lz4": Blosc("lz4", 5, Blosc.SHUFFLE), "zstd": Zstd(1)}
#: Codecs whose files either reader brings straight to the device.
FILES: dict[str, list[Any]] = {
    "none": [],
    "blosc-lz4": [BloscCodec("lz4", 5, "shuffle")],
    "lz4": [NumcodecsCodec("lz4")],
}


def small_reads(gpu: Gpu) -> Any:
    """Microseconds of reads of few chunks, decoded on the host and on the device."""
    answer: dict[str, Any] = {"now": str(crossover_for(gpu.device))}
    for codec in ("none", "blosc-lz4", "zstd"):
        for nbytes in CHUNK_NBYTES:
            data = _data(max(NCHUNKS) * nbytes // 4)
            stored = gzarr.create_array(
                data=data, chunks=(nbytes // 4,), compressor=COMPRESSORS[codec], zarr_format=2, device="cpu"
            )
            answer[f"{codec}, chunks of {nbytes}"] = rows = {}
            for n in NCHUNKS:
                part = slice(0, n * nbytes // 4)
                options = {"reader": "host", "limit_s": SMALL_LIMIT_S}
                times = {
                    name: _timed(gpu, stored.store, data, part, small_reads=limits, **options)[0] * 1e6
                    for name, limits in (("host", ALWAYS), ("device", NEVER))
                }
                rows[n] = {**times, "device_is_faster": times["device"] < times["host"]}
    return answer


def small_writes(gpu: Gpu) -> Any:
    """Microseconds of writes of few chunks from the device, encoded on it or downloaded and encoded on the host."""
    answer: dict[str, Any] = {"now": str(crossover_for(gpu.device))}
    for codec in ("none", "blosc-lz4", "zstd"):
        for nbytes in CHUNK_NBYTES:
            data = _data(max(NCHUNKS) * nbytes // 4)
            there = gpu.cupy.asarray(data)
            layout = {"chunks": (nbytes // 4,), "compressor": COMPRESSORS[codec], "zarr_format": 2}
            on_host = gzarr.create_array({}, shape=data.shape, dtype=data.dtype, device="cpu", **layout)
            on_device = gzarr.open_array(on_host.store, mode="r+", device=GpuBackend(gpu.device, reader="host"))
            answer[f"{codec}, chunks of {nbytes}"] = rows = {}
            for n in NCHUNKS:
                part = slice(0, n * nbytes // 4)
                host = _written(gpu, on_host, part, data, lambda p=part, a=there: gpu.cupy.asnumpy(a[p]))
                device = _written(gpu, on_device, part, data, lambda p=part, a=there: a[p])
                rows[n] = {"host": host * 1e6, "device": device * 1e6, "device_is_faster": device < host}
    return answer


def _written(gpu: Gpu, array: Any, part: slice, data: np.ndarray, value: Callable[[], Any]) -> float:
    """Seconds of a write, after a comparison of what it stored."""

    def write() -> None:
        array[part] = value()

    array[part] = 0
    write()
    stored = gzarr.open_array(array.store, mode="r", device="cpu")
    if not np.array_equal(stored[part], data[part]):
        raise AssertionError("what was written is wrong")
    return wall_seconds(write, gpu.cupy.cuda.get_current_stream().synchronize, ROUNDS, SMALL_LIMIT_S)[0]


def auto_reader(gpu: Gpu) -> Any:
    """The default reader and the reason for it; what KvikIO lacks."""
    return {"auto": choose_reader("auto")[1]._asdict(), "kvikio lacks": find_missing_kvikio()}


def readers(gpu: Gpu) -> Any:
    """Local files, in the page cache, through either reader."""
    missing = find_missing_kvikio()
    names = ["host"] if missing else ["host", "kvikio"]
    answer: dict[str, Any] = {"kvikio lacks": missing}
    answer["state"] = None if missing else "gds" if gds_is_active() else "compat"
    data = _square()
    with tempfile.TemporaryDirectory() as folder:
        for codec, compressors in FILES.items():
            for side in sorted({max(SIDE // 64, 32), SIDE // 8}):
                for layout, shards in (("plain", None), ("sharded", (SIDE // 4, SIDE // 4))):
                    path = Path(folder) / f"{codec} {side} {layout}"
                    gzarr.create_array(
                        path, data=data, chunks=(side, side), shards=shards, compressors=compressors, device="cpu"
                    )
                    for name in names:
                        seconds, array = _timed(gpu, path, data, np.s_[:, :], reader=name, small_reads=NEVER)
                        failure = getattr(array.backend._reader, "failure", None)  # noqa: SLF001 - a trial
                        row = {"GB_per_s": data.nbytes / seconds / 1e9, "host_round_trip": failure}
                        answer[f"{codec}, {4 * side * side} bytes, {layout}, {name}"] = row
    return answer


def pipeline_slots(gpu: Gpu) -> Any:
    """Whole reads in several batches, of which one, two or three are in flight."""
    data = _square()
    answer: dict[str, Any] = {}
    for codec in ("none", "blosc-lz4", "zstd"):
        stored = gzarr.create_array(
            data=data, chunks=(SIDE // 32,) * 2, compressor=COMPRESSORS[codec], zarr_format=2, device="cpu"
        )
        for n in (1, 2, 3):
            with batches_at_once(n), batches_of(data.nbytes // N_BATCHES):
                seconds, array = _timed(gpu, stored.store, data, np.s_[:, :], reader="host", small_reads=NEVER)
                io, nchunks = array._io, array.nchunks  # noqa: SLF001 - what the engine asks
                size = array.backend.batch_nchunks(io.only_chain, nchunks, io.chunk_nbytes, writing=False)
                batches = -(-nchunks // size)
            answer[f"{codec}, {n} at once"] = {"GB_per_s": data.nbytes / seconds / 1e9, "batches": batches}
    return answer


def _timed(
    gpu: Gpu, store: Any, data: np.ndarray, part: Any, *, limit_s: float = LIMIT_S, **options: Any
) -> tuple[float, Any]:
    """(seconds of a read, the array), after a comparison of the answer."""
    array = gzarr.open_array(store, mode="r", device=GpuBackend(gpu.device, **options))
    if not np.array_equal(gpu.cupy.asnumpy(array[part]), data[part]):
        raise AssertionError("the answer is wrong")
    wait = gpu.cupy.cuda.get_current_stream().synchronize
    return wall_seconds(lambda: array[part], wait, ROUNDS, limit_s)[0], array


def _data(n: int) -> np.ndarray:
    """A random walk of n float32, rounded like measurements."""
    walk = np.cumsum(np.random.default_rng(0).normal(size=n)).astype("f4")
    return np.round(walk * 64) / 64


def _square() -> np.ndarray:
    return np.tile(_data(SIDE), (SIDE, 1)) + np.arange(SIDE, dtype="f4")[:, None]


QUESTIONS: dict[str, Callable[[Gpu], Any]] = {
    "auto_reader": auto_reader,
    "small_reads": small_reads,
    "small_writes": small_writes,
    "readers": readers,
    "pipeline_slots": pipeline_slots,
}
