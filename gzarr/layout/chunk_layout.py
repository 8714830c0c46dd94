"""Where chunks lie: chunk coordinates to requests, and new chunks to stored objects. Sharding is addressing.

Theory of operation. An *object* is what has a key in the store. In an `Unsharded` layout every chunk is an object. In a
`Sharded` layout an object holds a grid of chunks and an index; levels nest, and the chunk grid of the array is that of
the innermost level. ``locate`` turns the chunks wanted from one object into byte ranges, reading indexes as needed
(they are kept, with the token of the store, so that a replaced shard is never read with an old index).
``build`` makes an object's new bytes out of its old ones and the chunks that change; the others are copied encoded.

Codecs around a shard (bytes to bytes) make the whole object be fetched and decoded before it is addressed. A transpose
before the sharding codec is folded: the shard's index is looked up in transposed order (``Level.order``) and the
transpose joins the inner chunk's codecs.

Rules: indexes live on the host; nothing here decodes chunks; every inconsistency raises CodecError.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import sub
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import CodecError
from gzarr.indexing.grid import Grid, chunk_shape
from gzarr.indexing.keys import Coords, KeyEncoding
from gzarr.layout.shard import MISSING, Coder, assemble, decode_index, entry, slice_entry, split_index
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer, Request, Store, host_view, token_of
from gzarr.storage.wrappers import PinnedStore

#: What ``locate`` says of a chunk: fetch this, here are its bytes, or it is missing.
Located: TypeAlias = "Request | Buffer | None"

#: In place of an object's token: the store reads one version of it, and says itself which (`PinnedStore`).
PINNED: object = object()

#: Bytes of shard indexes kept per opened array. An index of 1,000 chunks has 16 kB.
INDEX_CACHE_NBYTES = 64 << 20
#: From this share of a shard's chunks on, the whole shard is read in one request instead of its index and then ranges.
WHOLE_SHARD_SHARE = 0.5


class Layout(Protocol):
    """How the chunks of one array lie in its store.

    A layout whose ``objects`` is the same object as its ``grid`` stores every chunk by itself.
    """

    @property
    def grid(self) -> Grid:
        """The chunk grid."""
        ...

    @property
    def objects(self) -> Grid:
        """The grid of stored objects."""
        ...

    def key(self, object_coords: Coords) -> str:
        """Key of a stored object."""
        ...

    def locate(
        self,
        store: Store,
        object_coords: Coords,
        chunks: Sequence[Coords],
        generation: object | None = None,
        *,
        may_fetch: bool = True,
    ) -> list[Located]:
        """Say where the chunks of one object are.

        generation: the object's token (`Versions.token`), taken just before; None if the store has none; `PINNED`.
        may_fetch: whether an object may be fetched whole if most of its chunks are wanted, which saves a request.
        Raises: CodecError.
        """
        ...

    def extract(self, stored: Buffer, object_coords: Coords, chunks: Sequence[Coords]) -> list[Buffer | None]:
        """Take chunks out of an object's bytes. Raises: CodecError."""
        ...

    def known_generation(self, key: str) -> object | None:
        """The token of the version of an object that something is kept of, None if nothing is."""
        ...

    def is_whole(self, object_coords: Coords, nchunks: int) -> bool:
        """Whether that many distinct chunks are all that the object holds within the array."""
        ...

    def build(
        self, stored: Buffer | None, object_coords: Coords, changed: Mapping[Coords, Buffer | None]
    ) -> Buffer | None:
        """An object's new bytes: the old ones with some chunks replaced or removed. None if nothing is left."""
        ...


class Names(NamedTuple):
    """How the keys of an array's objects are made.

    Attributes:
        path: of the array.
        keys: how coordinates become the rest of the key.
    """

    path: str
    keys: KeyEncoding


