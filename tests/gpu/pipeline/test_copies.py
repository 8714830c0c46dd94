"""Copies of chunks are made by tables: each chunk is decoded once, into its slot if nothing else is wanted of it."""

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import LZ4, Blosc, Zstd

import gzarr
from gzarr.chunk_io import engine
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.eligibility import DeviceJobs
from gzarr.storage import CountingStore, LocalStore, MemoryStore
from tests.properties.test_copies import check, job_for

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
    """By the reference path, too, which reads shards of a store without files."""
    files: dict[str, Any] = {"chunks": (10, 60), "compressor": LZ4(), "zarr_format": 2}
    shards: dict[str, Any] = {"chunks": (5, 60), "shards": (20, 60), "compressor": Zstd(1)}
    for store, options, n_chunks in ((LocalStore(tmp_path), files, 7), (MemoryStore(), shards, 14)):
        gzarr.create_array(store, data=DATA, **options, device="cpu")
        device = EmulatedDevice()
        decompress = device.decompress = Mock(side_effect=device.decompress)  # type: ignore[method-assign]
        order = np.random.default_rng(1).permutation(70)
        read(opened(store, device), DATA, [(i, 0) for i in order], (1, 60), "f4", 16)
        assert sum(call.args[1].size for call in decompress.call_args_list) == n_chunks
