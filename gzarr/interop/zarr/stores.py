"""Stores of zarr-python for the engine: local files natively, others through their own coroutines or calls."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import zarr.storage
from zarr.abc import store as abc
from zarr.core.buffer import cpu
from zarr.core.sync import _get_loop

from gzarr.chunk_io.array_io import ArrayIO
from gzarr.storage import LocalStore
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.capabilities import Change, Versions
from gzarr.storage.foreign import ZarrStore

#: Settings of zarr-python's arrays that say which ranges of bytes are fetched together.
_COALESCING = {"max_gap_bytes": "max_gap_bytes", "max_coalesced_bytes": "max_bytes"}
_IN_MEMORY = (zarr.storage.MemoryStore, getattr(zarr.storage, "ManagedMemoryStore", zarr.storage.MemoryStore))


@lru_cache(256)
def _local(root: str, _folder: Path) -> LocalStore:
    """Return the store of a directory, the same one each time. _folder: the working directory."""
    return LocalStore(root)


class Stores:
    """What one store of zarr-python is for the engine, on each event loop that uses it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        # A subclass may do anything else.
        self.is_local = type(store) is zarr.storage.LocalStore
        self._root = store.root if self.is_local else None
        self._without_loop: Store | None = None
        if self.is_local:
            self._without_loop = _local(str(store.root), Path.cwd())
        elif type(store) in _IN_MEMORY and hasattr(store, "get_sync"):
            self._without_loop = DirectZarrStore(store)
        self._on: WeakKeyDictionary[Any, Store] = WeakKeyDictionary()

    @property
    def need_no_loop(self) -> bool:
        """Whether the store runs without an event loop."""
        return self._without_loop is not None

    def on(self, loop: Any) -> Store:
        """Return the store whose coroutines run on an event loop."""
        if self.is_local and self.store.root is not self._root:  # zarr-python has moved the directory
            self._root = self.store.root
            self._without_loop = _local(str(self._root), Path.cwd())
        if self._without_loop is not None:
            return self._without_loop
        found = self._on.get(loop)
        if found is None:
            found = self._on[loop] = LoopZarrStore(self.store, loop)
        return found


def for_one_read(io: ArrayIO, config: Any) -> ArrayIO:
    """Return an array for one read. config: zarr-python's, of the array."""
    if io.layout.objects is io.layout.grid or not isinstance(io.store, PlainZarrStore):
        return io
    return io._replace(store=io.store.for_one_read(config), compiled=None)


def _byte_range(request: Request) -> Any:
    _, start, length = request
    if start is None:
        return None
    if start < 0:
        if length is not None and length != -start:
            raise ValueError(f"no range of {length} bytes, {-start} before the end")
        return abc.SuffixByteRequest(-start)
    return abc.OffsetByteRequest(start) if length is None else abc.RangeByteRequest(start, start + length)


class _OneRead(Versions):
    """Ties the index of a shard to its chunks for one read, as zarr-python does: nothing tells whether it changed."""

    def token(self, key: str) -> object | None:
        """Return what is the same within one read only."""
        return self


class PlainZarrStore(ZarrStore):
    """A store of zarr-python, asked for ranges of bytes without a look at sizes."""

    _one_read: Versions | None = None
    _coalescing: Mapping[str, int] = MappingProxyType({})

    @property
    def versions(self) -> Versions | None:
        """The version of all objects during one read; None otherwise."""
        return self._one_read

    def for_one_read(self, config: Any) -> "PlainZarrStore":
        """Return a view of the store that reads parts of shards."""
        view = object.__new__(type(self))
        given = {name: getattr(config, f"sharding_coalesce_{setting}", None) for name, setting in _COALESCING.items()}
        coalescing = {name: nbytes for name, nbytes in given.items() if nbytes is not None}
        vars(view).update(vars(self), _one_read=_OneRead(), _coalescing=coalescing)
        return view


class LoopZarrStore(PlainZarrStore):
    """A store of zarr-python whose coroutines run on an event loop, which must be running in another thread."""

    versions = PlainZarrStore.versions

    def __init__(self, store: Any, loop: Any) -> None:
        super().__init__(store)
        if loop is not _get_loop():
            self._wait: Callable[[Coroutine[Any, Any, Any]], Any] = lambda coroutine: asyncio.run_coroutine_threadsafe(
                coroutine, loop
            ).result()

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order, many at once; near ranges of one object together. Raises: StoreError."""
        keys = {key for key, start, _ in requests if start is not None}
        if not keys or not hasattr(self.store, "get_ranges"):
            return super().get_many(requests)
        found: list[Buffer | None] = [None] * len(requests)
        at = {key: [i for i, request in enumerate(requests) if request.key == key] for key in keys}
        at |= {request.key: [i] for i, request in enumerate(requests) if request.start is None}
        asked = [(key, [_byte_range(requests[i]) for i in positions]) for key, positions in at.items()]
        for positions, values in zip(at.values(), self._all("read", self._get_ranges, asked), strict=True):
            for i, value in zip(positions, values, strict=True):
                found[i] = value
        return found

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request. Raises: StoreError."""
        return self._all("read", self._get, (request,))[0]

    async def _get_ranges(self, item: tuple[str, list[Any]]) -> list[Buffer | None]:
        key, ranges = item
        values: list[Buffer | None] = [None] * len(ranges)
        try:
            async for group in self.store.get_ranges(key, ranges, prototype=cpu.buffer_prototype, **self._coalescing):
                for i, value in group:
                    values[i] = None if value is None else memoryview(value.to_bytes())
        except BaseExceptionGroup as errors:
            # That is how the store says that the object is missing.
            if errors.split(FileNotFoundError)[1] is not None:
                raise
            return [None] * len(ranges)
        return values

    async def _get(self, request: Request) -> Buffer | None:
        found = await self.store.get(request.key, cpu.buffer_prototype, _byte_range(request))
        return None if found is None else memoryview(found.to_bytes())


class DirectZarrStore(PlainZarrStore):
    """A store of zarr-python in memory, whose verbs need no event loop."""

    versions = PlainZarrStore.versions

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order. Raises: StoreError."""
        return [self.get_one(request) for request in requests]

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request. Raises: StoreError."""
        with self._failures(f"read {request.key!r}"):
            found = self.store.get_sync(request.key, prototype=cpu.buffer_prototype, byte_range=_byte_range(request))
        return None if found is None else memoryview(found.as_numpy_array()).cast("B")

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        for key, value, _ in changes:
            if value is None:
                self.store.delete_sync(key)
            else:
                self.store.set_sync(key, cpu.Buffer.from_bytes(value))
        return [True] * len(changes)
