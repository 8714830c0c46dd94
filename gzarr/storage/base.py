"""The interface of stores: a few batched verbs on keys and bytes, with range reads as first-class citizens.

A store maps keys (``"foo/bar/c/0/1"``: no leading or trailing slash, no empty segment) to immutable byte objects.
Subclasses implement the verbs marked *required*; everything else has a default made from them. Every store is also a
``MutableMapping[str, bytes]``, which is what zarr 2, xarray and dask accept.

Rules that ``tests/contracts/test_store.py`` checks for every store:

- a missing key reads as ``None`` and never raises; deleting a missing key does nothing;
- a range that reaches past the end of an object gives the bytes that are there, perhaps none;
- one ``set`` replaces one object atomically: a reader sees the old bytes or the new, never a mixture;
- everything may be called from several threads at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from gzarr.errors import ReadOnlyError, StoreError
from gzarr.errors.escaping import escaped
from gzarr.storage.locks import document_lock, key_locks, node_lock, while_locked
from gzarr.storage.rules import check_move

#: Host bytes: anything of bytes that supports the buffer protocol. NumPy arrays here are one-dimensional uint8.
Buffer: TypeAlias = bytes | bytearray | memoryview | np.ndarray[Any, Any]

T = TypeVar("T")
R = TypeVar("R")


class Request(NamedTuple):
    """A whole object, or a range of its bytes.

    Attributes
    ----------
    key : str
        Key of the object.
    start : int, optional
        First byte; negative counts from the end of the object (a suffix), None means the whole object.
    length : int, optional
        Number of bytes; None means up to the end.
    """

    key: str
    start: int | None = None
    length: int | None = None


def host_view(buffer: Buffer) -> memoryview:
    """A buffer as a flat view of its bytes, without a copy."""
    exported: Any = buffer  # NumPy arrays are buffers, which their stubs say from Python 3.12 on only
    view = memoryview(exported)
    return view if view.ndim == 1 and view.format == "B" else view.cast("B")


class Versioned(NamedTuple):
    """The answer to a request, with the version of its object.

    Attributes
    ----------
    data : Buffer
        The bytes.
    version : object, optional
        The object's token (`Versions.token`); None if it has none.
    """

    data: Buffer
    version: object | None


class Opened(Protocol):
    """One version of an object, opened for reading parts of it; a context manager that closes it.

    Attributes
    ----------
    nbytes : int
        Size of the object.
    """

    nbytes: int

    def read(self, start: int, nbytes: int) -> Buffer:
        """The bytes from an offset on, fewer where the object ends."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class Target(NamedTuple):
    """How files may be replaced without the store: written under another name beside their place, then renamed.

    The temporary file is the lock of the file (`gzarr.storage.file_locks`), also while it is deleted.

    Attributes
    ----------
    prefix : str
        What the paths of the files begin with, as in `Files.prefix`.
    temporary : str
        What is put before the name of a file for its temporary one.
    written : numpy.ndarray
        A table of uint64. Before a file takes its place, a number is put where its inode, modulo the length, says,
        so that its `Versions.token` is one that no file has had.
    number : callable
        Gives the first of 65,536 such numbers.
    tidy : callable
        To be called with the keys of files that were deleted: removes directories that are now empty.
    """

    prefix: str
    temporary: str
    written: Any
    number: Callable[[], int]
    tidy: Callable[[Iterable[str]], None]


class Files(ABC):
    """A capability: objects that are local files, which others may read or replace without asking the store.

    Only objects that hold chunks are reached this way; metadata documents always go through the verbs of the store.
    A store that must not be bypassed, but can read parts of an object cheaply, overrides `open` alone.
    """

    @abstractmethod
    def open(self, key: str) -> Opened | None:
        """Open an object to read parts of it, all of one version; None if it is missing."""

    def path(self, key: str) -> str | None:
        """Path of the file that holds exactly one object's bytes, even if it is missing; None without such a file."""
        return None

    def prefix(self, path: str) -> str | None:
        """What `path` of every key under a path begins with; the rest of the key is the rest of the file's path.

        None if some keys have other files or none.
        """
        return None

    def target(self, path: str) -> Target | None:
        """How files under a path may be replaced by others; None if only the store may."""
        return None


