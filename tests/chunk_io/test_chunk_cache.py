"""Decoded chunks kept in memory: fetched once, read many times, and never older than what this process has written."""

import pickle
import threading
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gzarr
from gzarr.chunk_io.chunk_cache import ChunkCache
from gzarr.devices import backend_for
from gzarr.errors import DeviceError
from gzarr.hierarchy.options import OpenedWith, OpenOptions
from gzarr.storage import CountingStore, LocalStore, MemoryStore, ObjectStore, ZipStore, invalidation

VALUES = np.arange(10_000, dtype="i4").reshape(100, 100)


def made(store=None, **kwargs):
    store = MemoryStore() if store is None else store
    gzarr.array(VALUES, store=store, **{"chunks": (10, 10), **kwargs})
    return store


STORES = pytest.mark.parametrize(
    "make",
    [
        lambda _: MemoryStore(),
        lambda _: MemoryStore(UserDict()),
        lambda tmp: LocalStore(tmp / "x"),
        lambda tmp: ZipStore(tmp / "x.zip", mode="w"),
    ],
    ids=["memory", "no tokens", "local", "zip"],
)


@pytest.mark.parametrize("options", [{}, {"shards": (50, 20)}, {"zarr_format": 2, "order": "F"}, {"compressors": None}])
def test_chunks_are_fetched_and_decoded_once(options):
    store = CountingStore(made(**options))
    cache = ChunkCache(2**20)
    array = gzarr.open_array(store, "r", chunk_cache=cache)
    assert (array[3:37, 5:5] == VALUES[3:37, 5:5]).all()
    assert (array[3:37, 5:88] == VALUES[3:37, 5:88]).all()
    assert (cache.hits, cache.misses, cache.nbytes) == (0, 36, 36 * 400)
    store.reset()
    assert (array[0:40, 0:90] == VALUES[0:40, 0:90]).all()
    assert array[7, 8] == VALUES[7, 8]
    assert (array.oindex[[0, 3, 39], 80:90:3] == VALUES[[0, 3, 39], 80:90:3]).all()
    assert (array.vindex[[5, 33], [5, 61]] == VALUES[[5, 33], [5, 61]]).all()
    assert store.requests == []
    assert cache.misses == 36
    assert (array[...] == VALUES).all()
    assert (cache.misses, cache.nbytes) == (100, VALUES.nbytes)


def test_the_limit_holds_and_the_least_recently_used_goes_first():
    store = made()
    cache = ChunkCache(1000)
    array = gzarr.open_array(store, chunk_cache=cache)
    for column in (0, 10, 0, 20, 0, 10):
        assert array[0, column] == column
    assert (cache.hits, cache.misses, cache.nbytes) == (2, 4, 800)
    assert (gzarr.open_array(store, chunk_cache=100)[...] == VALUES).all()
    cache.clear()
    assert cache.nbytes == 0
    assert repr(cache) == "<ChunkCache 0 of 1000 bytes, 2 hits, 4 misses>"


def test_a_cache_is_shared_by_arrays_groups_and_views():
    store = MemoryStore()
    root = gzarr.group(store)
    for name in "ab":
        root.create_array(name, data=VALUES + ord(name), chunks=(50, 50))
    cache = ChunkCache(2**20)
    group = gzarr.open_group(store, "r", chunk_cache=cache)
    assert (group["a"][...] == VALUES + ord("a")).all()
    assert (group["b"][...] == VALUES + ord("b")).all()
    assert (gzarr.open(store, "r", path="a", chunk_cache=cache)[...] == VALUES + ord("a")).all()
    assert (cache.hits, cache.misses) == (4, 8)
    assert (group["a"].astype("f8")[...] == VALUES + ord("a")).all()
    assert cache.hits == 8
    viewed = group["a"].view(dtype="u4")[...]
    assert viewed.dtype == "u4"
    assert cache.misses == 12
    made_here = root.create_array("c", data=VALUES, chunks=(50, 50), chunk_cache=cache)
    assert (made_here[...] == VALUES).all()
    assert cache.misses == 16


