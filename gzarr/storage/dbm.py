"""Objects in a DBM file: one of the key-value files that Python's `dbm` reads and writes, or a similar library's.

DBM files serve one process at a time; in it one lock lets one thread at a time use the file. What others wrote is seen
when the store is opened, and what was written is sure to be in the file once the store is closed.
"""
# os.path: the store takes what users call a path and gives it back unchanged.
# ruff: noqa: PTH100

from __future__ import annotations

import dbm
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import setitem
from typing import Any, Literal

from gzarr.concurrency import Pool, new_lock
from gzarr.errors import StoreError
from gzarr.storage.base import Buffer, R, Request, pickled
from gzarr.storage.flat import DatabaseStore, cut_all
from gzarr.storage.rules import check_path, under


class DBMStore(DatabaseStore):
    """A store in a DBM file; close it (or use ``with``) when writing is done.

    Parameters
    ----------
    path : str or os.PathLike
        Path of the file; some kinds of DBM add endings to it.
    flag : str
        ``"c"`` opens the file and makes it if it is missing, ``"w"`` only opens it, ``"r"`` opens it for reading,
        ``"n"`` begins an empty one.
    mode : int
        Permissions of a new file.
    open : callable, optional
        What opens it, by default `dbm.open`, which takes the best kind that this Python has.
    write_lock : bool
        Accepted for zarr 2; there always is a lock.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    **open_kwargs
        Arguments of `open`.

    Attributes
    ----------
    backend : str
        The kind of file, as `dbm.whichdb` names it: "dbm.gnu", "dbm.dumb", "dbm.sqlite3", ...

    Raises
    ------
    StoreError
        If the file cannot be opened.
    """

    _process_bound = frozenset({"flag", "_lock", "_db", "_pid", "_waiting", "_changing", "_pool", "_serving"})

    def __init__(
        self,
        path: str | os.PathLike[str],
        flag: str = "c",
        mode: int = 0o666,
        open: Callable[..., Any] | None = None,
        write_lock: bool = True,
        dimension_separator: Literal[".", "/"] | None = None,
        **open_kwargs: Any,
    ) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        self.flag, self.mode = flag, mode
        self.dimension_separator = dimension_separator
        self.read_only = flag[:1] == "r"
        self._name = f"dbm://{os.fsdecode(path)}"
        self._opener, self._open_kwargs = open, open_kwargs
        self._lock = new_lock()
        self._db: Any = None
        self._pid = os.getpid()
        # Changes in their order. Foreign code on the thread that makes one may add more, which then come after it:
        # files such as those of dbm.dumb cannot be changed in the midst of a change.
        self._waiting: dict[str, bytes | None] = {}
        self._changing = False
        # dbm.sqlite3 serves only the thread that opened it, so one thread does everything with the file.
        self._pool = Pool() if _serves_one_thread(open) else None
        self._serving = 0  # the thread that does so now
        with self._lock:
            self._run(self._open_file, flag)
        self.backend = dbm.whichdb(self.path) if open is None else type(self._db).__module__
        if not self.backend:  # a new file may be empty until it is written to
            self.backend = type(self._db).__module__.replace("_gdbm", "dbm.gnu").replace("_dbm", "dbm.ndbm")

    def _open_file(self, flag: str) -> None:
        opener: Any = self._opener or dbm.open
        try:
            self._db = opener(self.path, flag, self.mode, **self._open_kwargs)
        except Exception as error:
            raise StoreError(
                f"store {self}: cannot open the file with flag {flag!r}: {error}; its kind is"
                f" {dbm.whichdb(self.path) or 'not known'!r}"
            ) from error

    def _run(self, function: Callable[..., R], *args: Any) -> R:
        if self._pool is None or self._serving == threading.get_ident():
            return function(*args)
        return self._pool.call(lambda: self._serve(function, args))

    def _serve(self, function: Callable[..., R], args: tuple[Any, ...]) -> R:
        try:
            self._serving = threading.get_ident()
            return function(*args)
        finally:
            self._serving = 0

    def _held(self) -> AbstractContextManager[Any]:
        """The lock; not for foreign code on the thread that works for the holder."""
        return nullcontext() if self._serving == threading.get_ident() else self._lock

    def _call(self, verb: str, function: Callable[..., R], *args: Any) -> R:
        """Call a function with the open file and arguments, one at a time; a closed file is opened again."""
        with self._held():
            self._check_process()
            if self._db is None:
                self._run(self._open_file, "c" if self.flag[:1] == "n" else self.flag)  # never empty it a second time
            try:
                return self._run(function, self._db, *args)
            except Exception as error:  # every kind of DBM raises its own errors
                raise StoreError(f"store {self} ({self.backend}): cannot {verb}: {error}") from error

    def _change(self, changes: dict[str, bytes | None], last: Callable[[], object] = int) -> None:
        """Make changes, and those that foreign code adds meanwhile; then call a function."""
        with self._held():
            self._waiting.update(changes)
            if self._changing:
                return
            try:
                self._changing = True
                self._make_changes()
                last()
            finally:
                self._changing = False
            if self._waiting:
                self._change({})

    def _make_changes(self) -> None:
        while self._waiting:
            key, value = next(iter(list(self._waiting.items())))
            try:
                if value is None:
                    self._call(f"delete {key!r}", _discard, key)
                else:
                    self._call(f"write {key!r} of {len(value)} bytes", setitem, key.encode(), value)
            finally:
                if self._waiting.get(key) is value:
                    self._waiting.pop(key, None)

    def _lookup(self, db: Any, key: str) -> bytes | None:
        try:
            return self._waiting[key] if key in self._waiting else bytes(db[key.encode()])
        except KeyError:
            return None

    def _list(self, db: Any) -> list[str]:
        keys = {bytes(key).decode(): True for key in db.keys()}  # noqa: SIM118 - no dict
        keys |= {key: value is not None for key, value in list(self._waiting.items())}
        return [key for key, there in keys.items() if there]

    def _check_process(self) -> None:
        """Forget the file that a forked child inherited. Raises: StoreError if the parent may still write to it."""
        if self._pid == os.getpid():
            return
        if self._db is not None and not self.read_only:
            raise StoreError(
                f"store {self} was opened for writing before this process was forked, and a DBM file serves one process"
                " at a time; close the store before the fork, and open it in one of the processes"
            )
        self._pid, self._db = os.getpid(), None

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; all see one version of each object. Raises: StoreError."""
        values = self._call("read", lambda db: [self._lookup(db, request.key) for request in requests])
        return cut_all(values, requests)

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        value = self._call(f"look up {key!r}", self._lookup, key)
        return None if value is None else len(value)

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path, as they were when listing began."""
        check_path(prefix)
        return under(self._call("list keys", self._list), prefix)

    def lock_name(self, key: str) -> Hashable:
        """The real path of the file, with the key."""
        return os.path.realpath(self.path), key

    def _write(self, rows: list[tuple[str, bytes]]) -> None:
        for key, data in rows:
            self._change({key: data})

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            self._change({key: None})

    def flush(self) -> None:
        """Write all changes to the file."""
        if hasattr(self._db, "sync"):
            self._change({}, lambda: self._call("flush", lambda db: db.sync()))
        else:
            self.close()

    def close(self) -> None:
        """Close the file; it is opened again when the store is used again."""
        if self._db is not None and self._pid == os.getpid():
            self._change({}, self._close_file)

    def _close_file(self) -> None:
        try:
            if self._db is not None:
                self._run(self._db.close)
        finally:
            self._db = None

    def __del__(self) -> None:
        # A file that was not closed may lack what was written last.
        if getattr(self, "_db", None) is not None:
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.read_only:
            self.flush()
        flag = "c" if self.flag[:1] == "n" else self.flag
        given = (self.path, flag, self.mode, self._opener, True, self.dimension_separator)
        return pickled(self, DBMStore, *given, **self._open_kwargs)


def _discard(db: Any, key: str) -> None:
    if key.encode() in db:
        del db[key.encode()]


def _serves_one_thread(opener: Any) -> bool:
    """Whether a file may be opened by Python's dbm.sqlite3, which exists from version 3.13 on."""
    return sys.version_info >= (3, 13) and (opener is None or getattr(opener, "__module__", "").startswith("dbm"))
