"""A store and a path in it, as one value."""

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr import storage
from gzarr.errors import ReadOnlyError
from gzarr.storage.base import token_of


def test_a_store_path_is_taken_as_a_store():
    store = storage.MemoryStore()
    z = gzarr.zeros(3, store=storage.StorePath(store, "/a//b/") / "/c", dtype="i4")
    assert (z.path, z.store) == ("a/b/c", store)
    assert gzarr.open_array(storage.StorePath(store, "a"), path="b/c") == z
    assert storage.open_store(storage.StorePath(store, "a"), read_only=True)[0].read_only


def test_nodes_say_where_they_are():
    store = storage.MemoryStore()
    z = gzarr.zeros(3, store=store, path="a/b")
    assert z.store_path == storage.StorePath(store, "a/b") == storage.StorePath(store) / "a" / "b"
    assert z.store_path != storage.StorePath(store, "a")
    assert z.store_path != storage.StorePath(storage.MemoryStore(), "a/b")
    assert z.store_path != "a/b"
    assert len({z.store_path, storage.StorePath(store, "a/b")}) == 1
    assert gzarr.open_array(z.store_path) == gzarr.open_array(z) == z
    assert str(z.store_path) == f"{store}/a/b"
    assert str(storage.StorePath(store)) == str(store)
    assert repr(z.store_path) == f"StorePath(MemoryStore, '{store}/a/b')"
    assert not z.store_path.read_only


def test_a_path_leads_into_the_store():
    with pytest.raises(gzarr.StoreError, match=r"\.\."):
        storage.StorePath(storage.MemoryStore(), "a/../b")


@pytest.mark.parametrize("kind", ["gzarr", "mapping", "zarr"])
def test_an_object_is_read_and_written_by_coroutines(kind):
    async def use():
        stores = {"gzarr": storage.MemoryStore, "mapping": dict, "zarr": zarr.storage.MemoryStore}
        place = storage.StorePath(stores[kind](), "a") / "b"
        assert not place.read_only
        assert (await place.get(), await place.exists(), await place.is_empty()) == (None, False, True)
        await place.set(b"0123")
        await place.set_if_not_exists(b"other")
        assert (await place.get(), await place.get(byte_range=RangeByteRequest(1, 3))) == (b"0123", b"12")
        assert await place.get(byte_range=OffsetByteRequest(1)) == b"123"
        assert await place.get(byte_range=SuffixByteRequest(1)) == b"3"
        buffers = zarr.core.buffer.default_buffer_prototype()
        await place.set(buffers.buffer.from_bytes(b"4567"))
        found = await place.get(buffers)
        assert found.to_bytes() == b"4567"
        assert not await storage.StorePath(place.store, "a").is_empty()
        await place.delete()
        assert not await place.exists()
        await place.set(b"1")
        await storage.StorePath(place.store, "a").delete_dir()
        assert not await place.exists()

    zarr = pytest.importorskip("zarr")
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

    asyncio.run(use())


# -- wrappers ----------------------------------------------------------------------------------------------------------


def test_everything_is_recorded() -> None:
    store = storage.CountingStore(storage.MemoryStore())
    store.set("a/b", b"1")
    store.set_many([("a/c", b"2"), ("d", b"3")])
    assert store.get_one(storage.Request("a/b")) == b"1"
    assert store.get_many([storage.Request("d", 0, 1), storage.Request("none")]) == [b"3", None]
    store.getsize("d")
    token_of(store, "d")
    assert "e" not in store
    list(store.list_prefix("a"))
    store.list_dir()
    store.move_prefix("a", "m")
    store.delete_many(["d"])
    store.delete_prefix("m")
    assert store.requests == [storage.Request("a/b"), storage.Request("d", 0, 1), storage.Request("none")]
    assert (store.nbatches, store.written) == (2, ["a/b", "a/c", "d", "m"])
    assert (store.deleted, store.listed) == (["a", "d", "m"], ["a", ""])
    assert store.sized == ["d", "d", "e"]
    store.reset()
    assert store.nbatches == 0
    assert store.requests == store.written == store.deleted == store.listed == store.sized == []


def test_a_read_of_a_part_of_a_chunk_is_one_request_for_it(tmp_path: Path) -> None:
    model = np.arange(100_000, dtype="<i4")
    gzarr.save_array(storage.LocalStore(tmp_path), model, chunks=model.shape, compressors=None)
    store = storage.CountingStore(storage.LocalStore(tmp_path))
    array = gzarr.open_array(store, mode="r")
    store.reset()
    np.testing.assert_array_equal(array[7:9], model[7:9])
    assert store.requests == [storage.Request("c/0")]
    assert store.nbatches == 1


def test_failed_writes_are_not_recorded() -> None:
    store = storage.CountingStore(storage.MemoryStore({"a": b""}, read_only=True))
    for change in (lambda: store.set("a", b""), lambda: store.set_many([("a", b"")]), lambda: store.delete_many(["a"])):
        with pytest.raises(ReadOnlyError):
            change()
    assert store.written == store.deleted == []


def test_counting_is_safe_in_threads() -> None:
    store = storage.CountingStore(storage.MemoryStore({"a": b""}))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.get_many([storage.Request("a")] * 3), range(400)))
    assert (store.nbatches, len(store.requests)) == (400, 1200)


def test_wrappers_answer_for_the_store_inside() -> None:
    inner = storage.MemoryStore({"a": b"1"})
    for store in (storage.CountingStore(inner), storage.read_only(inner)):
        assert str(store) == str(inner)
        assert store.lock_name("a") == inner.lock_name("a")
        assert token_of(store, "a") == token_of(inner, "a")
        assert len(store) == 1
        assert store.nbytes_stored() == 1
        again = pickle.loads(pickle.dumps(store))
        assert dict(again) == {"a": b"1"}
        assert again.read_only == store.read_only


def test_a_logging_store_says_what_was_done_and_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    store = storage.LoggingStore(storage.MemoryStore(), log_level="INFO")
    with caplog.at_level("INFO", logger="gzarr.storage"):
        store.set_many([("a/b", b"1"), ("a/c", b"2")])
        assert (store["a/b"], store.list_dir("a")) == (b"1", (["b", "c"], []))
        store.clear()
    said = [message.partition(": ")[2].rpartition(": ")[0] for message in caplog.messages]
    got = str([storage.Request("a/b")])
    assert said == ["set ['a/b', 'a/c']", f"get {got}", "list ['a']", "delete all under ['']"]
    assert all(message.endswith(" s") for message in caplog.messages)
