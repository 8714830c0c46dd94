"""SplitStore: each of its two stores is asked as it answers best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.storage import CountingStore, LocalStore, MemoryStore, ObjectStore, Request, SplitStore
from gzarr.storage.base import token_of, tokens_of

VALUES = np.arange(1 << 20, dtype="f8").reshape(1024, 1024)


def remote() -> ObjectStore:
    return ObjectStore(pytest.importorskip("obstore.store").MemoryStore())


def test_each_store_is_asked_once_for_versions() -> None:
    documents, chunks = CountingStore(MemoryStore()), CountingStore(MemoryStore())
    store = SplitStore(documents, chunks)
    keys = ["a/zarr.json", "a/c/0", "a/c/1", "zarr.json", "nothing"]
    store.set_many((key, key.encode()) for key in keys[:4])
    assert tokens_of(store, keys) == [token_of(store, key) for key in keys]
    assert None not in tokens_of(store, keys)[:4]
    assert documents.written == ["a/zarr.json", "zarr.json"]
    assert chunks.written == ["a/c/0", "a/c/1"]


def test_files_are_those_of_the_store_of_chunks(tmp_path: Any) -> None:
    documents, chunks = LocalStore(tmp_path / "documents"), CountingStore(LocalStore(tmp_path / "chunks"))
    store = SplitStore(documents, chunks)
    gzarr.create_array(store, data=VALUES, chunks=(1024, 1024), compressors=None)
    assert store.files is not None
    assert (gzarr.open_array(store, mode="r")[5:7] == VALUES[5:7]).all()
    files = SplitStore(documents, LocalStore(tmp_path / "chunks")).files
    assert files is not None
    assert files.path("c/0") == str(tmp_path / "chunks/c/0")
    assert SplitStore(documents, MemoryStore()).files is None


def test_chunks_of_a_server_are_read_many_at_once_and_tied_to_versions() -> None:
    chunks = CountingStore(remote())
    store = SplitStore(MemoryStore(), chunks)
    assert store.versions is not None
    assert (store.versions.pins, store.concurrency) == (True, chunks.concurrency)
    z = gzarr.create_array(store, shape=64, chunks=4, shards=32, dtype="i4")
    z[...] = np.arange(64)
    reader = gzarr.open_array(store, mode="r")
    assert reader[3:7].tolist() == [3, 4, 5, 6]
    chunks.reset()
    assert reader[3:7].tolist() == [3, 4, 5, 6]
    assert chunks.sized == []
    versions = dict(zip(["c/0", "c/1"], tokens_of(store, ["c/0", "c/1"]), strict=True))
    found = store.versions.get_pinned([Request("c/1", 0, 3), Request("c/0")], versions)
    assert found == [store["c/1"][:3], store["c/0"]]


def test_new_arrays_are_as_the_stores_say(tmp_path: Any) -> None:
    nested = gzarr.storage.NestedDirectoryStore(tmp_path)
    z = gzarr.zeros((4, 4), chunks=2, store=MemoryStore(), chunk_store=nested, zarr_format=2)
    z[...] = 1
    assert (tmp_path / "1/1").is_file()
    assert SplitStore(gzarr.N5Store(tmp_path / "x.n5"), MemoryStore()).zarr_format == 2


def test_documents_are_stored_and_deleted_after_chunks() -> None:
    """They make nodes exist."""
    stored: list[str] = []

    class Noting(MemoryStore):
        def set_many(self, items: Any) -> None:
            items = list(items)
            stored.extend(key for key, _ in items)
            super().set_many(items)

    store = SplitStore(Noting(), Noting())
    store.set_many([("zarr.json", b"{}"), ("c/0", b"1"), (".zattrs", b"{}"), ("c/1", b"2")])
    assert stored == ["c/0", "c/1", "zarr.json", ".zattrs"]