class Unsharded:
    """Every chunk is a stored object.

    Attributes:
        grid: the chunk grid.
        objects: the grid of stored objects, which is the chunk grid.
        key: key of a stored object.
        names: how ``key`` makes keys; None if in another way.
    """

    __slots__ = ("grid", "key", "names", "objects")

    def __init__(self, grid: Grid, key: Callable[[Coords], str], names: Names | None = None) -> None:
        self.grid = self.objects = grid
        self.key = key
        self.names = names

    def locate(
        self,
        store: Store,
        object_coords: Coords,
        chunks: Sequence[Coords],
        generation: object | None = None,
        *,
        may_fetch: bool = True,
    ) -> list[Located]:
        """Say where the chunks of one object are."""
        return [Request(self.key(object_coords))]

    def extract(self, stored: Buffer, object_coords: Coords, chunks: Sequence[Coords]) -> list[Buffer | None]:
        """Take chunks out of an object's bytes."""
        return [stored]

    def known_generation(self, key: str) -> object | None:
        """The token of the version of an object that something is kept of: of plain chunks nothing is."""
        return None

    def is_whole(self, object_coords: Coords, nchunks: int) -> bool:
        """Whether that many distinct chunks are all that the object holds within the array."""
        return nchunks == 1

    def build(
        self, stored: Buffer | None, object_coords: Coords, changed: Mapping[Coords, Buffer | None]
    ) -> Buffer | None:
        """An object's new bytes: those of its one chunk."""
        return changed[object_coords]


class Level(NamedTuple):
    """One level of sharding, for shards of one shape.

    Attributes:
        chunk_shape: shape of the chunks of this level, in elements and array order.
        counts: chunks per shard and axis, in array order.
        order: permutation of the axes in which the index is laid out, or None.
        coder: codecs of the index.
        index_nbytes: size of the encoded index.
        location: where the index lies.
        wrap: codecs around the shard, or None.
    """

    chunk_shape: Coords
    counts: Coords
    order: Coords | None
    coder: Coder
    index_nbytes: int
    location: Literal["start", "end"]
    wrap: Coder | None

    def place(self, coords: Coords) -> Coords:
        """Coordinates of a chunk in the index."""
        return coords if self.order is None else tuple(coords[axis] for axis in self.order)


#: Where a shard begins and how long it is: (key, start, length), None for the whole of a stored object.
_Place: TypeAlias = tuple[str, int, int | None]


class ShardIndex(NamedTuple):
    """The index of a shard, as a table.

    Attributes:
        entries: (offset, size) of each chunk, shape (*chunks per shard, 2), contiguous, native byte order.
        origin: coordinates of the shard's first chunk.
        steps: how many entries further the next chunk along each axis of the array is.
    """

    entries: NDArray[np.uint64]
    origin: Coords
    steps: Coords


class _Source(NamedTuple):
    """Where a shard's bytes are: in memory, or a range of a stored object."""

    data: memoryview | None
    key: str = ""
    start: int = 0
    length: int | None = None
    generation: object | None = None


