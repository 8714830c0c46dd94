"""The common part of stores with keys but no directories: databases, archives and object stores."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gzarr.errors import StoreError
from gzarr.storage.base import Buffer, Change, Conditional, Request, Store, Versioned
from gzarr.storage.credentials import shown_cause
from gzarr.storage.rules import as_bytes, check_key, children, cut, without_secrets


class FlatStore(Store):
    """Listings made of keys, names made of one, and errors of other libraries made errors of the store."""

    _name: str
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
        """The name of the store, with the key."""
        return self._name, key

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


class TaggedObjects(Conditional):
    """The conditional changes of a `DatabaseStore`."""

    __slots__ = ("_store",)

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store

    def get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        """Fetch whole objects, each with its tag; None where the key is missing."""
        return self._store._get_tagged(keys)  # noqa: SLF001 - one module, two classes

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        """Carry out changes whose condition holds. Returns: which were carried out."""
        return self._store._set_if(changes)  # noqa: SLF001


class DatabaseStore(FlatStore):
    """Changes many objects in one step; subclasses say how."""

    @abstractmethod
    def _write(self, rows: list[tuple[str, bytes]]) -> None:
        """Store some (key, bytes) pairs. Raises: StoreError."""

    @abstractmethod
    def _delete(self, keys: list[str]) -> None:
        """Delete some keys; missing ones are ignored. Raises: StoreError."""

    def _get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        """`Conditional.get_tagged`: by default the bytes are the tags."""
        found = self.get_many([Request(key) for key in keys])
        return [None if data is None else Versioned(data, data) for data in found]

    def _set_if(self, changes: Sequence[Change]) -> list[bool]:
        """`Conditional.set_if`, for stores that have it."""
        raise NotImplementedError

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair, together where the database can do that. Raises: StoreError."""
        self.check_writable()
        rows = []
        for key, value in items:
            check_key(key)
            rows.append((key, as_bytes(key, value)))
        if rows:
            self._write(rows)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys, together where the database can do that; missing ones are ignored. Raises: StoreError."""
        self.check_writable()
        names = list(dict.fromkeys(keys))
        if names:
            self._delete(names)


def cut_all(values: Sequence[bytes | None], requests: Sequence[Request]) -> list[Buffer | None]:
    """Cut the requested parts out of whole objects."""
    return [
        None if value is None else cut(value, request.start, request.length)
        for value, request in zip(values, requests, strict=True)
    ]
