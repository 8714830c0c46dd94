"""A second read of the same shape allocates nothing on a device but its result, whatever is read, and of what."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numcodecs import BZ2, LZ4, AsType, Blosc, Delta, FixedScaleOffset, GZip, PackBits, Quantize, Shuffle, Zlib, Zstd

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.memory import MIN_BLOCK_NBYTES
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import LocalStore, MemoryStore
from tests.gpu.counted import CountingDevice
from tests.gpu.direct_files import DirectFiles

DATA = np.cumsum(np.random.default_rng(0).integers(0, 9, (96, 40)), axis=0)
BYTES = {"name": "bytes", "configuration": {"endian": "big"}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": True}}
#: Data type and what else the array is made with.
CHAINS: dict[str, tuple[str, dict[str, Any]]] = {
    "raw": ("i4", {"compressor": None}),
    "big endian": (">i4", {"compressor": None, "zarr_format": 2}),
    "order F": ("i4", {"order": "F"}),
    "blosc": ("i4", {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)}),
    "blosc zlib bitshuffle": ("i2", {"compressor": Blosc("zlib", 5, Blosc.BITSHUFFLE)}),
    "blosclz, decoded on the host": ("i4", {"compressor": Blosc("blosclz", 5)}),
    "bz2, decoded on the host": ("i4", {"compressor": BZ2()}),
    "lz4": ("f8", {"compressor": LZ4()}),
    "zstd with checksum": ("i4", {"compressor": Zstd(1, checksum=True)}),
    "gzip": ("u2", {"compressor": GZip()}),
    "zlib": ("i4", {"compressor": Zlib()}),
    "crc32c": ("i4", {"codecs": [BYTES, ZSTD, {"name": "crc32c"}]}),
    "sharded": ("i4", {"codecs": [BYTES, ZSTD, {"name": "crc32c"}], "shards": (32, 20)}),
    "delta": ("i4", {"filters": [Delta("i4")]}),
    "delta of floats": ("f4", {"filters": [Delta("f4")]}),
    "delta, shuffle": ("i4", {"filters": [Delta("i4"), Shuffle(4)]}),
    "fixedscaleoffset": ("f8", {"filters": [FixedScaleOffset(offset=0, scale=10, dtype="f8", astype="i4")]}),
    "quantize": ("f8", {"filters": [Quantize(3, "f8", "f4")]}),
    "astype": ("f8", {"filters": [AsType("f4", "f8")]}),
    "packbits": ("?", {"filters": [PackBits()]}),
}


def stored(where: Any, chain: str) -> gzarr.Array:
    dtype, options = CHAINS[chain]
    data = DATA % 7 == 0 if dtype == "?" else DATA.astype(dtype)
    options = {"zarr_format": 2, **options} if "filters" in options else options
    array = gzarr.create_array(LocalStore(where), data=data, chunks=(16, 10), device="cpu", **options)
    array[:16, :10] = 0  # a chunk that is missing
    return array


def reads(array: gzarr.Array) -> Iterator[Any]:
    """Selections of every kind."""
    yield array[:]
    yield array[3:90:7, ::-1]
    yield array[20]
    yield array[20, 30]
    yield array[:16, :10]
    yield array[..., None, 3]
    yield array.oindex[[1, 40, 3], :]
    yield array.vindex[[1, 40, 3], [2, 3, 39]]
    yield array.get_mask_selection(np.asarray(DATA % 5 == 0))
    yield array.blocks[1:3, 0]
    yield array.astype("f8")[5:40]


def check(array: gzarr.Array, device: CountingDevice) -> None:
    n = len(list(reads(array)))
    device.taken()
    assert len(list(reads(array))) == n
    found = device.taken()
    assert found.get("allocations", 0) == found.get("pinned allocations", 0) == 0
    assert found["results"] == n


@pytest.mark.parametrize(
    ("chain", "reader"),
    [
        *((chain, "host") for chain in CHAINS),
        *((chain, "direct") for chain in ("raw", "blosc", "zstd with checksum", "sharded")),
    ],
)
def test_on_the_emulated_device(tmp_path, chain, reader) -> None:
    device = CountingDevice(EmulatedDevice())
    backend = GpuBackend(device, reader=DirectFiles().reader() if reader == "direct" else "host")
    check(gzarr.open_array(stored(tmp_path, chain).store, mode="r", device=backend), device)


class Keeping(MemoryStore):
    """Keeps the very buffers that it is given, which it must not."""

    def set_many(self, items: Any) -> None:
        for key, value in items:
            self._data[key] = value


@pytest.mark.parametrize("where", ["files", "memory", "cache"])
def test_writes_pin_memory_once_and_give_it_back(tmp_path, where) -> None:
    device = CountingDevice(EmulatedDevice())
    backend = GpuBackend(device, small_writes=NEVER)
    store: Any = LocalStore(tmp_path) if where == "files" else MemoryStore()
    if where == "cache":
        store = gzarr.storage.LRUStoreCache(store, 1 << 20)
    array = gzarr.create_array(store, shape=DATA.shape, dtype=DATA.dtype, chunks=(16, 10), device=backend)
    array[:] = DATA
    device.taken()
    for _ in range(3):
        array[:] = DATA
    assert device.taken().get("pinned allocations", 0) == 0
    backend.release()
    assert device.inner.pinned.live == 0
    np.testing.assert_array_equal(array[:], DATA)


def test_a_store_that_keeps_its_buffers_keeps_their_values() -> None:
    device = EmulatedDevice()
    store = Keeping()
    backend = GpuBackend(device, small_writes=NEVER)
    array = gzarr.create_array(store, shape=DATA.shape, dtype=DATA.dtype, chunks=(16, 10), device=backend)
    for row in range(0, 96, 16):
        array[row : row + 16] = DATA[row : row + 16]
    np.testing.assert_array_equal(array[:], DATA)


@pytest.mark.parametrize(
    ("where", "kind", "pipeline_slot"),
    [
        ("files", "raw", 16 << 20),
        ("files", "zstd", 32 << 20),
        ("files", "sharded", 16 << 20),
        ("memory", "raw", 16 << 20),
    ],
)
def test_pinned_memory_is_little_more_than_the_encoded_batches_in_flight(tmp_path, where, kind, pipeline_slot) -> None:
    """Were staging buffers doubled, or tables given one of their own, it would be twice to twelve times as much."""
    data = np.random.default_rng(0).integers(0, 1 << 20, (48, 128, 1024), "i4")  # 24 MiB
    options: dict[str, Any] = {"compressor": Zstd(1) if kind == "zstd" else None}
    if kind == "sharded":
        options["shards"] = (4, 128, 1024)
    store: Any = LocalStore(tmp_path) if where == "files" else MemoryStore()
    stored = gzarr.create_array(store, data=data, chunks=(1, 64, 512), device="cpu", **options)
    encoded = sum(stored.store.getsize(key) or 0 for key in stored.store if key.startswith("c/"))
    device = EmulatedDevice()
    backend = GpuBackend(device, max_device_nbytes=N_PIPELINE_SLOTS * pipeline_slot, reader="host")
    array = gzarr.open_array(store, mode="r", device=backend)
    for _ in range(2):
        np.testing.assert_array_equal(array[:], data)
        io = array._io
        context = backend.batch_nchunks(io.only_chain, array.nchunks, io.chunk_nbytes, writing=False)
        assert context * N_PIPELINE_SLOTS < array.nchunks
        tables = N_PIPELINE_SLOTS * MIN_BLOCK_NBYTES
        assert device.pinned.peak <= 1.3 * N_PIPELINE_SLOTS * context * encoded / array.nchunks + tables
    live = device.pinned.live
    backend.release()
    assert device.pinned.live == 0 < live
