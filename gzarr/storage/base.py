"""The interface of stores: a few batched verbs on keys and bytes, with range reads as first-class citizens.

A store maps keys (``"foo/bar/c/0/1"``: no leading or trailing slash, no empty segment) to immutable byte objects, and
is a ``MutableMapping[str, bytes]``. Subclasses implement the verbs marked *required*; others are made of them.

Rules that ``tests/contracts/test_store.py`` checks for every store:

- a missing key reads as ``None`` and never raises; deleting a missing key does nothing;
- a range that reaches past the end of an object gives the bytes that are there, perhaps none;
- one ``set`` replaces one object atomically: a reader sees the old bytes or the new, never a mixture;
- everything may be called from several threads at once.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Self, TypeVar

from gzarr.errors import ReadOnlyError, StoreError
from gzarr.errors.escaping import escaped
from gzarr.storage.capabilities import (
    Buffer,
    Change,
    Conditional,
    Files,
    Request,
    Segments,
    Target,
    Versions,
    host_view,
)
from gzarr.storage.locks import document_lock, key_locks, node_lock, while_locked
from gzarr.storage.rules import check_move
from gzarr.storage.tables import Tables

__all__ = ["Buffer", "R", "Request", "Store", "T", "Target", "host_view", "token_of", "tokens_of"]

T = TypeVar("T")
R = TypeVar("R")


def token_of(store: "Store", key: str) -> object | None:
    """The token of an object's version (`Versions.token`); None if the store has none."""
    versions = store.versions
    return None if versions is None else versions.token(key)


def tokens_of(store: "Store", keys: Sequence[str]) -> list[object | None]:
    """The tokens of several objects (`Versions.tokens`); None for each if the store has none."""
    versions = store.versions
    return [None] * len(keys) if versions is None else versions.tokens(keys)


#: The batched verb that each shortcut is made of. Mappings' verbs are made of shortcuts.
_SHORTCUTS = {"get_one": "get_many", "set": "set_many", "contains_many": "get_many", "set_if_missing": "set_many"}
#: Shortcuts that may be overridden alone.
_OPTIONAL = ("contains_many", "set_if_missing")
_MAPPING = {"__getitem__": "get_many", "__setitem__": "set_many", "__delitem__": "delete_many"}
#: What chunks pass through. Capabilities of the base class would bypass any other way of doing it.
_BYTE_VERBS = {"get_one", "set", *_SHORTCUTS.values(), *_MAPPING, *_MAPPING.values()}


def _check_overridden(owner: str, names: frozenset[str]) -> None:
    """Raise TypeError if a class body or a mixin overrides a verb without the batched verb that it is made of."""
    for verb, batched in {**_SHORTCUTS, **_MAPPING}.items():
        if verb in names and (verb in _MAPPING or (verb not in _OPTIONAL and batched not in names)):
            raise TypeError(f"{owner}: {verb} is made of {batched}; override {batched} instead")


def _shortcuts(cls: "type[Store]") -> dict[str, Callable[..., Any]]:
    """Shortcuts that call the batched verbs of a class.

    Not those of the object: a subclass that overrides both verbs, and calls this one, would be called twice.
    """

    def get_one(self: Store, request: Request) -> Buffer | None:
        return cls.get_many(self, (request,))[0]

    def set_one(self: Store, key: str, value: Buffer) -> None:
        cls.set_many(self, ((key, value),))

    return {"get_one": get_one, "set": set_one, **{name: vars(Store)[name] for name in _OPTIONAL}}


def _is_hook(base: "type[Store]", name: str) -> bool:
    """Whether a name is that of a private method of a store, through which bytes may pass."""
    return name.startswith("_") and not name.startswith("__") and callable(getattr(base, name, None))


