"""A store and a path in it, as one value."""

import asyncio

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


@pytest.mark.parametrize("kind", ["gzarr", "mapping", "zarr"])
def test_an_object_is_read_and_written_by_coroutines(kind):
    async def use():
        stores = {"gzarr": MemoryStore, "mapping": dict, "zarr": zarr.storage.MemoryStore}
        place = StorePath(stores[kind](), "a") / "b"
        assert not place.read_only
        assert (await place.get(), await place.exists(), await place.is_empty()) == (None, False, True)
        await place.set(b"0123")
        await place.set_if_not_exists(b"other")
        assert await place.get() == b"0123"
        assert await place.get(byte_range=RangeByteRequest(1, 3)) == b"12"
        assert await place.get(byte_range=OffsetByteRequest(1)) == b"123"
        assert await place.get(byte_range=SuffixByteRequest(1)) == b"3"
        buffers = zarr.core.buffer.default_buffer_prototype()
        await place.set(buffers.buffer.from_bytes(b"4567"))
        found = await place.get(buffers)
        assert found.to_bytes() == b"4567"
        assert not await StorePath(place.store, "a").is_empty()
        await place.delete()
        assert not await place.exists()
        await place.set(b"1")
        await StorePath(place.store, "a").delete_dir()
        assert not await place.exists()

    zarr = pytest.importorskip("zarr")
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

    asyncio.run(use())