class Sharded:
    """An object holds a grid of chunks, with an index.

    Attributes:
        grid: the grid of the innermost chunks.
        objects: the grid of stored objects.
        key: key of a stored object.
        levels: from a shard's shape to its levels, outermost first.
        names: how ``key`` makes keys; None if in another way.
    """

    def __init__(
        self,
        grid: Grid,
        objects: Grid,
        key: Callable[[Coords], str],
        levels: Callable[[Coords], Sequence[Level]],
        names: Names | None = None,
    ) -> None:
        self.names = names
        self.grid = grid
        self.objects = objects
        self.key = key
        self.levels = levels
        self._indexes: OrderedDict[_Place, tuple[object, NDArray[np.uint64]]] = OrderedDict()
        self._kept_nbytes = 0
        self._lock = threading.Lock()

    def locate(
        self,
        store: Store,
        object_coords: Coords,
        chunks: Sequence[Coords],
        generation: object | None = None,
        *,
        may_fetch: bool = True,
    ) -> list[Located]:
        """Say where the chunks of one object are, reading its indexes if they are not at hand. Raises: CodecError."""
        levels, local = self._local(object_coords, chunks)
        key = self.key(object_coords)
        source = _Source(None, key, generation=generation)
        first = levels[0]
        token = token_of(store, key) if generation is PINNED else generation
        wants_whole = (may_fetch or generation is None) and self._wants_whole(source, levels, len(local), token)
        if first.wrap is not None or wants_whole:
            with stage("read"):
                stored = store.get_one(Request(key))
            if stored is None:
                return [None] * len(local)
            source = _Source(host_view(stored), key)
        return self._descend(store, source, levels, local)

    def extract(self, stored: Buffer, object_coords: Coords, chunks: Sequence[Coords]) -> list[Buffer | None]:
        """Take chunks out of an object's bytes. Raises: CodecError."""
        levels, local = self._local(object_coords, chunks)
        found = self._descend(None, _Source(host_view(stored)), levels, local)
        return [item for item in found if not isinstance(item, Request)]

    def known_generation(self, key: str) -> object | None:
        """The token of the version of a shard whose index is kept, None if none is."""
        kept = self._indexes.get((key, 0, None))
        return None if kept is None else kept[0]

    def is_whole(self, object_coords: Coords, nchunks: int) -> bool:
        """Whether that many distinct chunks are all that the object holds within the array."""
        n = 1
        for axis, inner, coord in zip(self.objects, self.grid, object_coords, strict=True):
            low, high = axis.bounds(coord)
            n *= inner.locate(min(high, axis.extent) - 1) - inner.locate(low) + 1
        return n == nchunks

    def build(
        self, stored: Buffer | None, object_coords: Coords, changed: Mapping[Coords, Buffer | None]
    ) -> Buffer | None:
        """An object's new bytes: the old ones with some chunks replaced or removed. None if nothing is left."""
        levels, local = self._local(object_coords, list(changed))
        updates = dict(zip(local, changed.values(), strict=True))
        return _rebuild(levels, None if stored is None else host_view(stored), updates)

    def initialized(self, store: Store, object_coords: Coords) -> int:
        """Number of chunks that one object holds; of nested shards, of those at the first level."""
        level = self.levels(chunk_shape(self.objects, object_coords))[0]
        key = self.key(object_coords)
        versions = store.versions
        pins = versions is not None and versions.pins
        store, generation = (PinnedStore(store, {}), PINNED) if pins else (store, token_of(store, key))
        source = _Source(None, key, generation=generation)
        if level.wrap is not None:
            stored = store.get_one(Request(key))
            if stored is None:
                return 0
            source = _unwrapped(store, _Source(host_view(stored), key), level.wrap)
        index = self._index(store, source, level)
        return 0 if index is None else int(np.count_nonzero(index.reshape(-1, 2)[:, 0] != MISSING))

    def forget(self, key: str) -> None:
        """Drop what is kept of an object's own index."""
        self._forget((key, 0, None))

    @property
    def is_flat(self) -> bool:
        """Whether shards hold chunks, no further shards, and no codecs are around them."""
        levels = self.levels(chunk_shape(self.objects, (0,) * len(self.objects)))
        return len(levels) == 1 and levels[0].wrap is None

    def index(self, store: Store, object_coords: Coords, generation: object | None) -> ShardIndex | None:
        """The index of one shard of a flat layout, read if it is not at hand; None if the shard is missing.

        generation: as in `locate`. Raises: CodecError.
        """
        levels, (first,) = self._local(object_coords, [(0,) * len(self.grid)])
        found = self._index(store, _Source(None, self.key(object_coords), generation=generation), levels[0])
        if found is None:
            return None
        return _as_table(np.ascontiguousarray(found, np.uint64), levels[0], first)

    def blank_index(self, object_coords: Coords) -> tuple[Level, ShardIndex]:
        """The level of a shard of a flat layout, and the index of one without chunks."""
        levels, (first,) = self._local(object_coords, [(0,) * len(self.grid)])
        counts = levels[0].place(levels[0].counts)
        return levels[0], _as_table(np.full((*counts, 2), MISSING, np.uint64), levels[0], first)

    def _local(self, object_coords: Coords, chunks: Sequence[Coords]) -> tuple[Sequence[Level], list[Coords]]:
        """The object's levels, and the chunks' coordinates relative to the object."""
        origin = [
            inner.locate(axis.bounds(c)[0])
            for axis, inner, c in zip(self.objects, self.grid, object_coords, strict=True)
        ]
        local = [tuple(map(sub, coords, origin)) for coords in chunks]
        return self.levels(chunk_shape(self.objects, object_coords)), local

    def _wants_whole(self, source: _Source, levels: Sequence[Level], wanted: int, token: object | None) -> bool:
        if source.generation is None:
            # Nothing would tell if the shard were replaced between the reading of its index and of its chunks.
            return True
        total = 1
        for level in levels:
            for n in level.counts:
                total *= n
        if wanted < total * WHOLE_SHARD_SHARE:
            return False
        kept = self._indexes.get((source.key, 0, None))
        return kept is None or kept[0] != token

    def _descend(
        self, store: Store | None, source: _Source, levels: Sequence[Level], chunks: Sequence[Coords]
    ) -> list[Located]:
        level = levels[0]
        if level.wrap is not None:
            source = _unwrapped(store, source, level.wrap)
        index = self._index(store, source, level)
        if index is None:
            return [None] * len(chunks)
        if len(levels) == 1:
            return _parts_of(source, index, [level.place(c) for c in chunks])
        return self._descend_nested(store, source, levels, (index, chunks))

    def _descend_nested(
        self,
        store: Store | None,
        source: _Source,
        levels: Sequence[Level],
        wanted: tuple[NDArray[np.uint64], Sequence[Coords]],
    ) -> list[Located]:
        index, chunks = wanted
        found: list[Located] = [None] * len(chunks)
        for outer, members in _by_owner(levels[1:], chunks).items():
            part = _part_of(source, entry(index, levels[0].place(outer)))
            if part is None:
                continue
            if isinstance(part, Request):
                inner = _Source(None, part.key, part.start or 0, part.length, source.generation)
            else:
                inner = _Source(host_view(part))
            located = self._descend(store, inner, levels[1:], [local for _, local in members])
            for (position, _), item in zip(members, located, strict=True):
                found[position] = item
        return found

    def _index(self, store: Store | None, source: _Source, level: Level) -> NDArray[np.uint64] | None:
        """A shard's index; None if the shard is missing."""
        if source.data is not None:
            return decode_index(split_index(source.data, level.index_nbytes, level.location), level.coder)
        if store is None:
            raise CodecError("a shard's bytes are neither in memory nor in a store", codec="sharding_indexed")
        pinned, before = source.generation is PINNED, source.generation
        if pinned:
            before = token_of(store, source.key)
        # A shard and the first shard within it may begin at the same byte, but they differ in length.
        name = (source.key, source.start, source.length)
        kept = self._indexes.get(name)
        if kept is not None and before is not None and kept[0] == before:
            return kept[1]
        encoded = store.get_one(_index_request(source, level))
        if encoded is None:
            self._forget(name)
            return None
        size = host_view(encoded).nbytes
        if size != level.index_nbytes:
            raise CodecError(
                f"the shard is truncated: its index has {size} bytes, expected {level.index_nbytes}",
                codec="sharding_indexed",
            )
        index = decode_index(encoded, level.coder)
        # A token that was taken before the index was read: only if it still holds does the index belong to it.
        now = None if source.generation is None else token_of(store, source.key)
        if now is not None and (pinned or now == before):
            self._keep(name, now, index)
        elif source.length is not None and not pinned:
            raise CodecError("the shard was replaced between its index and a nested one", codec="sharding_indexed")
        return index

    def _keep(self, name: _Place, generation: object, index: NDArray[np.uint64]) -> None:
        self._forget(name)
        with self._lock:
            self._indexes[name] = (generation, index)
            self._kept_nbytes += index.nbytes
            while self._kept_nbytes > INDEX_CACHE_NBYTES and len(self._indexes) > 1:
                _, (_, oldest) = self._indexes.popitem(last=False)
                self._kept_nbytes -= oldest.nbytes

    def _forget(self, name: _Place) -> None:
        with self._lock:
            kept = self._indexes.pop(name, None)
            self._kept_nbytes -= 0 if kept is None else kept[1].nbytes


