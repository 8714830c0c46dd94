"""A store that records every request, for tests and for counting what reading costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gzarr.concurrency import new_lock
from gzarr.storage.base import Store
from gzarr.storage.capabilities import Request
from gzarr.storage.rules import pickled
from gzarr.storage.watching import WatchedStore

#: Where a `CountingStore` notes what a call is about, by verb.
_NOTES = {
    "get": "requests",
    "get of one version": "requests",
    "get with version": "requests",
    "version of": "sized",
    "size of": "sized",
    "list": "listed",
    "list all under": "listed",
    "set": "written",
    "delete": "deleted",
    "delete all under": "deleted",
}


class CountingStore(WatchedStore):
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

    files, versions, conditional = WatchedStore.files, WatchedStore.versions, WatchedStore.conditional

    _process_bound = frozenset({"_lock", "nbatches", "requests", "written", "deleted", "listed", "sized"})

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._lock = new_lock()
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

    @contextmanager
    def _watching(self, verb: str, what: Sequence[Any]) -> Iterator[None]:
        notes = _NOTES[verb]
        if notes in ("written", "deleted"):
            yield  # changes that failed are not recorded
        with self._lock:
            getattr(self, notes).extend(what)
            self.nbatches += notes == "requests"
        if notes not in ("written", "deleted"):
            yield

    def move_prefix(self, source: str, dest: str) -> None:
        """Rename every key under `source` to lie under `dest`."""
        with self._watching("delete", (source,)), self._watching("set", (dest,)):
            super().move_prefix(source, dest)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, CountingStore, self._store)
