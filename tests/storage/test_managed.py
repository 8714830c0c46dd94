"""Memory that a name finds again."""

import pickle

import numpy as np
import pytest

import gzarr
from gzarr.errors import StoreError
from gzarr.storage import ManagedMemoryStore, MemoryStore, memory


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
