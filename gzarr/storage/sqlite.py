"""Objects as rows of a table in an SQLite database, the one that zarr 2 made: ``zarr(k TEXT PRIMARY KEY, v BLOB)``.

Each call has a connection to itself, so readers never wait for each other. Connections are reused by later calls, so
there are as many as there ever were calls at one time. SQLite's locks order writers, of this process and of others.
Every written row gets a new random rowid, which is the token of the object's version: SQLite itself would reuse the
number of a row that was deleted.
"""
# os.path: the store takes what users call a path and gives it back unchanged.
# ruff: noqa: PTH100

import os
import random
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

from gzarr.concurrency import new_lock
from gzarr.errors import StoreError
from gzarr.storage.base import R
from gzarr.storage.capabilities import ANY, Buffer, Change, Conditional, Request, TokensBy, Versioned, Versions
from gzarr.storage.flat import KeyConditions, KeyValueStore
from gzarr.storage.forks import inside_library, one_call
from gzarr.storage.rules import pickled

_CREATE = "CREATE TABLE IF NOT EXISTS zarr(k TEXT PRIMARY KEY, v BLOB)"
_SET = (
    "INSERT INTO zarr(rowid, k, v) VALUES(?, ?, ?) ON CONFLICT(k) DO UPDATE SET rowid = excluded.rowid, v = excluded.v"
)
_INSERT = "INSERT INTO zarr(rowid, k, v) VALUES(?, ?, ?) ON CONFLICT(k) DO NOTHING"
_UPDATE = "UPDATE zarr SET rowid = ?, k = ?, v = ? WHERE k = ? AND rowid = ?"
#: Seconds that a writer waits for another one; the sqlite3 module's own 5 are few when whole shards are stored.
_TIMEOUT_S = 60.0
#: The longest blob, and the largest number that `substr` takes.
_MAX_NBYTES = (1 << 31) - 1

#: What helps against errors, by their code (https://www.sqlite.org/rescode.html).
_REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process or connection has held the database for longer than timeout= allows; retry,"
    " write less at once, or open the store with a longer timeout",
    sqlite3.SQLITE_FULL: "is the disk full? What was stored before is unchanged",
    sqlite3.SQLITE_IOERR: "is the disk full? What was stored before is unchanged",
    sqlite3.SQLITE_READONLY: "if a writer was killed, open the store once without read_only=True, which rolls back what"
    " it left",
}


