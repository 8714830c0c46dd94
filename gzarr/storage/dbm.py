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
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from gzarr.concurrency import Pool, new_lock
from gzarr.errors import StoreError
from gzarr.storage.base import R
from gzarr.storage.capabilities import Buffer, Change, Request
from gzarr.storage.flat import KeyValueStore
from gzarr.storage.locks import entering, reentered
from gzarr.storage.rules import cut, pickled


class DBMStore(KeyValueStore):
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

    _errors = Exception  # every kind of DBM raises its own
    _process_bound = frozenset({"flag", "_lock", "_db", "_pid", "_pool"})

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
        self._place = os.path.realpath(self.path)
        self._lock = new_lock()
        self._db: Any = None
        self._pid = os.getpid()
        # dbm.sqlite3 serves only the thread that opened it, so one thread does everything with the file.
        self._pool = Pool() if _serves_one_thread(open) else None
        with self._lock:
            self._run(self._open_file, flag)
        # What `dbm.whichdb` says of a file that has been written to.
        self.backend = type(self._db).__module__.replace("_gdbm", "dbm.gnu").replace("_dbm", "dbm.ndbm")

    def _open_file(self, flag: str) -> None:
        opener: Any = self._opener or dbm.open
        with self._failures(f"open the file with flag {flag!r}"):
            self._db = opener(self.path, flag, self.mode, **self._open_kwargs)

    def _run(self, function: Callable[..., R], *args: Any) -> R:
        if self._pool is None or self._pool.is_here():  # as when the store is collected there
            return function(*args)
        return self._pool.call(lambda: function(*args))

    def _call(self, function: Callable[[Any], R]) -> R:
        """Call a function with the open file, one at a time; a closed file is opened again."""
        if self._pool is not None and self._pool.is_here():
            raise reentered(str(self))
        with entering(self._lock, str(self)):
            self._check_process()
            if self._db is None:
                self._run(self._open_file, self._next_flag)
            return self._run(function, self._db)

    @property
    def _next_flag(self) -> str:
        """How to open the file again: it is never emptied a second time."""
        return "c" if self.flag[:1] == "n" else self.flag

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

    def _read(self, requests: Sequence[Request]) -> list[Buffer | None]:
        def read(db: Any) -> list[bytes | None]:
            return [bytes(db[name]) if (name := request.key.encode()) in db else None for request in requests]

        values = zip(self._call(read), requests, strict=True)
        return [None if value is None else cut(value, *request[1:]) for value, request in values]

    def _keys(self, path: str) -> list[str]:
        return self._call(lambda db: [bytes(key).decode() for key in db.keys()])  # noqa: SIM118 - no dict

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        for key, value, _ in changes:
            self._call(partial(_store, key.encode(), value))
        return [True] * len(changes)

    def flush(self) -> None:
        """Write all changes to the file."""
        if hasattr(self._db, "sync"):
            with self._failures("flush"):
                self._call(lambda db: db.sync())
        else:
            self.close()

    def close(self) -> None:
        """Close the file; it is opened again when the store is used again."""
        if self._db is None or self._pid != os.getpid():
            return
        with self._failures("close"), entering(self._lock, str(self)):
            db, self._db = self._db, None
            if db is not None:
                self._run(db.close)

    def __del__(self) -> None:
        # A file that was not closed may lack what was written last.
        if getattr(self, "_db", None) is not None:
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.read_only:
            self.flush()
        given = (self.path, self._next_flag, self.mode, self._opener, True, self.dimension_separator)
        return pickled(self, DBMStore, *given, **self._open_kwargs)


def _store(name: bytes, value: Buffer | None, db: Any) -> None:
    if value is not None:
        db[name] = value
    elif name in db:
        del db[name]


def _serves_one_thread(opener: Any) -> bool:
    """Whether a file may be opened by Python's dbm.sqlite3, which exists from version 3.13 on."""
    return sys.version_info >= (3, 13) and (opener is None or getattr(opener, "__module__", "").startswith("dbm"))
