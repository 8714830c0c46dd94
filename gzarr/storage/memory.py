"""Objects in memory: in a new dict, in any mutable mapping of the user, or under a name that URLs find again."""

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Self
from weakref import WeakValueDictionary

from gzarr.errors import StoreError
from gzarr.storage.capabilities import Buffer, Request, Versions
from gzarr.storage.flat import FlatStore
from gzarr.storage.rules import as_bytes, check_key, check_keys, check_path, cut, pickled, under

# Every store that is alive, so that its own name ("memory://140453554680576") finds it.
_alive: "WeakValueDictionary[int, MemoryStore]" = WeakValueDictionary()


def find_memory(identity: int) -> "MemoryStore | None":
    """The live store over the mapping with that ``id()``, or None if it is gone."""
    for store in list(_alive.values()):
        if id(store._data) == identity:  # noqa: SLF001  # our own class
            return store
    return None


def is_mapping(value: object) -> bool:
    """Return whether a value can keep objects: a mutable mapping, or a class of the user with the methods of one.

    Data that are opened or made by other libraries, as tables and datasets, have these methods, too, and attributes.
    """
    kind = type(value)
    methods = ("__getitem__", "__setitem__", "__delitem__", "__iter__", "keys")
    return isinstance(value, MutableMapping) or (
        all(hasattr(kind, name) for name in methods) and not hasattr(value, "attrs")
    )


def _lookup(data: MutableMapping[str, Any], key: str) -> Any:
    """The value of a key, or None; unlike some ``get`` methods, safe against a deletion at the same time."""
    try:
        return data[key]
    except KeyError:
        return None


class _Identity:
    """The identity of a bytes object, which stays alive, so that no other can be mistaken for it.

    Contents would not do: they may return, and what was read from another version in between would pass for theirs.
    """

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is _Identity and self._value is other._value  # our own class

    def __hash__(self) -> int:
        return id(self._value)


class _ValueVersions(Versions):
    """Tokens of the bytes objects in a dict; values that can change in place have none."""

    __slots__ = ("_get",)
    in_memory = True

    def __init__(self, get: Callable[[str], Any]) -> None:
        self._get = get

    def token(self, key: str) -> object | None:
        return self.of(self._get(key))

    def of(self, stored: Any) -> object | None:
        return _Identity(stored) if type(stored) is bytes else None


