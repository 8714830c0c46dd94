"""Stores that note every call: one counts requests, for tests and to learn what reading costs, one logs them."""

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

from gzarr.concurrency import new_lock
from gzarr.storage.base import Store
from gzarr.storage.capabilities import Change, Conditional, Files, Request, Versions
from gzarr.storage.rules import pickled
from gzarr.storage.wrappers import ForwardedConditional, ForwardedVersions, WrapperStore

#: Watches a call in a ``with`` statement: a verb, and the requests, keys or paths that it is about.
_Watch: TypeAlias = Callable[[str, Sequence[Any]], AbstractContextManager[None]]
F = TypeVar("F", bound=Callable[..., Any])


def _one(argument: Any) -> tuple[Any, Sequence[Any]]:
    return argument, (argument,)


def _many(argument: Any) -> tuple[Any, Sequence[Any]]:
    items = list(argument)
    return items, items


def _items(argument: Any) -> tuple[Any, Sequence[Any]]:
    items = list(argument)
    return items, [key for key, _ in items]


def _watched(verb: str, method: F, about: Callable[[Any], tuple[Any, Sequence[Any]]]) -> F:
    """A method that is watched. about: gives its first argument, to be passed on, and what the call is about."""

    @wraps(method)
    def call(self: Any, argument: Any = "", *rest: Any) -> Any:
        argument, what = about(argument)
        with self._watching(verb, what):
            return method(self, argument, *rest)

    return cast("F", call)


class _WatchedVersions(ForwardedVersions):
    """Watches the tokens asked for, and the reads that are tied to versions."""

    def __init__(self, versions: Versions, watch: _Watch) -> None:
        super().__init__(versions)
        self._watching = watch

    token = _watched("version of", ForwardedVersions.token, _one)
    tokens = _watched("version of", ForwardedVersions.tokens, _many)
    get_pinned = _watched("get of one version", ForwardedVersions.get_pinned, _many)
    get_versioned = _watched("get with version", ForwardedVersions.get_versioned, _many)


class _WatchedConditional(ForwardedConditional):
    """Watches what is read to be changed, and what is changed."""

    def __init__(self, conditional: Conditional, watch: _Watch) -> None:
        super().__init__(conditional)
        self._watching = watch

    get_tagged = _watched(
        "get with version", ForwardedConditional.get_tagged, lambda keys: (keys, [*map(Request, keys)])
    )

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        with ExitStack() as watching:
            for verb, deletes in (("set", False), ("delete", True)):
                keys = [change.key for change in changes if (change.value is None) is deletes]
                if keys:
                    watching.enter_context(self._watching(verb, keys))
            return super().set_if(changes)


class WatchedStore(WrapperStore):
    """Pass everything on to a store; a subclass says how calls are watched."""

    @abstractmethod
    def _watching(self, verb: str, what: Sequence[Any]) -> AbstractContextManager[None]:
        """Watch one call. what: the requests, keys or paths that it is about."""

    @property
    def files(self) -> Files | None:
        """Objects whose files are not exposed, so that every read is watched."""
        return None if self._store.files is None else Files()

    @property
    def versions(self) -> Versions | None:
        """The versions of the store below."""
        versions = self._store.versions
        return None if versions is None else _WatchedVersions(versions, self._watching)

    @property
    def conditional(self) -> Conditional | None:
        """The conditions of the store below."""
        conditional = self._store.conditional
        return None if conditional is None else _WatchedConditional(conditional, self._watching)

    get_one = _watched("get", WrapperStore.get_one, _one)
    get_many = _watched("get", WrapperStore.get_many, _many)
    set = _watched("set", WrapperStore.set, _one)
    set_many = _watched("set", WrapperStore.set_many, _items)
    delete_many = _watched("delete", WrapperStore.delete_many, _many)
    delete_prefix = _watched("delete all under", WrapperStore.delete_prefix, _one)
    list_prefix = _watched("list all under", WrapperStore.list_prefix, _one)
    list_dir = _watched("list", WrapperStore.list_dir, _one)
    getsize = _watched("size of", WrapperStore.getsize, _one)
    __contains__ = _watched("size of", WrapperStore.__contains__, _one)


#: Where a `CountingStore` notes what a call is about, by the first word of the verb; "sized" for all others.
_NOTES = {"get": "requests", "list": "listed", "set": "written", "delete": "deleted"}


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
        notes = _NOTES.get(verb.partition(" ")[0], "sized")
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


class LoggingStore(WatchedStore):
    """Pass everything on to a store and log it under the name "gzarr.storage".

    Parameters
    ----------
    store : Store
        The store to watch.
    log_level : str
        Level of the messages.
    log_handler : logging.Handler, optional
        Where messages go, besides the handlers that the logging module is configured with.
    """

    files, versions, conditional = WatchedStore.files, WatchedStore.versions, WatchedStore.conditional

    def __init__(self, store: Store, log_level: str = "DEBUG", log_handler: logging.Handler | None = None) -> None:
        super().__init__(store)
        self._level = logging.getLevelNamesMapping()[log_level]
        self._logger = logging.getLogger("gzarr.storage")
        self._logger.setLevel(min(self._level, self._logger.level or self._level))
        if log_handler is not None and log_handler not in self._logger.handlers:
            self._logger.addHandler(log_handler)

    @contextmanager
    def _watching(self, verb: str, what: Sequence[Any]) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._logger.log(self._level, "%s %s: %.6f s", f"{self}: {verb}", list(what), time.perf_counter() - start)