def _index_request(source: _Source, level: Level) -> Request:
    n = level.index_nbytes
    if level.location == "start":
        return Request(source.key, source.start, n)
    if source.length is None:
        return Request(source.key, -n, n)
    if source.length < n:
        raise CodecError(f"a nested shard has {source.length} bytes, its index alone {n}", codec="sharding_indexed")
    return Request(source.key, source.start + source.length - n, n)


def _parts_of(source: _Source, index: NDArray[np.uint64], chunks: Sequence[Coords]) -> list[Located]:
    """`_part_of` for many chunks, given by coordinates in the index."""
    if len(chunks) < 2:
        return [_part_of(source, entry(index, coords)) for coords in chunks]
    rows = index[tuple(np.array(chunks).T)]
    return [_part_of(source, None if row[0] == MISSING else row) for row in map(tuple, rows.tolist())]


def _part_of(source: _Source, place: tuple[int, int] | None) -> Located:
    if place is None:
        return None
    if source.data is not None:
        return slice_entry(source.data, place)
    offset, size = place
    if source.length is not None and offset + size > source.length:
        raise CodecError(
            f"the index of a nested shard points outside of it: bytes {offset} to {offset + size} of {source.length}",
            codec="sharding_indexed",
        )
    return Request(source.key, source.start + offset, size)


