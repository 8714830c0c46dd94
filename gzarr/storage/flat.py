"""The common part of stores with keys but no directories: databases, archives and object stores."""

import warnings
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gzarr.errors import StoreError
from gzarr.storage.base import Store
from gzarr.storage.capabilities import ANY, Buffer, Change, Conditional, Request, Versioned
from gzarr.storage.credentials import shown_cause
from gzarr.storage.rules import as_bytes, check_key, check_path, children, under, without_secrets


class FlatStore(Store):
    """Listings made of keys, names made of one, and errors of other libraries made errors of the store."""

    _name: str
    #: What `lock_name` gives with the key, if not the name.
    _place: Hashable = None
    # What the library below raises, and what to say when it does.
    _errors: type[Exception] | tuple[type[Exception], ...] = ()
    _remedy = ""
    #: Whether the server refused to store on a condition, so that it is not asked to again.
    _unconditional = False

    def _go_on_without_conditions(self, why: object) -> None:
        """Say once that a server cannot store on a condition; from now on objects are stored without."""
        if not self._unconditional:
            self._unconditional = True
            reason = without_secrets(str(why))[:200]
            warnings.warn(
                f"store {self}: the server cannot store objects on a condition ({reason}). Threads of one"
                " process still lose no update; let no two processes write to one chunk, shard or node at a time",
                RuntimeWarning,
                stacklevel=2,
            )

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        return children(self.list_prefix(path), path)

    def lock_name(self, key: str) -> Hashable:
        """The place of the store, with the key."""
        return self._place or self._name, key

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        """Raise a StoreError for the errors of the library below. what: a verb, and what it is about."""
        try:
            yield
        except StoreError:
            raise
        except self._errors as error:
            raise self._failed(what, error) from shown_cause(error)

    def _failed(self, what: str, error: Exception) -> StoreError:
        return StoreError(f"store {self}: cannot {what}: {without_secrets(str(error))[:500]}{self._remedy}")

    def __str__(self) -> str:
        return self._name


class KeyConditions(Conditional):
    """The conditional changes of a `KeyValueStore` that has some."""

    __slots__ = ("_store",)

    def __init__(self, store: "KeyValueStore") -> None:
        self._store = store

    def get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        """Fetch whole objects, each with its tag; None where the key is missing. Raises: StoreError."""
        if not keys:
            return []
        with self._store._failures(f"read {keys[0]!r}"):  # noqa: SLF001 - one module, two classes
            return self._store._read_tagged(keys)  # noqa: SLF001

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        """Carry out changes whose condition holds. Returns: which were carried out. Raises: StoreError."""
        return self._store._carry_out(changes)  # noqa: SLF001


class KeyValueStore(FlatStore):
    """A store made of a few functions of a database: subclasses say how it reads, lists and changes values.

    A subclass may raise its library's errors, which become errors of the store (`_errors`).
    """

    @abstractmethod
    def _read(self, requests: Sequence[Request]) -> Sequence[Buffer | None]:
        """Fetch some requests, at least one."""

    @abstractmethod
    def _keys(self, path: str) -> list[str]:
        """All keys under a path, and perhaps others."""

    @abstractmethod
    def _change(self, changes: Sequence[Change]) -> list[bool]:
        """Carry out some changes, at least one; all have the tag `ANY` if the store has no conditions.

        Returns: which were carried out.
        """

    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        """Size of some objects, None where the key is missing."""
        return [None if value is None else len(value) for value in self._read([Request(key) for key in keys])]

    def _read_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        """Fetch whole objects with their tags; by default their bytes are the tags."""
        found = self._read([Request(key) for key in keys])
        return [None if data is None else Versioned(data, data) for data in found]

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order. Raises: StoreError."""
        if not requests:
            return []
        with self._failures(f"read {requests[0].key!r}"):
            return list(self._read(requests))

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        with self._failures(f"look up {key!r}"):
            return self._sizes((key,))[0]

    def nbytes_stored(self, path: str = "") -> int:
        """Bytes stored under a path."""
        keys = list(self.list_prefix(path))
        with self._failures("look up sizes"):
            return sum(size or 0 for size in self._sizes(keys)) if keys else 0

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path, as they were when listing began."""
        check_path(prefix)
        with self._failures("list keys"):
            return under(self._keys(prefix), prefix)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair, together where the database can do that. Raises: StoreError."""
        self._carry_out([Change(key, as_bytes(key, value), ANY) for key, value in items])

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys, together where the database can do that; missing ones are ignored. Raises: StoreError."""
        self._carry_out([Change(key, None, ANY) for key in dict.fromkeys(keys)])

    def _carry_out(self, changes: Sequence[Change]) -> list[bool]:
        self.check_writable()
        checked = []
        for key, value, tag in changes:
            if value is not None or tag is not ANY:  # a key that is not allowed has no object to be deleted
                check_key(key)
            checked.append(Change(key, None if value is None else as_bytes(key, value), tag))
        if not checked:
            return []
        with self._failures(f"{'delete' if checked[0].value is None else 'write'} {checked[0].key!r}"):
            return self._change(checked)
