"""What databases promise beyond the contract: files that zarr 2 made, several processes, limits, and their errors."""

from __future__ import annotations

import dbm.dumb
import multiprocessing
import pickle
import pkgutil
import socket
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ReadOnlyError, StoreError
from gzarr.storage import (
    DBMStore,
    LMDBStore,
    MongoDBStore,
    NestedDirectoryStore,
    RedisStore,
    SQLiteStore,
    Store,
    TempStore,
)
from tests.support.interrupts import interrupted


def lmdb_store(path: Path, **options: Any) -> LMDBStore:
    pytest.importorskip("lmdb")
    return LMDBStore(path, map_size=1 << 28, **options)


MAKERS: dict[str, Any] = {
    "sqlite": SQLiteStore,
    "dbm": DBMStore,
    "lmdb": lmdb_store,
}


@pytest.fixture(params=MAKERS)
def kind(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]


def test_a_store_says_what_separates_the_chunk_coordinates_of_v2_arrays(tmp_path: Path) -> None:
    store = SQLiteStore(":memory:", "/")
    gzarr.ones((2, 2), chunks=1, store=store, path="a", zarr_format=2)[...] = 5
    assert "a/1/1" in store
    gzarr.ones((2, 2), chunks=1, store=store, path="b", zarr_format=2, dimension_separator=".")[...] = 5
    assert "b/1.1" in store
    gzarr.ones((2, 2), chunks=1, store=NestedDirectoryStore(tmp_path / "n"), zarr_format=2)[...] = 5
    assert (tmp_path / "n" / "1" / "1").is_file()
    temporary = TempStore(suffix=".zarr")
    gzarr.ones(2, store=temporary)[...] = 3
    path = Path(temporary.path)
    assert path.is_dir()
    del temporary
    with pytest.raises(StoreError, match="normalize_keys"):
        NestedDirectoryStore(tmp_path, normalize_keys=True)


def write_many(path: str, worker: int) -> None:
    store = SQLiteStore(path) if path.endswith("sqlite") else lmdb_store(Path(path))
    for i in range(40):
        store.set_many([(f"{worker}/{i}", bytes([worker]) * 100), ("shared", bytes([worker]) * 5000)])
    store.close()