class SQLiteStore(KeyValueStore):
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
    _process_bound = frozenset({"_idle", "_lock", "_pid"})

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
        self._lock = new_lock()
        self._place = id(self) if given == ":memory:" else os.path.realpath(self.path)
        self._begin()
        if given == ":memory:":
            self._idle.append(self._new_connection())
        if not read_only:
            with self._failures("open the database"):
                self._call(lambda db: db.execute(_CREATE))

    # -- connections ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin without connections, as in a forked child, which must not use those to its parent's file."""
        self._idle: list[sqlite3.Connection] = []
        self._pid = os.getpid()
        weakref.finalize(self, _close_all, self._idle, self._pid)

    def _new_connection(self) -> sqlite3.Connection:
        place = self.path
        options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, **self._kwargs}
        if self.read_only and self.path != ":memory:":
            place, options["uri"] = f"{Path(self.path).as_uri()}?mode=ro", True
        return sqlite3.connect(place, **options)

    def _call(self, function: Callable[[sqlite3.Connection], R], begin: str = "") -> R:
        """Call a function with a connection for exclusive use, in a transaction if `begin` says how it begins.

        A database in memory has one connection, so threads take turns.
        """
        turn = nullcontext() if self.path != ":memory:" else self._lock
        with inside_library(), one_call(self._place), turn:
            if self._pid != os.getpid() and self.path != ":memory:":
                self._begin()
            idle = self._idle
            try:
                db = idle.pop()
            except IndexError:
                if self.path == ":memory:":
                    raise StoreError(f"store {self} is closed, and its contents are gone") from None
                db = self._new_connection()
            try:
                if begin:
                    db.execute(begin)
                result = function(db)
                if begin:
                    db.execute("COMMIT")
                return result
            finally:
                self._give_back(db, idle)

    def _give_back(self, db: sqlite3.Connection, idle: list[sqlite3.Connection]) -> None:
        if db.in_transaction:
            with suppress(sqlite3.Error):
                db.rollback()
        with self._lock:
            if idle is self._idle and not db.in_transaction:
                idle.append(db)
            else:
                db.close()  # the store was closed meanwhile, or a transaction could not be ended

    def _failed(self, what: str, error: Exception) -> StoreError:
        failed = super()._failed(what, error)
        remedy = _REMEDIES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)  # the extended codes say more than that
        return failed if remedy is None else StoreError(f"{failed}; {remedy}")

    # -- values --------------------------------------------------------------------------------------------------

    def _read(self, requests: Sequence[Request]) -> list[Buffer | None]:
        # One transaction: all from one state of the database.
        begin = "BEGIN" if len(requests) > 1 else ""
        return self._call(lambda db: [_get(db, request) for request in requests], begin)

    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        return [None if row is None else int(row[0]) for row in self._rows("length(v)", keys)]

    def _read_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        return [None if row is None else Versioned(bytes(row[0]), row[1]) for row in self._rows("v, rowid", keys)]

    @property
    def versions(self) -> Versions | None:
        """The numbers of the rows, which every write changes."""
        return TokensBy(self._token)

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that a row still has the same number, all of one call in one transaction."""
        return KeyConditions(self)

    def _token(self, key: str) -> object | None:
        with self._failures(f"look up {key!r}"):
            row = self._rows("rowid", (key,))[0]
            return row and row[0]

    def _rows(self, what: str, keys: Sequence[str]) -> list[tuple[Any, ...] | None]:
        query = f"SELECT {what} FROM zarr WHERE k = ?"  # noqa: S608 - names of columns
        return self._call(lambda db: [db.execute(query, (key,)).fetchone() for key in keys])

    def _keys(self, path: str) -> list[str]:
        # "0" follows "/" in ASCII; blobs follow all text.
        bounds: tuple[str, str | bytes] = (f"{path}/", f"{path}0") if path else ("", b"")
        return self._call(
            lambda db: [key for (key,) in db.execute("SELECT k FROM zarr WHERE k >= ? AND k < ?", bounds)]
        )

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        # One transaction: all of them or none.
        return self._call(lambda db: [_change(db, change) for change in changes], "BEGIN IMMEDIATE")

    def close(self) -> None:
        """Close all connections; a store of a file opens new ones when it is used again."""
        with inside_library(), self._lock:
            idle, pid = self._idle, self._pid
            self._begin()
            _close_all(idle, pid)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path == ":memory:":
            raise StoreError(f"store {self} cannot be pickled: its contents live in this process")
        given = (self.path, self.dimension_separator)
        return pickled(self, SQLiteStore, *given, read_only=self.read_only, **self._kwargs)


def _close_all(connections: list[sqlite3.Connection], pid: int) -> None:
    """Close connections, unless they belong to the process that this one was forked from."""
    with inside_library():
        while connections and pid == os.getpid():
            connections.pop().close()


def _change(db: sqlite3.Connection, change: Change) -> bool:
    """Carry out a change if its condition holds. Returns: whether it does."""
    key, data, tag = change
    number = random.getrandbits(62)  # a name, not a secret; another object has it once in 2**40 times
    if data is None:
        if tag is ANY:
            db.execute("DELETE FROM zarr WHERE k = ?", (key,))
            return True
        return db.execute("DELETE FROM zarr WHERE k = ? AND rowid = ?", (key, tag)).rowcount > 0
    if tag is None or tag is ANY:
        return db.execute(_INSERT if tag is None else _SET, (number, key, data)).rowcount > 0
    return db.execute(_UPDATE, (number, key, data, key, tag)).rowcount > 0


def _get(db: sqlite3.Connection, request: Request) -> Buffer | None:
    key, start, length = request
    what: str = "v"
    place: tuple[int, ...] = ()
    if start is not None:  # positions count from 1, or from the end; negative lengths would go back from there
        first = max(start, -_MAX_NBYTES) if start < 0 else min(start + 1, _MAX_NBYTES)
        nbytes = _MAX_NBYTES if length is None else min(max(length, 0), _MAX_NBYTES)
        what, place = "substr(v, ?, ?)", (first, nbytes)
    row = db.execute(f"SELECT {what} FROM zarr WHERE k = ?", (*place, key)).fetchone()  # noqa: S608 - no value of others
    return None if row is None else bytes(row[0] or b"")  # parts of an empty blob are null
