"""Objects in an LMDB database: a memory-mapped file that many processes may read while one of them writes.

A process must not open one LMDB database twice, so stores of one path share one environment, which LMDB closes when the
last of them forgets it; after a fork the child opens its own.
"""
# os.path: the store takes what users call a path and gives it back unchanged.
# ruff: noqa: PTH100, PTH102

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal
from weakref import WeakValueDictionary

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

#: The environments in use, by process and real path.
_opened: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()
_opening = new_lock()


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

    _process_bound = frozenset({"_lmdb", "_errors", "_environment", "_pid"})

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
        self._environment: Any = None
        self._pid = 0
        self._env()

    def _env(self) -> Any:
        """The open environment."""
        environment = self._environment
        if environment is None or self._pid != os.getpid():
            with inside_library(), _opening:
                pid = os.getpid()
                environment = self._opened((pid, os.path.realpath(self.path)))
                self._pid, self._environment = pid, environment
        return environment

    def _opened(self, place: tuple[int, str]) -> Any:
        environment = _opened.get(place)
        if environment is None:
            # A child closes what it inherited, which LMDB lets it do without harm to the parent's.
            for other in [(pid, path) for pid, path in list(_opened) if path == place[1]]:
                _opened.pop(other).close()
            # Written pages reach the disk when the system sees fit, as in zarr 2: a crash of it may lose writes.
            # No writable map: writing to a page of it that finds no room on the disk kills the process.
            options = {"map_size": _MAP_NBYTES, "max_readers": _READERS, "meminit": False, "metasync": False}
            options |= {"sync": False, "create": True, "lock": True, "subdir": True, "readonly": self.read_only}
            options |= self._kwargs
            try:
                _reserve_locks(self.path, options)
                environment = _opened[place] = self._lmdb.open(self.path, **options)
            except (self._lmdb.Error, OSError) as error:
                raise self._failed("open the database", error) from error
        if not self.read_only and environment.flags()["readonly"]:
            raise StoreError(
                f"store {self}: another store of this process has the database open with read_only=True; close that"
                " first, or open both for writing"
            )
        return environment

    def _call(self, function: Callable[[Any], R], *, write: bool = False) -> R:
        """Call a function with a transaction, which sees one state of the database and is undone if it fails."""
        with inside_library(), one_call(self._place), self._env().begin(write=write, buffers=not write) as txn:
            return function(txn)

    def _failed(self, what: str, error: Exception) -> StoreError:
        if isinstance(error, self._lmdb.MapFullError):
            return StoreError(f"store {self}: cannot {what}: the map is full; open it with map_size=...")
        if isinstance(error, self._lmdb.BadValsizeError):
            return StoreError(f"store {self}: cannot {what}: LMDB takes {self._env().max_key_size()} bytes for a key")
        failed = super()._failed(what, error)
        if any(message in str(error) for message in _FULL):
            return StoreError(f"{failed}; is the disk full? What was stored before is unchanged")
        return failed

    def _read(self, requests: Sequence[Request]) -> list[Buffer | None]:
        return self._call(lambda txn: [self._get(txn, request) for request in requests])

    def _get(self, txn: Any, request: Request) -> Buffer | None:
        value = self._lookup(txn, request.key)
        if value is None:
            return None
        begin, end = byte_range(request.start, request.length, len(value))
        return bytes(value[begin:end])  # ranges are copied, not whole objects

    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        def sizes(txn: Any) -> list[int | None]:
            return [None if value is None else len(value) for value in (self._lookup(txn, key) for key in keys)]

        return self._call(sizes)

    def _lookup(self, txn: Any, key: str) -> Any:
        try:
            return txn.get(key.encode())
        except self._lmdb.BadValsizeError:  # no object can have this key
            return None

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

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        # One transaction: all of them or none.
        return self._call(lambda txn: [self._change_one(txn, *change) for change in changes], write=True)

    def _change_one(self, txn: Any, key: str, value: Buffer | None, tag: object | None) -> bool:
        if tag is not ANY and self._lookup(txn, key) != tag:
            return False
        if value is not None:
            txn.put(key.encode(), value)
        elif self._lookup(txn, key) is not None:
            txn.delete(key.encode())
        return True

    def flush(self) -> None:
        """Write all changes to the disk."""
        if not self.read_only:
            self._env().sync(True)

    def close(self) -> None:
        """Write all changes to the disk and close the database; it is opened again when the store is used again."""
        with inside_library(), _opening:
            if self._environment is not None and self._pid == os.getpid() and not self.read_only:
                self._environment.sync(True)
            self._environment = None

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.path, True, self.dimension_separator)
        return pickled(self, LMDBStore, *given, read_only=self.read_only, **self._kwargs)


def _reserve_locks(path: str, options: dict[str, Any]) -> None:
    """Give the file of locks its blocks on the disk: LMDB writes to it through a map, which kills where it is full.

    Raises: OSError if the disk is full.
    """
    if options["readonly"] or not (options["create"] and options["lock"] and hasattr(os, "posix_fallocate")):
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
