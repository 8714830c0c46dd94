"""A store and a path in it, as one value."""

from collections.abc import Callable
from typing import Any, TypeVar

from gzarr.errors.escaping import escaped
from gzarr.storage.base import Store
from gzarr.storage.capabilities import Request, host_view
from gzarr.storage.memory import MemoryStore, is_mapping
from gzarr.storage.rules import check_path

T = TypeVar("T")


class StorePath:
    """A place in a store: what ``array.store_path`` is, and what every ``store=`` takes.

    Parameters
    ----------
    store : Store
        The store, also one of zarr-python or a mapping.
    path : str
        Path in the store; "" is the root.

    Attributes
    ----------
    store, path
        The same.

    Notes
    -----
    ``get``, ``set``, ``delete`` and the others that touch the store are coroutines, as in zarr-python.

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
        return self._store.read_only

    async def get(self, prototype: Any = None, byte_range: Any = None) -> Any:
        """Read the object at the path.

        Parameters
        ----------
        prototype : BufferPrototype, optional
            Of zarr-python: what to return instead of bytes.
        byte_range : optional
            Which bytes, as zarr-python's ``RangeByteRequest(start, end)`` and its kin say.

        Returns
        -------
        bytes or None
            The object, or None if there is none.
        """
        found = await _on_thread(self._get, byte_range)
        return found if found is None or prototype is None else prototype.buffer.from_bytes(found)

    async def set(self, value: Any) -> None:
        """Store bytes, or a buffer of zarr-python, at the path."""
        await _on_thread(self._store.set, self.path, _bytes_of(value))

    async def set_if_not_exists(self, default: Any) -> None:
        """Store bytes at the path unless something is stored there."""
        await _on_thread(self._store.set_if_missing, self.path, _bytes_of(default))

    async def delete(self) -> None:
        """Delete the object at the path, if there is one."""
        await _on_thread(self._store.delete_many, [self.path])

    async def delete_dir(self) -> None:
        """Delete everything below the path."""
        await _on_thread(self._store.delete_prefix, self.path)

    async def exists(self) -> bool:
        """Return whether an object is stored at the path."""
        return await _on_thread(self._store.getsize, self.path) is not None

    async def is_empty(self) -> bool:
        """Return whether nothing is stored below the path."""
        return not any(await _on_thread(self._store.list_dir, self.path))

    @property
    def _store(self) -> Store:
        """The store as one of gzarr."""
        if isinstance(self.store, Store):
            return self.store
        if is_mapping(self.store):
            return MemoryStore(self.store)
        from gzarr.storage.foreign import ZarrStore  # imports asyncio

        return ZarrStore(self.store)

    def _get(self, byte_range: Any) -> bytes | None:
        start, length = None, None
        if hasattr(byte_range, "suffix"):
            start = -byte_range.suffix
        elif hasattr(byte_range, "offset"):
            start = byte_range.offset
        elif byte_range is not None:
            start, length = byte_range.start, byte_range.end - byte_range.start
        found = self._store.get_one(Request(self.path, start, length))
        return None if found is None else bytes(host_view(found))

    def __truediv__(self, path: str) -> "StorePath":
        return StorePath(self.store, f"{self.path}/{path}")

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, StorePath) and self.path == other.path and self.store == other.store
        return bool(same)

    def __hash__(self) -> int:
        return hash((self.store, self.path))

    def __str__(self) -> str:
        return f"{self.store!s}/{self.path}" if self.path else str(self.store)

    def __format__(self, spec: str) -> str:
        return format(escaped(self), spec)  # in messages; str() is the name as it is

    def __repr__(self) -> str:
        return f"StorePath({type(self.store).__name__}, {str(self)!r})"


async def _on_thread(call: Callable[..., T], *args: Any) -> T:
    import asyncio  # callers that await have loaded it; others need not

    return await asyncio.to_thread(call, *args)


def _bytes_of(value: Any) -> Any:
    return value.to_bytes() if hasattr(value, "to_bytes") else value
