"""The load that a read puts on a device: few calls, waits and bytes for each batch, however many chunks it has."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numcodecs import LZ4, Blosc, Delta, GZip, Zlib, Zstd

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import LocalStore, MemoryStore
from gzarr.testing import transfers
from tests.gpu.counted import CountingDevice, on_device
from tests.gpu.direct_files import DirectFiles

#: Smooth, with some noise: of Blosc's streams some are compressed, and some are stored.
DATA = np.cumsum(np.random.default_rng(0).integers(0, 9, (640, 64)), axis=0).astype("i4")
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}


class PerBatch(NamedTuple):
    """The load that one batch may put on the device.

    Attributes:
        options: of the array.
        calls: kernels and decoders, each once.
        uploads: copies to the device: one of the encoded chunks, and tables of kernels.
        waits: times that the host waits: one at the end, one more before decoding where a checksum guards a decoder.
        down: bytes that come back for each chunk, at most: 12 for each stream, 4 for each checksum.
    """

    options: dict[str, Any]
    calls: frozenset[str]
    uploads: int
    waits: int
    down: int


def calls(*names: str) -> frozenset[str]:
    return frozenset({*names, "launch copy_plain"})


def shuffled(*names: str) -> frozenset[str]:
    return frozenset({*names, "launch copy_bytes"})


COSTS = {
    "raw": PerBatch({"compressor": None}, calls(), 2, 1, 0),
    "blosc": PerBatch(
        {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)}, shuffled("launch copy_streams", "decode lz4"), 3, 1, 4 * 12
    ),
    "blosc zstd": PerBatch({"compressor": Blosc("zstd", 5, Blosc.SHUFFLE)}, shuffled("decode zstd"), 2, 1, 12),
    "blosclz": PerBatch({"compressor": Blosc("blosclz", 5)}, calls("launch copy_streams"), 4, 1, 0),
    "lz4": PerBatch({"compressor": LZ4()}, calls("decode lz4"), 2, 1, 12),
    "zstd": PerBatch({"compressor": Zstd(3)}, calls("decode zstd"), 2, 1, 12),
    "delta, zstd": PerBatch(
        {"compressor": Zstd(3), "filters": [Delta("i4")], "zarr_format": 2}, calls("decode zstd"), 2, 1, 12
    ),
    "gzip": PerBatch({"compressor": GZip()}, calls("decode deflate", "crc32"), 2, 1, 20),
    "zlib": PerBatch({"compressor": Zlib()}, calls("decode deflate", "launch weighted_sums"), 3, 1, 12 + 16 * 65),
    "crc32c": PerBatch({"codecs": [BYTES, ZSTD, {"name": "crc32c"}]}, calls("crc32c", "decode zstd"), 2, 2, 20),
    "sharded crc32c": PerBatch(
        {"codecs": [BYTES, ZSTD, {"name": "crc32c"}], "shards": (192, 64)}, calls("crc32c", "decode zstd"), 2, 2, 20
    ),
}
#: Costs where files are read straight into device memory: the device's facts about frames come back, and the memory
#: must be idle before a read.
DIRECT_COSTS = {
    "raw": COSTS["raw"]._replace(uploads=1, waits=2),
    "lz4": COSTS["lz4"]._replace(uploads=2, waits=3, down=16),
}
#: What is read: parts of chunks.
PARTS = np.s_[:, :60]
#: Bytes of tables for each chunk, and of a batch: see `gzarr.gpu.pipeline.launching`.
TABLE_NBYTES, BATCH_NBYTES = 480, 2048
#: The kernels of which each batch launches one.
PLACING = {"launch copy_plain", "launch copy_bytes"}
#: 1 batch of 10 or 80 chunks; some batches.
SHAPES = ((64, None), (8, None), (32, N_PIPELINE_SLOTS * 160_000))


def check(cost: PerBatch, open_on: Callable[[Any, int | None], gzarr.Array], where: Any, encoded_go_up: bool) -> None:
    """Read an array with different numbers of chunks and batches, and compare."""
    for rows, cap in SHAPES:
        store = MemoryStore() if where is None else LocalStore(where / str(rows))
        stored = gzarr.create_array(store, data=DATA, chunks=(rows, 64), overwrite=True, device="cpu", **cost.options)
        array = open_on(stored, cap)
        device = array.backend._device
        array[PARTS]
        device.taken()
        np.testing.assert_array_equal(array.backend._device.inner.download(array[PARTS]), DATA[PARTS])
        found = device.taken()
        n_chunks = len(DATA) // rows
        n_batches = sum(found[name] for name in cost.calls & PLACING or sorted(cost.calls)[:1])
        assert n_batches == 1 if cap is None else n_batches > 2
        made = {name: n for name, n in found.items() if name.startswith(("launch", "decode", "crc"))}
        assert made == dict.fromkeys(cost.calls, n_batches)
        assert (found["uploads"], found["waits"]) == (cost.uploads * n_batches, cost.waits * n_batches)
        assert found.get("bytes down", 0) <= cost.down * n_chunks
        encoded = sum(len(value) for key, value in stored.store.items() if key[-1].isdigit()) if encoded_go_up else 0
        if "blosclz" in str(cost.options):
            encoded += DATA.nbytes
        up = found["bytes up"] + found.get("table bytes up", 0)
        assert up <= encoded + TABLE_NBYTES * n_chunks + BATCH_NBYTES * n_batches
        if cap is None:  # else chance decides which pipeline slot takes how many batches
            assert found.get("allocations", 0) == found.get("pinned allocations", 0) == 0
        assert found["results"] == 1


@pytest.mark.parametrize("chain", COSTS)
def test_a_batch_is_few_calls_and_waits(chain) -> None:
    def open_on(stored: gzarr.Array, cap: int | None) -> gzarr.Array:
        backend = GpuBackend(CountingDevice(EmulatedDevice()), max_device_nbytes=cap)
        return gzarr.open_array(stored.store, mode="r", device=backend)

    check(COSTS[chain], open_on, None, encoded_go_up=True)


@pytest.mark.parametrize("chain", DIRECT_COSTS)
def test_a_batch_that_is_read_to_the_device_is_few_calls_and_waits(tmp_path, chain) -> None:
    def open_on(stored: gzarr.Array, cap: int | None) -> gzarr.Array:
        device = CountingDevice(EmulatedDevice())
        backend = GpuBackend(device, reader=DirectFiles().reader(), max_device_nbytes=cap)
        return gzarr.open_array(stored.store, mode="r", device=backend)

    check(DIRECT_COSTS[chain], open_on, tmp_path, encoded_go_up=False)


RECORDS = np.zeros(DATA.shape, [("a", "f4"), ("b", "i2")])
ROWS, COLUMNS = np.arange(300)[::-1] * 2 % 640, np.arange(300) % 64
ONES = np.ones(300, "i4")
BY_REFERENCE: dict[str, tuple[Callable[[Any], Any], int, dict[str, Any]]] = {
    "points": (lambda array: array.vindex[ROWS, COLUMNS], 1, {}),
    "a field": (lambda array: array["a"], 1, {"data": RECORDS}),
    "four shapes of chunks": (lambda array: array[...], 4, {"chunks": ((100, 540), (16, 48))}),
    "points written": (lambda array: array.vindex.__setitem__((ROWS, COLUMNS), on_device(ONES)), 5, {}),
    "a box written in part": (
        lambda array: array.__setitem__(np.s_[1:3, 1:], on_device(ONES[:126].reshape(2, 63))),
        5,
        {},
    ),
}


@pytest.mark.parametrize("kind", BY_REFERENCE)
def test_decoded_chunks_of_the_reference_path_stay_on_the_device(kind) -> None:
    """The host waits once for a read of chunks of one shape. A write waits for flags, sizes, bytes and two checks."""
    act, waits, options = BY_REFERENCE[kind]
    given = {"data": DATA, "chunks": (16, 16), "compressor": Blosc("lz4", 5, Blosc.SHUFFLE), **options}
    stored = gzarr.create_array(MemoryStore(), device="cpu", **given)
    backend = GpuBackend(CountingDevice(), small_reads=NEVER, small_writes=NEVER)
    array = gzarr.open_array(stored.store, device=backend)
    with transfers() as moved:
        act(array)
    encoded = sum(len(value) for value in stored.store.values())
    assert moved.inside.synchronizations.count == waits
    assert moved.inside.to_host.nbytes <= encoded // 2
    assert not moved.to_host
