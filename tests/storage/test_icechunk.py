"""Arrays and groups in Icechunk, a store of zarr-python 3 that knows the keys of Zarr v3 alone."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ReadOnlyError, StoreError

icechunk = pytest.importorskip("icechunk")
DATA = np.arange(10_000, dtype="f4").reshape(100, 100)


@pytest.fixture
def repository() -> Any:
    return icechunk.Repository.create(icechunk.in_memory_storage())


def test_a_committed_hierarchy_is_read_by_both(repository: Any) -> None:
    zarr = pytest.importorskip("zarr")
    session = repository.writable_session("main")
    root = gzarr.group(store=session.store)
    made = root.create_array("foo/bar", data=DATA, chunks=(10, 10))
    made.attrs["unit"] = "K"
    root.create_array("sharded", shape=100, chunks=10, shards=50, dtype="i4")[3:95] = 7
    session.commit("made")
    store = repository.readonly_session("main").store
    assert np.array_equal(zarr.open_group(store, mode="r")["foo/bar"][:], DATA)
    read = gzarr.open_group(store, mode="r")
    assert str(read.tree()).splitlines()[1:] == [
        "├── foo",
        "│   └── bar (100, 100) float32",
        "└── sharded (100,) int32",
    ]
    assert np.array_equal(read["foo/bar"][35:77, ::3], DATA[35:77, ::3])
    assert (read["foo/bar"].attrs["unit"], read["foo/bar"].nchunks_initialized) == ("K", 100)
    assert read["sharded"][:].tolist() == [0] * 3 + [7] * 92 + [0] * 5
    assert "nothing" not in read
    with pytest.raises(ReadOnlyError):
        read["sharded"][0] = 1


def test_a_hierarchy_changes(repository: Any) -> None:
    store = repository.writable_session("main").store
    root = gzarr.group(store=store)
    root["a/b"], root["c"] = DATA, np.arange(10)
    root["a/b"].resize(50, 40)
    root["a"].move("b", "d/e")
    del root["c"]
    assert sorted(path for path, _ in root.members(None)) == ["a", "a/d", "a/d/e"]
    assert np.array_equal(root["a/d/e"][:], DATA[:50, :40])
    root["copied"] = root["a/d/e"]
    assert np.array_equal(root["copied"][:], DATA[:50, :40])
    root["a/d"].attrs["title"] = "moved"
    gzarr.consolidate_metadata(store)
    root["a"].move("d", "f")
    assert gzarr.open_consolidated(store)["a/f"].attrs["title"] == "moved"
    assert list(gzarr.open_group(store, mode="w")) == []


def test_what_icechunk_cannot_hold_is_an_error(repository: Any) -> None:
    store = repository.writable_session("main").store
    with pytest.raises(StoreError, match=r"cannot write '\.zarray'.*V2"):
        gzarr.zeros(3, store=store, zarr_format=2)
