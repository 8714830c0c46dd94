"""What users may give as a store, and what they get."""

import gc
import io
import os
import zipfile
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import storage
from gzarr.errors import ReadOnlyError, StoreError
from gzarr.storage import CountingStore, LocalStore, MemoryStore, ZipStore, open_store


def test_none_is_new_memory() -> None:
    one, path = open_store(None)
    assert isinstance(one, MemoryStore)
    assert path == ""
    assert not one.read_only
    assert open_store(None)[0] != one


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_a_directory(tmp_path: Path, kind: Any) -> None:
    store, path = open_store(kind(tmp_path / "x.zarr"))
    assert isinstance(store, LocalStore)
    assert store.root == str(tmp_path / "x.zarr")
    assert str(store) == f"file://{tmp_path}/x.zarr"
    assert path == ""


def test_relative_paths_and_urls_name_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain, by_url, by_name = (
        open_store(given)[0] for given in ("x.zarr", f"file://{tmp_path}/x.zarr", "file://x.zarr")
    )
    assert plain == by_url == by_name
    assert open_store(str(plain))[0] == plain
    plain["a"] = b"1"
    assert dict(by_url) == {"a": b"1"}


def test_mappings_and_stores(tmp_path: Path) -> None:
    for data in ({}, UserDict()):
        store, path = open_store(data)
        store["a"] = b"1"
        assert (dict(data), path) == ({"a": b"1"}, "")
    for given in (LocalStore(tmp_path), MemoryStore(), CountingStore(MemoryStore())):
        assert open_store(given) == (given, "")
        assert open_store(given)[0] is given
        view, _ = open_store(given, read_only=True)
        assert view.read_only
        assert not given.read_only


@pytest.mark.parametrize("how", [{"read_only": True}, {"mode": "r"}])
def test_read_only(tmp_path: Path, how: Any) -> None:
    with ZipStore(tmp_path / "x.zip", mode="w") as archive:
        archive["a"] = b"1"
    for given in (None, {"a": b"1"}, tmp_path / "x", tmp_path / "x.zip", MemoryStore(), "memory://named"):
        store, _ = open_store(given, **how)
        assert store.read_only
        with pytest.raises(ReadOnlyError):
            store["k"] = b""
        store.close()


@pytest.mark.parametrize("given", [5, b"bytes", ["list"], object(), io.BytesIO()])
def test_anything_else_is_named(given: Any) -> None:
    with pytest.raises(TypeError, match=type(given).__name__):
        open_store(given)


def test_an_array_is_not_printed_whole() -> None:
    with pytest.raises(TypeError, match="ndarray") as caught:
        open_store(np.zeros((50, 50, 50)))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("url", ["ftq://host/x.zarr", "nothing::s3://b", "zarr://x"])
def test_unknown_schemes_say_what_is_supported(url: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(StoreError, match=r"nothing reads.*file://.*s3://"):
        open_store(url)


def test_a_wrong_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="mode"):
        open_store(tmp_path, mode="rw")  # type: ignore[arg-type]


# -- archives ------------------------------------------------------------------------------------------------------


def test_a_zip_path_is_an_archive(tmp_path: Path) -> None:
    for given in (str(tmp_path / "x.zip"), tmp_path / "x.zip", f"file://{tmp_path}/x.zip", f"zip://{tmp_path}/x.zip"):
        store, path = open_store(given)
        assert isinstance(store, ZipStore)
        assert path == ""
        store[f"k{len(store)}"] = b"1"
        store.close()
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert len(archive.namelist()) == 4
    named, _ = open_store(f"zip://{tmp_path}/x.zip", mode="r")
    assert open_store(str(named), mode="r")[0] == named


@pytest.mark.parametrize("mode", ["a", "w", "w-"])
def test_a_path_inside_an_archive_keeps_the_rest(tmp_path: Path, mode: Any) -> None:
    with ZipStore(tmp_path / "x.zip", mode="w") as store:
        store["other/zarr.json"] = b"1"
    opened, path = open_store(f"{tmp_path}/x.zip/foo/bar/", mode=mode)
    with opened:
        assert path == "foo/bar"
        assert dict(opened) == {"other/zarr.json": b"1"}


def test_a_directory_named_like_an_archive_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "x.zip").mkdir()
    for given in ("x.zip", "x.zip/", "x.zip/foo"):
        store, path = open_store(f"{tmp_path}/{given}")
        assert isinstance(store, LocalStore)
        assert (store.root, path) == (os.path.normpath(f"{tmp_path}/{given}"), "")


# -- memory --------------------------------------------------------------------------------------------------------


def test_memory_urls() -> None:
    one, path = open_store("memory://test-memory-urls/a/b")
    assert path == "a/b"
    one["k"] = b"1"
    two, path = open_store("memory://test-memory-urls")
    assert (dict(two), path) == ({"k": b"1"}, "")
    assert open_store("memory://")[0] != open_store("memory://")[0]


def test_the_name_of_a_memory_store_finds_it_while_it_lives() -> None:
    store = MemoryStore({"k": b"1"})
    name = str(store)
    assert open_store(name)[0] is store
    assert open_store(name + "/a/b") == (store, "a/b")
    assert open_store(name, mode="r")[0].read_only
    del store
    gc.collect()
    with pytest.raises(StoreError, match="not in this process"):
        open_store(name)


def test_names_of_zarr_2() -> None:
    assert issubclass(LocalStore, storage.DirectoryStore)
    assert issubclass(storage.DirectoryStore, LocalStore)
    assert not issubclass(MemoryStore, storage.DirectoryStore)
    assert not issubclass(LocalStore, storage.NestedDirectoryStore)
    assert storage.KVStore is MemoryStore
    for name in ("N5Store", "SQLiteStore", "TempStore"):
        assert getattr(gzarr, name) is getattr(storage, name)
        assert name in dir(gzarr)
    with pytest.raises(AttributeError, match="NoStore"):
        gzarr.NoStore
    assert storage.default_compressor == "auto"
    assert set(storage.__all__) <= set(dir(storage))
