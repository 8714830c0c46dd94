"""Copies of chunks are made by tables: each chunk is decoded once, into its slot if nothing else is wanted of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import LZ4, Blosc, Zlib, Zstd

import gzarr
from gzarr.chunk_io import engine
from gzarr.errors import ChunkError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.eligibility import DeviceJobs
from gzarr.storage import CountingStore, LocalStore, MemoryStore
from tests.properties.test_copies import check, job_for

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

DATA = np.cumsum(np.random.default_rng(5).integers(0, 9, (70, 60)), axis=0).astype("i4")
CHAINS: dict[str, dict[str, Any]] = {
    "none": {"compressor": None},
    "zstd, sharded": {"compressor": Zstd(1), "shards": (21, 33)},
    "blosc": {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)},
    "bits, sharded": {"compressor": Blosc("lz4", 5, Blosc.BITSHUFFLE), "shards": (14, 22)},
    "lz4": {"compressor": LZ4()},
    "F": {"compressor": Zstd(1), "order": "F", "zarr_format": 2},
    "big": {"compressor": Zstd(1), "dtype": ">i4", "zarr_format": 2},
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The reads that were taken, or why they were not."""
    found: list[Any] = []
    take = DeviceJobs.take_read
    monkeypatch.setattr(DeviceJobs, "take_read", lambda *args: found.append(take(*args)) or found[-1])
    return found


def opened(store: Any, device: Any = None, **options: Any) -> gzarr.Array:
    return gzarr.open_array(store, mode="r", device=GpuBackend(device or EmulatedDevice(), **options))


def read(array: gzarr.Array, data: np.ndarray, starts: Any, size: Any, dtype: Any = None, rows: int = 2) -> None:
    """Read boxes into slots in reverse order, in blocks of some rows, and compare them."""
    n_blocks = -(-len(starts) // rows)
    slots = list(range(n_blocks * rows))[::-1][: len(starts)]
    wanted = data if dtype is None else data.astype(dtype)
    job = job_for(array, starts, size, slots, (wanted.dtype.newbyteorder("="), n_blocks, rows))
    engine.read([job])
    check(job, wanted, starts, slots)


@pytest.mark.parametrize("chain", CHAINS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_boxes_are_those_of_numpy(chain: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    store = LocalStore(tmp_path_factory.mktemp("boxes"))
    array = gzarr.create_array(store, data=DATA, **{"chunks": (7, 11), **CHAINS[chain]}, fill_value=3, device="cpu")
    for place in data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=20)):
        array[tuple(slice(at * n, (at + 1) * n) for at, n in zip(place, (7, 11), strict=True))] = 3
    size = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 25)))
    starts = [tuple(data.draw(st.integers(0, n - m)) for n, m in zip(DATA.shape, size, strict=True)) for _ in range(9)]
    dtype = data.draw(st.sampled_from([None, "f4", "i8", "i2"]))
    cap = data.draw(st.sampled_from([None, N_PIPELINE_SLOTS * 30_000]))
    read(opened(store, max_device_nbytes=cap), array[:], starts, size, dtype, data.draw(st.integers(1, 9)))


@pytest.mark.parametrize("chain", CHAINS)
def test_tables_are_used(tmp_path: Path, taken: list[Any], chain: str) -> None:
    gzarr.create_array(LocalStore(tmp_path), data=DATA, **{"chunks": (7, 11), **CHAINS[chain]}, device="cpu")
    read(opened(LocalStore(tmp_path)), DATA, [(i, 5) for i in (3, 0, 9, 60, 33)], (4, 50))
    assert not any(isinstance(job, str) for job in taken)


def test_stores_without_files_are_read_by_tables(taken: list[Any]) -> None:
    store = CountingStore(MemoryStore())
    gzarr.create_array(store, data=DATA, chunks=(7, 11), device="cpu")
    array = opened(store)
    store.reset()
    read(array, DATA, [(i, 0) for i in (3, 0, 9, 3, 33, 1)], (1, 60))
    assert [key for key, n in Counter(request.key for request in store.requests).items() if n > 1] == []
    assert not any(isinstance(job, str) for job in taken)


def test_a_chunk_of_many_samples_is_decoded_once(tmp_path: Path) -> None:
    gzarr.create_array(LocalStore(tmp_path), data=DATA, chunks=(10, 60), compressor=LZ4(), zarr_format=2, device="cpu")
    device, statuses = EmulatedDevice(), []
    real = device.decompress
    device.decompress = lambda *args, **named: statuses.append(args[1].size) or real(*args, **named)  # type: ignore[method-assign]
    order = np.random.default_rng(1).permutation(70)
    read(opened(LocalStore(tmp_path), device), DATA, [(i, 0) for i in order], (1, 60), "f4", 16)
    assert sum(statuses) == 7


