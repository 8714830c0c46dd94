"""A store that caches the bytes it fetches from a slower one, up to a limit: `LRUStoreCache` of zarr 2.

Theory of operation. Whole objects and ranges of objects are cached, least recently used first out. A range is
answered from the whole object or from any cached range that covers it. Every entry carries the token that the object
had before it was fetched (`Versions.token`). If the store has tokens, an entry is never used once anybody has replaced
its object. If it has none, the caller must know that there is no other writer: changes through the cache drop what they
touch, and changes that bypass it are not seen until `invalidate`.

A fetch that overlaps a change is not cached: each change has two numbers, before and after, and an entry made under
another number than the one it was requested under could hold the old bytes.

The cache does not offer capabilities that would bypass it (`Store.files`, reads tied to versions).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from gzarr.concurrency import is_held_here, new_lock
from gzarr.storage.base import (
    Buffer,
    Change,
    Conditional,
    Request,
    Store,
    Versions,
    host_view,
    pickled,
    tokens_of,
)
from gzarr.storage.memory import MemoryStore
from gzarr.storage.rules import cut, under
from gzarr.storage.wrappers import ForwardedConditional, Tokens, WrapperStore


class _Entry(NamedTuple):
    """Bytes of an object, from ``request.start`` on; its token and the last change when they were fetched."""

    request: Request
    token: object | None
    data: bytes
    changes: int


class _UncachedChanges(ForwardedConditional):
    """Reads what will be changed from the store, and drops it from the cache when it is changed."""

    def __init__(self, store: LRUStoreCache, conditional: Conditional) -> None:
        super().__init__(conditional)
        self._store = store

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        with self._store._changing([change.key for change in changes]):  # noqa: SLF001 - one module, two classes
            return super().set_if(changes)


class LRUStoreCache(WrapperStore):
    """Cache what is read from a store in memory. Several threads may use it.

    Pickled, it starts empty.

    Parameters
    ----------
    store : Store or mapping
        The slow store; a mapping is taken for one.
    max_size : int, optional
        Bytes to cache at most; None for no limit. Larger objects and ranges are not cached.

    Attributes
    ----------
    hits : int
        Requests answered from memory.
    misses : int
        Requests that went to the store.

    Examples
    --------
    >>> import gzarr
    >>> store = gzarr.MemoryStore()
    >>> z = gzarr.array([1, 2, 3], store=store)
    >>> cache = gzarr.LRUStoreCache(store, max_size=2**28)
    >>> z = gzarr.open_array(cache, "r")
    >>> int(z[0]), int(z[1]), cache.hits > 0
    (1, 2, True)
    """

    _process_bound = frozenset(
        {
            "hits",
            "misses",
            "_nbytes",
            "_editing",
            "_oldest",
            "_numbers",
            "_entries",
            "_ranges",
            "_requests",
            "_listings",
            "_changes",
            "_has_tokens",
        }
    )

    def __init__(self, store: Store | MutableMapping[str, Any], max_size: int | None) -> None:
        if not isinstance(store, Store):
            store = MemoryStore(store)
        if max_size is not None and (not isinstance(max_size, int) or max_size < 0):
            raise TypeError(f"LRUStoreCache: max_size must be a number of bytes or None, got {max_size!r}")
        super().__init__(store)
        self.hits = 0
        self.misses = 0
        self._max_nbytes = max_size
        self._nbytes = 0
        self._editing = new_lock()
        self._entries: OrderedDict[Request, _Entry] = OrderedDict()
        # By key: starts and ends of the cached ranges of known place, both ascending, none inside another.
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        self._requests: dict[str, set[Request]] = {}
        self._listings: dict[str, tuple[int, tuple[list[str], list[str]]]] = {}  # with the last change before
        self._numbers = count(1)
        self._changes = 0
        self._oldest = 0  # entries without tokens of earlier changes are not used
        self._has_tokens = False

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> Versions | None:
        """The tokens of the store below. Reads that are tied to them would bypass the cache."""
        versions = self._store.versions
        return None if versions is None else Tokens(versions)

    @property
    def conditional(self) -> Conditional | None:
        """The conditions of the store below, past the cache."""
        conditional = self._store.conditional
        return None if conditional is None else _UncachedChanges(self, conditional)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; what is not in memory comes in one call from the store."""
        requests = [Request(*request) for request in requests]
        tokens = self._tokens(request.key for request in requests)
        changes = self._changes
        self._has_tokens |= any(token is not None for token in tokens.values())
        found: list[Buffer | None] = [None] * len(requests)
        passes_by = is_held_here(self._editing)  # by what this re-entrant call has interrupted
        if not passes_by:
            with self._editing:
                found = [self._held(request, tokens[request.key]) for request in requests]
        missing = [i for i, value in enumerate(found) if value is None]
        self.hits += len(requests) - len(missing)
        self.misses += len(missing)
        if not missing:
            return found
        fetched = self._store.get_many([requests[i] for i in missing])
        # Bytes that others may change, or that are a small part of a large read, are copied.
        values = [value if value is None or type(value) is bytes else bytes(host_view(value)) for value in fetched]
        after = self._tokens(requests[i].key for i in missing)
        for i, value in zip(missing, values, strict=True):
            found[i] = value
            key = requests[i].key
            if value is not None and tokens[key] == after[key] and not passes_by:
                with self._editing:
                    if self._changes == changes:
                        self._add(_Entry(requests[i], tokens[key], value, changes))
        return found

    def _tokens(self, keys: Iterable[str]) -> dict[str, object | None]:
        """The store's tokens, asked for at once."""
        names = list(dict.fromkeys(keys))
        return dict(zip(names, tokens_of(self._store, names), strict=True))

    def _held(self, request: Request, token: object | None) -> Buffer | None:
        """The answer to a request, if it is cached and not known to be stale."""
        for name in self._covering(request):
            entry = self._entries.get(name)
            if entry is None:
                continue
            if entry.token != token or (token is None and entry.changes < self._oldest):
                self._drop(name)
                continue
            self._entries.move_to_end(name)
            if name == request:
                return entry.data
            return cut(entry.data, (request.start or 0) - (name.start or 0), request.length)
        return None

    def _covering(self, request: Request) -> Iterator[Request]:
        """What could hold the answer: the request itself, the whole object, a range around."""
        key, start, length = request
        yield request
        if start is not None:
            yield Request(key)
            if start >= 0 and length is not None:
                ranges = self._ranges.get(key, [])
                at = bisect_right(ranges, start, key=lambda bounds: bounds[0]) - 1
                if at >= 0 and ranges[at][1] >= start + length:
                    low, high = ranges[at]
                    yield Request(key, low, high - low)

    def _add(self, entry: _Entry) -> None:
        name, nbytes = entry.request, len(entry.data)
        if self._max_nbytes is not None and nbytes > self._max_nbytes:
            return
        self._drop(name)
        key, start, length = name
        if start is not None and start >= 0 and length is not None:
            if nbytes != length:
                return  # past the end of the object: what is there today may grow
            self._drop_inside(key, start, start + length)
            ranges = self._ranges.setdefault(key, [])
            ranges.insert(bisect_right(ranges, start, key=lambda bounds: bounds[0]), (start, start + length))
        self._entries[name] = entry
        self._requests.setdefault(key, set()).add(name)
        self._nbytes += nbytes
        while self._max_nbytes is not None and self._nbytes > self._max_nbytes:
            self._drop(next(iter(self._entries)))

    def _drop_inside(self, key: str, low: int, high: int) -> None:
        """Drop the cached ranges inside a new one, and the one around it: ranges stay in order of both ends."""
        for begin, end in list(self._ranges.get(key, ())):
            if (low <= begin and end <= high) or (begin <= low and high <= end):
                self._drop(Request(key, begin, end - begin))

    def _drop(self, name: Request) -> None:
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        self._nbytes -= len(entry.data)
        key, start, length = name
        self._requests[key].discard(name)
        if not self._requests[key]:
            del self._requests[key]
        if start is not None and start >= 0 and length is not None:
            self._ranges[key].remove((start, start + length))
            if not self._ranges[key]:
                del self._ranges[key]

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths). Cached only if the store has no tokens."""
        changes = self._changes
        before, listing = self._listings.get(path, (-1, ([], [])))
        if before != changes or self._has_tokens:
            listing = self._store.list_dir(path)
            if not self._has_tokens:
                self._listings[path] = changes, listing
        return list(listing[0]), list(listing[1])

    # -- changes -------------------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self, keys: Iterable[str] = (), paths: Iterable[str] = ()) -> Iterator[None]:
        """Drop keys, and all keys under paths, once they are changed, whether or not that succeeds."""
        self.check_writable()
        self._changes = next(self._numbers)
        try:
            yield
        finally:
            self._changes = next(self._numbers)
            self._forget(lambda: (*keys, *(key for path in paths for key in under(list(self._requests), path))))

    def _forget(self, keys: Callable[[], Iterable[str]]) -> None:
        self._listings.clear()
        if is_held_here(self._editing):  # by what this re-entrant change has interrupted
            self._oldest = self._changes
            return
        with self._editing:
            for key in keys():
                for name in list(self._requests.get(key, ())):
                    self._drop(name)

    def set(self, key: str, value: Buffer) -> None:
        """Store one object atomically."""
        with self._changing((key,)):
            self._store.set(key, value)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair; each replaces its object atomically."""
        items = list(items)
        with self._changing([key for key, _ in items]):
            self._store.set_many(items)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys; missing ones are ignored."""
        doomed = set(keys)
        with self._changing(doomed):
            self._store.delete_many(doomed)

    def delete_prefix(self, path: str = "") -> None:
        """Delete every key under a path."""
        with self._changing(paths=(path,)):
            self._store.delete_prefix(path)

    def move_prefix(self, source: str, dest: str) -> None:
        """Rename every key under `source` to lie under `dest`."""
        with self._changing(paths=(source, dest)):
            self._store.move_prefix(source, dest)

    # -- forgetting ----------------------------------------------------------------------------------------------

    def invalidate(self) -> None:
        """Forget everything: someone else may have changed the store."""
        self.invalidate_values()
        self.invalidate_keys()

    def invalidate_values(self) -> None:
        """Forget the bytes of all objects."""
        self._changes = next(self._numbers)
        self._forget(lambda: list(self._requests))

    def invalidate_keys(self) -> None:
        """Forget which objects there are."""
        self._changes = next(self._numbers)
        self._listings.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, LRUStoreCache, self._store, self._max_nbytes)
