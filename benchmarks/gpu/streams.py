"""The first CUDA device, and one batched call of nvCOMP on bare streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gzarr.gpu.device.nvcomp_tables import CODECS

#: Bytes behind each output that a decoder must not touch.
CANARY = 64


class Gpu(NamedTuple):
    """A device and what drives it: gzarr's device, CuPy, gzarr's binding of nvCOMP."""

    device: Any
    cupy: Any
    nvcomp: Any


class Batch(NamedTuple):
    """The result of a batched call, on the host."""

    statuses: list[int]
    sizes: list[int]
    outputs: list[bytes]
    canary_dead: bool


def open_gpu() -> Gpu:
    """Open the first CUDA device. Raises: RuntimeError naming what is missing."""
    from gzarr.gpu.detection.detect import find_missing

    missing = find_missing()
    if missing is not None:
        raise RuntimeError(f"no usable GPU: {missing}")
    import cupy

    from gzarr.gpu.device import nvcomp
    from gzarr.gpu.device.cuda import CudaDevice

    return Gpu(CudaDevice(), cupy, nvcomp)


class Tables:
    """Bare streams on the device, with the tables and buffers of a batched call."""

    def __init__(self, gpu: Gpu, codec: str, streams: Sequence[bytes], room: Sequence[int], *, shift: int = 0) -> None:
        cupy, self.codec, self.n, self.room = gpu.cupy, codec, len(streams), [int(n) for n in room]
        sizes = np.array([len(s) for s in streams], np.int64)
        starts = _starts(sizes, 64, shift)
        staging_buffer = np.zeros(int(starts[-1] + sizes[-1]) + 128, np.uint8)
        for stream, start in zip(streams, starts.tolist(), strict=True):
            staging_buffer[start : start + len(stream)] = np.frombuffer(stream, np.uint8)
        wide = np.array(self.room, np.int64)
        self.places = _starts(wide + CANARY, 64, 0)
        self.source = cupy.asarray(staging_buffer)
        self.target = cupy.asarray(np.full(int(self.places[-1] + wide[-1]) + CANARY, 0xC7, np.uint8))
        self._tables = [
            cupy.asarray(table.astype(np.uint64))
            for table in (self.source.data.ptr + starts, sizes, self.target.data.ptr + self.places, wide)
        ]
        self.statuses = cupy.asarray(np.full(self.n, -1, np.int32))
        self.actual = cupy.asarray(np.full(self.n, 2**40, np.uint64))
        self.temp_nbytes = gpu.nvcomp.query_temp_nbytes(codec, self.n, max(self.room), sum(self.room))
        self.temp = cupy.empty(max(self.temp_nbytes, 1), np.uint8)

    def decode(self, gpu: Gpu) -> None:
        """Queue one call on the current stream."""
        source, nbytes, target, room = (table.data.ptr for table in self._tables)
        temp = self.temp.data.ptr, self.temp_nbytes
        results = target, self.actual.data.ptr, self.statuses.data.ptr, gpu.cupy.cuda.get_current_stream().ptr
        gpu.nvcomp.decompress_async(self.codec, gpu.nvcomp.StreamBatch(source, nbytes, self.n, *temp, *results), room)

    def decode_without_statuses(self, gpu: Gpu) -> None:
        """Queue it with NULL for the statuses, bypassing the checks of the binding."""
        source, nbytes, target, room = (table.data.ptr for table in self._tables)
        options = gpu.nvcomp._by_value(CODECS[self.codec].decompress_options)  # noqa: SLF001 - on purpose
        before = (source, nbytes, room, self.actual.data.ptr, self.n, self.temp.data.ptr, self.temp_nbytes, target)
        stream = gpu.cupy.cuda.get_current_stream().ptr
        gpu.nvcomp._call(self.codec, "DecompressAsync", *before, options, 0, stream)  # noqa: SLF001 - the same

    def result(self) -> Batch:
        """Wait for the call and download its result."""
        target, actual = self.target.get(), self.actual.get().astype(np.int64).tolist()
        outputs, dead = [], False
        for place, room, size in zip(self.places.tolist(), self.room, actual, strict=True):
            outputs.append(target[place : place + min(max(size, 0), room)].tobytes())
            dead |= bool((target[place + room : place + room + CANARY] != 0xC7).any())
        return Batch(self.statuses.get().tolist(), actual, outputs, dead)


def decoded(gpu: Gpu, codec: str, streams: Sequence[bytes], room: Sequence[int], *, shift: int = 0) -> Batch:
    """Decode bare streams in one call. shift: misalignment of every stream from a multiple of 64, in bytes."""
    tables = Tables(gpu, codec, streams, room, shift=shift)
    tables.decode(gpu)
    return tables.result()


def compressed(gpu: Gpu, codec: str, chunks: Sequence[bytes]) -> list[bytes]:
    """Compress chunks of one size with nvCOMP: for formats that nothing on the host writes."""
    cupy, nvcomp, n, nbytes = gpu.cupy, gpu.nvcomp, len(chunks), len(chunks[0])
    room = -(-nvcomp.compress_max_nbytes(codec, nbytes) // 256) * 256
    plain, out = cupy.asarray(np.frombuffer(b"".join(chunks), np.uint8)), cupy.empty(n * room, np.uint8)
    steps = np.arange(n, dtype=np.uint64)
    tables = [cupy.asarray(np.uint64(a.data.ptr) + steps * np.uint64(k)) for a, k in ((plain, nbytes), (out, room))]
    sizes, full = cupy.asarray(np.zeros(n, np.uint64)), cupy.asarray(np.full(n, nbytes, np.uint64))
    statuses = cupy.asarray(np.zeros(n, np.int32))
    temp_nbytes = nvcomp.compress_temp_nbytes(codec, n, nbytes, n * nbytes)
    temp = cupy.empty(max(temp_nbytes, 1), np.uint8)
    before = tables[0].data.ptr, full.data.ptr, n, temp.data.ptr, temp_nbytes, tables[1].data.ptr
    after = sizes.data.ptr, statuses.data.ptr, cupy.cuda.get_current_stream().ptr
    nvcomp.compress_async(codec, nvcomp.StreamBatch(*before, *after), nbytes)
    if statuses.get().any():
        raise RuntimeError(f"nvCOMP cannot compress with {codec}: statuses {set(statuses.get().tolist())}")
    host = out.get()
    return [host[i * room : i * room + size].tobytes() for i, size in enumerate(sizes.get().tolist())]


def _starts(sizes: np.ndarray, step: int, shift: int) -> np.ndarray:
    """Offsets of streams, each `shift` bytes behind a multiple of `step`."""
    ends = np.cumsum(-(-(sizes + shift) // step) * step)
    return np.concatenate([[0], ends[:-1]]).astype(np.int64) + shift
