"""Shards: objects that hold a grid of chunks and an index.

Theory of operation. Levels of sharding nest, and the chunk grid of the array is that of the innermost level.
``locate`` goes down the levels: it looks the chunks up in the indexes of the shards that hold them, all chunks at once,
and what it finds are the places of chunks, or of the shards of the next level. It reads indexes as needed and caches
them with the store's token, so that a replaced shard is never read with an old index.

Codecs around a shard (bytes to bytes) make the whole object be fetched and decoded before it is addressed. A transpose
before the sharding codec is folded: the shard's index is looked up in transposed order (``Level.order``) and the
transpose joins the inner chunk's codecs.

Rules: indexes are on the host; every inconsistency raises CodecError.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul, sub
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import is_held_here, new_lock
from gzarr.errors import CodecError
from gzarr.indexing.grid import Grid, chunk_shape
from gzarr.indexing.keys import Coords
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import MISSING, PINNED, Layout, Names, Places
from gzarr.layout.shard import Coder, Level, check_overlaps, decode_index, join, rebuild, shard_error, split_index
from gzarr.profiling.recorder import staged
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

#: How often a shard is checked that is replaced meanwhile.
_CHECK_ATTEMPTS = 10

#: Where a shard is in its object: its first byte, and how many there are, None for all of the object.
_Range: TypeAlias = tuple[int, int | None]


class _Indexes:
    """The indexes of one object, as far as they are known.

    A chunk has a number: the entry of its shard in the index of the level before, times the chunks of a shard, plus its
    entry in the index of its shard; and so have the shards of a level.

    Attributes
    ----------
    token : object or None
        Of the version that they are of; None if nobody will need them again.
    levels, origin
        Of the object, and the coordinates of its first chunk.
    tables : list of NDArray[np.uint64]
        For every level where the chunks begin in the object, or the shards of the next level, and their bytes, (n, 2).
    known : list of NDArray[np.bool_]
        For every level which of its shards have their entries there.
    nbytes : int
        Of these entries.
    wraps : bool
        Whether codecs are around shards in shards.
    """

    __slots__ = ("_axes", "_offset", "known", "levels", "nbytes", "origin", "tables", "token", "wraps")

    def __init__(
        self, token: object | None, levels: Sequence[Level], origin: Coords, axes: Sequence[Indices] = ()
    ) -> None:
        self.token, self.levels, self.nbytes, self.origin, self._axes = token, levels, 0, origin, axes
        counts = list(accumulate([math.prod(level.counts) for level in levels], mul, initial=1))
        self.known = [np.zeros(n, np.bool_) for n in counts[:-1]]
        self.tables = [np.empty((n, 2), np.uint64) for n in counts[1:]]  # of which only what is known takes memory
        self._offset = np.dot(origin, levels[0].steps)
        self.wraps = any(level.wrap is not None for level in levels[1:])

    def first(self) -> "_Indexes":
        """The first level alone, for a lookup that finds shards in memory of its own."""
        first = _Indexes(self.token, self.levels, self.origin, self._axes)
        first.tables[0], first.known[0] = self.tables[0], self.known[0]
        return first

    def numbers(self, chunks: Sequence[Coords] | Indices) -> Indices:
        """The numbers of chunks. chunks: coordinates in the array."""
        if not self._axes:
            return np.asarray(np.dot(chunks, self.levels[0].steps) - self._offset)
        local = np.subtract(chunks, self.origin)
        return np.asarray(sum([axis[local[:, number]] for number, axis in enumerate(self._axes)]))


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
        #: By the shape of an object: what `_number_axes` makes of its levels.
        self._axes = lru_cache(maxsize=64)(lambda shape: _number_axes(levels(shape)))
        self.whole_share = WHOLE_SHARD_SHARE
        self._indexes: OrderedDict[str, _Indexes] = OrderedDict()
        self._cached_nbytes = 0
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
        token: object | None = None,
        *,
        stored: Buffer | None = None,
        wanted: int = 0,
    ) -> "ShardPlaces":
        """Say where the chunks of one object are, whose indexes are read if they are not cached. Raises: CodecError."""
        key = self.key(object_coords)
        now = token_of(store, key) if token is PINNED else token
        cached = self._indexes.get(key)
        if cached is not None and now is not None and cached.token == now:
            return ShardPlaces(self, (store, key, token), cached, None if stored is None else host_view(stored))
        levels = self.levels(chunk_shape(self.objects, object_coords))
        if stored is None and (token is None or levels[0].wrap is not None or self._wants_whole(levels, wanted)):
            # Without a token, nothing would tell if the shard were replaced between its index and its chunks.
            stored, token, now = staged("read", store.get_one, Request(key)), None, None
            if stored is None:
                return _NoPlaces()
        data = None if stored is None else _opened(stored, levels)
        return ShardPlaces(self, (store, key, token), self._unknown(now, object_coords), data)

    def extract(self, stored: Buffer, object_coords: Coords, chunks: Sequence[Coords]) -> list[Buffer | None]:
        """Take chunks out of an object's bytes. Raises: CodecError."""
        levels = self.levels(chunk_shape(self.objects, object_coords))
        places = ShardPlaces(self, (None, "", None), self._unknown(None, object_coords), _opened(stored, levels))
        return [item for item in places.located("", chunks) if not isinstance(item, Request)]

    def cached_token(self, key: str) -> object | None:
        """The token of the shard whose index is cached; None if there is none."""
        cached = self._indexes.get(key)
        return None if cached is None else cached.token

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
        levels, origin = self.levels(chunk_shape(self.objects, object_coords)), self._origin(object_coords)
        updates = {tuple(map(sub, coords, origin)): data for coords, data in changed.items()}
        segments = rebuild(levels, None if stored is None else host_view(stored), updates)
        if sum(host_view(item).nbytes for item in segments) >= (len(segments) - 1) * _SEGMENT_NBYTES:
            return segments
        joined = join(segments)
        return () if joined is None else (joined,)

    def initialized(self, store: Store, object_coords: Coords) -> int:
        """Number of chunks that one object holds; of nested shards, of those at the first level."""
        key, versions = self.key(object_coords), store.versions
        pins = versions is not None and versions.pins
        store, token = (PinnedStore(store, {}), PINNED) if pins else (store, token_of(store, key))
        index = self.locate(store, object_coords, token).index()
        return 0 if index is None else int(np.count_nonzero(index[:, 0] != MISSING))

    def check(self, store: Store, object_coords: Coords) -> None:
        """Check that the chunks of one object do not overlap, in nested shards neither. Raises: CodecError."""
        key = self.key(object_coords)
        for attempt in range(_CHECK_ATTEMPTS):
            token = token_of(store, key)
            try:
                self._check_once(store, object_coords, token)
            except CodecError:
                # It may have been replaced between the reading of its index and of its size.
                if attempt == _CHECK_ATTEMPTS - 1 or (token is not None and token_of(store, key) == token):
                    raise
            else:
                return

    def _check_once(self, store: Store, object_coords: Coords, token: object | None) -> None:
        levels, key = self.levels(chunk_shape(self.objects, object_coords)), self.key(object_coords)
        if len(levels) > 1 or levels[0].wrap is not None:
            stored = store.get_one(Request(key))
            if stored is not None:
                _check_whole(host_view(stored), levels)
        elif (nbytes := store.getsize(key)) is not None:
            index = self.locate(store, object_coords, token).index()
            if index is not None:
                check_overlaps(index, nbytes, levels[0].index_nbytes, levels[0].location)

    def forget(self, key: str) -> None:
        """Drop the cached indexes of an object."""
        if key in self._indexes and not is_held_here(self._changing):
            with self._changing:
                self._drop(key)

    @property
    def level(self) -> Level:
        """The first level, of the first shard."""
        return self._levels[0]

    @property
    def _levels(self) -> Sequence[Level]:
        return self.levels(chunk_shape(self.objects, (0,) * len(self.objects)))

    @property
    def is_flat(self) -> bool:
        """Whether shards hold chunks, no further shards, and no codecs are around them."""
        return len(self._levels) == 1 and not self.is_wrapped

    @property
    def is_wrapped(self) -> bool:
        """Whether codecs are around shards of any level."""
        return any(level.wrap is not None for level in self._levels)

    def cached_index(self, key: str) -> tuple[object, NDArray[np.uint64]] | None:
        """The token and the first level's index of a shard, if it is cached. It may have been replaced meanwhile."""
        cached = self._indexes.get(key)
        return None if cached is None else (cached.token, cached.tables[0])

    def entries(self, object_coords: Coords, chunks: Indices) -> Indices:
        """Which entries of the index of a shard, of a flat layout, are those of chunks: (n,). chunks: (n, ndim)."""
        return np.asarray(np.subtract(chunks, self._origin(object_coords)) @ self.level.steps)

    def cache(self, key: str, indexes: _Indexes, nbytes: int) -> None:
        """Cache indexes of an object. nbytes: of those that are new."""
        if is_held_here(self._changing):
            return  # by what this re-entrant read has interrupted; the next read caches the indexes
        with self._changing:
            if self._indexes.get(key) is not indexes:
                self._drop(key)
                self._indexes[key] = indexes
                self._cached_nbytes += indexes.nbytes
            indexes.nbytes += nbytes
            self._cached_nbytes += nbytes
            while self._cached_nbytes > INDEX_CACHE_NBYTES and len(self._indexes) > 1:
                self._drop(next(iter(self._indexes)))

    def _unknown(self, token: object | None, object_coords: Coords) -> _Indexes:
        """Indexes of an object of which nothing is known yet."""
        shape = chunk_shape(self.objects, object_coords)
        return _Indexes(token, self.levels(shape), self._origin(object_coords), self._axes(shape))

    def _origin(self, object_coords: Coords) -> Coords:
        """Coordinates of the first chunk of an object."""
        axes = zip(self.objects, self.grid, object_coords, strict=True)
        return tuple([inner.locate(axis.bounds(c)[0]) for axis, inner, c in axes])

    def _wants_whole(self, levels: Sequence[Level], wanted: int) -> bool:
        return 0 < wanted >= math.prod([n for level in levels for n in level.counts]) * self.whole_share

    def _drop(self, key: str) -> None:
        dropped = self._indexes.pop(key, None)
        self._cached_nbytes -= 0 if dropped is None else dropped.nbytes


