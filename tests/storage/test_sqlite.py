"""What SQLite promises beyond the contract: files that zarr 2 made, several processes, limits, and its errors."""

import multiprocessing
import pickle
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
from gzarr.storage import NestedDirectoryStore, SQLiteStore, TempStore, sqlite
from tests.support.interrupts import interrupted


def test_arrays_last_in_the_file(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "data") as store:
        root = gzarr.group(store)
        z = root.create_array("a", shape=100, chunks=4, shards=20, dtype="i4")
        z[:] = np.arange(100)
        root.attrs["x"] = 1
    with SQLiteStore(tmp_path / "data") as store:
        again = gzarr.open_group(store, mode="r+")
        assert again.attrs.asdict() == {"x": 1}
        assert again["a"][5:95:10].tolist() == list(range(5, 95, 10))
        again["a"][50] = 0
        assert again["a"].nbytes_stored == store.nbytes_stored("a")


def test_a_pickled_store_reaches_the_same_file(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "data", dimension_separator="/") as store:
        store["a"] = b"1"
        copy = pickle.loads(pickle.dumps(store))
        assert copy["a"] == b"1"
        assert copy == store
        assert copy.dimension_separator == "/"
        copy.close()


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
    store = SQLiteStore(path)
    for i in range(40):
        store.set_many([(f"{worker}/{i}", bytes([worker]) * 100), ("shared", bytes([worker]) * 5000)])
    store.close()


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "data.sqlite")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_many, args=(path, n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    with SQLiteStore(path) as store:
        assert len(store) == 3 * 40 + 1
        assert len(set(store["shared"])) == 1


def test_an_interrupt_anywhere_loses_no_lock_and_leaves_no_transaction(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "data", timeout=0.1)
    store["a"] = b"1"
    files = {sys.modules[type(store).__module__].__file__}
    n_steps = 0
    while not interrupted(lambda: store.set_many([("a", b"2"), ("b", b"2")]), n_steps, files):
        assert dict(store) in ({"a": b"1"}, {"a": b"2", "b": b"2"})
        with ThreadPoolExecutor(1) as pool:
            pool.submit(store.set, "a", b"1").result(60)
        store.delete_many(["b"])
        n_steps += 1
    assert n_steps > 5
    store.close()


def test_a_call_within_a_call_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a finalizer or the handler of a signal may make it, which its own thread would wait for."""
    store, same = SQLiteStore(tmp_path / "data"), SQLiteStore(tmp_path / "data")
    uses: list[Any] = [lambda: store.set("b", b"2"), lambda: same.get("a"), lambda: list(same)]
    step, refused = sqlite._change, []

    def reenter(*args: Any) -> Any:
        for use in uses:
            with pytest.raises(StoreError, match="in use by this very thread"):
                use()
            refused.append(use)
        return step(*args)

    monkeypatch.setattr(sqlite, "_change", reenter)
    store["a"] = b"1"
    assert refused == uses
    assert dict(store) == {"a": b"1"}
    store.close()
    same.close()


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


def test_a_transaction_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x")
    with pytest.raises(TypeError):
        store.set_many([("a", b"1"), ("b", 5)])  # type: ignore[list-item]
    assert list(store) == []


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


def test_sqlite_ends_the_transaction_before_it_says_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
