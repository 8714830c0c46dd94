"""Saving arrays and groups in one call, and loading them."""

from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import gzarr
from gzarr import storage
from gzarr.errors import ContainsArrayError, NodeNotFoundError


@pytest.mark.usefixtures("zarr_format")
def test_save_several_arrays(place):
    gzarr.save(place, np.arange(2), np.arange(3), named=np.arange(4))
    loaded = gzarr.load(place)
    assert sorted(loaded) == ["arr_0", "arr_1", "named"]
    assert len(loaded) == 3
    assert "named" in loaded
    assert loaded["arr_1"].tolist() == [0, 1, 2]
    assert loaded["arr_1"] is loaded["arr_1"]
    assert repr(loaded) == "<LazyLoader: arr_0, arr_1, named>"
    with pytest.raises(KeyError, match="nope"):
        loaded["nope"]
    gzarr.save(place, only=np.arange(4))
    assert list(gzarr.load(place)) == ["only"]


@pytest.mark.usefixtures("zarr_format")
def test_save_with_options_and_below_a_path():
    store = {}
    gzarr.save(store, np.arange(10), path="deep/er", chunks=3)
    assert gzarr.open(store)["deep/er"].chunks == (3,)
    gzarr.save(store, a=np.arange(2), path="other")
    assert sorted(gzarr.open(store)) == ["deep", "other"]
    assert gzarr.load(store, path="other/a").tolist() == [0, 1]
    gzarr.save_array(store, np.arange(2), path="deep/er")
    gzarr.save_group(store, x=np.arange(2), path="deep")
    assert list(gzarr.open(store)["deep"]) == ["x"]
    with pytest.raises(ValueError, match="at least one array"):
        gzarr.save(store)


@pytest.mark.usefixtures("zarr_format")
def test_save_onto_the_array_itself(place):
    gzarr.save(place, np.arange(10))
    z = gzarr.open(place, mode="r")
    gzarr.save(place, z)
    assert gzarr.load(place).tolist() == list(range(10))


def test_save_lazy_values_onto_what_they_read(place):
    for _ in range(2):
        gzarr.save(place, a=np.arange(20), b=np.ones(3))
        read = gzarr.open_group(place, mode="r")
        gzarr.save(place, a=da.from_array(read["a"], chunks=6)[::-1], b=read["b"], c=da.from_array(read["b"]) + 1)
        read.store.close()
        loaded = gzarr.load(place)
        assert loaded["a"].tolist() == list(range(19, -1, -1))
        assert (loaded["b"].tolist(), loaded["c"].tolist()) == ([1.0] * 3, [2.0] * 3)
    gzarr.save(place, np.arange(5))
    read = gzarr.open_array(place, mode="r")
    gzarr.save(place, da.from_array(read, chunks=2)[::-1])
    read.store.close()
    assert gzarr.load(place).tolist() == [4, 3, 2, 1, 0]


def test_load_what_is_not_there(tmp_path):
    with pytest.raises(NodeNotFoundError, match=r"x\.zarr"):
        gzarr.load(tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()


def test_loading_a_node_leaves_its_store_open(tmp_path):
    with gzarr.ZipStore(tmp_path / "x.zip", mode="w") as store:
        root = gzarr.group(store)
        root["a"] = [1, 2, 3]
        assert gzarr.load(root["a"]).tolist() == [1, 2, 3]
        gzarr.save_array(root, [4, 5], path="b")
        gzarr.save_group(root, c=[6], path="g")
        assert (root["a"][0], root["b"][...].tolist()) == (1, [4, 5])
        assert root["g/c"][...].tolist() == [6]


# -- functions of zarr 2 on stores -------------------------------------------------------------------------------------


def test_nodes_are_created_and_found() -> None:
    store: dict[str, bytes] = {}
    storage.init_group(store, path="foo")
    storage.init_array(store, 100, 10, "i4", path="foo/bar", storage_transformers=())
    assert (storage.contains_group(store, "foo"), storage.contains_array(store, "foo")) == (True, False)
    assert (storage.contains_group(store, "foo/bar"), storage.contains_array(store, "foo/bar")) == (False, True)
    assert not storage.contains_array(store, "nothing")
    with pytest.raises(ContainsArrayError):
        storage.init_array(store, 100, path="foo/bar")
    storage.init_array(store, 50, path="foo/bar", overwrite=True)
    assert gzarr.Array(store, path="foo/bar").shape == (50,)
    with pytest.raises(TypeError, match="storage_transformers"):
        storage.init_array({}, 5, storage_transformers=["x"])


def test_what_is_stored_is_listed_measured_renamed_and_deleted() -> None:
    store: dict[str, bytes] = {}
    root = gzarr.group(store, zarr_format=2)
    root["a/b"] = [1, 2, 3]
    assert (storage.listdir(store), storage.listdir(store, "a/b")) == ([".zgroup", "a"], [".zarray", "0"])
    assert storage.getsize(store, "a/b") == len(store["a/b/.zarray"]) + len(store["a/b/0"])
    assert storage.getsize(store, "a/b/0") == len(store["a/b/0"])
    storage.rename(store, "a/b", "c")
    assert list(root["c"][...]) == [1, 2, 3]
    storage.rmdir(store, "c")
    assert list(root) == ["a"]


def test_questions_create_and_lock_nothing(tmp_path: Path) -> None:
    missing, archive = tmp_path / "missing.zip", tmp_path / "data.zip"
    assert not storage.contains_array(missing)
    with pytest.raises(gzarr.errors.NodeNotFoundError):
        storage.listdir(missing)
    for node in (gzarr.Array, gzarr.Group):
        with pytest.raises(gzarr.errors.NodeNotFoundError):
            node(missing)
    assert not missing.exists()
    gzarr.save_array(archive, [1, 2])
    assert storage.contains_array(archive)
    assert gzarr.open_array(archive, mode="r+").shape == (2,)
