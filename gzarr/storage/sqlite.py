"""Objects as rows of a table in an SQLite database, the one that zarr 2 made: ``zarr(k TEXT PRIMARY KEY, v BLOB)``.

Each call has a connection to itself, so readers never wait for each other. Connections are reused by later calls, so
there are as many as there ever were calls at one time. SQLite's locks order writers, of this process and of others.
Every written row gets a new random rowid, which is the token of the object's version: SQLite itself would reuse the
number of a row that was deleted.
"""
# os.path: the store takes what users call a path and gives it back unchanged.
# ruff: noqa: PTH100

from __future__ import annotations

import os
import random
import sqlite3
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from gzarr.concurrency import UnderWay, new_lock
from gzarr.errors import StoreError
from gzarr.storage.base import ANY, Buffer, Change, Conditional, Request, Versioned, Versions, pickled
from gzarr.storage.flat import DatabaseStore, TaggedObjects
from gzarr.storage.forks import inside_library
from gzarr.storage.rules import as_bytes, byte_range, check_key, check_path

_CREATE = "CREATE TABLE IF NOT EXISTS zarr(k TEXT PRIMARY KEY, v BLOB)"
_SET = (
    "INSERT INTO zarr(rowid, k, v) VALUES(?, ?, ?) ON CONFLICT(k) DO UPDATE SET rowid = excluded.rowid, v = excluded.v"
)
_INSERT = "INSERT INTO zarr(rowid, k, v) VALUES(?, ?, ?) ON CONFLICT(k) DO NOTHING"
_UPDATE = "UPDATE zarr SET rowid = ?, v = ? WHERE k = ? AND rowid = ?"
#: Seconds that a writer waits for another one; the sqlite3 module's own 5 are few when whole shards are stored.
_TIMEOUT_S = 60.0
#: How often another random rowid is tried if one is taken; one try in 2**40 fails among a million objects.
_ATTEMPTS = 8


_under_way = UnderWay()
#: A part of a transaction: how it begins, is undone, and ends.
_PART = "SAVEPOINT part", "ROLLBACK TO part;RELEASE part", "RELEASE part"
#: What helps against errors, by their code (https://www.sqlite.org/rescode.html).
_REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process or connection has held the database for longer than timeout= allows; retry,"
    " write less at once, or open the store with a longer timeout",
    sqlite3.SQLITE_FULL: "is the disk full? What was stored before is unchanged",
    sqlite3.SQLITE_IOERR: "is the disk full? What was stored before is unchanged",
    sqlite3.SQLITE_READONLY: "if a writer was killed, open the store once without read_only=True, which rolls back what"
    " it left",
}


class _RowVersions(Versions):
    """Tokens of the rows of a database."""

    __slots__ = ("_store",)

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store

    def token(self, key: str) -> object | None:
        return self._store._one("SELECT rowid FROM zarr WHERE k = ?", key)  # noqa: SLF001 - one module, two classes