class Versions(ABC):
    """A capability: tokens that tell the versions of an object apart, so that several reads can be tied together.

    Attributes
    ----------
    remote : bool
        Whether asking for a token takes a round trip to a server, as long as reading a small object does.
    pins : bool
        Whether `get_pinned` and `get_versioned` work, which read chunks and no metadata documents.
    in_memory : bool
        Whether objects are in memory, so that fetching one whole copies nothing, and `of` knows its version.
    """

    remote: bool = False
    pins: bool = False
    in_memory: bool = False

    @abstractmethod
    def token(self, key: str) -> object | None:
        """A token that compares equal until the object is replaced; None if it is missing or has no token.

        Callers keep what they derived from an object (a parsed shard index) with its token, and know when it is stale.
        """

    def of(self, stored: Buffer) -> object | None:
        """The token of an object that was fetched whole, if its bytes tell; None otherwise."""
        return None

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        """`token` of every key; stores across a network ask for all of them at once."""
        return [self.token(key) for key in keys]

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        """Fetch every request from one version of each object.

        This saves the second look at a token: the server compares (HTTP ``If-Match``), so an index and the chunks that
        it points to are of one version of a shard, in one round trip each.

        Parameters
        ----------
        requests : sequence of Request
            What is wanted.
        versions : mapping
            The token of each request's key.

        Returns
        -------
        list of Buffer or None
            The answer to each request; None where the key is missing.

        Raises
        ------
        ReplacedError
            If an object has another version meanwhile.
        StoreError
            If something else fails.
        """
        raise StoreError("this store cannot tie reads to versions")

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        """Fetch every request with the token of the version that its bytes are from; None where the key is missing.

        The answer itself says the version (HTTP ``ETag``), so a first read and reads of the same version after it
        (`get_pinned`) need no look at the object before them.

        Parameters
        ----------
        requests : sequence of Request
            What is wanted.

        Returns
        -------
        list of Versioned or None
            The answer to each request. For an object that has no token these are its whole bytes, whatever was asked
            for: they are of one version.

        Raises
        ------
        ReplacedError
            If an object was replaced within a read.
        StoreError
            If something else fails.
        """
        raise StoreError("this store cannot tie reads to versions")


class Conditional(ABC):
    """A capability: replacing an object only if it is still the version that was read (put-if-match).

    Read-modify-write then needs no lock: read with `get_tagged`, change, `set_if`; do again what was refused.

    Attributes
    ----------
    deletes : bool
        Whether `set_if` can delete on a condition. Where it cannot, an object that becomes empty by merging is stored
        with its fill value.

    Notes
    -----
    Callers hold the locks of the store as well (`Store.locked`, `Store.document_locked`). So a store that is made of
    others can offer this for all of its objects, where some of them have conditions and the rest have locks.
    """

    deletes: bool = True

    @abstractmethod
    def get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        """Fetch whole objects, each with a tag of its version; None where the key is missing. Raises: StoreError."""

    @abstractmethod
    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        """Carry out changes, each only if its object still has the version that the change names.

        A change that is refused by mistake does no harm, because it is done again with what is stored then. A store may
        refuse several whose tags one call gave if it has to refuse one of them.

        Parameters
        ----------
        changes : sequence of Change
            At most one for each key.

        Returns
        -------
        list of bool
            Whether each change was carried out.

        Raises
        ------
        StoreError
            If something else fails.
        """


#: The tag of a change without a condition, beside others that have one: one call then stores all objects of a wave.
ANY: Final[object] = type("AnyVersion", (), {"__repr__": lambda _: "ANY"})()


class Change(NamedTuple):
    """A change of one object, on a condition.

    Attributes
    ----------
    key : str
        Key of the object.
    value : Buffer, optional
        Its new bytes; None deletes it, where `Conditional.deletes`.
    tag : object, optional
        The version that it must have (`Conditional.get_tagged`); None if it must be missing; `ANY` for any.
    """

    key: str
    value: Buffer | None
    tag: object | None


