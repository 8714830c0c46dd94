"""A store and a path in it, as one value."""

from __future__ import annotations

from typing import Any

from gzarr.storage.rules import check_path


class StorePath:
    """A place in a store: what ``array.store_path`` is, and what every ``store=`` takes.

    Parameters
    ----------
    store : Store
        The store, also one of zarr-python.
    path : str
        Path in the store; "" is the root.

    Attributes
    ----------
    store, path
        The same.

    Examples
    --------
    >>> import gzarr
    >>> place = gzarr.storage.StorePath(gzarr.MemoryStore()) / "run"
    >>> z = gzarr.zeros(3, store=place / "speed")
    >>> z.path, z.store_path == place / "speed"
    ('run/speed', True)
    """

    __slots__ = ("path", "store")

    def __init__(self, store: Any, path: str = "") -> None:
        self.store = store
        self.path = "/".join(part for part in path.replace("\\", "/").split("/") if part)
        check_path(self.path)

    @property
    def read_only(self) -> bool:
        """Whether the store refuses changes."""
        return bool(self.store.read_only)

    def __truediv__(self, path: str) -> StorePath:
        return StorePath(self.store, f"{self.path}/{path}")

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, StorePath) and self.path == other.path and self.store == other.store
        return bool(same)

    def __hash__(self) -> int:
        return hash((self.store, self.path))

    def __str__(self) -> str:
        return f"{self.store}/{self.path}" if self.path else str(self.store)

    def __repr__(self) -> str:
        return f"StorePath({type(self.store).__name__}, {str(self)!r})"
