"""The functions of zarr 2 on stores."""

from __future__ import annotations

from pathlib import Path

import pytest

import gzarr
from gzarr import storage
from gzarr.errors import ContainsArrayError


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
    assert storage.listdir(store) == [".zgroup", "a"]
    assert storage.listdir(store, "a/b") == [".zarray", "0"]
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
