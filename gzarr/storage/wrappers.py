"""Stores around other stores: a read-only view, and a view of one version of each object.

A wrapper answers for the store it wraps: same locks, same name, and where it says so the same files and versions.
"""

# WrapperStore has the verbs of Store, which are documented there.
# ruff: noqa: D102

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar, cast

from gzarr.errors import ReplacedError, StoreError
from gzarr.storage.base import Store, host_view
from gzarr.storage.capabilities import Buffer, Change, Conditional, Files, Request, TokensBy, Versioned, Versions
from gzarr.storage.rules import cut


def read_only(store: Store) -> Store:
    """Return a view of a store that refuses every change.

    Parameters
    ----------
    store : Store
        The store to show.

    Returns
    -------
    Store
        A view that raises `ReadOnlyError` for every change, or the store itself if it is read-only already. Closing the
        view does not close the store.

    Examples
    --------
    >>> from gzarr.storage import MemoryStore
    >>> view = read_only(MemoryStore({"key": b"bytes"}))
    >>> view["key"], view.read_only
    (b'bytes', True)
    """
    return store if store.read_only else _ReadOnlyStore(store)


def seen_through(store: Store) -> Store:
    """The store below all views: read-only, synchronized and consolidated stores are looked through."""
    while isinstance(store, WrapperStore) and store.transparent:
        store = store._store  # noqa: SLF001 - our own class
    return store


def type_name(store: Store) -> str:
    """Name of a store's class, as reports show it; for a view, the name of the class below it."""
    return type(seen_through(store)).__name__


def full_type_name(store: Store) -> str:
    """The name of `type_name`, with the module that users import it from."""
    kind = type(seen_through(store))
    module = "gzarr.storage" if kind.__module__.startswith("gzarr.storage.") else kind.__module__
    return f"{module}.{kind.__qualname__}"


F = TypeVar("F", bound=Callable[..., Any])


def _passed_on(verb: F, *, changes: bool = False) -> F:
    """A verb of stores that the store below carries out. changes: not if this one is read-only."""
    name = verb.__name__

    @wraps(verb, updated=())  # abstract verbs become real ones
    def call(self: "WrapperStore", *args: Any, **kwargs: Any) -> Any:
        if changes:
            self.check_writable()
        return getattr(self._store, name)(*args, **kwargs)

    return cast("F", call)


class WrapperStore(Store):
    """Pass every verb on to a store; subclasses change what they need.

    A subclass that overrides no verb that bytes pass through inherits all capabilities; see `Store`.

    Parameters
    ----------
    store : Store
        The store below.

    Examples
    --------
    A store that changes the bytes below it:

    >>> from gzarr.storage import MemoryStore
    >>> class Swapped(WrapperStore):
    ...     def get_many(self, requests):
    ...         return [data and bytes(data).swapcase() for data in super().get_many(requests)]
    ...
    ...     def set_many(self, items):
    ...         super().set_many((key, bytes(data).swapcase()) for key, data in items)
    >>> below = MemoryStore()
    >>> store = Swapped(below)
    >>> store["key"] = b"abc"
    >>> store["key"], below["key"]
    (b'abc', b'ABC')
    """

    #: Whether reports show the store below in its stead.
    transparent = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read_only = store.read_only
        self.concurrency, self.max_locked = store.concurrency, store.max_locked
        self.zarr_format, self.dimension_separator = store.zarr_format, store.dimension_separator

    files: Any = property(attrgetter("_store.files"))
    versions: Any = property(attrgetter("_store.versions"))
    conditional: Any = property(attrgetter("_store.conditional"))
    tables: Any = property(attrgetter("_store.tables"))

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; None where the key is missing. All reads of bytes go through it.

        Parameters
        ----------
        requests : sequence of Request
            Keys, each with the range of bytes that is wanted.
        """
        return self._store.get_many(requests)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every pair of a key and its bytes; all writes of bytes go through it.

        Parameters
        ----------
        items : iterable of (str, bytes-like)
            Keys and bytes. Each replaces its object atomically.
        """
        self.check_writable()
        self._store.set_many(items)

    get_one = _passed_on(Store.get_one)
    contains_many = _passed_on(Store.contains_many)
    getsize = _passed_on(Store.getsize)
    list_prefix = _passed_on(Store.list_prefix)
    list_dir = _passed_on(Store.list_dir)
    nbytes_stored = _passed_on(Store.nbytes_stored)
    set = _passed_on(Store.set, changes=True)
    set_if_missing = _passed_on(Store.set_if_missing, changes=True)
    delete_many = _passed_on(Store.delete_many, changes=True)
    delete_prefix = _passed_on(Store.delete_prefix, changes=True)
    move_prefix = _passed_on(Store.move_prefix, changes=True)
    check_metadata_writable = _passed_on(Store.check_metadata_writable, changes=True)
    together = _passed_on(Store.together)
    lock_name = _passed_on(Store.lock_name)
    locked = _passed_on(Store.locked)
    node_locked = _passed_on(Store.node_locked)
    document_locked = _passed_on(Store.document_locked)
    enclosing = _passed_on(Store.enclosing)
    close = _passed_on(Store.close)
    __contains__ = _passed_on(Store.__contains__)
    __len__ = _passed_on(Store.__len__)
    __str__ = _passed_on(Store.__str__)

    def live(self) -> Store:
        live = self._store.live()
        return self if live is self._store else live