class MemoryStore(FlatStore):
    """A store over a mapping from keys to bytes.

    Written values are immutable `bytes` in the mapping itself, so its owner sees them. Whole objects are returned as
    they are and ranges as views: nothing is copied on reading.

    Parameters
    ----------
    data : mapping, optional
        Where to keep the objects: a dict, a ``UserDict``, an fsspec ``FSMap``, a store object of zarr 2, or any
        other mapping with str keys and bytes-like values; None makes a new dict. It must allow the calls that
        several threads will make at once (a dict does).
    read_only : bool
        Whether to refuse to change the mapping.

    Raises
    ------
    TypeError
        If `data` is not a mutable mapping.

    Examples
    --------
    >>> import gzarr
    >>> store = gzarr.MemoryStore()
    >>> z = gzarr.create_array(store, shape=4, dtype="i4", compressors=None)
    >>> z[...] = 1
    >>> sorted(store)
    ['c/0', 'zarr.json']
    """

    _process_bound = frozenset({"_get"})

    def __init__(self, data: MutableMapping[str, Any] | None = None, read_only: bool = False) -> None:
        if data is None:
            data = {}
        elif not is_mapping(data):
            raise TypeError(f"MemoryStore: data must be a mutable mapping or None; got {type(data).__name__}")
        self._data = data
        self._get: Callable[[str], Any] = data.get if isinstance(data, dict) else partial(_lookup, data)
        self.read_only = read_only
        _alive[id(self)] = self

    @property
    def versions(self) -> Versions | None:
        """The stored bytes objects: another one is another version, even with the same contents.

        None for mappings other than dicts, where asking may mean fetching.
        """
        return _ValueVersions(self._get) if isinstance(self._data, dict) else None

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request: the stored object itself, a view of a part of it, or None."""
        key, start, length = request
        value = self._get(key)
        if type(value) is not bytes:
            if value is None:
                return None
            value = as_bytes(key, value)
        return value if start is None else cut(value, start, length)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; adjacent requests for one key see one version of it."""
        found: list[Buffer | None] = []
        value: Any = None
        last: str | None = None
        for key, start, length in requests:
            if key != last:
                value = self._get(key)
                if value is not None:
                    value = as_bytes(key, value)
                last = key
            found.append(value if start is None or value is None else cut(value, start, length))
        return found

    def set(self, key: str, value: Buffer) -> None:
        """Store one object; a buffer that could change is copied. In half of the time of `set_many`."""
        self.check_writable()
        check_key(key)
        self._data[key] = as_bytes(key, value)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair; a buffer that could change is copied."""
        self.check_writable()
        data, items = self._data, list(items)
        check_keys([key for key, _ in items])
        for key, value in items:
            data[key] = value if type(value) is bytes else as_bytes(key, value)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys; missing ones are ignored."""
        self.check_writable()
        for key in keys:
            try:
                del self._data[key]
            except KeyError:
                continue

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path, as they were when listing began."""
        # One step for a dict, so other threads cannot change it in between. list() would ask others for their length.
        keys = list(self._data) if type(self._data) is dict else list(iter(self._data))
        return under(keys, prefix)

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        value = self._get(key)
        return None if value is None else len(as_bytes(key, value))

    def lock_name(self, key: str) -> Hashable:
        """The identity of the mapping, with the key."""
        return id(self._data), key

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __len__(self) -> int:
        return sum(1 for _ in self._data) if not hasattr(self._data, "__len__") else len(self._data)

    def __str__(self) -> str:
        return f"memory://{id(self._data)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, MemoryStore, self._data, self.read_only)


# -- memory by name ----------------------------------------------------------------------------------------------------

#: What ``memory://NAME`` names, for the life of the process.
named: dict[str, dict[str, Any]] = {}
_numbers = count(1)


class _Below(MutableMapping[str, Any]):
    """The objects of a dict below a path."""

    def __init__(self, data: dict[str, Any], path: str) -> None:
        self._data, self._prefix = data, f"{path}/"

    def __getitem__(self, key: str) -> Any:
        return self._data[self._prefix + key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._data[self._prefix + key] = value

    def __delitem__(self, key: str) -> None:
        del self._data[self._prefix + key]

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(self._prefix) for key in list(self._data) if key.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ManagedMemoryStore(MemoryStore):
    """A store in memory that its name finds again, in the same process.

    Parameters
    ----------
    name : str, optional
        Its name: stores of one name have the same objects. By default a new one.
    path : str
        Path below which its objects are.
    read_only : bool
        Whether to refuse changes.

    Attributes
    ----------
    name, path
        The same.

    Raises
    ------
    StoreError
        If the name is not one part of a URL.

    Notes
    -----
    The objects live as long as the process, where zarr-python forgets them with the last store of the name.

    Examples
    --------
    >>> import gzarr
    >>> store = gzarr.storage.ManagedMemoryStore("measurements")
    >>> z = gzarr.array([1, 2, 3], store=store)
    >>> gzarr.open("memory://measurements")[...]
    array([1, 2, 3])
    """

    def __init__(self, name: str | None = None, *, path: str = "", read_only: bool = False) -> None:
        if name is not None and (not name or "/" in name or name.isdigit()):
            raise StoreError(f"the name of a ManagedMemoryStore must be letters, without '/', got {name!r}")
        self.name = f"managed-{next(_numbers)}" if name is None else name
        self.path = path.strip("/")
        check_path(self.path)
        data = named.setdefault(self.name, {})
        super().__init__(_Below(data, self.path) if self.path else data, read_only)

    @classmethod
    def from_url(cls, url: str, *, read_only: bool = False) -> Self:
        """Return the store of a URL.

        Parameters
        ----------
        url : str
            ``memory://NAME`` or ``memory://NAME/PATH``.
        read_only : bool
            Whether to refuse changes.

        Returns
        -------
        ManagedMemoryStore
            The store.

        Raises
        ------
        StoreError
            If there is no store of that name.

        Examples
        --------
        >>> import gzarr
        >>> store = gzarr.storage.ManagedMemoryStore("here")
        >>> gzarr.storage.ManagedMemoryStore.from_url("memory://here/run").path
        'run'
        """
        name, _, path = url.removeprefix("memory://").partition("/")
        if not url.startswith("memory://") or name not in named:
            raise StoreError(f"cannot open {url!r}: no ManagedMemoryStore of this process has that name")
        return cls(name, path=path, read_only=read_only)

    def lock_name(self, key: str) -> Hashable:
        """The identity of the dict, with the key in it."""
        return id(named[self.name]), f"{self.path}/{key}" if self.path else key

    def __str__(self) -> str:
        return f"memory://{self.name}/{self.path}".rstrip("/")

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.name, self.path, self.read_only, os.getpid())


def _unpickled(name: str, path: str, read_only: bool, process: int) -> ManagedMemoryStore:
    if process != os.getpid():
        raise StoreError(f"the ManagedMemoryStore {name!r} is in the memory of another process; use a store of files")
    return ManagedMemoryStore(name, path=path, read_only=read_only)