def test_the_reference_path_decodes_a_chunk_once_too() -> None:
    """Shards of a store without files are its."""
    store = MemoryStore()
    gzarr.create_array(store, data=DATA, chunks=(5, 60), shards=(20, 60), compressor=Zstd(1), device="cpu")
    device, statuses = EmulatedDevice(), []
    real = device.decompress
    device.decompress = lambda *args, **named: statuses.append(args[1].size) or real(*args, **named)  # type: ignore[method-assign]
    order = np.random.default_rng(1).permutation(70)
    read(opened(store, device), DATA, [(i, 0) for i in order], (1, 60), "f4", 16)
    assert sum(statuses) == 14


def test_a_chunk_that_is_one_sample_is_decoded_into_its_slot(tmp_path: Path) -> None:
    gzarr.create_array(LocalStore(tmp_path), data=DATA, chunks=(1, 60), compressor=Zlib(), zarr_format=2, device="cpu")
    device = EmulatedDevice()
    array = opened(LocalStore(tmp_path), device)
    read(array, DATA, [(i, 0) for i in (33, 2, 69, 5, 0, 8, 1)], (1, 60))
    assert "copy_plain" not in device.launches
    device.launches.clear()
    read(array, DATA, [(i, 0) for i in (33, 2, 69, 33, 0)], (1, 60))  # one of them twice
    assert device.launches.count("copy_plain") == 1


@pytest.mark.parametrize("shards", [None, (21, 33)])
def test_missing_chunks_are_filled(tmp_path: Path, shards: Any) -> None:
    store = LocalStore(tmp_path)
    array = gzarr.create_array(store, shape=(70, 60), chunks=(7, 11), shards=shards, dtype="i4", fill_value=3)
    array[30:, 30:] = DATA[30:, 30:]
    for dtype in (None, "f8"):
        read(opened(store), array[:], [(0, 0), (20, 20), (32, 40), (62, 52)], (8, 8), dtype)


@pytest.mark.parametrize("dtype", ["V3", [("a", "i2"), ("b", "u1")], "f2", "c16", "?"])
def test_elements_of_any_size_are_copied(tmp_path: Path, dtype: Any) -> None:
    dtype = np.dtype(dtype)
    data = np.random.default_rng(2).integers(0, 2, (40, 30 * dtype.itemsize), np.uint8).view(dtype)
    gzarr.create_array(LocalStore(tmp_path), data=data, chunks=(7, 11), compressor=Blosc("lz4", 5, 1), device="cpu")
    read(opened(LocalStore(tmp_path)), data, [(0, 0), (3, 9), (33, 22), (8, 8)], (7, 8))


@pytest.mark.parametrize("ndim", [1, 4, 6])
@pytest.mark.parametrize("missing", [False, True])
def test_boxes_of_many_axes_are_copied(tmp_path: Path, ndim: int, missing: bool) -> None:
    data = np.arange(1, 1 + 5**ndim, dtype="u2").reshape((5,) * ndim)
    if missing:
        data[(slice(3),) * ndim] = 0
    gzarr.create_array(LocalStore(tmp_path), data=data, chunks=(3,) * ndim, device="cpu")
    random = np.random.default_rng(ndim)
    size = (2, 3, 2, 3, 2, 3)[:ndim]
    starts = [tuple(int(random.integers(0, 6 - n)) for n in size) for _ in range(7)]
    read(opened(LocalStore(tmp_path)), data, starts, size, None, 3)


def test_blocks_may_have_strides_of_their_own(tmp_path: Path) -> None:
    data = np.arange(6**5, dtype="i4").reshape((6,) * 5)
    gzarr.create_array(LocalStore(tmp_path), data=data, chunks=(4,) * 5, device="cpu")
    starts, slots, size = [(0, 1, 2, 1, 0), (2, 2, 2, 2, 2), (1, 0, 1, 0, 1)], [0, 2, 1], (3,) * 5
    job = job_for(opened(LocalStore(tmp_path)), starts, size, slots, (np.dtype("i4"), 2, 2))
    other = np.empty((3,) * 5 + (2,), "i4")
    job = job._replace(out=(job.out[0], np.moveaxis(other, -1, 0)))
    engine.read([job])
    check(job, data, starts, slots)


@pytest.mark.parametrize("shards", [None, (14, 22)])
def test_a_damaged_chunk_is_named_and_the_others_are_read(tmp_path: Path, shards: Any) -> None:
    store = LocalStore(tmp_path)
    array = gzarr.create_array(store, data=DATA, chunks=(7, 11), shards=shards, compressor=Zstd(1), device="cpu")
    key = "c/2/1" if shards is None else "c/1/0"
    data = bytearray(store[key])
    data[:2000] = bytes(len(data[:2000]))
    store[key] = bytes(data)
    starts = [(14, 12), (0, 44), (30, 30), (63, 0)]
    with pytest.raises(ChunkError, match=key):
        read(opened(store), DATA, starts, (2, 2))
    store[key] = b"" if shards is None else bytes(len(data))
    with pytest.raises(ChunkError, match=key):
        read(opened(store), DATA, starts, (2, 2))
    del store[key]
    array = gzarr.open_array(store, mode="r", device="cpu")
    read(opened(store), array[:], starts, (2, 2))
