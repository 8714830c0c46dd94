"""Shards: objects that hold a grid of chunks and an index.

Theory of operation. Levels of sharding nest, and the chunk grid of the array is that of the innermost level.
``locate`` reads indexes as needed and caches them with the store's token, so that a replaced shard is never read with
an old index.

Codecs around a shard (bytes to bytes) make the whole object be fetched and decoded before it is addressed. A transpose
before the sharding codec is folded: the shard's index is looked up in transposed order (``Level.order``) and the
transpose joins the inner chunk's codecs.

Rules: indexes are on the host; every inconsistency raises CodecError.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import sub
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import is_held_here, new_lock
from gzarr.errors import CodecError
from gzarr.indexing.grid import Grid, chunk_shape
from gzarr.indexing.keys import Coords
from gzarr.layout.chunk_layout import PINNED, Layout, Located, Names
from gzarr.layout.shard import (
    MISSING,
    Coder,
    Level,
    by_owner,
    check_overlaps,
    decode_index,
    entry,
    join,
    rebuild,
    slice_entry,
    split_index,
)
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer, Request, Store, host_view, token_of
from gzarr.storage.coalesce import get_coalesced
from gzarr.storage.wrappers import PinnedStore

#: Mean bytes of chunks that need not be joined: smaller ones cost more work each than a copy.
_SEGMENT_NBYTES = 1 << 16
#: Bytes of shard indexes that an opened array caches. An index of 1,000 chunks has 16 kB.
INDEX_CACHE_NBYTES = 64 << 20
#: From this share of a shard's chunks on, the whole shard is read in one request instead of its index and then ranges.
WHOLE_SHARD_SHARE = 0.5
#: Decoded bytes that nobody wants, of a shard that a server sends whole nevertheless. Reading the index first takes a
#: round trip of 20 ms, in which a connection brings 1 to 2 MB.
_MAX_UNWANTED_NBYTES = 1 << 21

#: Levels of a layout whose shards hold shards.
_NESTED = 2
#: Instead of the place of a shard, for the index of all chunks of nested ones.
_ALL_LEVELS = -1

#: How often a shard is checked that is replaced meanwhile.
_CHECK_ATTEMPTS = 10

#: Where a shard begins and how long it is: (key, start, length), None for the whole of a stored object.
_Place: TypeAlias = tuple[str, int, int | None]


class ShardIndex(NamedTuple):
    """The index of a shard, as a table.

    Attributes
    ----------
    entries : NDArray[np.uint64]
        (offset, size) of each chunk, shape (*chunks per shard, 2), contiguous, native byte order.
    origin : Coords
        Coordinates of the shard's first chunk.
    steps : Coords
        How many entries further the next chunk along each axis of the array is.
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
    token: object | None = None


