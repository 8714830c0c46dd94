"""What is particular to memory: other people's mappings, values that could change, copies that are not made."""

import pickle
from collections import OrderedDict, UserDict, defaultdict
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import StoreError
from gzarr.storage import KVStore, LocalStore, ManagedMemoryStore, MemoryStore, Request, memory
from gzarr.storage.base import token_of


@pytest.mark.parametrize("kind", [dict, UserDict, OrderedDict, lambda: defaultdict(bytes)])
def test_writes_go_into_the_mapping_of_the_user(kind: Any) -> None:
    data = kind()
    store = MemoryStore(data)
    store["a/b"] = bytearray(b"xyz")
    assert data["a/b"] == b"xyz"
    assert type(data["a/b"]) is bytes
    data["c"] = b"theirs"
    assert store["c"] == b"theirs"
    assert store.get_one(Request("none")) is None
    assert store.get_many([Request("none")]) == [None]
    assert len(data) == 2, "asking for a missing key must not make one"
    store.clear()
    assert len(data) == 0


def test_any_store_is_a_mapping_to_write_into(tmp_path: Any) -> None:
    store = MemoryStore(LocalStore(tmp_path))
    store["a/b"] = b"x"
    assert (tmp_path / "a" / "b").read_bytes() == b"x"
    assert store.list_dir("a") == (["b"], [])


def test_values_that_could_change_are_given_as_copies() -> None:
    array = np.array([[1, 2], [3, 4]], dtype="<u2")
    days = np.array(["2020-01-01"], dtype="M8[D]")
    data: dict[str, Any] = {"a": bytearray(b"abc"), "b": array, "c": memoryview(b"xyz")[::2], "d": days}
    store = MemoryStore(data)
    got = store.get_many([Request(key) for key in "abcd"])
    assert got == [b"abc", array.tobytes(), b"xz", days.tobytes()]
    assert store.get_one(Request("b", 2, 2)) == b"\2\0"
    assert [store.getsize(key) for key in "abcd"] == [3, 8, 2, 8]
    data["a"][0] = 0
    assert got[0] == b"abc"
    assert token_of(store, "a") is None, "a value that can change in place has no token"


def test_a_value_that_is_not_bytes_is_named() -> None:
    store = MemoryStore({"a/zarr.json": "text"})
    with pytest.raises(TypeError, match=r"a/zarr\.json"):
        store.get_one(Request("a/zarr.json"))


def test_reading_copies_nothing() -> None:
    value = bytes(1000)
    store = MemoryStore()
    store["k"] = value
    assert store.get_one(Request("k")) is value
    part = store.get_one(Request("k", 10, 20))
    assert isinstance(part, memoryview)
    assert part.obj is value


def test_the_same_contents_in_another_object_are_another_generation() -> None:
    store = MemoryStore({"k": bytes(1000)})
    first = token_of(store, "k")
    assert token_of(store, "k") == first
    assert hash(token_of(store, "k")) == hash(first)
    store["k"] = bytearray(1000)
    assert store["k"] == bytes(1000)
    assert token_of(store, "k") != first


def test_two_stores_over_one_mapping_are_one() -> None:
    data: dict[str, bytes] = {}
    one, two = MemoryStore(data), MemoryStore(data)
    assert one == two
    assert hash(one) == hash(two)
    assert one.lock_name("k") == two.lock_name("k")
    assert str(one) == str(two) == f"memory://{id(data)}"
    assert MemoryStore() != MemoryStore()


def test_pickling_copies_the_objects() -> None:
    store = MemoryStore({"a": b"1"}, read_only=True)
    again = pickle.loads(pickle.dumps(store))
    assert dict(again) == {"a": b"1"}
    assert again.read_only
    assert again != store


def test_something_else_than_a_mapping_is_named() -> None:
    with pytest.raises(TypeError, match="list"):
        MemoryStore([])  # type: ignore[arg-type]
    assert KVStore is MemoryStore


# -- memory that is shared by name -------------------------------------------------------------------------------------


def test_the_name_finds_the_objects_again() -> None:
    store = ManagedMemoryStore("test-managed")
    gzarr.array([1, 2, 3], store=store, path="run/a")
    assert str(store) == "memory://test-managed"
    assert gzarr.open("memory://test-managed/run/a")[2] == 3
    below = ManagedMemoryStore.from_url("memory://test-managed/run")
    assert (below.path, str(below)) == ("run", "memory://test-managed/run")
    assert gzarr.open_array(below, path="a", mode="r+")[0] == 1
    gzarr.open_array(below, path="a", mode="r+")[0] = 9
    assert gzarr.open_array(store, path="run/a", mode="r")[0] == 9
    assert below.lock_name("a/zarr.json") == store.lock_name("run/a/zarr.json")
    assert sorted(below.list_prefix("")) == ["a/c/0", "a/zarr.json", "zarr.json"]
    del below["a/c/0"]
    assert "run/a/c/0" not in store
    del memory.named["test-managed"]


def test_a_new_name_is_nobody_elses() -> None:
    assert ManagedMemoryStore().name != ManagedMemoryStore().name
    with pytest.raises(StoreError, match="no ManagedMemoryStore of this process"):
        ManagedMemoryStore.from_url("memory://test-nobody")
    for name in ("", "a/b", "12"):
        with pytest.raises(StoreError, match="must be letters"):
            ManagedMemoryStore(name)


def test_a_pickled_store_is_the_same_in_its_process_and_none_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ManagedMemoryStore()
    store["a"] = b"x"
    pickled = pickle.dumps(store)
    assert pickle.loads(pickled)["a"] == b"x"
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(StoreError, match="memory of another process"):
        pickle.loads(pickled)
    assert isinstance(store, MemoryStore)


def test_objects_in_device_memory() -> None:
    with gzarr.config.set({"emulated.arrays": "device"}):
        gpu = gzarr.storage.GpuMemoryStore(device="emulated")
        z = gzarr.array(np.arange(6).reshape(2, 3), chunks=(1, 3), store=gpu, device="cpu")
        assert z[...].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert all(gzarr.tensors.is_on_device(value) for value in gpu._objects.data.values())
        same = gzarr.storage.GpuMemoryStore(gpu._objects.data, device="emulated")
        assert same.lock_name("c/0/0") == gpu.lock_name("c/0/0")
        copied = gzarr.storage.GpuMemoryStore.from_dict(gpu._objects.data, device="emulated")
        assert gzarr.open_array(copied, mode="r", device="cpu")[1, 2] == 5
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(gpu)
