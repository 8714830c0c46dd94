"""Objects in an LMDB database: a memory-mapped file that many processes may read while one of them writes.

A process must not open one LMDB database twice, so stores of one path share one environment, which is closed with the
last of them; after a fork the child opens its own.
"""
# os.path: the store takes what users call a path and gives it back unchanged.
# ruff: noqa: PTH100, PTH102

from __future__ import annotations

import errno
import os
import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, Literal

from gzarr.concurrency import new_lock
from gzarr.errors import StoreError
from gzarr.storage.base import R
from gzarr.storage.capabilities import ANY, Buffer, Change, Conditional, Request
from gzarr.storage.extras import require
from gzarr.storage.flat import KeyConditions, KeyValueStore
from gzarr.storage.forks import inside_library, one_call
from gzarr.storage.rules import byte_range, pickled

#: Address space for the map, as in zarr 2: a sparse file, which takes no more of the disk than was written.
_MAP_NBYTES = 1 << 40 if sys.maxsize >= 1 << 32 else 1 << 28
#: Threads that may read at once; LMDB's own 126 are few for a process that reads with many.
_READERS = 1024
#: What a reader takes in the file of locks: a cache line.
_READER_NBYTES = 64
#: What errors say that have no class of their own.
_FULL = (os.strerror(errno.EIO), os.strerror(errno.ENOSPC))

_opened: dict[tuple[int, str], tuple[Any, list[int]]] = {}
_opened_lock = new_lock()