class Sharded(Layout):
    """An object holds a grid of chunks, with an index.

    Attributes
    ----------
    grid : Grid
        The grid of the innermost chunks.
    objects : Grid
        The grid of stored objects.
    levels : callable
        From a shard's shape to its levels, outermost first.
    names : Names
        How the keys of objects are made.
    whole_share : float
        From which share of a shard's chunks on it is read whole.
    key
        Key of a stored object.
    """

    def __init__(self, grid: Grid, objects: Grid, levels: Callable[[Coords], Sequence[Level]], names: Names) -> None:
        super().__init__(grid, objects, names)
        self.levels = levels
        self.whole_share = WHOLE_SHARD_SHARE
        self._indexes: OrderedDict[_Place, tuple[object, NDArray[np.uint64]]] = OrderedDict()
        self._cached_nbytes = 0
        self._steps: dict[tuple[int, ...], Coords] = {}
        self._changing = new_lock()

    def read_across_network(self, chunk_nbytes: int) -> None:
        """Read fewer shards whole. chunk_nbytes: of a decoded chunk."""
        levels = self.levels(chunk_shape(self.objects, (0,) * len(self.objects)))
        nbytes = chunk_nbytes * math.prod([n for level in levels for n in level.counts])
        self.whole_share = max(WHOLE_SHARD_SHARE, 1 - _MAX_UNWANTED_NBYTES / max(nbytes, 1))

    def locate(
        self,
        store: Store,
        object_coords: Coords,
        chunks: Sequence[Coords],
        token: object | None = None,
        *,
        may_fetch: bool = True,
    ) -> list[Located]:
        """Say where the chunks of one object are, reading its indexes if they are not cached. Raises: CodecError."""
        levels, local = self._local(object_coords, chunks)
        key = self.key(object_coords)
        source = _Source(None, key, token=token)
        first = levels[0]
        now = token_of(store, key) if token is PINNED else token
        wants_whole = (may_fetch or token is None) and self._wants_whole(source, levels, len(local), now)
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
        chunks_or_none = self._descend(None, _Source(host_view(stored)), levels, local)
        return [item for item in chunks_or_none if not isinstance(item, Request)]

    def cached_token(self, key: str) -> object | None:
        """The token of the shard whose index is cached; None if there is none."""
        cached = self._indexes.get((key, 0, None))
        return None if cached is None else cached[0]

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
        return join(self.segments(stored, object_coords, changed))

    def segments(
        self, stored: Buffer | None, object_coords: Coords, changed: Mapping[Coords, Buffer | None]
    ) -> Sequence[Buffer]:
        """What `build` returns, as buffers that belong one after the other; none if nothing is left."""
        levels, local = self._local(object_coords, list(changed))
        updates = dict(zip(local, changed.values(), strict=True))
        segments = rebuild(levels, None if stored is None else host_view(stored), updates)
        if sum(host_view(item).nbytes for item in segments) >= (len(segments) - 1) * _SEGMENT_NBYTES:
            return segments
        joined = join(segments)
        return () if joined is None else (joined,)

    def initialized(self, store: Store, object_coords: Coords) -> int:
        """Number of chunks that one object holds; of nested shards, of those at the first level."""
        level = self.levels(chunk_shape(self.objects, object_coords))[0]
        key = self.key(object_coords)
        versions = store.versions
        pins = versions is not None and versions.pins
        store, token = (PinnedStore(store, {}), PINNED) if pins else (store, token_of(store, key))
        source = _Source(None, key, token=token)
        if level.wrap is not None or token is None:
            stored = store.get_one(Request(key))
            if stored is None:
                return 0
            source = _Source(host_view(stored), key)
        if level.wrap is not None:
            source = _unwrapped(store, source, level.wrap)
        index = self._index(store, source, level)
        return 0 if index is None else int(np.count_nonzero(index.reshape(-1, 2)[:, 0] != MISSING))

    def check(self, store: Store, object_coords: Coords) -> None:
        """Check that the chunks of one object do not overlap, in nested shards neither. Raises: CodecError."""
        levels, key = self.levels(chunk_shape(self.objects, object_coords)), self.key(object_coords)
        for attempt in range(_CHECK_ATTEMPTS):
            token = token_of(store, key)
            try:
                self._check_once(store, _Source(None, key, token=token), levels)
            except CodecError:
                # It may have been replaced between the reading of its index and of its size.
                if attempt == _CHECK_ATTEMPTS - 1 or (token is not None and token_of(store, key) == token):
                    raise
            else:
                return

    def _check_once(self, store: Store, source: _Source, levels: Sequence[Level]) -> None:
        if len(levels) > 1 or levels[0].wrap is not None:
            stored = store.get_one(Request(source.key))
            if stored is not None:
                data = host_view(stored)
                self._check(store, _Source(data, source.key), len(data), levels)
        elif (nbytes := store.getsize(source.key)) is not None:
            self._check(store, source, nbytes, levels)

    def _check(self, store: Store, source: _Source, nbytes: int, levels: Sequence[Level]) -> None:
        level = levels[0]
        if level.wrap is not None:
            source = _unwrapped(store, source, level.wrap)
            nbytes = 0 if source.data is None else len(source.data)
        index = self._index(store, source, level)
        if index is None:
            return
        check_overlaps(index, nbytes, level.index_nbytes, level.location)
        if source.data is not None and len(levels) > 1:
            for offset, size in index.reshape(-1, 2).tolist():
                if offset != MISSING:
                    inner = slice_entry(source.data, (offset, size))
                    self._check(store, _Source(inner), size, levels[1:])

    def forget(self, key: str) -> None:
        """Drop the cached indexes of an object."""
        self._forget((key, 0, None))
        self._forget((key, _ALL_LEVELS, None))

    @property
    def is_flat(self) -> bool:
        """Whether shards hold chunks, no further shards, and no codecs are around them."""
        levels = self.levels(chunk_shape(self.objects, (0,) * len(self.objects)))
        return len(levels) == 1 and levels[0].wrap is None

    @property
    def is_nested(self) -> bool:
        """Whether shards hold shards, which hold chunks, without codecs around them or transposed indexes."""
        levels = self.levels(chunk_shape(self.objects, (0,) * len(self.objects)))
        return len(levels) == _NESTED and all(level.wrap is None and level.order is None for level in levels)

    def index(
        self, store: Store, object_coords: Coords, token: object | None, stored: Buffer | None = None
    ) -> NDArray[np.uint64] | None:
        """The index of one object, (offset, size) of each chunk: (*chunks, 2); None if the object is missing.

        Of a nested layout (`is_nested`) it is that of all chunks, as if there were no inner shards.
        token: as in `locate`. stored: an object of a flat layout that was fetched whole, and whose version the token
        says (`Versions.of`). Raises: CodecError.
        """
        levels, key = self.levels(chunk_shape(self.objects, object_coords)), self.key(object_coords)
        if len(levels) == _NESTED:
            return self._nested_index(store, key, levels, token)
        if stored is None:
            entries = self._index(store, _Source(None, key, token=token), levels[0])
            return None if entries is None else np.ascontiguousarray(entries, np.uint64)
        name = (key, 0, None)
        entries = self._find(name, token)
        if entries is None:
            encoded = split_index(host_view(stored), levels[0].index_nbytes, levels[0].location)
            # A copy: the index may lie anywhere in the bytes, its numbers across the words of memory.
            entries = np.array(decode_index(encoded, levels[0].coder), np.uint64, order="C")
            if token is not None:
                self._cache(name, token, entries)
        return entries

    def _nested_index(
        self, store: Store, key: str, levels: Sequence[Level], token: object | None
    ) -> NDArray[np.uint64] | None:
        name = (key, _ALL_LEVELS, None)
        entries = self._find(name, token)
        if entries is not None:
            return entries
        outer = self._index(store, _Source(None, key, token=token), levels[0])
        if outer is None:
            return None
        places = [place for place in map(tuple, outer.reshape(-1, 2).tolist()) if place[0] != MISSING]
        requests = [_index_request(_Source(None, key, start, length), levels[1]) for start, length in places]
        encoded = get_coalesced(store, requests)
        if token is None or token_of(store, key) != token:
            raise CodecError("the shard was replaced between its index and a nested one", codec="sharding_indexed")
        sizes = [0 if item is None else host_view(item).nbytes for item in encoded]
        if {*sizes} - {levels[1].index_nbytes}:
            raise CodecError("a nested shard is outside its object", codec="sharding_indexed")
        entries = _joined(outer, levels, [decode_index(item, levels[1].coder) for item in encoded if item is not None])
        self._cache(name, token, entries)
        return entries

    def cached_entries(self, key: str, *, nested: bool = False) -> tuple[object, NDArray[np.uint64]] | None:
        """The token and the entries of a shard, if its index is cached. It may have been replaced meanwhile.

        nested: of all chunks of a nested layout (`index`), not of the shards at its first level.
        """
        return self._indexes.get((key, _ALL_LEVELS if nested else 0, None))

    def steps(self, entries: NDArray[np.uint64]) -> Coords:
        """How many entries of an index (`index`) further the next chunk along each axis of the array is."""
        found = self._steps.get(entries.shape)
        if found is None:
            level = self.levels(chunk_shape(self.objects, (0,) * len(self.objects)))[-1]
            found = self._steps[entries.shape] = _steps(entries, level)
        return found

    def blank_index(self, object_coords: Coords) -> tuple[Level, ShardIndex]:
        """The level of a shard of a flat layout, and the index of one without chunks."""
        levels, (first,) = self._local(object_coords, [(0,) * len(self.grid)])
        entries = np.full((*levels[0].place(levels[0].counts), 2), MISSING, np.uint64)
        return levels[0], ShardIndex(entries, tuple(-c for c in first), _steps(entries, levels[0]))

    def _local(self, object_coords: Coords, chunks: Sequence[Coords]) -> tuple[Sequence[Level], list[Coords]]:
        """The object's levels, and the chunks' coordinates relative to the object."""
        origin = [
            inner.locate(axis.bounds(c)[0])
            for axis, inner, c in zip(self.objects, self.grid, object_coords, strict=True)
        ]
        local = [tuple(map(sub, coords, origin)) for coords in chunks]
        return self.levels(chunk_shape(self.objects, object_coords)), local

    def _wants_whole(self, source: _Source, levels: Sequence[Level], wanted: int, token: object | None) -> bool:
        if source.token is None:
            # Nothing would tell if the shard were replaced between the reading of its index and of its chunks.
            return True
        total = math.prod([n for level in levels for n in level.counts])
        if wanted < total * self.whole_share:
            return False
        return self._find((source.key, 0, None), token) is None

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
        located: list[Located] = [None] * len(chunks)
        for outer, members in by_owner(levels[1:], chunks).items():
            part = _part_of(source, entry(index, level.place(outer)))
            if part is None:
                continue
            if isinstance(part, Request):
                inner = _Source(None, part.key, part.start or 0, part.length, source.token)
            else:
                inner = _Source(host_view(part))
            inside = self._descend(store, inner, levels[1:], [local for _, local in members])
            for (position, _), item in zip(members, inside, strict=True):
                located[position] = item
        return located

    def _index(self, store: Store | None, source: _Source, level: Level) -> NDArray[np.uint64] | None:
        """A shard's index; None if the shard is missing."""
        if source.data is not None:
            return decode_index(split_index(source.data, level.index_nbytes, level.location), level.coder)
        if store is None:
            raise CodecError("a shard's bytes are neither in memory nor in a store", codec="sharding_indexed")
        pinned, before = source.token is PINNED, source.token
        if pinned:
            before = token_of(store, source.key)
        # A shard and the first shard within it may begin at the same byte, but they differ in length.
        name = (source.key, source.start, source.length)
        cached = self._find(name, before)
        if cached is not None:
            return cached
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
        # The token was taken before the index was read: the index belongs to it only if it still holds.
        now = None if source.token is None else token_of(store, source.key)
        if now is not None and (pinned or now == before):
            self._cache(name, now, index)
        elif source.length is not None and not pinned:
            raise CodecError("the shard was replaced between its index and a nested one", codec="sharding_indexed")
        return index

    def _find(self, name: _Place, token: object | None) -> NDArray[np.uint64] | None:
        """The cached index of a version of a shard."""
        cached = self._indexes.get(name)
        return None if cached is None or token is None or cached[0] != token else cached[1]

    def _cache(self, name: _Place, token: object, index: NDArray[np.uint64]) -> None:
        if is_held_here(self._changing):
            return  # by what this re-entrant read has interrupted; the next read caches the index
        with self._changing:
            self._drop(name)
            self._indexes[name] = (token, index)
            self._cached_nbytes += index.nbytes
            while self._cached_nbytes > INDEX_CACHE_NBYTES and len(self._indexes) > 1:
                _, (_, oldest) = self._indexes.popitem(last=False)
                self._cached_nbytes -= oldest.nbytes

    def _forget(self, name: _Place) -> None:
        if name in self._indexes and not is_held_here(self._changing):
            with self._changing:
                self._drop(name)

    def _drop(self, name: _Place) -> None:
        cached = self._indexes.pop(name, None)
        self._cached_nbytes -= 0 if cached is None else cached[1].nbytes