class ShardPlaces(Places):
    """Where the chunks of one shard are. Indexes are read when they are needed.

    Parameters
    ----------
    layout : Sharded
        Caches the indexes.
    source : tuple
        The store, None for a shard in memory; the object's key, and its token (`Layout.locate`).
    indexes : _Indexes
        What is known of the object.
    data : memoryview or None
        The object, if it is in memory, without codecs around it.
    """

    __slots__ = ("_data", "_indexes", "_layout", "_source")

    def __init__(
        self,
        layout: Sharded,
        source: tuple[Store | None, str, object | None],
        indexes: _Indexes,
        data: memoryview | None,
    ) -> None:
        self._layout, self._source, self._indexes, self._data = layout, source, indexes, data

    def index(self) -> NDArray[np.uint64] | None:
        """The first level's index, (n, 2); None if the object is missing. Raises: CodecError, StoreError."""
        indexes = self._indexes
        if not indexes.known[0][0]:
            self._read_first()
        return indexes.tables[0] if indexes.known[0][0] else None

    def find(self, chunks: Sequence[Coords] | Indices) -> tuple[memoryview | None, NDArray[np.uint64]]:
        """Find chunks, those of all shards of a level at once. Raises: CodecError, StoreError."""
        if self.index() is None:
            return None, np.full((len(chunks), 2), MISSING, np.uint64)
        data, indexes = self._data, self._indexes if not self._indexes.wraps else self._indexes.first()
        numbers, inner = indexes.numbers(chunks), indexes.levels[1:]
        if inner and not indexes.known[-1][numbers // math.prod(inner[-1].counts)].all():
            for depth in range(1, len(indexes.levels)):
                holders = np.unique(numbers // math.prod([n for level in inner[depth - 1 :] for n in level.counts]))
                data = self._read(depth, data, indexes, holders[~indexes.known[depth][holders]].tolist())
        return data, indexes.tables[-1][numbers]

    def _read_first(self) -> None:
        """Read the first level's index, unless the object is missing. Raises: CodecError, StoreError."""
        indexes, data, (store, key, token) = self._indexes, self._data, self._source
        level, nbytes = indexes.levels[0], None if data is None else len(data)
        (item,) = self._bytes_of(data, [_index_range((0, None), nbytes, level)])
        if item is None:
            self._layout.forget(key)
            return
        indexes.tables[0] = _placed(_index_of(item, level), 0, nbytes)
        # The token was taken before the index was read, which belongs to it only if it still holds.
        now = token_of(store, key) if data is None and store is not None and token is not None else token
        if token is PINNED:
            indexes.token = now
        indexes.known[0] = np.ones(1, np.bool_)
        if now is not None and now == indexes.token:
            self._layout.cache(key, indexes, indexes.tables[0].nbytes)

    def _read(self, depth: int, data: memoryview | None, indexes: _Indexes, shards: Sequence[int]) -> memoryview | None:
        """Read the indexes of some shards of a level below the first. Raises: CodecError, StoreError.

        data: the bytes that the shards are in; None if these are not in memory. Returns: the same of what they hold.
        """
        (store, key, token), level = self._source, indexes.levels[depth]
        table = indexes.tables[depth].reshape(-1, math.prod(level.counts), 2)
        all_places: Sequence[_Range] = indexes.tables[depth - 1][shards].tolist()
        there = {number: place for number, place in zip(shards, all_places, strict=True) if place[0] != MISSING}
        places: Sequence[_Range] = [*there.values()]
        if level.wrap is not None and places:
            data, places = self._unwrap(level.wrap, data, places)
        nbytes = None if data is None else len(data)
        encoded = self._bytes_of(data, [_index_range(at, nbytes, level) for at in places])
        made = [
            _placed(_index_of(item, level), start, length)
            for (start, length), item in zip(places, encoded, strict=True)
        ]
        now = token_of(store, key) if data is None and store is not None and token is not None else token
        if token is PINNED:
            indexes.token = now
        elif now != token:
            raise shard_error("the shard was replaced between its index and a nested one")
        # What other threads know already is only written over by the same.
        for number, index in zip(there, made, strict=True):
            table[number] = index
        table[[number for number in shards if number not in there]] = MISSING
        known = indexes.known[depth].copy()
        known[shards] = True
        indexes.known[depth] = known  # now, as other threads may look
        if now is not None and now == indexes.token and not indexes.wraps:
            self._layout.cache(key, indexes, len(shards) * table[0].nbytes)
        return data

    def _bytes_of(self, data: memoryview | None, ranges: Sequence[_Range]) -> Sequence[Buffer | None]:
        """The bytes of ranges of the object."""
        store, key, _ = self._source
        if data is not None or store is None:
            memory = memoryview(b"") if data is None else data
            return [memory[start : start + (length or 0)] for start, length in ranges]
        if len(ranges) == 1:
            return [store.get_one(Request(key, *ranges[0]))]  # which zarr-python's stores tell from ranges
        return get_coalesced(store, [Request(key, start, length) for start, length in ranges])

    def _unwrap(
        self, wrap: Coder, data: memoryview | None, ranges: Sequence[_Range]
    ) -> tuple[memoryview, list[_Range]]:
        """Fetch and decode shards that codecs are around. Returns: their bytes, and where in these each is."""
        (store, key, token), encoded = self._source, self._bytes_of(data, ranges)
        if [None if item is None else host_view(item).nbytes for item in encoded] != [n for _, n in ranges]:
            raise shard_error("a nested shard is outside its object")
        if data is None and store is not None and token is not PINNED and token_of(store, key) != token:
            raise shard_error("the shard was replaced between its index and its contents")
        decoded = [host_view(item) for item in wrap.decode(encoded)]
        starts = accumulate([item.nbytes for item in decoded], initial=0)
        return host_view(b"".join(decoded)), [(at, item.nbytes) for at, item in zip(starts, decoded, strict=False)]


class _NoPlaces(ShardPlaces):
    """Those in an object that is missing."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def index(self) -> None:
        """None: there is no object."""


def _number_axes(levels: Sequence[Level]) -> list[Indices]:
    """For every axis what each coordinate within an object adds to the number of a chunk (`_Indexes`).

    None for a single level, where products say it.
    """
    axes = []
    for axis in range(len(levels[0].counts) if len(levels) > 1 else 0):
        numbers = np.zeros(1, np.int64)
        for level in levels:
            entries = np.arange(level.counts[axis]) * level.steps[axis]
            numbers = (numbers[:, None] * math.prod(level.counts) + entries).reshape(-1)
        axes.append(numbers)
    return axes


def _index_of(item: Buffer | None, level: Level) -> NDArray[np.uint64]:
    """The entries of an encoded index, (n, 2), as numbers of this machine. Raises: CodecError."""
    size = 0 if item is None else host_view(item).nbytes
    if item is None or size != level.index_nbytes:
        raise shard_error(f"the shard is truncated: its index has {size} bytes, expected {level.index_nbytes}")
    return decode_index(item, level.coder).reshape(-1, 2).astype(np.uint64, copy=False)


def _index_range(shard: _Range, object_nbytes: int | None, level: Level) -> _Range:
    """Where the index of a shard is."""
    (start, length), n = shard, level.index_nbytes
    nbytes = object_nbytes if length is None else length
    if nbytes is not None and nbytes < n:
        raise shard_error(f"the shard is truncated: {nbytes} bytes, its index alone has {n}")
    if level.location == "end":
        start = -n if nbytes is None else start + nbytes - n
    return start, n


def _placed(index: NDArray[np.uint64], start: int, nbytes: int | None) -> NDArray[np.uint64]:
    """Let the places of an index count from the start of the object. Raises: CodecError if they leave the shard."""
    if nbytes is None and not start:
        return index
    there = index[:, 0] != MISSING
    ends = index.sum(axis=1)
    if nbytes is not None and (beyond := np.flatnonzero(there & (ends > nbytes))).size:
        begin, end = index[beyond[0], 0], ends[beyond[0]]
        raise shard_error(f"the shard index points outside the shard: bytes {begin} to {end} of {nbytes}")
    return np.where(there[:, None], index + np.array([start, 0], np.uint64), MISSING) if start else index


def _opened(stored: Buffer, levels: Sequence[Level]) -> memoryview:
    """The bytes of an object, without the codecs around it."""
    wrap = levels[0].wrap
    return host_view(stored if wrap is None else wrap.decode([stored])[0])


def _check_whole(stored: Buffer, levels: Sequence[Level]) -> None:
    """Check that the chunks of a shard do not overlap, in the shards in it neither. Raises: CodecError."""
    data, level = _opened(stored, levels), levels[0]
    index = decode_index(split_index(data, level.index_nbytes, level.location), level.coder)
    check_overlaps(index, len(data), level.index_nbytes, level.location)
    for offset, size in index.reshape(-1, 2).tolist() if len(levels) > 1 else ():
        if offset != MISSING:
            _check_whole(data[offset : offset + size], levels[1:])
