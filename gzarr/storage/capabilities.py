"""What stores offer beyond their verbs, as objects: files, versions, conditions, segments; and what they exchange.

A store has each of them as an attribute, or None (`gzarr.storage.base.Store`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from gzarr.errors import StoreError

#: Host bytes: anything of bytes that supports the buffer protocol. NumPy arrays here are one-dimensional uint8.
Buffer: TypeAlias = bytes | bytearray | memoryview | np.ndarray[Any, Any]


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


class Target(NamedTuple):
    """How files may be replaced without the store: written under another name beside their place, then renamed.

    The temporary file is the lock of the file (`gzarr.storage.file_locks`), also while it is deleted.

    Attributes
    ----------
    prefix : str
        What the paths of the files begin with, as in `Files.prefix`.
    temporary : str
        What is put before the name of a file for its temporary one.
    number : callable
        Gives the first of 65,536 numbers. Before a file takes its place, one is put into the store's table of them, so
        that the `Versions.token` of the file is one that no file has had.
    tidy : callable
        To be called with the keys of files that were deleted: removes directories that are now empty.
    replace_end : callable
        Replaces a file by a copy with another end. Arguments: its key, its version (`Versions.token`), how many bytes
        are kept, and what comes behind them. Returns whether that was done: not if it has another version.
    """

    prefix: str
    temporary: str
    number: Callable[[], int]
    tidy: Callable[[Iterable[str]], None]
    replace_end: Callable[[str, object, int, bytes], bool]


class Files:
    """A capability: objects that are local files, which others may read or replace without asking the store.

    Only objects that hold chunks are reached this way; metadata documents always go through the verbs of the store.
    """

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


class TokensBy(Versions):
    """The versions of a store that has a function for the token of an object.

    Parameters
    ----------
    token : callable
        Gives the token of a key.
    together : callable, optional
        Calls a function for each of several keys, for tokens that come across a network.
    """

    def __init__(
        self, token: Callable[[str], object | None], together: Callable[[Any, Sequence[str]], Any] | None = None
    ) -> None:
        self._token, self._together = token, together
        self.remote = together is not None

    def token(self, key: str) -> object | None:
        """The token of an object's version. Raises: what the function raises."""
        return self._token(key)

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        """The tokens of several objects."""
        return list(map(self._token, keys)) if self._together is None else self._together(self._token, keys)


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
    def set_if(self, changes: "Sequence[Change]") -> list[bool]:
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


#: The tag of a change without a condition, beside others that have one: one call then stores all objects of a batch.
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
