"""Stores of zarr-python 3 (and of packages that extend it, such as Icechunk) as stores of gzarr.

Their verbs are coroutines. They run on zarr-python's own event loop, where connections that such a store already has
belong; many of them at once. Nothing here imports zarr-python unless an object of it was brought.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Sequence
from importlib import import_module
from typing import Any

from gzarr.errors import StoreError
from gzarr.storage.base import R, Store, T
from gzarr.storage.capabilities import Buffer, Change, Request
from gzarr.storage.flat import KeyValueStore
from gzarr.storage.forks import ICECHUNK, OBSTORE, ForkGuard
from gzarr.storage.rules import DOCUMENTS, byte_range, check_path, is_allowed, listing, pickled, without_secrets

#: Coroutines under way at once.
_CONCURRENCY = 64


def _client_of(store: Any) -> ForkGuard | None:
    """The client of a store of zarr-python, if its threads do not survive a fork."""
    name = type(store).__name__
    if name == "ObjectStore" and not type(store.store).__name__.startswith("Memory"):
        return OBSTORE
    return ICECHUNK if name == "IcechunkStore" else None


def is_transactional(store: Store) -> bool:
    """Whether nobody sees changes of a store before all are committed: then documents come before chunks."""
    return isinstance(store, ZarrStore) and type(store.store).__name__ == "IcechunkStore"


class ZarrStore(KeyValueStore):
    """A store of zarr-python 3.

    Parameters
    ----------
    store : zarr.abc.store.Store
        The store of zarr-python.
    read_only : bool
        Whether to refuse changes; true if `store` refuses them.
    """

    concurrency = _CONCURRENCY
    _errors = Exception  # every store raises its own errors
    _process_bound = frozenset({"_abc", "_buffers", "_wait", "_client"})

    def __init__(self, store: Any, read_only: bool = False) -> None:
        self.store = store
        self.read_only = read_only or bool(store.read_only)
        self._abc = import_module(".".join(("zarr", "abc", "store")))  # noqa: FLY002  # not a dependency
        self._buffers = import_module(".".join(("zarr", "core", "buffer"))).default_buffer_prototype()  # noqa: FLY002
        self._wait: Callable[[Any], Any] = import_module(".".join(("zarr", "core", "sync"))).sync  # noqa: FLY002
        self._client = _client_of(store)
        self._known_name = ""
        if self._client is ICECHUNK:  # which has used its threads to make the store
            self._client.check(self)
            self._known_name = str(store)  # asked for while chunks are written, it would wait for them for ever

    # -- running coroutines --------------------------------------------------------------------------------------

    def _sync(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on zarr's event loop. Raises: StoreError in a child that would wait for ever."""
        if self._client is not None:
            try:
                self._client.check(self)
            except StoreError:
                coroutine.close()
                raise
        return self._wait(coroutine)

    def _all(self, verb: str, function: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """Await a coroutine function for each item, some at once."""

        async def run() -> list[R]:
            slots = asyncio.Semaphore(_CONCURRENCY)

            async def one(item: T) -> R:
                async with slots:
                    with self._failures(f"{verb} {item[0] if isinstance(item, tuple) else item!r}"):
                        return await function(item)

            return await asyncio.gather(*(one(item) for item in items))

        return self._sync(run())

    def _failed(self, what: str, error: Exception) -> StoreError:
        return StoreError(f"store {self}: cannot {what}: {type(error).__name__}: {without_secrets(str(error))}")

    async def _get(self, request: Request) -> Buffer | None:
        key, start, length = request
        wanted = None
        if start is not None:
            nbytes = await self._size(key)
            if nbytes is None:
                return None
            begin, end = byte_range(start, length, nbytes)
            if begin == end:
                return b""
            wanted = self._abc.RangeByteRequest(begin, end)
        found = await self.store.get(key, self._buffers, wanted)
        return None if found is None else memoryview(found.to_bytes())

    async def _exists(self, key: str) -> bool:
        try:
            return bool(await self.store.exists(key))
        except KeyError:  # Icechunk says so of the documents of Zarr v2
            return False

    async def _is_object(self, key: str) -> bool:
        """Whether a name that was listed is an object, not a path of other names."""
        try:
            return await self._exists(key)
        except NotImplementedError:  # VirtualiZarr's stores give what zarr-python reads, and a path is a node there
            is_document = key.rpartition("/")[2] in DOCUMENTS
            return is_document or await self.store.get(f"{key}/zarr.json", self._buffers) is None
        except Exception:
            # Icechunk knows the keys of Zarr alone, and refuses to be asked for others; a path has names below it.
            if await self._collect(self.store.list_dir(key)):
                return False
            raise

    async def _size(self, key: str) -> int | None:
        if not key or not await self._exists(key):
            return None
        try:
            return int(await self.store.getsize(key))
        except FileNotFoundError:
            return None

    async def _collect(self, names: AsyncIterator[str]) -> list[str]:
        if inspect.isawaitable(names):
            names = await names
        return [name async for name in names]

    def collected(self, items: AsyncIterator[T]) -> list[T]:
        """All that an asynchronous iterator of the store gives."""

        async def run() -> list[T]:
            return [item async for item in items]

        return self._sync(run())

    # -- verbs ---------------------------------------------------------------------------------------------------

    def _read(self, requests: Sequence[Request]) -> list[Buffer | None]:
        return self._all("read", self._get, requests)

    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        return self._all("look up", self._size, keys)

    def _keys(self, path: str) -> list[str]:
        start = f"{path}/" if path else ""

        async def names() -> list[str]:
            try:
                return await self._collect(self.store.list_prefix(start))
            except Exception:
                # Icechunk refuses to list anything but groups and arrays, so also paths with nothing below.
                if await self._collect(self.store.list_dir(path)):
                    raise
                return []

        return self._sync(names())

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        check_path(path)
        start = f"{path}/" if path else ""

        async def listed() -> list[str]:
            return await self._collect(self.store.list_dir(path))  # some stores need the loop for the call already

        with self._failures(f"list {path!r}"):
            names_there: list[str] = self._sync(listed())
        found = {name.strip("/").rpartition("/")[2] for name in names_there} - {""}
        names = list(filter(is_allowed, found))
        # Names do not say whether they are an object's or a path's, or both.
        exists = self._all("look up", self._is_object, [start + name for name in names])
        objects = [name for name, there in zip(names, exists, strict=True) if there]
        paths = [name for name, there in zip(names, exists, strict=True) if not there]
        # Both zarr-python's and obstore's leave empty directories behind.
        if "LocalStore" in {type(self.store).__name__, type(getattr(self.store, "store", None)).__name__}:
            paths = [name for name in paths if next(self.list_prefix(start + name), None) is not None]
        return listing(objects, {*paths, *found.difference(names)})

    def lock_name(self, key: str) -> Hashable:
        """The name of the store, with the key."""
        return str(self), key

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        async def change(item: Change) -> bool:
            key, value, _ = item
            if value is not None:
                await self.store.set(key, self._buffers.buffer.from_bytes(value))
            elif await self._exists(key):
                await self.store.delete(key)
            return True

        return self._all("delete" if changes[0].value is None else "write", change, changes)

    def delete_prefix(self, path: str = "") -> None:
        """Delete all keys under a path, as the store itself does it. Raises: StoreError."""
        self.check_writable()
        if next(self.list_prefix(path), None) is not None:
            self._all("delete", self.store.delete_dir, (path,))

    def move_prefix(self, source: str, dest: str) -> None:
        """Copy every key under `source` to lie under `dest`, groups and arrays before chunks, then delete it.

        Raises
        ------
        StoreError
            If anything lies at the destination.
        """
        self._check_move(source, dest)
        keys = list(self.list_prefix(source))
        documents = {key for key in keys if key.rpartition("/")[2] in DOCUMENTS}
        # Icechunk takes chunks of arrays only that it knows of.
        for key in sorted(documents, key=lambda key: key.count("/")):
            self._copy(key, dest + key[len(source) :])
        self.together(lambda key: self._copy(key, dest + key[len(source) :]), [k for k in keys if k not in documents])
        self.delete_prefix(source)

    def close(self) -> None:
        """Do nothing: whoever made the store closes it."""

    def __str__(self) -> str:
        return self._known_name or str(self.store)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, ZarrStore, self.store, self.read_only)