class Tokens(Versions):
    """The tokens of other versions, to which reads cannot be tied."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self.remote = versions.remote

    def token(self, key: str) -> object | None:
        return self._versions.token(key)

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        return self._versions.tokens(keys)


class ForwardedVersions(Tokens):
    """Passes every verb on to other versions; subclasses change what they need."""

    def __init__(self, versions: Versions) -> None:
        super().__init__(versions)
        self.pins = versions.pins

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        return self._versions.get_pinned(requests, versions)

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        return self._versions.get_versioned(requests)


class ForwardedConditional(Conditional):
    """Passes every verb on to another's; subclasses change what they need."""

    def __init__(self, conditional: Conditional) -> None:
        self._conditional = conditional
        self.deletes = conditional.deletes

    def get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        return self._conditional.get_tagged(keys)

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        return self._conditional.set_if(changes)


class ReadableFiles(Files):
    """Files that may be read, not replaced."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def path(self, key: str) -> str | None:
        return self._files.path(key)

    def prefix(self, path: str) -> str | None:
        return self._files.prefix(path)


class _ReadOnlyStore(WrapperStore):
    """A view through which nothing can be changed."""

    transparent = True

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.read_only = True

    @property
    def files(self) -> Files | None:
        """The files of the store below, for reading."""
        files = self._store.files
        return None if files is None else ReadableFiles(files)

    @property
    def conditional(self) -> Conditional | None:
        """None: nothing can be changed."""
        return None

    def close(self) -> None:
        """Do nothing: the view does not own the store."""


class PinnedStore(WrapperStore):
    """A view of a store that reads one version of each object, and knows no others. For one thread per object.

    Parameters
    ----------
    store : Store
        A store whose `versions` reads can be tied to.
    versions : mapping
        Tokens of the objects whose version is given; the first read finds out those of the others. An object that
        is missing then stays missing without a look; one that has no token is held in memory.
    """

    def __init__(self, store: Store, versions: Mapping[str, object]) -> None:
        super().__init__(store)
        pinning = store.versions
        if pinning is None:
            raise StoreError(f"store {store} cannot tie reads to versions")
        self._pinning = pinning
        self._versions: dict[str, object | None] = dict(versions)
        self._held: dict[str, memoryview] = {}

    @property
    def versions(self) -> Versions | None:
        """The versions that are read; None for an object without a token, or one not read yet."""
        return TokensBy(self._versions.get)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request. Raises: ReplacedError."""
        found = self._read_first(requests)
        rest = [i for i in range(len(requests)) if i not in found and self._versions[requests[i].key] is not None]
        answers = self._pinning.get_pinned([requests[i] for i in rest], self._versions) if rest else ()
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
        answers = self._pinning.get_versioned([requests[i] for i in unread.values()]) if unread else ()
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
