"""A store that records every request, for tests and for counting what reading costs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self, TypeAlias

from gzarr.storage.base import Buffer, Files, Opened, Request, Store, Versioned, Versions
from gzarr.storage.wrappers import ForwardedVersions, WrapperStore

#: Records requests that were made in one call, and keys whose size, existence or token was asked for.
_Record: TypeAlias = Callable[[Sequence[Request] | None, Sequence[str]], None]


class _CountedReads:
    """An opened object whose reads a `CountingStore` records."""

    def __init__(self, opened: Opened, key: str, record: _Record) -> None:
        self._opened, self._key, self._record = opened, key, record
        self.nbytes = opened.nbytes

    def read(self, start: int, nbytes: int) -> Buffer:
        self._record([Request(self._key, start, nbytes)], ())
        return self._opened.read(start, nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._opened.__exit__(*exc)


class _CountedFiles(Files):
    """Records what is read of opened objects."""

    def __init__(self, files: Files, record: _Record) -> None:
        self._files, self._record = files, record

    def open(self, key: str) -> Opened | None:
        found = self._files.open(key)
        if found is None:
            self._record([Request(key)], ())
            return None
        return _CountedReads(found, key, self._record)


class _CountedVersions(ForwardedVersions):
    """Records the tokens asked for, and the reads that are tied to versions."""

    def __init__(self, versions: Versions, record: _Record) -> None:
        super().__init__(versions)
        self._record = record

    def token(self, key: str) -> object | None:
        self._record(None, (key,))
        return super().token(key)

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        self._record(None, keys)
        return super().tokens(keys)

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        self._record(requests, ())
        return super().get_pinned(requests, versions)

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        self._record(requests, ())
        return super().get_versioned(requests)


class CountingStore(WrapperStore):
    """Pass everything on to a store and record it. Several threads may use it.

    Parameters
    ----------
    store : Store
        The store to watch.

    Attributes
    ----------
    requests : list of Request
        Every `Request` made, in order.
    nbatches : int
        Number of calls that made them (``get_one`` and ``get_many``).
    written : list of str
        Keys written, and destinations of moves.
    deleted : list of str
        Keys deleted, paths given to ``delete_prefix``, and sources of moves.
    listed : list of str
        Paths given to ``list_prefix`` and ``list_dir``.
    sized : list of str
        Keys whose size, existence or token was asked for.

    Examples
    --------
    >>> import gzarr
    >>> store = CountingStore(gzarr.MemoryStore())
    >>> array = gzarr.create_array(store, data=[1, 2, 3, 4], chunks=2)
    >>> store.reset()
    >>> int(array[0])
    1
    >>> store.requests
    [Request(key='c/0', start=None, length=None)]
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget what was recorded."""
        with self._lock:
            self.nbatches = 0
            self.requests: list[Request] = []
            self.written: list[str] = []
            self.deleted: list[str] = []
            self.listed: list[str] = []
            self.sized: list[str] = []

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request."""
        self._record((request,), ())
        return super().get_one(request)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; None where the key is missing."""
        self._record(requests, ())
        return super().get_many(requests)

    @property
    def files(self) -> Files | None:
        """Objects that can be opened, each read of which is recorded; nobody else reads or replaces their files."""
        files = self._store.files
        return None if files is None else _CountedFiles(files, self._record)

    @property
    def versions(self) -> Versions | None:
        """The versions of the store below."""
        versions = self._store.versions
        return None if versions is None else _CountedVersions(versions, self._record)

    def _record(self, requests: Sequence[Request] | None, sized: Sequence[str]) -> None:
        with self._lock:
            if requests is not None:
                self.nbatches += 1
                self.requests.extend(requests)
            self.sized.extend(sized)

    def set(self, key: str, value: Buffer) -> None:
        """Store one object atomically."""
        super().set(key, value)
        with self._lock:
            self.written.append(key)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair; each replaces its object atomically."""
        items = list(items)
        super().set_many(items)
        with self._lock:
            self.written.extend(key for key, _ in items)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys; missing ones are ignored."""
        keys = list(keys)
        super().delete_many(keys)
        with self._lock:
            self.deleted.extend(keys)

    def delete_prefix(self, path: str = "") -> None:
        """Delete every key under a path."""
        super().delete_prefix(path)
        with self._lock:
            self.deleted.append(path)

    def move_prefix(self, source: str, dest: str) -> None:
        """Rename every key under `source` to lie under `dest`."""
        super().move_prefix(source, dest)
        with self._lock:
            self.deleted.append(source)
            self.written.append(dest)

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys that lie under a path."""
        with self._lock:
            self.listed.append(prefix)
        return super().list_prefix(prefix)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        with self._lock:
            self.listed.append(path)
        return super().list_dir(path)

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        self._record(None, (key,))
        return super().getsize(key)

    def __contains__(self, key: object) -> bool:
        self._record(None, (str(key),))
        return super().__contains__(key)

    def __reduce__(self) -> tuple[type[CountingStore], tuple[Store]]:
        return CountingStore, (self._store,)
