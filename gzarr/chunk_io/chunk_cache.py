"""Caches decoded chunks in memory, for arrays that are read again and again in parts smaller than their chunks.

Theory of operation. Reading a batch begins with the cached chunks (`ArrayChunks.serve`). The rest of the batch is
located and fetched as usual, decoded chunk by chunk, cached, and copied into the result. A chunk is cached under the
name of its stored object, with the token that the store gave for the object before it was fetched
(`Versions.token`): when the object is replaced, its cached chunks are not used again. Stores without tokens rely on
`gzarr.storage.invalidation`, which reports everything this process writes: a chunk is not cached if such a change
overlaps its fetch.

Rules: cached chunks are never handed out, only copied from. Missing chunks are not cached. Neither are chunks of Python
objects, whose size is unknown and which callers may change.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gzarr.backend import Array, Backend, Chain, Fields
from gzarr.concurrency import is_held_here, new_lock
from gzarr.errors import CodecError
from gzarr.indexing.plan import Groups, Part
from gzarr.layout.chunk_layout import Layout
from gzarr.storage.base import Buffer, Store, tokens_of
from gzarr.storage.invalidation import listen

Place: TypeAlias = Callable[[Chain, Sequence[Buffer | None], Sequence[Part], Array, Fields], None]


class _Cached(NamedTuple):
    object_name: Hashable
    token: object | None
    chunk: np.ndarray[Any, Any]
    changes: int  # the number of the last change before it was fetched


class ChunkCache:
    """A cache of decoded chunks, which any number of arrays and threads may share.

    Pass it to arrays or groups as ``chunk_cache=``; a number there makes a cache of its own. The least recently used
    chunks are dropped first.

    Parameters
    ----------
    max_nbytes : int
        The largest number of bytes of decoded chunks to cache. Larger chunks are not cached.

    Attributes
    ----------
    hits : int
        Number of parts of chunks that were copied from memory.
    misses : int
        Number of parts whose chunk was fetched and decoded, or is missing.
    nbytes : int
        Number of bytes cached now.

    Examples
    --------
    >>> import gzarr
    >>> cache = gzarr.ChunkCache(100_000_000)
    >>> z = gzarr.open_array(gzarr.array(range(10), chunks=5).store, "r", chunk_cache=cache)
    >>> z[:2], z[2:4]
    (array([0, 1]), array([2, 3]))
    >>> cache.hits, cache.misses
    (1, 1)
    """

    def __init__(self, max_nbytes: int) -> None:
        if isinstance(max_nbytes, bool) or not isinstance(max_nbytes, (int, np.integer)) or max_nbytes < 0:
            raise TypeError(f"ChunkCache: max_nbytes must be a number of bytes, got {max_nbytes!r}")
        self.max_nbytes = int(max_nbytes)
        self.hits = 0
        self.misses = 0
        self.nbytes = 0
        self._editing = new_lock()
        self._chunks: OrderedDict[Hashable, _Cached] = OrderedDict()
        self._by_object: dict[Hashable, set[Hashable]] = {}
        self._numbers = count(1)
        self._changes = 0
        self._oldest = 0  # chunks without tokens of earlier changes are not used
        listen(self)

    def clear(self) -> None:
        """Drop all chunks."""
        self.forget(None)

    def forget(self, names: Iterable[Hashable] | None) -> None:
        """Drop the chunks of stored objects with some lock names, or all."""
        # Chunks that were fetched before this are not cached any more.
        self._changes = next(self._numbers)
        if is_held_here(self._editing):  # re-entrant code, within an edit
            self._oldest = self._changes
            return
        with self._editing:
            for name in list(self._by_object) if names is None else names:
                for key in list(self._by_object.get(name, ())):
                    self._drop(key)

    def __repr__(self) -> str:
        return f"<ChunkCache {self.nbytes} of {self.max_nbytes} bytes, {self.hits} hits, {self.misses} misses>"

    def __reduce__(self) -> "tuple[type[ChunkCache], tuple[int]]":
        return ChunkCache, (self.max_nbytes,)

    def _find(self, key: Hashable, token: object | None) -> np.ndarray[Any, Any] | None:
        cached = self._chunks.get(key)
        if cached is None or cached.token != token or (token is None and cached.changes < self._oldest):
            self.misses += 1
            return None
        self.hits += 1
        if not is_held_here(self._editing):
            with self._editing, suppress(KeyError):  # it was dropped meanwhile
                self._chunks.move_to_end(key)
        return cached.chunk

    def _add(self, key: Hashable, cached: _Cached) -> None:
        nbytes = cached.chunk.nbytes
        if nbytes > self.max_nbytes or is_held_here(self._editing):  # by what re-entrant code has interrupted
            return
        with self._editing:
            self._drop(key)
            if cached.token is None and self._changes != cached.changes:
                return
            self._chunks[key] = cached
            self._by_object.setdefault(cached.object_name, set()).add(key)
            self.nbytes += nbytes
            while self.nbytes > self.max_nbytes:
                self._drop(next(iter(self._chunks)))

    def _drop(self, key: Hashable) -> None:
        cached = self._chunks.pop(key, None)
        if cached is not None:
            self.nbytes -= cached.chunk.nbytes
            siblings = self._by_object[cached.object_name]
            siblings.discard(key)
            if not siblings:
                del self._by_object[cached.object_name]


@dataclass(frozen=True, slots=True)
class ArrayChunks:
    """The chunks of one opened array in a cache.

    Attributes
    ----------
    cache : ChunkCache
        The cache.
    signature : Hashable
        What decoding depends on besides the stored bytes: arrays that agree in it share chunks.
    store : Store
        The array's store.
    root : Hashable
        The store's own lock name.
    """

    cache: ChunkCache
    signature: Hashable
    store: Store
    root: Hashable

    def serve(
        self, layout: Layout, backend: Backend, groups: Groups, target: tuple[Array, Fields]
    ) -> tuple[Groups, Place]:
        """Copy the cached chunks of a batch into ``target`` (the result, and the fields it is limited to).

        Returns: the rest of the batch, and what to do instead of `Backend.place` with its chunks once they are fetched.
        """
        out, fields = target
        changes = self.cache._changes  # noqa: SLF001 - one module, two classes
        rest: Groups = []
        objects: dict[int, tuple[Hashable, object | None]] = {}
        keys = [layout.key(coords) for coords, _ in groups]
        for (coords, parts), key, token in zip(groups, keys, tokens_of(self.store, keys), strict=True):
            # With a token, a name that is quick to make will do: changes need no invalidation.
            name = self.store.lock_name(key) if token is None else (self.root, key)
            left = []
            for part in parts:
                chunk = self.cache._find((name, part.coords, self.signature), token)  # noqa: SLF001
                if chunk is None:
                    left.append(part)
                    objects[id(part)] = name, token
                else:
                    _copy(chunk, part, out, fields)
            if left:
                rest.append((coords, left))
        return rest, partial(self._place, backend, objects, changes)

    def _place(
        self,
        backend: Backend,
        objects: dict[int, tuple[Hashable, object | None]],
        changes: int,
        chain: Chain,
        buffers: Sequence[Buffer | None],
        parts: Sequence[Part],
        out: Array,
        fields: Fields,
    ) -> None:
        if chain.chunk.dtype.hasobject:
            backend.place(chain, buffers, parts, out, fields)
            return
        missing = [i for i, buffer in enumerate(buffers) if buffer is None]
        if missing:
            backend.place(chain, [None] * len(missing), [parts[i] for i in missing], out, fields)
        for i, buffer in enumerate(buffers):
            if buffer is None:
                continue
            try:
                chunk = backend.decode(chain, (buffer,))[0]
            except CodecError as error:
                error.index = i
                raise
            chunk.flags.writeable = False
            name, token = objects[id(parts[i])]
            key = (name, parts[i].coords, self.signature)
            self.cache._add(key, _Cached(name, token, chunk, changes))  # noqa: SLF001
            _copy(chunk, parts[i], out, fields)


def _copy(chunk: np.ndarray[Any, Any], part: Part, out: Array, fields: Fields) -> None:
    source: Any = chunk if fields is None else chunk[fields]
    out[part.out] = source[part.inside]
