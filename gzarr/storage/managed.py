"""Memory under a name, which URLs find again: zarr-python's `ManagedMemoryStore`."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, MutableMapping
from itertools import count
from typing import Any, Self

from gzarr.errors import StoreError
from gzarr.storage.memory import MemoryStore
from gzarr.storage.rules import check_path

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