@pytest.mark.parametrize("name", ["data.sqlite", "data.lmdb"])
def test_several_processes_write_at_once(tmp_path: Path, name: str) -> None:
    if name == "data.lmdb":
        pytest.importorskip("lmdb")
    path = str(tmp_path / name)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_many, args=(path, n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    store: Store = SQLiteStore(path) if name == "data.sqlite" else lmdb_store(Path(path))
    assert len(store) == 3 * 40 + 1
    assert len(set(store["shared"])) == 1
    store.close()


@pytest.mark.parametrize("maker", [SQLiteStore, lmdb_store], ids=["sqlite", "lmdb"])
def test_an_interrupt_anywhere_loses_no_lock_and_leaves_no_transaction(tmp_path: Path, maker: Any) -> None:
    store = maker(tmp_path / "data", **({"timeout": 0.1} if maker is SQLiteStore else {}))
    store["a"] = b"1"
    files = {sys.modules[type(store).__module__].__file__}
    n_steps = 0
    while not interrupted(lambda: store.set_many([("a", b"2"), ("b", b"2")]), n_steps, files):
        assert dict(store) in ({"a": b"1"}, {"a": b"2", "b": b"2"})
        with ThreadPoolExecutor(1) as pool:
            pool.submit(store.set, "a", b"1").result(20)
        store.delete_many(["b"])
        n_steps += 1
    assert n_steps > 5
    store.close()


#: What stores a value within a call of the database.
STEPS = {
    "sqlite": "gzarr.storage.sqlite._change",
    "dbm": "gzarr.storage.dbm._store",
    "lmdb": "gzarr.storage.lmdb.LMDBStore._change_one",
}


@pytest.mark.parametrize("name", STEPS)
def test_a_call_within_a_call_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a finalizer or the handler of a signal may make it, which its own thread would wait for."""
    store = MAKERS[name](tmp_path / "data")
    same = store if name == "dbm" else MAKERS[name](tmp_path / "data")
    uses: list[Any] = [lambda: store.set("b", b"2"), lambda: same.get("a"), lambda: list(same)]
    step = pkgutil.resolve_name(STEPS[name])
    refused = []

    def reenter(*args: Any) -> Any:
        for use in uses:
            with pytest.raises(StoreError, match="in use by this very thread"):
                use()
            refused.append(use)
        return step(*args)

    monkeypatch.setattr(STEPS[name], reenter)
    store["a"] = b"1"
    assert refused == uses
    assert dict(store) == {"a": b"1"}
    store.close()
    same.close()


# -- SQLite --------------------------------------------------------------------------------------------------------


def test_a_database_of_zarr_2_is_read_and_kept(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.sqlite") as db:  # the statements of zarr 2
        db.execute("CREATE TABLE IF NOT EXISTS zarr(k TEXT PRIMARY KEY, v BLOB)")
        db.execute("REPLACE INTO zarr VALUES (?, ?)", (".zgroup", b'{"zarr_format": 2}'))
    db.close()
    root = gzarr.open_group(SQLiteStore(tmp_path / "old.sqlite"), mode="r+")
    assert root.zarr_format == 2
    root.attrs["a"] = 1
    db = sqlite3.connect(tmp_path / "old.sqlite")
    assert sorted(key for (key,) in db.execute("SELECT k FROM zarr")) == [".zattrs", ".zgroup"]
    db.close()


def test_sqlite_errors_name_the_database(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, and long enough to be sure of it" * 10)
    with pytest.raises(StoreError, match=r"text.*not a database"):
        SQLiteStore(tmp_path / "text")
    with pytest.raises(StoreError, match="unable to open"):
        SQLiteStore(tmp_path / "none" / "x")
    SQLiteStore(tmp_path / "x").set("a", b"1")
    view = SQLiteStore(tmp_path / "x", read_only=True)
    assert view["a"] == b"1"
    with pytest.raises(ReadOnlyError):
        view["a"] = b"2"
    with pytest.raises(StoreError, match="pickled"):
        pickle.dumps(SQLiteStore(":memory:"))


# -- DBM -----------------------------------------------------------------------------------------------------------


def test_dbm_names_its_kind_and_takes_others(tmp_path: Path) -> None:
    with DBMStore(tmp_path / "a") as store:
        assert store.backend.startswith("dbm.")
    with DBMStore(tmp_path / "b", open=dbm.dumb.open) as store:
        store["k"] = b"1"
        store.flush()
        assert store.backend == "dbm.dumb"
    assert (tmp_path / "b.dat").exists()
    with DBMStore(tmp_path / "b", flag="r", open=dbm.dumb.open) as store:
        assert store["k"] == b"1"
        with pytest.raises(ReadOnlyError):
            store["k"] = b"2"
    with pytest.raises(StoreError, match=r"none.*flag 'r'"):
        DBMStore(tmp_path / "none", flag="r")


def test_a_file_that_serves_one_thread_is_used_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of dbm.sqlite3 do."""
    monkeypatch.setattr("gzarr.storage.dbm._serves_one_thread", lambda _: True)
    store, threads = DBMStore(tmp_path / "a", open=dbm.dumb.open), set()
    assert store._pool is not None
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.set(f"{n}", b"%d" % n), range(20)))
        for _ in range(4):
            pool.submit(store._call, lambda _: threads.add(threading.get_ident())).result(10)
    assert len(threads) == 1
    with pytest.raises(StoreError, match="in use by this very thread"):
        store._pool.call(lambda: store["1"])
    store._pool.call(store.close)
    assert dict(store) == {f"{n}": b"%d" % n for n in range(20)}
    store.close()


