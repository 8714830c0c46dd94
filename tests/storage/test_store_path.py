"""A store and a path in it, as one value."""

import pytest

import gzarr
from gzarr.storage import MemoryStore, StorePath, open_store


def test_a_store_path_is_taken_as_a_store():
    store = MemoryStore()
    z = gzarr.zeros(3, store=StorePath(store, "/a//b/") / "/c", dtype="i4")
    assert (z.path, z.store) == ("a/b/c", store)
    assert gzarr.open_array(StorePath(store, "a"), path="b/c") == z
    assert open_store(StorePath(store, "a"), read_only=True)[0].read_only


def test_nodes_say_where_they_are():
    store = MemoryStore()
    z = gzarr.zeros(3, store=store, path="a/b")
    assert z.store_path == StorePath(store, "a/b") == StorePath(store) / "a" / "b"
    assert z.store_path != StorePath(store, "a")
    assert z.store_path != StorePath(MemoryStore(), "a/b")
    assert z.store_path != "a/b"
    assert len({z.store_path, StorePath(store, "a/b")}) == 1
    assert gzarr.open_array(z.store_path) == gzarr.open_array(z) == z
    assert str(z.store_path) == f"{store}/a/b"
    assert str(StorePath(store)) == str(store)
    assert repr(z.store_path) == f"StorePath(MemoryStore, '{store}/a/b')"
    assert not z.store_path.read_only


def test_a_path_leads_into_the_store():
    with pytest.raises(gzarr.StoreError, match=r"\.\."):
        StorePath(MemoryStore(), "a/../b")