def test_missing_chunks_and_fields_are_read_as_ever():
    store = MemoryStore()
    fields = np.zeros(20, [("a", "i4"), ("b", "f8")])
    fields["a"], fields["b"] = np.arange(20), -np.arange(20)
    array = gzarr.create_array(store, shape=40, dtype=fields.dtype, chunks=5, fill_value=(7, 8.0))
    array[:20] = fields
    cached = gzarr.open_array(store, chunk_cache=2**20)
    for _ in range(2):
        assert (cached[:20] == fields).all()
        assert cached["a"].tolist() == [*range(20), *[7] * 20]
        assert (cached[["b"]]["b"][:20] == fields["b"]).all()
        assert cached[30].item() == (7, 8.0)


def test_what_is_read_can_be_changed_without_changing_what_is_kept():
    array = gzarr.open_array(made(chunks=(100, 100), compressors=None), chunk_cache=2**20)
    for _ in range(3):
        read = array[...]
        assert (read == VALUES).all()
        read[...] = -1
    part = np.empty((100, 100), "i4")
    array.get_basic_selection(out=part)
    part[...] = -2
    assert (array[...] == VALUES).all()


def test_objects_are_not_kept():
    values = np.array(["a", "bb", "", "ccc"], object)
    array = gzarr.array(values, dtype=str, chunks=2)
    cache = ChunkCache(2**20)
    cached = gzarr.open_array(array.store, chunk_cache=cache)
    assert cached[...].tolist() == cached[...].tolist() == values.tolist()
    assert cache.nbytes == 0


# -- never stale ---------------------------------------------------------------------------------------------------

CHANGES = {
    "part": lambda a: a.__setitem__((slice(3, 7), slice(3, 7)), -1),
    "whole": lambda a: a.__setitem__(..., -1),
    "to fill": lambda a: a.__setitem__((slice(0, 30), slice(0, 30)), 0),
    "points": lambda a: a.vindex.__setitem__(([0, 99], [0, 99]), -1),
    "shrink and grow": lambda a: (a.resize(15, 15), a.resize(100, 100)),
    "append": lambda a: a.append(np.full((5, 100), 3, "i4")),
    "overwrite": lambda a: gzarr.array(VALUES[::-1], chunks=(10, 10), store=a.store, overwrite=True),
    "other chunks": lambda a: gzarr.array(VALUES[::-1], chunks=(10, 20), store=a.store, overwrite=True),
}


@STORES
@pytest.mark.parametrize("shards", [None, (50, 50)])
@pytest.mark.parametrize("change", CHANGES)
def test_writes_by_any_array_of_the_process_are_seen(make, shards, change, tmp_path):
    store = made(make(tmp_path), shards=shards)
    cached = gzarr.open_array(store, "r+", chunk_cache=2**20)
    assert (cached[...] == VALUES).all()
    for writer in (gzarr.open_array(store, "r+"), cached):
        CHANGES[change](writer)
        expected = gzarr.open_array(store, "r")
        cached.refresh()
        assert (cached[...] == expected[...]).all()
        assert (cached[...] == expected[...]).all()
    store.close()


@STORES
def test_a_group_that_is_deleted_or_moved_takes_its_chunks_along(make, tmp_path):
    store = make(tmp_path)
    cache = ChunkCache(2**20)
    root = gzarr.create_group(store, chunk_cache=cache)
    root.create_array("a/x", data=VALUES, chunks=(50, 50))
    root.create_array("b/x", data=-VALUES, chunks=(50, 50))
    assert (root["a/x"][1, 1], root["b/x"][1, 1]) == (101, -101)
    gzarr.open_group(store).move("a", "c")
    gzarr.open_group(store).move("b", "a")
    assert (root["a/x"][1, 1], root["c/x"][1, 1]) == (-101, 101)
    del root["a"]
    root.create_array("a/x", shape=(100, 100), dtype="i4", chunks=(50, 50))
    assert root["a/x"][1, 1] == 0
    store.close()