class LMDBStore(KeyValueStore):
    """A store in an LMDB database; needs ``pip install 'gzarr[lmdb]'``. Close it when writing is done.

    Keys have at most 511 bytes.

    Parameters
    ----------
    path : str or os.PathLike
        Path of the database, a directory; made if it is missing.
    buffers : bool
        Accepted for zarr 2; answers are always copies, since LMDB's views end with a transaction.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    read_only : bool
        Whether to refuse changes, and open the database so that nothing can change it.
    **kwargs
        Arguments of `lmdb.open`. A database that another store of this process has open stays as that opened it.
        With ``writemap=True`` a full disk kills the process (SIGBUS).

    Raises
    ------
    MissingExtraError
        If the extra is not installed.
    StoreError
        If the database cannot be opened.
    """

    _process_bound = frozenset({"_lmdb", "_errors", "_lock", "_environment", "_pid", "_release"})

    def __init__(
        self,
        path: str | os.PathLike[str],
        buffers: bool = True,
        dimension_separator: Literal[".", "/"] | None = None,
        *,
        read_only: bool = False,
        **kwargs: Any,
    ) -> None:
        self._lmdb = require("lmdb", "lmdb", "LMDBStore")
        self._errors = self._lmdb.Error
        self._name = f"lmdb://{os.fsdecode(path)}"
        self.path = os.path.abspath(os.fsdecode(path))
        self._place = os.path.realpath(self.path)
        self.dimension_separator = dimension_separator
        self.read_only = read_only or bool(kwargs.get("readonly"))
        self._kwargs = kwargs
        self._lock = new_lock()
        self._environment: Any = None
        self._pid = 0
        self._release: Any = None
        self._env()

    def _env(self) -> Any:
        if self._environment is not None and self._pid == os.getpid():
            return self._environment
        with inside_library(), self._lock:
            if self._environment is None or self._pid != os.getpid():
                self._pid = os.getpid()
                place = (self._pid, os.path.realpath(self.path))
                self._environment = self._open(place)
                self._release = weakref.finalize(self, _release, place)
            return self._environment

    def _open(self, place: tuple[int, str]) -> Any:
        # Written pages reach the disk when the system sees fit, as in zarr 2: a crash of the system may lose writes.
        # No writable map: writing to a page of it that finds no room on the disk kills the process.
        options = {"map_size": _MAP_NBYTES, "max_readers": _READERS, "meminit": False, "metasync": False, "sync": False}
        options |= {"create": True, "lock": True, "subdir": True, "readonly": self.read_only, **self._kwargs}
        with _opened_lock:
            if place not in _opened:
                _close_inherited(place)
                try:
                    _reserve_locks(self.path, options)
                    _opened[place] = (self._lmdb.open(self.path, **options), [0])
                except (self._lmdb.Error, OSError) as error:
                    raise self._failed("open the database", error) from error
            environment, users = _opened[place]
            if not self.read_only and environment.flags()["readonly"]:
                raise StoreError(
                    f"store {self}: another store of this process has the database open with read_only=True; close that"
                    " first, or open both for writing"
                )
            users[0] += 1
            return environment

    def _call(self, function: Callable[[Any], R], *, write: bool = False) -> R:
        """Call a function with a transaction, which sees one state of the database and is undone if it fails."""
        with inside_library(), one_call(self._place), self._env().begin(write=write, buffers=not write) as txn:
            return function(txn)

    def _failed(self, what: str, error: Exception) -> StoreError:
        if isinstance(error, self._lmdb.MapFullError):
            return StoreError(f"store {self}: cannot {what}: the map is full; open it with map_size=...")
        failed = super()._failed(what, error)
        if any(message in str(error) for message in _FULL):
            return StoreError(f"{failed}; is the disk full? What was stored before is unchanged")
        return failed

    def _read(self, requests: Sequence[Request]) -> list[Buffer | None]:
        return self._call(lambda txn: [self._get(txn, request) for request in requests])

    def _get(self, txn: Any, request: Request) -> Buffer | None:
        key, start, length = request
        value = self._lookup(txn, key)
        if value is None:
            return None
        begin, end = byte_range(start, length, len(value))
        return bytes(value[begin:end])  # ranges are copied, not whole objects

    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        return self._call(lambda txn: [self._get_size(txn, key) for key in keys])

    def _get_size(self, txn: Any, key: str) -> int | None:
        value = self._lookup(txn, key)
        return None if value is None else len(value)

    def _lookup(self, txn: Any, key: str) -> Any:
        name = key.encode()
        return txn.get(name) if 0 < len(name) <= self._env().max_key_size() else None

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that an object still has the same bytes, all of one call in one transaction."""
        return KeyConditions(self)

    def _keys(self, path: str) -> list[str]:
        start = f"{path}/".encode() if path else b""

        def keys(txn: Any) -> list[str]:
            found = []
            with txn.cursor() as cursor:
                if cursor.set_range(start) if start else cursor.first():
                    for name in map(bytes, cursor.iternext(keys=True, values=False)):
                        if not name.startswith(start):
                            break
                        found.append(name.decode())
            return found

        return self._call(keys)

    def lock_name(self, key: str) -> Hashable:
        """The real path of the database, with the key."""
        return self._place, key

    def _checked(self, key: str) -> bytes:
        name, most = key.encode(), self._env().max_key_size()
        if len(name) > most:
            raise StoreError(f"store {self}: key {key!r} has {len(name)} bytes, LMDB takes {most}")
        return name

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        # One transaction: all of them or none.
        return self._call(lambda txn: [self._change_one(txn, *change) for change in changes], write=True)

    def _change_one(self, txn: Any, key: str, value: Buffer | None, tag: object | None) -> bool:
        if value is None and tag is ANY and not 0 < len(key.encode()) <= self._env().max_key_size():
            return True  # no object has it
        name = self._checked(key)
        if tag is not ANY and txn.get(name) != tag:
            return False
        if value is None:
            txn.delete(name)
        else:
            txn.put(name, value)
        return True

    def flush(self) -> None:
        """Write all changes to the disk."""
        if not self.read_only:
            self._env().sync(True)

    def close(self) -> None:
        """Write all changes to the disk and close the database; it is opened again when the store is used again."""
        with inside_library(), self._lock:
            if self._environment is not None and self._pid == os.getpid():
                if not self.read_only:
                    self._environment.sync(True)
                self._release()
            self._environment = None

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.path, True, self.dimension_separator)
        return pickled(self, LMDBStore, *given, read_only=self.read_only, **self._kwargs)


def _reserve_locks(path: str, options: dict[str, Any]) -> None:
    """Give the file of locks its blocks on the disk: LMDB writes to it through a map, which kills where it is full.

    Raises: OSError if the disk is full.
    """
    if (
        not all(options[name] for name in ("create", "lock"))
        or options["readonly"]
        or not hasattr(os, "posix_fallocate")
    ):
        return
    with suppress(FileNotFoundError, PermissionError):  # LMDB itself says so
        if options["subdir"]:
            with suppress(FileExistsError):
                os.mkdir(path)
        name = f"{path}/lock.mdb" if options["subdir"] else f"{path}-lock"
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(file, 0, (options["max_readers"] + 4) * _READER_NBYTES)
        finally:
            os.close(file)


def _close_inherited(place: tuple[int, str]) -> None:
    """Close the environment that a child inherited, which LMDB lets it do without harm to the parent's."""
    for other in [other for other in _opened if other[1] == place[1] and other[0] != place[0]]:
        _opened.pop(other)[0].close()


def _release(place: tuple[int, str]) -> None:
    """Give up one use of an environment; the last use closes it."""
    if place[0] != os.getpid():
        return  # a child must leave its parent's environment alone
    with inside_library(), _opened_lock:
        environment, users = _opened[place]
        users[0] -= 1
        if not users[0]:
            del _opened[place]
            environment.close()