class SQLiteStore(DatabaseStore):
    """A store in an SQLite database.

    Parameters
    ----------
    path : str or os.PathLike
        Path of the database, made if it is missing; ``":memory:"`` for one that lives with the store.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    read_only : bool
        Whether to refuse changes, and open the file so that nothing can change it.
    **kwargs
        Arguments of `sqlite3.connect`.

    Raises
    ------
    StoreError
        If the file cannot be opened or is no database.

    Examples
    --------
    >>> import gzarr
    >>> with gzarr.SQLiteStore("data.sqlite") as store:
    ...     z = gzarr.create_array(store, data=[1, 2, 3])
    ...     print(z[1:])
    [2 3]
    """

    _errors = (sqlite3.Error, OverflowError)
    _process_bound = frozenset({"_idle", "_lock", "_pid", "_nclosed", "_shared"})

    def __init__(
        self,
        path: str | os.PathLike[str],
        dimension_separator: Literal[".", "/"] | None = None,
        *,
        read_only: bool = False,
        **kwargs: Any,
    ) -> None:
        given = os.fsdecode(path)
        self.path = given if given == ":memory:" else os.path.abspath(given)
        self.dimension_separator = dimension_separator
        self.read_only = read_only
        self._name = f"sqlite://{given}"
        self._kwargs = {"timeout": _TIMEOUT_S, **kwargs}
        self._idle: list[sqlite3.Connection] = []
        self._lock = new_lock()
        self._pid = os.getpid()
        self._nclosed = 0
        self._place = os.path.realpath(self.path)
        self._shared = self._new_connection() if given == ":memory:" else None
        weakref.finalize(self, _close_all, self._idle if self._shared is None else [self._shared], self._pid)
        if not read_only:
            with self._failures("open the database"), self._connection() as db:
                db.execute(_CREATE)

    # -- connections ---------------------------------------------------------------------------------------------

    def _new_connection(self) -> sqlite3.Connection:
        place = self.path
        options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, **self._kwargs}
        if self.read_only and self.path != ":memory:":
            place, options["uri"] = f"{Path(self.path).as_uri()}?mode=ro", True
        made: sqlite3.Connection = sqlite3.connect(place, **options)
        return made

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for exclusive use; for a database in memory, its only one, under a lock."""
        if self.path == ":memory:":
            with inside_library(), self._lock:
                if self._shared is None:
                    raise StoreError(f"store {self} is closed, and its contents are gone")
                yield self._shared
            return
        under_way = _under_way.find(self._place, _roll_back)
        if under_way is not None:  # foreign code within a call: another connection would wait for that to end
            yield under_way
            return
        with inside_library():
            with self._lock:
                if self._pid != os.getpid():  # connections do not survive a fork
                    self._idle, self._pid = [], os.getpid()
                    weakref.finalize(self, _close_all, self._idle, self._pid)
                db, nclosed = (self._idle.pop() if self._idle else None), self._nclosed
            if db is None:
                db = self._new_connection()
            try:
                _under_way.begin(self._place, db)
                yield db
            finally:
                _under_way.end(self._place)
                with self._lock:
                    keep = nclosed == self._nclosed and not db.in_transaction
                    if keep:
                        self._idle.append(db)
                if not keep:
                    db.close()  # the store was closed meanwhile, or a transaction could not be ended

    def _failed(self, what: str, error: Exception) -> StoreError:
        failed = super()._failed(what, error)
        remedy = _REMEDIES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)  # the extended codes say more than that
        return failed if remedy is None else StoreError(f"{failed}; {remedy}")

    # -- reading -------------------------------------------------------------------------------------------------

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order, all from one state of the database. Raises: StoreError."""
        with self._failures(f"read {requests[0].key if requests else ''!r}"), self._connection() as db:
            if len(requests) < 2 and all(request.start is None for request in requests):
                return [_get(db, request) for request in requests]
            with _transaction(db, "BEGIN"):
                return [_get(db, request) for request in requests]

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        return self._one("SELECT length(v) FROM zarr WHERE k = ?", key)

    @property
    def versions(self) -> Versions | None:
        """The numbers of the rows, which every write changes."""
        return _RowVersions(self)

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that a row still has the same number, all of one call in one transaction."""
        return TaggedObjects(self)

    def _get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        with self._failures(f"read {keys[0] if keys else ''!r}"), self._connection() as db:
            rows = [db.execute("SELECT v, rowid FROM zarr WHERE k = ?", (key,)).fetchone() for key in keys]
        return [None if row is None else Versioned(bytes(row[0]), row[1]) for row in rows]

    def _one(self, query: str, key: str) -> int | None:
        with self._failures(f"look up {key!r}"), self._connection() as db:
            row = db.execute(query, (key,)).fetchone()
        return None if row is None else int(row[0])

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path, as they were when listing began."""
        with self._failures("list keys"), self._connection() as db:
            rows = db.execute("SELECT k FROM zarr WHERE k >= ? AND k < ?", _bounds(prefix))
            return iter([key for (key,) in rows])

    def nbytes_stored(self, path: str = "") -> int:
        """Bytes stored under a path, added up by the database."""
        with self._failures("add up sizes"), self._connection() as db:
            rows = db.execute("SELECT total(length(v)) FROM zarr WHERE k >= ? AND k < ?", _bounds(path))
            return int(rows.fetchone()[0])

    def lock_name(self, key: str) -> Hashable:
        """The real path of the database (or the identity of one in memory), with the key."""
        return (id(self) if self.path == ":memory:" else self._place), key

    # -- writing -------------------------------------------------------------------------------------------------

    def _write(self, rows: list[tuple[str, bytes]]) -> None:
        # One transaction: all of them or none.
        with self._failures(f"write {rows[0][0]!r}"), self._connection() as db, _transaction(db):
            for key, data in rows:
                _set(db, key, data)

    def _delete(self, keys: list[str]) -> None:
        with self._failures("delete"), self._connection() as db, _transaction(db):
            db.executemany("DELETE FROM zarr WHERE k = ?", ((key,) for key in keys))

    def _set_if(self, changes: Sequence[Change]) -> list[bool]:
        self.check_writable()
        if not changes:
            return []
        for change in changes:
            check_key(change.key)
        with self._failures(f"write {changes[0].key!r}"), self._connection() as db, _transaction(db):
            return [_change(db, change) for change in changes]

    def close(self) -> None:
        """Close all connections; a store of a file opens new ones when it is used again."""
        with inside_library(), self._lock:
            shared, self._shared = self._shared, None
            self._nclosed += 1
            _close_all(self._idle, self._pid)
            if shared is not None:
                shared.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path == ":memory:":
            raise StoreError(f"store {self} cannot be pickled: its contents live in this process")
        given = (self.path, self.dimension_separator)
        return pickled(self, SQLiteStore, *given, read_only=self.read_only, **self._kwargs)


