"""LRUStoreCache: what is kept, for how long, and that it is never older than the store where that can be known."""

import pickle
import threading
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gzarr
from gzarr.storage import CountingStore, LocalStore, LRUStoreCache, MemoryStore, Request
from gzarr.storage.wrappers import ForwardedVersions

VALUE = bytes(range(200))


def cached(max_size=None, *, tokens=False, **objects):
    data = dict(objects) if tokens else UserDict(objects)
    below = CountingStore(MemoryStore(data))
    return LRUStoreCache(below, max_size), below, data


def test_ranges_come_from_the_whole_object_or_from_the_same_range():
    cache, below, _ = cached(a=VALUE, b=VALUE)
    assert cache.get_one(Request("a")) == VALUE
    assert cache.get_one(Request("a", 10, 5)) == VALUE[10:15]
    assert cache.get_one(Request("a", -10, 5)) == VALUE[-10:-5]
    assert cache.get_one(Request("a", 190, 50)) == VALUE[190:]
    assert cache.misses == 1
    for start, length in ((10, 50), (20, 40), (-8, 8)):
        for _ in range(2):
            assert bytes(cache.get_one(Request("b", start, length))) == VALUE[start:][:length]
    assert cache.misses == 4
    assert cache.get_one(Request("b")) == VALUE
    assert cache.get_one(Request("b", 55, 30)) == VALUE[55:85]
    assert cache.misses == 5
    assert len(below.requests) == 5


def test_random_ranges_are_those_of_the_object():
    rng = np.random.default_rng(5)
    cache, _, _ = cached(300, a=VALUE)
    for _ in range(2000):
        length = None if rng.random() < 0.2 else int(rng.integers(0, 120))
        request = Request("a", int(rng.integers(-250, 250)), length)
        assert bytes(cache.get_one(request)) == bytes(MemoryStore({"a": VALUE}).get_one(request))
    assert cache.hits
    assert cache._nbytes == sum(len(part) for _, part in cache._parts.values()) <= 300


def test_the_least_recently_used_goes_first_and_the_limit_holds():
    cache, _, _ = cached(250, a=b"a" * 100, b=b"b" * 100, c=b"c" * 100, large=b"x" * 300)
    for key in ("a", "b", "a", "c"):
        cache[key]
    assert cache.misses == 3
    cache["large"]
    for key, misses in ("a", 4), ("c", 4), ("b", 5):
        assert (cache[key][:1], cache.misses) == (key.encode(), misses)


def test_changes_past_the_cache_are_seen_at_once_where_the_store_has_tokens(tmp_path):
    for below in (MemoryStore(), LocalStore(tmp_path)):
        cache = LRUStoreCache(below, None)
        cache["a"] = b"old"
        assert cache["a"] == cache["a"] == b"old"
        assert cache.hits == 1
        below["a"] = b"new"
        assert cache["a"] == b"new"
        below["b"] = b""
        assert cache.list_dir() == (["a", "b"], [])
        below.delete_many(["a"])
        assert cache.get_one(Request("a")) is None


def test_changes_past_the_cache_are_seen_after_invalidation_where_it_has_none():
    cache, _, data = cached(a=b"old")
    assert (cache["a"], cache.list_dir()) == (b"old", (["a"], []))
    data["a"], data["b"] = b"new", b""
    assert (cache["a"], cache.list_dir()) == (b"old", (["a", "b"], []))
    cache.invalidate_values()
    assert cache["a"] == b"new"
    data["a"] = b"newer"
    cache.invalidate()
    assert cache["a"] == b"newer"


def test_a_fetch_that_overlaps_a_change_is_not_kept():
    class Slow(MemoryStore):
        def get_many(self, requests):
            found = super().get_many(requests)
            started.set()
            assert go_on.wait(60)
            return found

    started, go_on = threading.Event(), threading.Event()
    cache = LRUStoreCache(Slow(UserDict(a=b"old")), None)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(cache.get_one, Request("a"))
        assert started.wait(60)
        cache.set("a", b"new")
        go_on.set()
        assert reading.result(60) == b"old"
    assert cache["a"] == b"new"


@pytest.mark.parametrize("shards", [None, (50, 50)])
def test_arrays_are_read_again_without_a_request_for_chunks(tmp_path, shards):
    values = np.arange(10_000).reshape(100, 100)
    gzarr.array(values, chunks=(10, 10), shards=shards, store=tmp_path)
    below = CountingStore(LocalStore(tmp_path))
    array = gzarr.open_array(LRUStoreCache(below, 2**28), "r+")
    assert (array[...] == values).all()
    below.reset()
    assert (array[...] == values).all()
    assert below.requests == []
    array[3:25, 4:44] = -1
    values[3:25, 4:44] = -1
    assert (array[...] == values).all()


def test_a_mapping_is_taken_for_a_store_and_the_cache_is_pickled_empty():
    cache = LRUStoreCache({"a": VALUE}, max_size=2**28)
    cache["a"]
    again = pickle.loads(pickle.dumps(cache))
    assert again["a"] == VALUE
    assert (again.hits, again.misses) == (0, 1)
    assert gzarr.storage.read_only(cache)["a"] == VALUE


@pytest.mark.parametrize(("store", "limit"), [(MemoryStore(), "1 GB"), (MemoryStore(), -1), (5, None)])
def test_bad_arguments_are_refused(store, limit):
    with pytest.raises(TypeError):
        LRUStoreCache(store, limit)


# -- what other stores offer besides -------------------------------------------------------------------------------


def test_nothing_is_read_past_the_cache(tmp_path):
    below = CountingStore(LocalStore(tmp_path))
    cache = LRUStoreCache(below, None)
    assert cache.files is None
    assert not cache.versions.pins
    values = np.arange(1 << 20, dtype="f8").reshape(1024, 1024)
    gzarr.create_array(below, data=values, chunks=(1024, 512), compressors=None)
    z = gzarr.open_array(cache, mode="r")
    assert (z[:2] == values[:2]).all()
    below.reset()
    assert (z[5:9, 3:700] == values[5:9, 3:700]).all()
    assert below.requests == []


def test_tokens_of_many_objects_are_asked_for_at_once():
    asked = []

    class Slow(MemoryStore):
        @property
        def versions(self):
            return SlowVersions(super().versions)

    class SlowVersions(ForwardedVersions):
        def tokens(self, keys):
            asked.append(list(keys))
            return super().tokens(keys)

    cache = LRUStoreCache(Slow({"a": VALUE, "b": VALUE}), None)
    for _ in range(2):
        cache.get_many([Request("a"), Request("b"), Request("a", 1, 2)])
    assert [sorted(keys) for keys in asked] == [["a", "b"]] * 3