#: Holds a transaction that has written into the file of a database already, until it is killed.
HALF_WRITTEN = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 5")
db.execute("BEGIN IMMEDIATE")
db.execute("UPDATE zarr SET v = randomblob(length(v))")
print("half", flush=True)
time.sleep(60)
"""


def test_sqlite_waits_for_others_and_rolls_back_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "x"
    objects = {f"c/{n}": bytes([n]) * 10_000 for n in range(100)}
    with SQLiteStore(path) as store:
        store.update(objects)
    code = [sys.executable, "-c", HALF_WRITTEN, str(path)]
    with subprocess.Popen(code, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"half\n"
            for use in (lambda: SQLiteStore(path, timeout=0.1), SQLiteStore(path, read_only=True, timeout=0.1).items):
                with pytest.raises(StoreError, match=r"x: cannot .*locked; .*has held.*longer timeout"):
                    list(use())
        finally:
            writer.kill()
    with SQLiteStore(path, read_only=True) as store, pytest.raises(StoreError, match="without read_only=True"):
        dict(store)
    with SQLiteStore(path) as store:
        assert dict(store) == objects
    with SQLiteStore(path, read_only=True) as store:
        assert dict(store) == objects


# -- LMDB ----------------------------------------------------------------------------------------------------------


def test_lmdb_limits_are_named(tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    store = LMDBStore(tmp_path / "x", map_size=1 << 20)
    with pytest.raises(StoreError, match="LMDB takes 511"):
        store["k" * 600] = b"1"
    assert store.get("k" * 600) is None
    store["a"] = b"1"
    with pytest.raises(StoreError, match="map_size"):
        store["b"] = bytes(1 << 21)
    assert dict(store) == {"a": b"1"}
    twin = LMDBStore(tmp_path / "x")  # one process must not open a database twice: both use one
    twin["c"] = b"3"
    store.close()
    assert twin["c"] == b"3"
    assert store["c"] == b"3"
    (tmp_path / "file").write_bytes(b"x" * 10000)
    with pytest.raises(StoreError, match="cannot open"):
        LMDBStore(tmp_path / "file", subdir=False, map_size=1 << 20)
    assert lmdb.version()


# -- servers -------------------------------------------------------------------------------------------------------


def test_redis_keys_are_those_of_zarr_2(redis_port: int) -> None:
    redis = pytest.importorskip("redis")
    store = RedisStore("my[prefix]*", host="127.0.0.1", port=redis_port)
    other = RedisStore("my", host="127.0.0.1", port=redis_port)
    other["a/b"] = b"other"
    store["a/b"] = b"1"
    assert redis.Redis(port=redis_port).get("my[prefix]*:a/b") == b"1"
    assert list(store) == ["a/b"]
    copy = pickle.loads(pickle.dumps(store))
    assert copy["a/b"] == b"1"
    assert copy == store != other
    store.clear()
    assert dict(other) == {"a/b": b"other"}
    z = gzarr.create_array(store, shape=1000, chunks=10, shards=100, dtype="i4")
    z[:] = np.arange(1000)
    assert z[5:995:10].tolist() == list(range(5, 995, 10))


def test_documents_of_mongodb_are_those_of_zarr_2(mongo_port: int) -> None:
    pytest.importorskip("pymongo")
    store = MongoDBStore("gzarr_tests", "shapes", host="127.0.0.1", port=mongo_port)
    store["a.b/c"] = b"1"
    store["aXb/c"] = b"2"
    collection = store.client["gzarr_tests"]["shapes"]
    assert {k: v for k, v in collection.find_one({"key": "a.b/c"}).items() if k != "_id"} == {
        "key": "a.b/c",
        "value": b"1",
    }
    assert list(store.list_prefix("a.b")) == ["a.b/c"]
    with pytest.raises(StoreError, match=r"'big'.*16773120.*smaller chunks"):
        store["big"] = bytes(17 << 20)
    assert pickle.loads(pickle.dumps(store)) == store
    root = gzarr.group(store, overwrite=True, path="g")
    root.create_array("a", data=np.arange(10), chunks=3)
    assert gzarr.open_group(store, path="g", mode="r")["a"][2:5].tolist() == [2, 3, 4]
    store.close()
    assert "g/zarr.json" in store
    gone = MongoDBStore(host="mongodb://user:secret@127.0.0.1:1/", serverSelectionTimeoutMS=200)
    with pytest.raises(StoreError, match="check host") as caught:
        gone.getsize("a")
    assert "secret" not in str(caught.value)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not say what files are open")
def test_sqlite_keeps_no_connection_for_each_thread_that_ever_was(tmp_path: Path) -> None:
    def nopen() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    with SQLiteStore(tmp_path / "data") as store:
        store["a"] = b"x"
        before = nopen()
        for _ in range(30):
            thread = threading.Thread(target=store.get, args=("a",))
            thread.start()
            thread.join()
        assert nopen() - before < 3


def test_sqlite_closed_by_one_thread_while_others_read(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "data")
    store["a"] = b"x" * 100_000
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(store.get, "a") for _ in range(400)]
        for _ in range(20):
            store.close()
        assert {read.result() for read in reads} == {b"x" * 100_000}
    store.close()


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("mongodb://u:hid/den@h1", "h1:27017"),
        ("mongodb://u:hid@den@h1:3/?authSource=hidden", "h1:3"),
        (["mongodb://u:hidden@h1", "h2:5"], "h1:27017,h2:5"),
        ("mongodb+srv://u:hidden@cluster/", "cluster:27017"),
        (None, "localhost:27017"),
    ],
)
def test_names_of_mongodb_stores_hold_no_passwords(host: Any, shown: str) -> None:
    pytest.importorskip("pymongo")
    assert str(MongoDBStore("db", "col", host=host)) == f"mongodb://{shown}/db/col"


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    pytest.importorskip("redis")
    pytest.importorskip("pymongo")
    redis = RedisStore(decode_responses=True)  # which would take bytes for text
    assert not redis.client.connection_pool.connection_kwargs["decode_responses"]
    assert 0 < redis.client.connection_pool.connection_kwargs["socket_timeout"] <= 60
    assert RedisStore(socket_timeout=3).client.connection_pool.connection_kwargs["socket_timeout"] == 3
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(StoreError, match="cannot read"):
            RedisStore(host="127.0.0.1", port=port, socket_timeout=0.1).get("a")
    mongo = MongoDBStore()
    assert 0 < mongo.client.options.pool_options.socket_timeout <= 60
    mongo.close()


def test_what_opens_a_dbm_file_is_pickled_with_its_keywords(tmp_path: Path) -> None:
    with DBMStore(tmp_path / "a", open=open_dumb, ending=".x") as store:
        store["a"] = b"1"
        copy = pickle.loads(pickle.dumps(store))
        assert dict(copy) == {"a": b"1"}
        copy.close()


def open_dumb(path: str, flag: str, mode: int, ending: str = "") -> Any:
    return dbm.dumb.open(path + ending, flag, mode)


def test_lmdb_says_why_it_cannot_be_written(tmp_path: Path) -> None:
    lmdb_store(tmp_path / "a").close()
    with lmdb_store(tmp_path / "a", read_only=True), pytest.raises(StoreError, match="read_only=True; close that"):
        lmdb_store(tmp_path / "a")
    with lmdb_store(tmp_path / "a") as store:
        store["a"] = b"1"


def test_sqlite_says_that_the_disk_is_full_after_it_has_ended_the_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def limited(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.execute("PRAGMA max_page_count = 20")
        connection.execute("PRAGMA cache_size = 5")
        return connection

    monkeypatch.setattr(sqlite3, "connect", limited)
    with SQLiteStore(tmp_path / "x") as store:
        store["a"] = b"old"
        with pytest.raises(StoreError, match=r"'a'.*full.*What was stored before is unchanged"):
            store.set_many([("a", b"new"), *((f"c/{n}", bytes(5000)) for n in range(50))])
        assert dict(store) == {"a": b"old"}