def _roll_back(db: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # it may be closed
        db.rollback()


def _bounds(path: str) -> tuple[str, str | bytes]:
    """Between which keys those under a path lie."""
    check_path(path)
    # "0" follows "/" in ASCII; blobs follow all text.
    return (f"{path}/", f"{path}0") if path else ("", b"")


def _close_all(connections: list[sqlite3.Connection], pid: int) -> None:
    """Close connections, unless they belong to the process that this one was forked from."""
    with inside_library():
        while connections and pid == os.getpid():
            connections.pop().close()


@contextmanager
def _transaction(db: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """A transaction; within another one, which is that of foreign code, a part of it."""
    begin, undo, commit = _PART if db.in_transaction else (begin, "ROLLBACK", "COMMIT")
    db.execute(begin)
    try:
        yield
    except BaseException:
        for statement in undo.split(";") if db.in_transaction else ():  # a full disk has ended it
            db.execute(statement)
        raise
    db.execute(commit)


def _set(db: sqlite3.Connection, key: str, data: bytes) -> None:
    _with_number(db, key, lambda number: (_SET, (number, key, data)))


def _change(db: sqlite3.Connection, change: Change) -> bool:
    """Carry out a change if its condition holds. Returns: whether it does."""
    key, value, tag = change
    if value is None:
        if tag is ANY:
            db.execute("DELETE FROM zarr WHERE k = ?", (key,))
            return True
        return db.execute("DELETE FROM zarr WHERE k = ? AND rowid = ?", (key, tag)).rowcount > 0
    data = as_bytes(key, value)
    if tag is ANY:
        _set(db, key, data)
        return True
    if tag is None:
        return _with_number(db, key, lambda number: (_INSERT, (number, key, data))) > 0
    return _with_number(db, key, lambda number: (_UPDATE, (number, data, key, tag))) > 0


def _with_number(db: sqlite3.Connection, key: str, statement: Callable[[int], tuple[str, tuple[Any, ...]]]) -> int:
    """Execute a statement that gives a row a new random number. Returns: how many rows it changed."""
    for _ in range(_ATTEMPTS):
        try:
            return db.execute(*statement(random.getrandbits(62))).rowcount  # a name, not a secret
        except sqlite3.IntegrityError:
            continue  # the number is another object's
    raise sqlite3.IntegrityError(f"no free row number for {key!r}")


def _get(db: sqlite3.Connection, request: Request) -> Buffer | None:
    key, start, length = request
    if start is None:
        row = db.execute("SELECT v FROM zarr WHERE k = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])
    row = db.execute("SELECT length(v) FROM zarr WHERE k = ?", (key,)).fetchone()
    if row is None:
        return None
    begin, end = byte_range(start, length, row[0])
    if begin == end:
        return b""
    # Positions count from 1. Both reads are in one transaction, so they see one version.
    row = db.execute("SELECT substr(v, ?, ?) FROM zarr WHERE k = ?", (begin + 1, end - begin, key)).fetchone()
    return None if row is None else bytes(row[0])
