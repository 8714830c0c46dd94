"""Reads and writes that launch every kernel, on a device that interprets some warps of each launch."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numcodecs import Blosc, Delta, FixedScaleOffset, Fletcher32, Shuffle, Zlib, Zstd

import gzarr
from gzarr.cpu.windows import reduce_by_numpy
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import LocalStore
from tests.gpu.direct_files import DirectFiles
from tests.gpu.ptx.capture import PtxDevice, Sample, edges

BITS = Blosc("zstd", 5, Blosc.BITSHUFFLE)
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


class Case(NamedTuple):
    """An array and what is selected of it; direct: read straight from files to the device."""

    options: dict[str, Any]
    shape: tuple[int, ...] = (150, 70)
    chunks: tuple[int, ...] = (40, 32)
    dtype: str = "f4"
    select: Callable[[Any], Any] = lambda array: array[...]
    direct: bool = False


def points(array: Any) -> Any:
    """Single elements."""
    rows, columns = np.arange(140)[::-1] % 137, np.arange(140) % 67
    return array.vindex[rows, columns] if isinstance(array, gzarr.Array) else array[rows, columns]


def lists(array: Any) -> Any:
    """Rows and columns, each in an order of their own."""
    index = tuple(np.arange(n)[::-1] * 7 % n for n in array.shape)
    return array.oindex[index] if isinstance(array, gzarr.Array) else array[np.ix_(*index)]


def read(case: Case, folder: Path, sample: Sample = edges) -> PtxDevice:
    """Read an array, and compare it with its data."""
    data = values(case)
    stored = gzarr.create_array(
        LocalStore(folder), data=data, chunks=case.chunks, device="cpu", overwrite=True, **case.options
    )
    device = PtxDevice(sample)
    reader = DirectFiles().reader() if case.direct else "host"
    array = gzarr.open_array(stored.store, mode="r", device=GpuBackend(device, reader=reader, small_reads=NEVER))
    np.testing.assert_array_equal(case.select(array), case.select(stored[...]))
    return device


def write(case: Case, folder: Path, sample: Sample = edges) -> PtxDevice:
    """Write an array, all and some of it, and compare what the CPU reads."""
    data = values(case)
    device = PtxDevice(sample)
    backend = GpuBackend(device, small_reads=NEVER, small_writes=NEVER)
    stored = gzarr.create_array(
        LocalStore(folder),
        shape=data.shape,
        dtype=data.dtype,
        chunks=case.chunks,
        overwrite=True,
        device=backend,
        write_empty_chunks=False,
        **case.options,
    )
    stored[...] = data
    some = tuple(slice(n // 5, n // 5 * 4, 1) for n in data.shape)
    stored[some] = data[some] * 2
    wanted = gzarr.create_array(data=data, chunks=case.chunks, device="cpu", **case.options)
    wanted[some] = data[some] * 2
    places = tuple(np.arange(10) * 3 % n for n in data.shape)
    stored.vindex[places] = data[places]
    wanted.vindex[places] = data[places]
    apart = tuple(np.array([n - 1, 0, n // 2]) for n in data.shape)
    stored.oindex[apart] = data[np.ix_(*apart)] * 3
    wanted.oindex[apart] = data[np.ix_(*apart)] * 3
    np.testing.assert_array_equal(gzarr.open_array(stored.store, mode="r", device="cpu")[...], wanted[...])
    return device


def device_like(shape: Sequence[int], dtype: str) -> np.ndarray:
    """An array that begins where memory of a GPU does, at a multiple of 256 bytes: costs depend on it."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def reduce(dtype: str, shape: tuple[int, ...], factors: tuple[int, ...], how: str, sample: Sample = edges) -> PtxDevice:
    """Reduce windows of some numbers, and compare them with NumPy."""
    device = PtxDevice(sample)
    block = device_like(shape, dtype)
    block[...] = np.random.default_rng(3).integers(0, 7, shape)
    out, wanted = (
        device_like([-(-n // factor) for n, factor in zip(shape, factors, strict=True)], dtype) for _ in "ab"
    )
    GpuBackend(device).reduce_windows(block, factors, how, out)
    reduce_by_numpy(block, factors, how, wanted)
    np.testing.assert_array_equal(out, wanted)
    return device


def values(case: Case) -> np.ndarray:
    """Small numbers with some noise, and chunks that are empty."""
    rng = np.random.default_rng(3)
    data = rng.integers(-50, 50, case.shape).astype(case.dtype)
    data[tuple(slice(0, n) for n in case.chunks)] = 0
    return data


READS = {
    "plain": Case({"compressor": None}),
    "bytes": Case({"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)}),
    "bits": Case({"compressor": Blosc("zstd", 5, Blosc.BITSHUFFLE)}),
    "odd": Case({"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)}, (97, 33), (31, 13), "c16"),
    "many axes": Case({"compressor": Zstd(1)}, (12, 10, 9, 8), (5, 4, 3, 8), "i2"),
    "order F": Case({"compressor": Zstd(1), "order": "F", "zarr_format": 2}),
    "bits, order F": Case(
        {"compressor": Blosc("zstd", 5, Blosc.BITSHUFFLE), "order": "F", "zarr_format": 2}, dtype="f8"
    ),
    "bits, lists": Case({"compressor": Blosc("zstd", 5, Blosc.BITSHUFFLE)}, dtype="c16", select=lists),
    "bits, points": Case({"compressor": Blosc("zstd", 5, Blosc.BITSHUFFLE)}, dtype="u2", select=points),
    "order F of bytes": Case({"compressor": Blosc("zstd"), "order": "F", "zarr_format": 2}, dtype="u2"),
    "steps": Case({"compressor": Zstd(1)}, select=lambda array: array[::3, ::-2]),
    "lists": Case({"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)}, select=lists),
    "points": Case({"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)}, select=points),
    "big endian": Case({"compressor": Zstd(1), "zarr_format": 2}, dtype=">f8"),
    "sharded": Case(
        {"codecs": [BYTES, {"name": "zstd", "configuration": {"level": 1, "checksum": True}}], "shards": (80, 64)}
    ),
    "blosc, direct": Case({"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)}, direct=True),
    "blosc zstd, direct": Case({"compressor": Blosc("zstd", 5, Blosc.SHUFFLE)}, direct=True),
    "adler": Case({"compressor": Zlib()}),
    "fletcher": Case({"compressor": Zstd(1), "filters": [Fletcher32()], "zarr_format": 2}),
    "delta": Case({"compressor": Zstd(1), "filters": [Delta("f4")], "zarr_format": 2}),
    "scaled": Case({"compressor": Zstd(1), "filters": [FixedScaleOffset(0.5, 3, "f4", "i2")], "zarr_format": 2}),
    "shuffle": Case({"compressor": Zstd(1), "filters": [Shuffle(4)], "zarr_format": 2}),
    "delta, shuffle": Case({"compressor": Zstd(1), "filters": [Delta("f4"), Shuffle(4)], "zarr_format": 2}),
    "delta, odd shuffle": Case({"compressor": Zstd(1), "filters": [Delta("f4"), Shuffle(5)], "zarr_format": 2}),
}
#: Types and shapes of blocks, windows, and what is made of them.
REDUCES = {
    "images": ("u1", (64, 256), (2, 2), "mean"),
    "volumes": ("u2", (16, 32, 64), (2, 2, 2), "mean"),
    "floats": ("f4", (16, 32, 64), (2, 2, 2), "mean"),
    "halves": ("f2", (33, 70), (3, 2), "mean"),
    "large integers": ("i8", (33, 70), (3, 2), "mean"),
    "labels": ("u4", (9, 22, 33), (2, 2, 2), "mode"),
    "median": ("f8", (20, 33), (2, 3), "median"),
    "max": ("i2", (20, 33), (2, 3), "max"),
}
WRITES = {name: case for name, case in READS.items() if not {"steps", "lists", "points", "direct"} & set(name.split())}
