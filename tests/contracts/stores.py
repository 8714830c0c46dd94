"""Every kind of store that the contract is run over: how to make an empty one."""

import io
import sqlite3
import uuid
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gzarr import storage
from tests.support.servers import AZURE_ACCOUNT, AZURE_KEY

#: Makes an empty store; the request gives it the servers that it needs.
Maker: TypeAlias = Callable[[Path, pytest.FixtureRequest], storage.Store]


def _new_name() -> str:
    return f"data/{uuid.uuid4().hex}"


def _zarr_store(name: str, *args: Any) -> storage.Store:
    zarr_storage = pytest.importorskip("zarr.storage")
    return storage.ZarrStore(getattr(zarr_storage, name)(*args))


def _obstore_memory(tmp: Path, request: pytest.FixtureRequest) -> storage.Store:
    return storage.ObjectStore(pytest.importorskip("obstore.store").MemoryStore())


def _s3(tmp: Path, request: pytest.FixtureRequest) -> storage.Store:
    pytest.importorskip("obstore")
    options = request.getfixturevalue("s3_options")
    return storage.open_store(f"s3://bucket/{_new_name()}", storage_options=options)[0]


def _azure(tmp: Path, request: pytest.FixtureRequest) -> storage.Store:
    pytest.importorskip("obstore")
    endpoint = request.getfixturevalue("azure_endpoint")
    options = {"account_name": AZURE_ACCOUNT, "account_key": AZURE_KEY, "endpoint": endpoint}
    return storage.open_store(f"az://container/{_new_name()}", storage_options=options)[0]


def _abs(tmp: Path, request: pytest.FixtureRequest) -> storage.Store:
    blob = pytest.importorskip("azure.storage.blob")
    client = blob.ContainerClient(request.getfixturevalue("azure_endpoint"), "container", credential=AZURE_KEY)
    return storage.ABSStore(client=client, prefix=_new_name())


def _fsspec_memory(tmp: Path, request: pytest.FixtureRequest) -> storage.Store:
    pytest.importorskip("fsspec")
    return storage.FsspecStore.from_url(f"memory://{_new_name()}")


def _fsspec_files(tmp: Path, request: pytest.FixtureRequest) -> storage.Store:
    pytest.importorskip("fsspec")
    return storage.FsspecStore.from_url(f"file://{tmp}/data", {"auto_mkdir": True})


def _lmdb(tmp: Path, request: pytest.FixtureRequest) -> storage.Store:
    pytest.importorskip("lmdb")
    return storage.LMDBStore(tmp / "data.lmdb", map_size=1 << 30)


def _redis(tmp: Path, request: pytest.FixtureRequest) -> storage.Store:
    pytest.importorskip("redis")
    return storage.RedisStore(_new_name(), host="127.0.0.1", port=request.getfixturevalue("redis_port"))


def _mongodb(tmp: Path, request: pytest.FixtureRequest) -> storage.Store:
    pytest.importorskip("pymongo")
    return storage.MongoDBStore(
        "gzarr_tests", uuid.uuid4().hex, host="127.0.0.1", port=request.getfixturevalue("mongo_port")
    )


MAKERS: dict[str, Maker] = {
    "memory": lambda tmp, request: storage.MemoryStore(),
    "memory over UserDict": lambda tmp, request: storage.MemoryStore(UserDict()),
    "local": lambda tmp, request: storage.LocalStore(tmp / "data"),
    "zip path": lambda tmp, request: storage.ZipStore(tmp / "data.zip", mode="w"),
    "zip file object": lambda tmp, request: storage.ZipStore(io.BytesIO(), mode="w"),
    "zip deflated": lambda tmp, request: storage.ZipStore(tmp / "data.zip", mode="a", compression=8),
    "counting": lambda tmp, request: storage.CountingStore(storage.LocalStore(tmp / "data")),
    "logging": lambda tmp, request: storage.LoggingStore(storage.MemoryStore()),
    "cache": lambda tmp, request: storage.LRUStoreCache(storage.LocalStore(tmp / "data"), 10_000),
    "cache on disk": lambda tmp, request: storage.DiskCache(storage.LocalStore(tmp / "data"), tmp / "cache", 100_000),
    "cache, no tokens": lambda tmp, request: storage.LRUStoreCache(storage.MemoryStore(UserDict()), None),
    "cache of obstore memory": lambda tmp, request: storage.LRUStoreCache(_obstore_memory(tmp, request), 10_000),
    "synchronized": lambda tmp, request: storage.synchronized(storage.MemoryStore(), storage.ThreadSynchronizer()),
    "sqlite": lambda tmp, request: storage.SQLiteStore(tmp / "data.sqlite"),
    "sqlite in memory": lambda tmp, request: storage.SQLiteStore(":memory:"),
    "dbm": lambda tmp, request: storage.DBMStore(tmp / "data.dbm"),
    "lmdb": _lmdb,
    "redis": _redis,
    "mongodb": _mongodb,
    "s3": _s3,
    "azure": _azure,
    "abs": _abs,
    "obstore memory": _obstore_memory,
    "fsspec memory": _fsspec_memory,
    "fsspec files": _fsspec_files,
    "zarr-python memory": lambda tmp, request: _zarr_store("MemoryStore"),
    "zarr-python local": lambda tmp, request: _zarr_store("LocalStore", tmp / "data"),
}

#: Stores without tokens of versions, and why that costs little: shards are read whole from them.
WITHOUT_VERSIONS = {
    "memory over UserDict": "a foreign mapping",
    "cache, no tokens": "a foreign mapping",
    "dbm": "files of this machine, read by one process",
    "lmdb": "a map of this machine's memory",
    "redis": "strings have no versions; a server nearby",
    "mongodb": "documents of 16 MB at most",
    "abs": "az:// has them",
    "fsspec memory": "times of change are no versions",
    "zarr-python memory": "zarr's stores have none",
    "zarr-python local": "zarr's stores have none",
}

#: Stores that replace an object only if it is still the version that was read (`Store.conditional`).
WITH_CONDITIONS = (*("cache of obstore memory", "sqlite", "sqlite in memory"), *("s3", "azure", "obstore memory"))

#: Stores of archives, databases and mappings, in which other programs may have stored any text as a key.
WITH_ANY_KEY = (
    *("memory", "memory over UserDict", "zip path", "zip file object", "zip deflated", "logging", "cache, no tokens"),
    *("synchronized", "sqlite", "sqlite in memory", "dbm", "lmdb", "redis", "mongodb"),
)

assert sqlite3.sqlite_version_info >= (3, 24), "gzarr's upserts need SQLite 3.24"
