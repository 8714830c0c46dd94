"""A store that caches the bytes it fetches from a slower one, up to a limit: `LRUStoreCache` of zarr 2.

Theory of operation. Whole objects and ranges of objects are cached; the least recently used object goes first. A range
is answered from the whole object, or if the same range was read before. What is cached of an object carries the token
that it had before it was fetched (`Versions.token`). If the store has tokens, it is never used once anybody has
replaced the object. If it has none, the caller must know that there is no other writer: changes through the cache
drop what they touch, and changes that bypass it are not seen until `invalidate`.

A fetch that overlaps a change is not cached: each change has two numbers, before and after, and an entry made under
another number than the one it was requested under could hold the old bytes.

The cache does not offer capabilities that would bypass it (`Store.files`, reads tied to versions).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from gzarr.concurrency import is_held_here, new_lock
from gzarr.storage.base import Store, tokens_of
from gzarr.storage.capabilities import Buffer, Change, Conditional, Request, Versions, host_view
from gzarr.storage.memory import MemoryStore
from gzarr.storage.rules import cut, pickled, under
from gzarr.storage.wrappers import ForwardedConditional, Tokens, WrapperStore


class _CachedObject(NamedTuple):
    """What is cached of an object: parts by start and length, its token and the last change when they were fetched."""

    token: object | None
    changes: int
    parts: dict[tuple[int | None, int | None], bytes]


_WHOLE = None, None


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
        (
            *("hits", "misses", "_nbytes", "_editing", "_oldest", "_numbers", "_objects", "_listings", "_changes"),
            "_has_tokens",
        )
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
        self._objects: OrderedDict[str, _CachedObject] = OrderedDict()
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
        found = self._look_up(requests, tokens)
        missing = [i for i, value in enumerate(found) if value is None]
        self.hits += len(requests) - len(missing)
        self.misses += len(missing)
        if not missing:
            return found
        fetched = self._store.get_many([requests[i] for i in missing])
        # Bytes that others may change, or that are a small part of a large read, are copied.
        values = [value if value is None or type(value) is bytes else bytes(host_view(value)) for value in fetched]
        after = self._tokens(requests[i].key for i in missing)
        answers = []
        for i, value in zip(missing, values, strict=True):
            found[i] = value
            key = requests[i].key
            if value is not None and tokens[key] == after[key]:
                answers.append((requests[i], value, tokens[key]))
        self._keep(answers, changes)
        return found

    def _look_up(self, requests: Sequence[Request], tokens: dict[str, object | None]) -> list[Buffer | None]:
        """The answers that are cached."""
        if is_held_here(self._editing):  # by what this re-entrant call has interrupted
            return [None] * len(requests)
        with self._editing:
            return [self._held(request, tokens[request.key]) for request in requests]

    def _keep(self, answers: Iterable[tuple[Request, bytes, object | None]], changes: int) -> None:
        """Cache answers, with the token of each. changes: the last one before they were asked for."""
        if is_held_here(self._editing):
            return
        for request, value, token in answers:
            with self._editing:
                if self._changes == changes:
                    self._add(request, value, _CachedObject(token, changes, {}))

    def _tokens(self, keys: Iterable[str]) -> dict[str, object | None]:
        """The store's tokens, asked for at once."""
        names = list(dict.fromkeys(keys))
        return dict(zip(names, tokens_of(self._store, names), strict=True))

    def _held(self, request: Request, token: object | None) -> Buffer | None:
        """The answer to a request, if it is cached and not known to be stale."""
        key, start, length = request
        cached = self._objects.get(key)
        if cached is None:
            return None
        if cached.token != token or (token is None and cached.changes < self._oldest):
            self._drop(key)
            return None
        self._objects.move_to_end(key)
        whole = cached.parts.get(_WHOLE)
        return cached.parts.get((start, length)) if whole is None else cut(whole, start, length)

    def _add(self, request: Request, value: bytes, fetched: _CachedObject) -> None:
        """Cache the answer to a request. fetched: of the same version, without parts."""
        key, start, length = request
        if self._max_nbytes is not None and len(value) > self._max_nbytes:
            return
        cached = self._objects.get(key)
        if start is None or cached is None or cached.token != fetched.token:
            self._drop(key)
            cached = self._objects[key] = fetched
        part = _WHOLE if start is None else (start, length)
        self._nbytes += len(value) - len(cached.parts.get(part, b""))
        cached.parts[part] = value
        while self._max_nbytes is not None and self._nbytes > self._max_nbytes:
            self._drop(next(iter(self._objects)))

    def _drop(self, key: str) -> None:
        cached = self._objects.pop(key, None)
        if cached is not None:
            self._nbytes -= sum(map(len, cached.parts.values()))

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
            self._forget(lambda: (*keys, *(key for path in paths for key in under(list(self._objects), path))))

    def _forget(self, keys: Callable[[], Iterable[str]]) -> None:
        self._listings.clear()
        if is_held_here(self._editing):  # by what this re-entrant change has interrupted
            self._oldest = self._changes
            return
        with self._editing:
            for key in keys():
                self._drop(key)

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
        self._forget(lambda: list(self._objects))

    def invalidate_keys(self) -> None:
        """Forget which objects there are."""
        self._changes = next(self._numbers)
        self._listings.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, LRUStoreCache, self._store, self._max_nbytes)