def test_a_fetch_that_overlaps_a_write_is_not_kept():
    class Slow(MemoryStore):
        def get_many(self, requests):
            found = super().get_many(requests)
            if slow:
                started.set()
                assert go_on.wait(60)
            return found

    slow = False
    started, go_on = threading.Event(), threading.Event()
    store = Slow(UserDict())
    made(store)
    cached = gzarr.open_array(store, chunk_cache=2**20)
    slow = True
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: cached[0, 1])
        assert started.wait(60)
        slow = False
        gzarr.open_array(store)[...] = -5
        go_on.set()
        assert reading.result(60) == 1
    assert cached[0, 1] == -5


def test_changes_of_other_processes_are_seen_on_a_store_with_tokens(tmp_path):
    made(tmp_path)
    array = gzarr.open_array(tmp_path, chunk_cache=2**20)
    assert array[0, 1] == 1
    other = made(tmp_path / "other")
    gzarr.open_array(other)[...] = -1
    (tmp_path / "c/0/0").write_bytes((tmp_path / "other/c/0/0").read_bytes())
    assert array[0, 1] == -1


# -- the rest ------------------------------------------------------------------------------------------------------


def test_nothing_listens_when_no_cache_is_there():
    ChunkCache(5)
    calls = []
    import gc

    gc.collect()
    if not invalidation._listeners:
        invalidation.invalidate(lambda: calls.append(1) or [])
        assert calls == []
    cache = ChunkCache(5)
    invalidation.invalidate(lambda: calls.append(1) or [])
    assert calls == [1]
    assert cache.nbytes == 0


def test_pickled_arrays_and_caches_start_empty():
    cache = ChunkCache(77)
    assert pickle.loads(pickle.dumps(cache)).max_nbytes == 77
    array = gzarr.open_array(made(), chunk_cache=cache)
    array[...]
    assert (pickle.loads(pickle.dumps(array))[...] == VALUES).all()
    assert (array.to("cpu")[...] == VALUES).all()
    assert array.to("cpu").opened_with.chunk_cache is cache


@pytest.mark.parametrize("bad", [-1, "1 GB", True, 1.5, object()])
def test_bad_limits_are_refused(bad):
    store = made()
    with pytest.raises(TypeError, match="number of bytes"):
        gzarr.open_array(store, chunk_cache=bad)


def test_a_device_that_is_not_the_host_says_so():
    class Elsewhere(type(backend_for("cpu"))):
        device = "cuda:0"

    with pytest.raises(DeviceError, match="LRUStoreCache"):
        OpenOptions(chunk_cache=ChunkCache(5)).opened_with(OpenedWith(Elsewhere()))


@pytest.mark.parametrize("options", [{"compressors": None}, {}, {"zarr_format": 2}, {"shards": (1024, 1024)}])
def test_of_a_large_chunk_all_is_kept_though_little_was_wanted(options, tmp_path):
    values = np.arange(1 << 20, dtype="f8").reshape(1024, 1024)
    gzarr.create_array(tmp_path / "x", data=values, **{"chunks": (512, 512), **options})
    store = CountingStore(LocalStore(tmp_path / "x"))
    z = gzarr.open_array(store, "r", chunk_cache=2**24)
    assert (z[5:7, 3:9] == values[5:7, 3:9]).all()
    store.reset()
    assert (z[:512, :512] == values[:512, :512]).all()
    assert store.requests == []
    assert z.opened_with.chunk_cache.nbytes == 512 * 512 * 8


def test_of_a_server_versions_are_asked_for_at_once():
    store = CountingStore(ObjectStore(pytest.importorskip("obstore.store").MemoryStore()))
    made(store, shards=(50, 50))
    cache = ChunkCache(2**20)
    reader = gzarr.open_array(store, "r", chunk_cache=cache)
    assert (reader[:40, :40] == VALUES[:40, :40]).all()
    store.reset()
    assert (reader[:40, :40] == VALUES[:40, :40]).all()
    assert store.requests == []
    gzarr.open_array(store, "r+")[...] = 7
    assert (reader[:60, :60] == 7).all()
