"""A cache on disk of the encoded bytes of a store, shared by the processes of a host: ``cache=`` of `gzarr.open`.

Theory of operation. An answer of the store is a file, whose name is a hash of the store, the key, the token of the
version and the range. A file is renamed into its place when it is complete, and begins with its length and a checksum:
one that is torn or damaged is deleted, and the store is asked. The store is asked for tokens at every read, and bytes
are kept if they are of the version of that token: a server compares it as it answers (``If-Match``), of other stores it
is the same afterwards. So an object that was replaced has another file.

When there is no more room, files go that nobody has used since this cache was opened, the oldest first. Those in use
stay: where each epoch reads everything once in another random order, even the optimal rule, which replaces what is used
last (L. A. Belady, IBM Systems Journal 5, 1966), finds no more than the share of the data that the cache holds.
"""

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from gzarr.concurrency import new_lock
from gzarr.storage.base import Store
from gzarr.storage.cache import LRUStoreCache
from gzarr.storage.capabilities import Buffer, Request
from gzarr.storage.local_files import FileVersion
from gzarr.storage.rules import crc32, pickled

_MAGIC = b"gzarr-1\n"
_HEADER = len(_MAGIC) + 12
#: Names of files: hashes, less the two digits that name their folder.
_OWN = re.compile(r"[0-9a-f]{38}(\.\d+-\d+\.part)?")
#: Versions of files that changed so many nanoseconds ago are told from later ones by their times for sure.
_SETTLED_NS = 2 * 10**9
#: Seconds after which an unfinished file is nobody's.
_ABANDONED_S = 3600.0
#: What is deleted at once, as a share of the limit.
_SHARE = 20
#: Seconds between two looks at a folder that is full of files in use.
_EVERY_S = 10.0


class _Room:
    """How much is in a folder, for all caches of this process that are there.

    Attributes
    ----------
    begun : float
        When the first of them was opened.
    """

    def __init__(self, folder: Path) -> None:
        self.begun = time.time()
        self._folder, self._counting = folder, new_lock()
        self._used = self._since = 0
        self._next = -1.0

    def take(self, nbytes: int, limit: int | None) -> bool:
        """Make room for a file, if there is a limit. Returns: whether there is room."""
        if limit is None:
            return True
        with self._counting:
            is_due = self._used + nbytes > limit and time.monotonic() >= self._next
            if self._next < 0 or is_due or self._since > limit // _SHARE:  # other processes write, too
                self._used, self._since = self._trim(limit - nbytes, limit // _SHARE), 0
                self._next = time.monotonic() + _EVERY_S
            if self._used + nbytes > limit:
                return False
            self._used += nbytes
            self._since += nbytes
            return True

    def _trim(self, most: int, more: int) -> int:
        """Delete files until there are no more than so many bytes, and some more. Returns: how many there are."""
        files = sorted(self._files())
        total = sum(nbytes for _, nbytes, _ in files)
        for used, nbytes, path in files if total > most else ():
            if total <= most - more or used >= self.begun:
                break
            with suppress(OSError):
                path.unlink()
            total -= nbytes
        return total

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """When each file was used, its size, and its path. Those that were never finished are deleted."""
        for name in map("{:02x}".format, range(256)):  # the folder may hold what is not the cache's
            with suppress(OSError), os.scandir(self._folder / name) as entries:
                for entry in filter(lambda entry: _OWN.fullmatch(entry.name), entries):
                    with suppress(OSError):
                        found = entry.stat()
                        if entry.name.endswith(".part") and found.st_mtime < time.time() - _ABANDONED_S:
                            Path(entry.path).unlink()
                        else:
                            yield found.st_mtime, found.st_size, Path(entry.path)


_room_of = cache(_Room)


class DiskCache(LRUStoreCache):
    """Cache what is read from a store in files. Processes and threads may share the folder.

    Objects are cached whose versions the store tells by lasting tokens: those of servers (ETags) and of files. Others
    are read from the store each time, as is everything once the disk is full.

    Parameters
    ----------
    store : Store or mapping
        The slow store.
    folder : path
        Where the files are. It is made if it is missing.
    nbytes : int, optional
        Bytes of all files of the folder at most; None for no limit.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.create_array("slow.zarr", data=[1, 2, 3])
    >>> gzarr.open_array("slow.zarr", "r", cache="cache", cache_nbytes=10**9)[...]
    array([1, 2, 3])
    """

    _process_bound = LRUStoreCache._process_bound | {"_room"}  # noqa: SLF001 - of its base

    # The answers are those of the store, wherever they are kept.
    versions, conditional = LRUStoreCache.versions, LRUStoreCache.conditional

    def __init__(
        self, store: Store | MutableMapping[str, Any], folder: str | os.PathLike[str], nbytes: int | None = None
    ) -> None:
        if nbytes is not None and (not isinstance(nbytes, (int, np.integer)) or nbytes < 0):
            raise TypeError(f"cache_nbytes must be a whole number of bytes, or None for no limit, got {nbytes!r}")
        if not isinstance(folder, (str, os.PathLike)):
            raise TypeError(f"cache must be the path of a folder, got {folder!r:.100}")
        super().__init__(store, None if nbytes is None else int(nbytes))
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._room = _room_of(self._folder.resolve())

    def _look_up(self, requests: Sequence[Request], tokens: dict[str, object | None]) -> list[Buffer | None]:
        return [self._read(self._path(request, tokens[request.key])) for request in requests]

    def _path(self, request: Request, token: object | None) -> Path | None:
        """The file of an answer; None if the token does not tell the version for good."""
        if isinstance(token, FileVersion):
            if time.time_ns() - token.changed_ns < _SETTLED_NS:
                return None
            token = token[:4]
        elif not isinstance(token, (str, bytes)):
            return None
        name = blake2b(repr((str(self), *request, token)).encode(), digest_size=20).hexdigest()
        return self._folder / name[:2] / name[2:]

    def _read(self, path: Path | None) -> Buffer | None:
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if data[:_HEADER] != _header(value := memoryview(data)[_HEADER:]):
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            if path.stat().st_mtime < self._room.begun:
                os.utime(path)
        return value

    def _keep(self, answers: Iterable[tuple[Request, bytes, object | None]], last_change: object) -> None:
        for request, value, token in answers:
            path = self._path(request, token)
            if path is not None and self._room.take(_HEADER + len(value), self._max_nbytes):
                with suppress(OSError):  # a full disk: the next reader asks the store
                    self._write(path, value)

    def _write(self, path: Path, value: bytes) -> None:
        path.parent.mkdir(exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        try:
            with part.open("wb") as file:
                file.write(_header(value))
                file.write(value)
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, DiskCache, self._store, self._folder, self._max_nbytes)


def _header(value: bytes | memoryview) -> bytes:
    return _MAGIC + len(value).to_bytes(8, "little") + crc32(value).to_bytes(4, "little")