def _unwrapped(store: Store | None, source: _Source, wrap: Coder) -> _Source:
    """A shard that codecs are wrapped around: fetched whole and decoded."""
    data: Buffer | None = source.data
    if data is None:
        if store is None or source.length is None:
            raise CodecError("a wrapped shard must be read whole", codec="sharding_indexed")
        data = store.get_one(Request(source.key, source.start, source.length))
        if data is None or host_view(data).nbytes != source.length:
            raise CodecError("a nested shard lies outside its object", codec="sharding_indexed")
        if source.generation is not PINNED and token_of(store, source.key) != source.generation:
            raise CodecError("the shard was replaced between its index and its contents", codec="sharding_indexed")
    return _Source(host_view(wrap.decode([data])[0]))


def _as_table(entries: NDArray[np.uint64], level: Level, first: Coords) -> ShardIndex:
    """first: the array's first chunk, relative to the shard."""
    # Not from strides: those of an axis of length one say nothing.
    steps = [math.prod(entries.shape[axis + 1 : -1]) for axis in range(entries.ndim - 1)]
    by_axis = dict(zip(level.order or range(len(steps)), steps, strict=True))
    return ShardIndex(entries, tuple(-c for c in first), tuple(by_axis[axis] for axis in range(len(steps))))


def _by_owner(inner: Sequence[Level], chunks: Sequence[Coords]) -> dict[Coords, list[tuple[int, Coords]]]:
    """Chunks, given by coordinates within a shard, by the chunk of its first level that holds them."""
    counts = [1] * len(inner[0].counts)
    for level in inner:
        counts = [a * b for a, b in zip(counts, level.counts, strict=True)]
    owners: dict[Coords, list[tuple[int, Coords]]] = {}
    for position, coords in enumerate(chunks):
        pairs = [divmod(c, n) for c, n in zip(coords, counts, strict=True)]
        owners.setdefault(tuple(p[0] for p in pairs), []).append((position, tuple(p[1] for p in pairs)))
    return owners


def _rebuild(
    levels: Sequence[Level], stored: memoryview | None, changed: Mapping[Coords, Buffer | None]
) -> Buffer | None:
    level = levels[0]
    shape = level.place(level.counts)
    entries: list[Buffer | None] = [None] * int(np.prod(shape, dtype=np.int64))
    if stored is not None:
        if level.wrap is not None:
            stored = host_view(level.wrap.decode([stored])[0])
        index = decode_index(split_index(stored, level.index_nbytes, level.location), level.coder)
        for i, (offset, size) in enumerate(index.reshape(-1, 2).tolist()):
            if offset != MISSING:
                entries[i] = slice_entry(stored, (offset, size))
    if len(levels) == 1:
        for coords, data in changed.items():
            entries[_ravel(level.place(coords), shape)] = data
    else:
        items = list(changed.items())
        for outer, members in _by_owner(levels[1:], [coords for coords, _ in items]).items():
            at = _ravel(level.place(outer), shape)
            old = entries[at]
            updates = {local: items[position][1] for position, local in members}
            entries[at] = _rebuild(levels[1:], None if old is None else host_view(old), updates)
    shard = assemble(entries, shape, level.coder, level.location)
    if shard is None or level.wrap is None:
        return shard
    wrapped: Buffer = level.wrap.encode([shard])[0]
    return wrapped


def _ravel(coords: Coords, shape: Coords) -> int:
    index = 0
    for c, n in zip(coords, shape, strict=True):
        index = index * n + c
    return index
