"""Stores around other stores: a read-only view, and one that records what is asked of it.

A wrapper answers for the store it wraps: same locks, same generations, same name.
"""

# WrapperStore has the verbs of Store, which are documented there.
# ruff: noqa: D102

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

from gzarr.errors import ReplacedError
from gzarr.storage.base import Buffer, Opened, R, Request, Store, T, Versioned, host_view, reads_past
from gzarr.storage.rules import cut


def read_only(store: Store) -> Store:
    """A view of a store that refuses every change with `ReadOnlyError`; the store itself if it is read-only already.

    Closing the view does not close the store.
    """
    return store if store.read_only else _ReadOnlyStore(store)


def seen_through(store: Store) -> Store:
    """The store that a view shows: a read-only, synchronized or consolidated one is taken for the store below."""
    while isinstance(store, WrapperStore) and store.transparent:
        store = store._store  # noqa: SLF001 - our own class
    return store


def type_name(store: Store) -> str:
    """Name of a store's class, as reports show it: of a view, that of the store seen through it."""
    return type(seen_through(store)).__name__


class WrapperStore(Store):
    """Passes every verb on to a store; subclasses change what they need.

    One that changes how objects are read, but not ``opened``, is asked for whole objects; but not ``get_pinned`` and
    ``get_versioned``, does not `pin`.
    """

    #: Whether reports show the store below in its stead.
    transparent = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read_only = store.read_only
        self.concurrency = store.concurrency
        self.opens = store.opens and not reads_past(type(self), "opened")
        self.zarr_format, self.dimension_separator = store.zarr_format, store.dimension_separator

    @property
    def pins(self) -> bool:  # type: ignore[override]
        own = not (reads_past(type(self), "get_pinned") or reads_past(type(self), "get_versioned"))
        return self._store.pins and own

    def get_one(self, request: Request) -> Buffer | None:
        return self._store.get_one(request)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        return self._store.get_many(requests)

    def contains_many(self, keys: Sequence[str]) -> list[bool]:
        if reads_past(type(self), "contains_many"):
            return super().contains_many(keys)
        return self._store.contains_many(keys)

    def opened(self, key: str) -> Opened | None:
        return self._store.opened(key)

    def set(self, key: str, value: Buffer) -> None:
        self.check_writable()
        self._store.set(key, value)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        self.check_writable()
        self._store.set_many(items)

    def delete_many(self, keys: Iterable[str]) -> None:
        self.check_writable()
        self._store.delete_many(keys)

    def clear(self) -> None:
        self.delete_prefix()

    def delete_prefix(self, path: str = "") -> None:
        self.check_writable()
        self._store.delete_prefix(path)

    def move_prefix(self, source: str, dest: str) -> None:
        self.check_writable()
        self._store.move_prefix(source, dest)

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        return self._store.list_prefix(prefix)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        return self._store.list_dir(path)

    def getsize(self, key: str) -> int | None:
        return self._store.getsize(key)

    def nbytes_stored(self, path: str = "") -> int:
        return self._store.nbytes_stored(path)

    def generation(self, key: str) -> object | None:
        return self._store.generation(key)

    def generations(self, keys: Sequence[str]) -> list[object | None]:
        return self._store.generations(keys)

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        return self._store.get_pinned(requests, versions)

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        return self._store.get_versioned(requests)

    def together(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return self._store.together(function, items)

    def lock_name(self, key: str) -> Hashable:
        return self._store.lock_name(key)

    def live(self) -> Store:
        live = self._store.live()
        return self if live is self._store else live

    def enclosing(self) -> tuple[Store, str] | None:
        return self._store.enclosing()

    def locked(self, keys: Sequence[str]) -> AbstractContextManager[Any]:
        return self._store.locked(keys)

    def node_locked(self, key: str) -> AbstractContextManager[Any]:
        return self._store.node_locked(key)

    def document_locked(self, key: str) -> AbstractContextManager[Any]:
        return self._store.document_locked(key)

    def check_metadata_writable(self) -> None:
        self.check_writable()
        self._store.check_metadata_writable()

    def close(self) -> None:
        self._store.close()

    def __contains__(self, key: object) -> bool:
        return key in self._store

    def __len__(self) -> int:
        return len(self._store)

    def __str__(self) -> str:
        return str(self._store)


class _ReadOnlyStore(WrapperStore):
    """A view through which nothing can be changed."""

    transparent = True

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.read_only = True

    def local_file(self, key: str) -> str | None:
        return self._store.local_file(key)

    def local_prefix(self, path: str) -> str | None:
        return self._store.local_prefix(path)

    def close(self) -> None:
        """Do nothing: the view does not own the store."""


class PinnedStore(WrapperStore):
    """A view of a store that reads one version of each object, and knows no others. For one thread per object.

    Args:
        store: a store that `pins`.
        versions: tokens of the objects whose version is given; of the others the first read says which it is. An object
            that is missing then stays missing without a look; one that has no token is held in memory.
    """

    def __init__(self, store: Store, versions: Mapping[str, object]) -> None:
        super().__init__(store)
        self._versions: dict[str, object | None] = dict(versions)
        self._held: dict[str, memoryview] = {}

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request. Raises: ReplacedError."""
        return self.get_many((request,))[0]

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request. Raises: ReplacedError."""
        found = self._read_first(requests)
        rest = [i for i in range(len(requests)) if i not in found and self._versions[requests[i].key] is not None]
        answers = self._store.get_pinned([requests[i] for i in rest], self._versions) if rest else ()
        for i, value in zip(rest, answers, strict=True):
            if value is None:
                raise ReplacedError(f"store {self}: {requests[i].key!r} was deleted while it was read")
            found[i] = value
        return [self._of_held(request) if i not in found else found[i] for i, request in enumerate(requests)]

    def _read_first(self, requests: Sequence[Request]) -> dict[int, Buffer]:
        """Fetch one request for each object that has not been read, and learn its version. Returns: by position."""
        unread: dict[str, int] = {}
        for i, request in enumerate(requests):
            if request.key not in self._versions:
                unread.setdefault(request.key, i)
        found: dict[int, Buffer] = {}
        answers = self._store.get_versioned([requests[i] for i in unread.values()]) if unread else ()
        for (key, i), answer in zip(unread.items(), answers, strict=True):
            self._versions[key] = None if answer is None else answer.version
            if answer is not None and answer.version is None:
                self._held[key] = host_view(answer.data)
            elif answer is not None:
                found[i] = answer.data
        return found

    def _of_held(self, request: Request) -> Buffer | None:
        held = self._held.get(request.key)
        return None if held is None else cut(held, request.start, request.length)

    def generation(self, key: str) -> object | None:
        """The version that is read; None if it is not known yet, or the object is missing or has no token."""
        return self._versions.get(key)

    def generations(self, keys: Sequence[str]) -> list[object | None]:
        """The versions that are read."""
        return [self.generation(key) for key in keys]


class _CountedReads:
    """An opened object whose reads a `CountingStore` records."""

    def __init__(self, opened: Opened, key: str, record: Callable[[Request], None]) -> None:
        self._opened, self._key, self._record = opened, key, record
        self.nbytes = opened.nbytes

    def read(self, start: int, nbytes: int) -> Buffer:
        self._record(Request(self._key, start, nbytes))
        return self._opened.read(start, nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._opened.__exit__(*exc)


class CountingStore(WrapperStore):
    """Passes everything on to a store and records it; may be used by several threads.

    Args:
        store: the store to watch.

    Attributes:
        requests: every `Request` made, in order.
        nbatches: number of calls that made them (``get_one`` and ``get_many``).
        written: keys written, and destinations of moves.
        deleted: keys deleted, paths given to ``delete_prefix``, and sources of moves.
        listed: paths given to ``list_prefix`` and ``list_dir``.
        sized: keys whose size, existence or generation was asked for.
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
        with self._lock:
            self.nbatches += 1
            self.requests.append(request)
        return super().get_one(request)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; None where the key is missing."""
        with self._lock:
            self.nbatches += 1
            self.requests.extend(requests)
        return super().get_many(requests)

    def opened(self, key: str) -> Opened | None:
        """Open an object to read parts of it, each of which counts as a request."""
        found = super().opened(key)
        if found is None:
            self._record(Request(key))
            return None
        return _CountedReads(found, key, self._record)

    def _record(self, request: Request) -> None:
        with self._lock:
            self.nbatches += 1
            self.requests.append(request)

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        """Fetch every request from one version of each object."""
        with self._lock:
            self.nbatches += 1
            self.requests.extend(requests)
        return super().get_pinned(requests, versions)

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        """Fetch every request with the token of its version."""
        with self._lock:
            self.nbatches += 1
            self.requests.extend(requests)
        return super().get_versioned(requests)

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
        with self._lock:
            self.sized.append(key)
        return super().getsize(key)

    def generation(self, key: str) -> object | None:
        """What the store says of the object's version."""
        with self._lock:
            self.sized.append(key)
        return super().generation(key)

    def generations(self, keys: Sequence[str]) -> list[object | None]:
        """What the store says of the objects' versions."""
        with self._lock:
            self.sized.extend(keys)
        return super().generations(keys)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            self.sized.append(str(key))
        return super().__contains__(key)

    def __reduce__(self) -> tuple[type[CountingStore], tuple[Store]]:
        return CountingStore, (self._store,)
