"""A store that caches the bytes it fetches from a slower one, up to a limit: `LRUStoreCache` of zarr 2.

Theory of operation. What was fetched, an object or a range of one, is kept with the token that the object had before
and after that (`Versions.token`); the least recently used goes first. A range is answered from the whole object, or if
the same range was read before. If the store has tokens, nothing is used once anybody has replaced the object. If it has
none, the caller must know that there is no other writer: changes through the cache drop what they touch, and changes
that bypass it are not seen until `invalidate`. A fetch that overlaps a change is not kept. A re-entrant change empties
the cache by putting another dict in the place of the one that its thread is editing.

The cache does not offer capabilities that would bypass it (`Store.files`, reads tied to versions).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from gzarr.concurrency import is_held_here, new_lock
from gzarr.errors import ReplacedError
from gzarr.storage.base import Store, tokens_of
from gzarr.storage.capabilities import Buffer, Change, Conditional, Request, Versions, host_view
from gzarr.storage.memory import MemoryStore
from gzarr.storage.rules import DOCUMENTS, cut, pickled
from gzarr.storage.wrappers import ForwardedConditional, PinnedStore, Tokens, WrapperStore


class _UncachedChanges(ForwardedConditional):
    """Reads what will be changed from the store, and drops it from the cache when it is changed."""

    def __init__(self, store: "LRUStoreCache", conditional: Conditional) -> None:
        super().__init__(conditional)
        self._store = store

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        with self._store._changing({change.key for change in changes}):  # noqa: SLF001 - one module, two classes
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

    _process_bound = frozenset({"hits", "misses", "_nbytes", "_editing", "_parts", "_last_change"})

    def __init__(self, store: Store | MutableMapping[str, Any], max_size: int | None) -> None:
        if not isinstance(store, Store):
            store = MemoryStore(store)
        if max_size is not None and (not isinstance(max_size, int) or max_size < 0):
            raise TypeError(f"LRUStoreCache: max_size must be a number of bytes or None, got {max_size!r}")
        super().__init__(store)
        self.hits = self.misses = self._nbytes = 0
        self._max_nbytes = max_size
        self._editing = new_lock()
        self._parts: OrderedDict[Request, tuple[object | None, bytes]] = OrderedDict()  # with tokens
        self._last_change = object()

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

    # -- reading -------------------------------------------------------------------------------------------------

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; what is not in memory comes in one call from the store."""
        requests = [Request(*request) for request in requests]
        last_change, tokens = self._last_change, self._tokens(request.key for request in requests)
        found = self._look_up(requests, tokens)
        missing = [i for i, value in enumerate(found) if value is None]
        self.hits += len(requests) - len(missing)
        self.misses += len(missing)
        if not missing:
            return found
        fetched, after = self._fetch([requests[i] for i in missing], tokens)
        answers = []
        for i, value in zip(missing, fetched, strict=True):
            if value is not None:
                # Bytes that others may change, or that are a small part of a large read, are copied.
                value = found[i] = value if type(value) is bytes else bytes(host_view(value))  # noqa: PLW2901
                if tokens[requests[i].key] == after[requests[i].key]:
                    answers.append((requests[i], value, after[requests[i].key]))
        self._keep(answers, last_change)
        return found

    def _fetch(
        self, requests: Sequence[Request], tokens: Mapping[str, object | None]
    ) -> tuple[list[Buffer | None], Mapping[str, object | None]]:
        """Answers of the store, and the tokens of what they are from: a server compares the tokens itself."""
        keys, versions = {request.key for request in requests}, self._store.versions
        if versions is not None and versions.pins and not any(key.rpartition("/")[2] in DOCUMENTS for key in keys):
            told = {key: tokens[key] for key in keys if tokens[key] is not None}
            with suppress(ReplacedError):
                found = PinnedStore(self._store, told).get_many(requests)
                there = {request.key for request, value in zip(requests, found, strict=True) if value is not None}
                return found, {**tokens, **self._tokens(there - set(told))}  # these have no token, or are new
        return self._store.get_many(requests), self._tokens(keys)

    def _tokens(self, keys: Iterable[str]) -> dict[str, object | None]:
        """The store's tokens, asked for at once."""
        names = list(dict.fromkeys(keys))
        return dict(zip(names, tokens_of(self._store, names), strict=True))

    def _look_up(self, requests: Sequence[Request], tokens: dict[str, object | None]) -> list[Buffer | None]:
        """The answers that are kept, for the same tokens."""
        if is_held_here(self._editing):  # by what this re-entrant call has interrupted
            return [None] * len(requests)
        with self._editing:
            return [self._held(request, tokens[request.key]) for request in requests]

    def _held(self, request: Request, token: object | None) -> Buffer | None:
        for place in (Request(request.key), request):
            parts = self._parts
            kept = parts.get(place)
            if kept is not None and kept[0] == token:
                parts.move_to_end(place)
                return kept[1] if place is request else cut(kept[1], request.start, request.length)
        return None

    def _keep(self, answers: Iterable[tuple[Request, bytes, object | None]], last_change: object) -> None:
        """Keep answers, with the token of each. last_change: the last one before they were asked for."""
        if is_held_here(self._editing):
            return
        with self._editing:
            parts = self._parts
            for request, value, token in answers if self._last_change is last_change else ():
                if self._max_nbytes is not None and len(value) > self._max_nbytes:
                    continue
                self._drop(parts, request)
                parts[request] = token, value
                self._nbytes += len(value)
                while parts and self._max_nbytes is not None and self._nbytes > self._max_nbytes:
                    self._drop(parts, next(iter(parts)))

    def _drop(self, parts: OrderedDict[Request, tuple[object | None, bytes]], request: Request) -> None:
        kept = parts.pop(request, None)
        if kept is not None:
            self._nbytes -= len(kept[1])

    # -- changes -------------------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self, keys: Iterable[str] = (), paths: Iterable[str] = ()) -> Iterator[None]:
        """Drop keys, and all keys under paths, once they are changed, whether or not that succeeds."""
        self.check_writable()
        self._last_change = object()
        try:
            yield
        finally:
            self._last_change = object()
            starts = tuple(f"{path}/" if path else "" for path in paths)
            self._forget(lambda key: key in keys or key.startswith(starts))

    def _forget(self, is_doomed: Callable[[str], bool]) -> None:
        if is_held_here(self._editing):  # by what this re-entrant change has interrupted
            self._parts, self._nbytes = OrderedDict(), 0
            return
        with self._editing:
            parts = self._parts
            for request in [request for request in parts if is_doomed(request.key)]:
                self._drop(parts, request)

    def set(self, key: str, value: Buffer) -> None:
        """Store one object atomically."""
        with self._changing((key,)):
            self._store.set(key, value)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair; each replaces its object atomically."""
        items = list(items)
        with self._changing({key for key, _ in items}):
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

    def invalidate(self) -> None:
        """Forget everything: someone else may have changed the store."""
        self._last_change = object()
        self._forget(lambda _: True)

    invalidate_values = invalidate_keys = invalidate  # names of zarr 2

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, LRUStoreCache, self._store, self._max_nbytes)