class Store(MutableMapping[str, Any]):
    """Base class of all stores.

    All bytes pass through ``get_many``, ``set_many`` and ``delete_many``. To change how bytes are read or written,
    override these. The shortcuts ``get_one``, ``set`` and ``contains_many`` are then made of them, unless they are
    overridden too. A class or mixin that overrides ``get_one`` without ``get_many``, ``set`` without ``set_many``, or a
    verb of mappings (``__getitem__``) is refused with a `TypeError`.

    A store offers capabilities beyond its verbs as objects: `files`, `versions`, `conditional`, `segments`, `tables`.
    They bypass the verbs, so **a subclass inherits them only if it leaves the bytes alone**:

    - it has one base class that is a store; and
    - neither its body nor a mixin overrides a verb that bytes pass through, or a private method of the base.

    Any other subclass has no capability unless it declares it. It is read through ``get_many`` and written
    through ``set_many`` alone: always correct, but slower. A class that overrides verbs and still leaves the bytes
    as they are declares so in one line::

        class Retrying(WrapperStore):
            files, versions, tables = WrapperStore.files, WrapperStore.versions, WrapperStore.tables

            def get_many(self, requests): ...

    A class that changes bytes may offer other capabilities: a property that returns a `Files`, say.

    Attributes
    ----------
    read_only : bool
        True if every call that would change the store raises `ReadOnlyError`.
    concurrency : int
        How many requests to have under way at once; 1 if reading does not wait for a server.
    max_locked : int, optional
        How many objects at most one call locks to read, change and store them (`locked`), where a lock costs a file
        descriptor; None for any number.
    zarr_format : {2, 3}, optional
        The only format that the store can hold, or None for both.
    dimension_separator : {".", "/"}, optional
        The separator of chunk coordinates in the keys of new Zarr v2 arrays that name none, as for the stores of
        zarr 2; None leaves it to the array.
    """

    read_only: bool = False
    concurrency: int = 1
    max_locked: int | None = None
    zarr_format: Literal[2, 3] | None = None
    dimension_separator: Literal[".", "/"] | None = None
    #: Attributes that pickles leave out (`pickled`): locks, connections, libraries.
    _process_bound: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = frozenset(vars(cls))
        stores = [base for base in cls.__bases__ if issubclass(base, Store)]
        mixins = [base for base in cls.__bases__ if base not in stores and base.__module__ != "collections.abc"]
        changes = len(stores) > 1
        for owner, names in ((cls, own), *((mixin, frozenset(dir(mixin))) for mixin in mixins)):
            _check_overridden(owner.__qualname__, names)
            for verb, shortcut in _shortcuts(cls).items():
                if _SHORTCUTS[verb] in names and verb not in names | own:
                    setattr(cls, verb, shortcut)
            changes = changes or any(name in _BYTE_VERBS or _is_hook(stores[0], name) for name in names)
        for capability in {"files", "versions", "conditional", "segments", "tables"} - own if changes else ():
            setattr(cls, capability, vars(Store)[capability])

    @property
    def files(self) -> Files | None:
        """Objects as local files, which others may read or replace; None if all access goes through the store."""
        return None

    @property
    def versions(self) -> Versions | None:
        """Tokens that tie reads together; None if the store has none. Objects are then read whole."""
        return None

    @property
    def conditional(self) -> Conditional | None:
        """Put-if-match, for read-modify-write beside other processes; None if the store has only its locks."""
        return None

    @property
    def segments(self) -> Segments | None:
        """Objects stored from several buffers; None if callers join them."""
        return None

    @property
    def tables(self) -> Tables | None:
        """Chunks that are ranges of other objects, which others may read; None if the store has its own objects."""
        return None

    # -- required ------------------------------------------------------------------------------------------------

    @abstractmethod
    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; None where the key is missing."""

    @abstractmethod
    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair; each replaces its object atomically. Buffers may be reused afterwards."""

    @abstractmethod
    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys; missing ones are ignored."""

    @abstractmethod
    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys that lie under a path (``""`` is the root, ``"a/b"`` lists ``a/b/...``), in no given order."""

    @abstractmethod
    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""

    @abstractmethod
    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""

    @abstractmethod
    def lock_name(self, key: str) -> Hashable:
        """A name for the object that is the same for every store in this process that can reach it."""

    @abstractmethod
    def __str__(self) -> str:
        """A URL-like name: ``memory://140453554680576``, ``file://data/x.zarr``, ``zip://data.zip``."""

    # -- with defaults -------------------------------------------------------------------------------------------

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request."""
        return self.get_many((request,))[0]

    def contains_many(self, keys: Sequence[str]) -> list[bool]:
        """Whether an object exists for each key. Meant for documents: stores without a faster way fetch them."""
        return [value is not None for value in self.get_many([Request(key) for key in keys])]

    def set(self, key: str, value: Buffer) -> None:
        """Store one object atomically."""
        self.set_many(((key, value),))

    def set_if_missing(self, key: str, value: Buffer) -> bool:
        """Store an object unless one is there. Of several processes that try, one succeeds where the store can say so.

        Returns
        -------
        bool
            Whether the object was stored.
        """
        self.check_writable()
        conditional = self.conditional
        if conditional is not None:
            return conditional.set_if((Change(key, value, None),))[0]

        def task() -> bool:
            if self.get_one(Request(key)) is not None:
                return False
            self.set(key, value)
            return True

        return while_locked(self.document_locked(key), task)

    def delete_prefix(self, path: str = "") -> None:
        """Delete every key under a path."""
        self.check_writable()
        self.delete_many(list(self.list_prefix(path)))

    def clear(self) -> None:
        """Delete everything."""
        self.delete_prefix()

    def move_prefix(self, source: str, dest: str) -> None:
        """Rename every key under the path ``source`` to lie under the path ``dest``.

        Neither may be the root or lie within the other.

        Raises
        ------
        StoreError
            If anything lies at the destination.
        """
        self._check_move(source, dest)
        keys = list(self.list_prefix(source))
        self.together(lambda key: self._copy(key, dest + key[len(source) :]), keys)
        self.delete_many(keys)

    def _check_move(self, source: str, dest: str) -> None:
        self.check_writable()
        check_move(source, dest)
        if next(self.list_prefix(dest), None) is not None:
            raise StoreError(f"store {self}: cannot move {source!r} to {dest!r}, which is not empty; delete it first")

    def _copy(self, source: str, dest: str) -> None:
        value = self.get_one(Request(source))
        if value is not None:
            self.set(dest, value)

    def nbytes_stored(self, path: str = "") -> int:
        """Bytes stored under a path."""
        return sum(self.getsize(key) or 0 for key in self.list_prefix(path))

    def live(self) -> "Store":
        """The store that shows the metadata as they are stored now: this one, unless it shows a copy of them."""
        return self

    def enclosing(self) -> "tuple[Store, str] | None":
        """The store one level up that contains this one, and the path of this one in it; None if it is unknown."""
        return None

    def locked(self, keys: Sequence[str], merged: Sequence[str] | None = None) -> AbstractContextManager[Any]:
        """Lock objects against read-modify-write by others (`gzarr.storage.locks.key_locks`).

        Parameters
        ----------
        keys : sequence of str
            The objects that will be stored or deleted.
        merged : sequence of str, optional
            Those of them that are read before; by default all. If there are any, `keys` are at most `max_locked`.

        Returns
        -------
        context manager
            Holds the locks, for one ``with`` statement.
        """
        return key_locks([self.lock_name(key) for key in keys])

    def node_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock a node, named by one of its documents, against changes by others (`gzarr.storage.locks.node_lock`)."""
        return node_lock(self.lock_name(key))

    def document_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock one document against read-modify-write by others (`gzarr.storage.locks.document_lock`)."""
        return document_lock(self.lock_name(key))

    def together(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call a function once for each item, several at a time if the store waits for a server."""
        return [function(item) for item in items]

    def close(self) -> None:
        """Release what the store holds. Stores that buffer writes (zip) finish them here."""

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` if the store is read-only."""
        if self.read_only:
            raise ReadOnlyError(f"store {self} is read-only; open it for writing to change it")

    def check_metadata_writable(self) -> None:
        """Raise `ReadOnlyError` if nodes cannot be made, changed or deleted; chunks may still be writable."""
        self.check_writable()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- MutableMapping ------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> bytes:
        value = self.get_one(Request(key))
        if value is None:
            raise KeyError(key)
        return bytes(value)

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self.delete_many((key,))

    def __iter__(self) -> Iterator[str]:
        return self.list_prefix("")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.getsize(key) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and type(self) is type(other) and self.lock_name("") == other.lock_name("")

    def __hash__(self) -> int:
        return hash(self.lock_name(""))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __format__(self, spec: str) -> str:
        return format(escaped(self), spec)  # in messages; str() is the name as it is
