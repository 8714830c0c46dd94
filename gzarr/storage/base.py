"""What a store is: a few verbs on keys and bytes, batched, with range reads as first-class citizens.

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

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from gzarr.errors import ReadOnlyError, StoreError
from gzarr.storage.locks import document_lock, key_locks, node_lock

#: Host bytes: anything of bytes that supports the buffer protocol. NumPy arrays here are one-dimensional uint8.
Buffer: TypeAlias = bytes | bytearray | memoryview | np.ndarray[Any, Any]

T = TypeVar("T")
R = TypeVar("R")


class Request(NamedTuple):
    """A whole object, or a range of its bytes.

    Attributes:
        key: key of the object.
        start: first byte; negative counts from the end of the object (a suffix), None means the whole object.
        length: number of bytes; None means up to the end.
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
    """What a request gave, and of which version of its object it is.

    Attributes:
        data: the bytes.
        version: the object's token (`Store.generation`); None if it has none.
    """

    data: Buffer
    version: object | None


class Opened(Protocol):
    """One version of an object, opened for reading parts of it; a context manager that closes it.

    Attributes:
        nbytes: size of the object.
    """

    nbytes: int

    def read(self, start: int, nbytes: int) -> Buffer:
        """The bytes from an offset on, fewer where the object ends."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class Target(NamedTuple):
    """How files may be written without the store: under another name beside their place, and then renamed.

    Attributes:
        prefix: what the paths of the files begin with, as in `Store.local_prefix`.
        temporary: what the names of the other files begin with; nobody else's do.
        written: a table of uint64. Before a file takes its place a number is put where its inode, modulo the length,
            says, so that its `Store.generation` is one that no file has had.
        number: gives the first of 65,536 such numbers.
    """

    prefix: str
    temporary: str
    written: Any
    number: Callable[[], int]


class Readable(Protocol):
    """The one verb that reading chunks needs."""

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; None where the key is missing."""
        ...


@cache
def reads_past(cls: type[Store], verb: str) -> bool:
    """Whether a subclass changes how objects are read, but not a verb that its base has for reading in another way.

    verb: "opened", "get_pinned", "get_versioned", "local_file", "local_prefix", "contains_many". What the subclass does
        (decrypt, count, keep) would then be passed by.
    """
    owners = [next(i for i, base in enumerate(cls.__mro__) if name in vars(base)) for name in ("get_one", "get_many")]
    return all(verb not in vars(base) for base in cls.__mro__[: min(owners) + 1])