def _joined(
    outer: NDArray[np.uint64], levels: Sequence[Level], inner: Sequence[NDArray[np.uint64]]
) -> NDArray[np.uint64]:
    """The indexes of nested shards as one of all chunks, whose places count from the start of the object.

    inner: of every shard that is there, in C order. Raises: CodecError if one points outside of its shard.
    """
    counts, steps = levels[0].counts, levels[1].counts
    table = np.full((math.prod(counts), math.prod(steps), 2), MISSING, np.uint64)
    places = outer.reshape(-1, 2)
    for number, index in zip(np.flatnonzero(places[:, 0] != MISSING).tolist(), inner, strict=True):
        found = index.reshape(-1, 2)
        is_there = found[:, 0] != MISSING
        if (found.sum(axis=1)[is_there] > places[number, 1]).any():
            raise CodecError("the index of a nested shard points outside of it", codec="sharding_indexed")
        table[number, is_there, 0] = found[is_there, 0] + places[number, 0]
        table[number, is_there, 1] = found[is_there, 1]
    ndim = len(counts)
    axes = [axis for pair in zip(range(ndim), range(ndim, 2 * ndim), strict=True) for axis in pair]
    shape = [outer_n * n for outer_n, n in zip(counts, steps, strict=True)]
    return np.ascontiguousarray(table.reshape(*counts, *steps, 2).transpose(*axes, 2 * ndim).reshape(*shape, 2))


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
            raise CodecError("a nested shard is outside its object", codec="sharding_indexed")
        if source.token is not PINNED and token_of(store, source.key) != source.token:
            raise CodecError("the shard was replaced between its index and its contents", codec="sharding_indexed")
    return _Source(host_view(wrap.decode([data])[0]))


def _steps(entries: NDArray[np.uint64], level: Level) -> Coords:
    # Not from strides: those of an axis of length one say nothing.
    steps = [math.prod(entries.shape[axis + 1 : -1]) for axis in range(entries.ndim - 1)]
    by_axis = dict(zip(level.order or range(len(steps)), steps, strict=True))
    return tuple(by_axis[axis] for axis in range(len(steps)))