class Segments(ABC):
    """A capability: storing objects that are several buffers, one after the other, without joining them in memory."""

    @abstractmethod
    def set_many(self, items: Iterable[tuple[str, Sequence[Buffer]]]) -> None:
        """Store every (key, buffers) pair as `Store.set_many` does. Raises: StoreError."""


class Readable(Protocol):
    """The one verb that reading chunks needs."""

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; None where the key is missing."""
        ...


def pickled(store: Store, owner: type[Store], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Say how a store is pickled: for ``__reduce__``.

    The copy has the same class, and all attributes that are not bound to this process. A subclass takes arguments that
    nobody knows here, so the copy is not made by calling it.

    Parameters
    ----------
    store : Store
        The store.
    owner : type
        The class of gzarr whose ``__init__`` makes locks and connections anew.
    *args, **kwargs
        Its arguments.
    """
    carried = {name: value for name, value in vars(store).items() if name not in owner._process_bound}  # noqa: SLF001
    return _unpickled, (type(store), owner, args, kwargs, carried)


def _unpickled(
    kind: type[Store], owner: type[Store], args: tuple[Any, ...], kwargs: dict[str, Any], carried: dict[str, Any]
) -> Store:
    store = kind.__new__(kind)
    owner.__init__(store, *args, **kwargs)
    vars(store).update(carried)
    return store


def token_of(store: Store, key: str) -> object | None:
    """The token of an object's version (`Versions.token`); None if the store has none."""
    versions = store.versions
    return None if versions is None else versions.token(key)


def tokens_of(store: Store, keys: Sequence[str]) -> list[object | None]:
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


def _shortcuts(cls: type[Store]) -> dict[str, Callable[..., Any]]:
    """Shortcuts that call the batched verbs of a class.

    Not those of the object: a subclass that overrides both verbs, and calls this one, would be called twice.
    """

    def get_one(self: Store, request: Request) -> Buffer | None:
        return cls.get_many(self, (request,))[0]

    def set_one(self: Store, key: str, value: Buffer) -> None:
        cls.set_many(self, ((key, value),))

    return {"get_one": get_one, "set": set_one, **{name: vars(Store)[name] for name in _OPTIONAL}}


def _is_hook(base: type[Store], name: str) -> bool:
    """Whether a name is that of a private method of a store, through which bytes may pass."""
    return name.startswith("_") and not name.startswith("__") and callable(getattr(base, name, None))


class Store(MutableMapping[str, Any]):
    """Base class of all stores.

    All bytes pass through ``get_many``, ``set_many`` and ``delete_many``. To change how bytes are read or written,
    override these. The shortcuts ``get_one``, ``set`` and ``contains_many`` are then made of them, whatever the base
    class has, unless they are overridden too. A class that overrides ``get_one`` without ``get_many``, ``set`` without
    ``set_many``, or a verb of mappings (``__getitem__``) is refused with a `TypeError`. The same holds for mixins.

    A store offers capabilities beyond its verbs as objects: `files`, `versions`, `conditional` and `segments`. They
    bypass the verbs, so **a subclass inherits them only if it leaves the bytes alone**:

    - it has one base class that is a store; and
    - neither its body nor a mixin overrides a verb that bytes pass through, or a private method of the base.

    Any other subclass has no capability unless it declares it. It is read through ``get_many`` and written
    through ``set_many`` alone: always correct, but slower. A class that overrides verbs and still leaves the bytes
    as they are declares so in one line::

        class Retrying(WrapperStore):
            files, versions = WrapperStore.files, WrapperStore.versions
            conditional = WrapperStore.conditional

            def get_many(self, requests): ...

    A class that changes bytes may offer other capabilities: a property that returns a `Files`, `Versions` or
    `Conditional`.

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
        for capability in {"files", "versions", "conditional", "segments"} - own if changes else ():
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

    def live(self) -> Store:
        """The store that shows the metadata as they are stored now: this one, unless it shows a copy of them."""
        return self

    def enclosing(self) -> tuple[Store, str] | None:
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