class Store(MutableMapping[str, Any]):
    """Base class of all stores.

    Attributes:
        read_only: True if every call that would change the store raises `ReadOnlyError`.
        concurrency: how many requests are worth having under way at once; 1 where waiting is not what reading costs.
        opens: whether `opened` works. Stores in which every small read costs a round trip, or that have whole objects
            in memory, leave it: they are asked for whole objects.
        pins: whether `get_pinned` and `get_versioned` work.
        zarr_format: the only format that the store can hold, or None for both.
        dimension_separator: what stands between the chunk coordinates in the keys of new Zarr v2 arrays that name
            none, as stores of zarr 2 say; None leaves it to the array.
    """

    read_only: bool = False
    concurrency: int = 1
    opens: bool = False
    pins: bool = False
    zarr_format: Literal[2, 3] | None = None
    dimension_separator: Literal[".", "/"] | None = None

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
        """Whether there is an object with each key. For documents: stores that cannot look quicker fetch them."""
        return [value is not None for value in self.get_many([Request(key) for key in keys])]

    def opened(self, key: str) -> Opened | None:
        """Open an object to read parts of it, all of one version; None if it is missing. Only if the store `opens`."""
        raise NotImplementedError(f"store {self} has whole objects only")

    def set(self, key: str, value: Buffer) -> None:
        """Store one object atomically."""
        self.set_many(((key, value),))

    def delete_prefix(self, path: str = "") -> None:
        """Delete every key under a path."""
        self.delete_many(list(self.list_prefix(path)))

    def move_prefix(self, source: str, dest: str) -> None:
        """Rename every key under the path ``source`` to lie under the path ``dest``, which must hold nothing.

        Neither may be the root or lie within the other.
        """
        for key in list(self.list_prefix(source)):
            value = self.get_one(Request(key))
            if value is not None:
                self.set(dest + key[len(source) :], value)
        self.delete_prefix(source)

    def nbytes_stored(self, path: str = "") -> int:
        """Bytes stored under a path."""
        return sum(self.getsize(key) or 0 for key in self.list_prefix(path))

    def generation(self, key: str) -> object | None:
        """A token that compares equal as long as the object has not been replaced; None if the store has none.

        It lets callers keep what they derived from an object (a parsed shard index) and know when it is stale.
        """
        return None

    def live(self) -> Store:
        """The store whose metadata are what is stored now: another one only for a store that shows a copy of them."""
        return self

    def enclosing(self) -> tuple[Store, str] | None:
        """A store one level up that holds this one, and the path of this one in it; None if there is none to see."""
        return None

    def locked(self, keys: Sequence[str]) -> AbstractContextManager[Any]:
        """Hold objects against read-modify-write by others (`gzarr.storage.locks.key_locks`)."""
        return key_locks([self.lock_name(key) for key in keys])

    def node_locked(self, key: str) -> AbstractContextManager[Any]:
        """Hold a node, named by one of its documents, against changes by others (`gzarr.storage.locks.node_lock`)."""
        return node_lock(self.lock_name(key))

    def document_locked(self, key: str) -> AbstractContextManager[Any]:
        """Hold one document against read-modify-write by others (`gzarr.storage.locks.document_lock`)."""
        return document_lock(self.lock_name(key))

    def local_file(self, key: str) -> str | None:
        """Path of the file that holds exactly one object's bytes, there or not; None if the store has no such files.

        Readers that bypass the store open it: bytes then go straight to where they are decoded.
        """
        return None

    def local_prefix(self, path: str) -> str | None:
        """What `local_file` of every key under a path begins with, but for documents of nodes; the rest of the key is
        the rest of the file's path. None if some keys have other files or none.
        """
        return None

    def local_target(self, path: str) -> Target | None:
        """How files under a path, but for documents of nodes, may be written by others; None if only the store may."""
        return None

    def generations(self, keys: Sequence[str]) -> list[object | None]:
        """`generation` of every key; stores across a network ask for all of them at once."""
        return [self.generation(key) for key in keys]

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        """Fetch every request from one version of each object.

        Tokens are spared their second look in this way: the server compares (HTTP ``If-Match``), so an index and the
        chunks that it points to are of one version of a shard, in one round trip each.

        versions: for the key of each request the token that `generation` gave.
        Raises: ReplacedError if an object has another version meanwhile; StoreError if the store has no such reads.
        """
        raise StoreError(f"store {self} cannot tie reads to versions")

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        """Fetch every request with the token of the version that its bytes are of; None where the key is missing.

        The answer itself says the version (HTTP ``ETag``), so a first read and reads of the same version after it
        (`get_pinned`) need no look at the object before them.

        Returns: for an object that has no token its whole bytes, whatever was asked for: these are of one version.
        Raises: ReplacedError if an object was replaced within a read; StoreError, also if the store has no such reads.
        """
        raise StoreError(f"store {self} cannot tie reads to versions")

    def together(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call a function that asks this store for something, once for each item; at once where the store waits."""
        return [function(item) for item in items]

    def close(self) -> None:
        """Release what the store holds. Stores that buffer writes (zip) finish them here."""

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` if the store is read-only."""
        if self.read_only:
            raise ReadOnlyError(f"store {self} is read-only; open it for writing to change it")

    def check_metadata_writable(self) -> None:
        """Raise `ReadOnlyError` if nodes cannot be made, changed or deleted; chunks may be writable all the same."""
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
