"""A store of two stores: metadata documents in one, chunks in the other (zarr 2's ``chunk_store``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from gzarr.errors import ReadOnlyError, StoreError
from gzarr.storage.base import R, Store, T, token_of, tokens_of
from gzarr.storage.capabilities import ANY, Buffer, Change, Conditional, Files, Request, Versioned, Versions
from gzarr.storage.rules import DOCUMENTS


class _SplitVersions(Versions):
    """Tokens of documents from one store, of chunks from another."""

    def __init__(self, store: SplitStore, documents: Versions | None, chunks: Versions | None) -> None:
        self._store = store
        self._chunks = chunks
        self.remote = any(versions is not None and versions.remote for versions in (documents, chunks))
        self.pins = chunks is not None and chunks.pins

    def token(self, key: str) -> object | None:
        return token_of(self._store.store_of(key), key)

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        return self._store.scattered(keys, lambda store, of: tokens_of(store, [keys[i] for i in of]))

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        return self._pinning().get_pinned(requests, versions)

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        return self._pinning().get_versioned(requests)

    def _pinning(self) -> Versions:
        if self._chunks is None:
            raise StoreError(f"store {self._store.chunk_store} cannot tie reads to versions")
        return self._chunks


class _SplitConditional(Conditional):
    """Conditions of both stores. A store that has none has locks, which callers hold."""

    def __init__(self, store: SplitStore) -> None:
        self._store = store
        both = store.metadata_store.conditional, store.chunk_store.conditional
        self.deletes = all(conditional is None or conditional.deletes for conditional in both)

    def get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        def ask(store: Store, positions: Sequence[int]) -> Sequence[Versioned | None]:
            asked, conditional = [keys[i] for i in positions], store.conditional
            if conditional is not None:
                return conditional.get_tagged(asked)
            values = store.get_many([Request(key) for key in asked])
            return [None if value is None else Versioned(value, ANY) for value in values]

        return self._store.scattered(keys, ask)

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        def ask(store: Store, positions: Sequence[int]) -> Sequence[bool]:
            asked, conditional = [changes[i] for i in positions], store.conditional
            if conditional is not None:
                return conditional.set_if(asked)
            store.set_many([(key, value) for key, value, _ in asked if value is not None])
            store.delete_many([key for key, value, _ in asked if value is None])
            return [True] * len(asked)

        self._store.check_writable()
        return self._store.scattered([change.key for change in changes], ask)


class SplitStore(Store):
    """Metadata documents go to one store, everything else to another. Both may be the same kind of store.

    Chunks are read as their own store reads best: in parts, many at once, tied to versions.

    Parameters
    ----------
    store : Store
        Where the metadata are.
    chunk_store : Store
        Where the chunks are.

    Attributes
    ----------
    metadata_store, chunk_store : Store
        The two stores.

    Examples
    --------
    >>> from gzarr.storage import MemoryStore
    >>> store = SplitStore(MemoryStore(), MemoryStore())
    >>> store["zarr.json"], store["c/0"] = b"{}", b"chunk"
    >>> list(store.metadata_store), list(store.chunk_store)
    (['zarr.json'], ['c/0'])
    """

    def __init__(self, store: Store, chunk_store: Store) -> None:
        self.metadata_store = store
        self.chunk_store = chunk_store
        self.read_only = store.read_only
        self.concurrency, self.max_locked = chunk_store.concurrency, chunk_store.max_locked
        self.zarr_format = store.zarr_format or chunk_store.zarr_format
        self.dimension_separator = store.dimension_separator or chunk_store.dimension_separator

    @property
    def files(self) -> Files | None:
        """The files of the chunks."""
        return self.chunk_store.files

    @property
    def versions(self) -> Versions | None:
        """The versions of both stores; reads of chunks can be tied to them if their store supports that."""
        documents, chunks = self.metadata_store.versions, self.chunk_store.versions
        return None if documents is None and chunks is None else _SplitVersions(self, documents, chunks)

    @property
    def conditional(self) -> Conditional | None:
        """The conditions of the store of each object, if either store has some."""
        both = self.metadata_store.conditional, self.chunk_store.conditional
        return None if both == (None, None) else _SplitConditional(self)

    def store_of(self, key: str) -> Store:
        """The store that holds an object."""
        return self.metadata_store if key.rpartition("/")[2] in DOCUMENTS else self.chunk_store

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request."""
        return self.store_of(request[0]).get_one(request)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; each store is asked once."""
        keys = [request[0] for request in requests]
        return self.scattered(keys, lambda store, of: store.get_many([requests[i] for i in of]))

    def scattered(self, keys: Sequence[str], ask: Callable[[Store, Sequence[int]], Sequence[R]]) -> list[R]:
        """What the stores say of some keys, in order. ask: asks a store about the keys at some positions."""
        found: dict[int, R] = {}
        for store, positions in self.by_store(keys):
            found.update(zip(positions, ask(store, positions), strict=True))
        return [found[i] for i in range(len(keys))]

    def together(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call a function for each item, as the store of the chunks does."""
        return self.chunk_store.together(function, items)

    def by_store(self, keys: Sequence[str]) -> Iterator[tuple[Store, list[int]]]:
        """Each store that has keys, with their positions; metadata last, because they make nodes exist."""
        owners = [self.store_of(key) is self.chunk_store for key in keys]
        for store, is_chunk in ((self.chunk_store, True), (self.metadata_store, False)):
            positions = [i for i, owner in enumerate(owners) if owner is is_chunk]
            if positions:
                yield store, positions

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair; each replaces its object atomically."""
        self.check_writable()
        items = list(items)
        for store, positions in self.by_store([key for key, _ in items]):
            store.set_many([items[i] for i in positions])

    def set_if_missing(self, key: str, value: Buffer) -> bool:
        """Store an object unless one is there, as the store of the object does."""
        self.check_writable()
        return self.store_of(key).set_if_missing(key, value)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys; missing ones are ignored."""
        self.check_writable()
        keys = list(keys)
        for store, positions in self.by_store(keys):
            store.delete_many([keys[i] for i in positions])

    def delete_prefix(self, path: str = "") -> None:
        """Delete every key under a path, in both stores."""
        self.check_writable()
        self.metadata_store.delete_prefix(path)
        self.chunk_store.delete_prefix(path)

    def move_prefix(self, source: str, dest: str) -> None:
        """Rename every key under a path, in both stores."""
        self.check_writable()
        self.chunk_store.move_prefix(source, dest)
        self.metadata_store.move_prefix(source, dest)

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys that lie under a path, in either store."""
        yield from self.metadata_store.list_prefix(prefix)
        yield from (key for key in self.chunk_store.list_prefix(prefix) if self.store_of(key) is self.chunk_store)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, in either store, sorted: (objects, sub-paths)."""
        one, other = self.metadata_store.list_dir(path), self.chunk_store.list_dir(path)
        return sorted({*one[0], *other[0]}), sorted({*one[1], *other[1]})

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        return self.store_of(key).getsize(key)

    def lock_name(self, key: str) -> Hashable:
        """The name that the store of the object gives it."""
        return self.store_of(key).lock_name(key)

    def locked(self, keys: Sequence[str], merged: Sequence[str] | None = None) -> AbstractContextManager[Any]:
        """Lock chunks, as their store does."""
        return self.chunk_store.locked(keys, merged)

    def node_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock a node, as the store of its documents does."""
        return self.metadata_store.node_locked(key)

    def document_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock a document, as its store does."""
        return self.store_of(key).document_locked(key)

    def enclosing(self) -> tuple[Store, str] | None:
        """The store above that of the metadata."""
        return self.metadata_store.enclosing()

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` if either store is read-only."""
        super().check_writable()
        if self.chunk_store.read_only:
            raise ReadOnlyError(f"chunk_store {self.chunk_store} is read-only; open it for writing to change it")

    def close(self) -> None:
        """Close both stores."""
        self.metadata_store.close()
        self.chunk_store.close()

    def __str__(self) -> str:
        return str(self.metadata_store)
