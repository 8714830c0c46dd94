"""Reads and writes basic selections of few chunks by one call of the compiled loop (`loop/basic.c`).

Theory of operation. For one chunk, normalizing a selection, planning it and making tables take longer than the chunk.
So an object of the loop is made once for an array; it takes integers and slices as they stand between the brackets. It
leaves whatever it does not know, and everything that fails: the caller then begins again in the usual way.
"""

import os
import struct
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.source import Source, swapped
from gzarr.dtypes.scalars import as_assigned
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import Coords
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.shard import Level
from gzarr.layout.shard_file import can_be_large, find_shard_file
from gzarr.layout.sharded import Sharded
from gzarr.storage.base import Buffer, Request, Store, Target, host_view
from gzarr.storage.invalidation import invalidate
from gzarr.storage.local_files import FileVersion
from gzarr.storage.locks import while_locked

#: What became of a chunk: stored (0), left to the caller, or equal to the fill value and deleted.
_LEFT, _EMPTY = 1, 2

#: Data types that numbers of Python are cast to as NumPy casts them.
_NUMBERS = "biufc"


class BasicSelections:
    """Reads and writes basic selections of one array.

    Parameters
    ----------
    source : Source
        Where the chunks are, and what they are.
    target : Target, optional
        How their files may be written; None if the store takes every object.
    writes : bool
        Whether the loop writes them.
    """

    __slots__ = ("_has_large_shards", "_source", "_target", "_writer", "_writes", "read")

    def __init__(self, source: Source, target: Target | None, *, writes: bool) -> None:
        self._source, self._target, self._writes = source, target, writes
        layout = source.layout
        at_once = writes and not isinstance(layout, Sharded)
        self._has_large_shards = isinstance(layout, Sharded) and can_be_large(layout.level, source.chain.nbytes)
        basic = _make_basic(source, target, writes=at_once)
        #: What writes; None before the first write of shards, as finding out how their indexes are stored takes time.
        self._writer = basic if at_once else None
        #: From what stands between the brackets, and the data type, to an array or scalar; None if that is left.
        self.read = basic.read

    def write(self, key: Any, value: Any, *, keep_empty: bool) -> bool:
        """Write a selection of one chunk, or of few chunks of one shard. Returns: whether it was written."""
        if not self._writes:
            return False
        if self._writer is None:
            self._writer = _make_basic(self._source, self._target, writes=True)
        writer, target = self._writer, self._target
        coords: Coords | None = writer.locate(key)
        if coords is None:
            return False
        dtype = self._source.chain.chunk.dtype
        if isinstance(value, (int, float, np.generic)) and dtype.kind in _NUMBERS:
            value = as_assigned(value, dtype)
        elif type(value) is not np.ndarray:
            return False
        store, layout = self._source.store, self._source.layout
        if self._has_large_shards and find_shard_file(layout, store, coords, 1) is not None:
            return False
        name = layout.key(coords)
        write = partial(writer.write, coords, key, value, keep_empty)
        try:
            if target is None:
                return while_locked(store.locked((name,), (name,)), lambda: _store(store, name, write()))
            status: int = while_locked(store.locked((name,), ()), write)
        finally:
            invalidate(lambda: [store.lock_name(name)])
        if status == _EMPTY:
            target.tidy((name,))
        return status != _LEFT


def _store(store: Store, key: str, made: int | bytes) -> bool:
    """Give a store a chunk, or delete it. Returns: whether that was done."""
    if type(made) is bytes:
        store.set(key, made)
    elif made == _EMPTY:
        store.delete_many((key,))
    return made != _LEFT


def make_basic(read: Source | str, write: Source | str, target: Target | None) -> BasicSelections | None:
    """Prepare an array for basic selections; None if the loop does not read it.

    read, write: the array as the loop reads and writes it, or why it does not. target: how its files may be written.
    """
    if isinstance(read, str) or read.chain.chunk.dtype.shape or (read.in_memory and isinstance(read.layout, Sharded)):
        return None
    if not all(isinstance(axis, RegularAxis) for axis in (*read.layout.grid, *read.layout.objects)):
        return None
    known = read.in_memory or (target is not None and target.prefix == read.prefix)
    return BasicSelections(read, target, writes=known and not isinstance(write, str))


def _make_basic(source: Source, target: Target | None, *, writes: bool) -> Any:
    chain, dtype, layout = source.chain, source.chain.chunk.dtype, source.layout
    extents = tuple([axis.extent for axis in layout.grid])
    written = shards = None
    counts: Coords = (1,) * len(extents)
    if source.ranges is not None:
        counts, shards = source.ranges.shard()
    elif isinstance(layout, Sharded):
        counts, shards = layout.level.counts, (_known_shard(layout), layout.level.steps)
    index_format = _index_format(layout) if writes else None
    if chain.encoder is not None and index_format is not None:
        keep_beyond = {*(layout.cut or layout.find_cut())[0]} != {-1}
        keep_empty = chain.chunk.fill_value is None
        encoder = chain.encoder.table(extents, keep_empty=keep_empty, keep_beyond=keep_beyond)
        files = (b"", None) if target is None else (os.fsencode(target.temporary), target.number)
        written = encoder, *files, *index_format
    return library.extension().Basic(
        chain.job(swapped(chain.dtype, dtype) or 0, source.keys.separator, np.empty((1,) * len(extents), dtype)),
        _table(extents),
        _table(counts),
        os.fsencode(source.prefix + source.keys.prefix),
        chain.fill,
        (dtype, np.empty, _stored_as(dtype), np.int64),
        written,
        shards,
        _fetch(source) if source.in_memory else None,
    )


def _table(numbers: Sequence[int]) -> bytes:
    return np.array(numbers, np.int64).tobytes()


def _fetch(source: Source) -> Callable[[list[Coords]], list[Buffer | None]]:
    """Return what fetches chunks by their coordinates."""
    store, key = source.store, source.layout.key
    return lambda coords: store.get_many([Request(key(each)) for each in coords])


def _index_format(layout: Layout) -> tuple[bool, bool] | None:
    """Whether a checksum follows the indexes of shards, and whether they come first; None if others write them."""
    if not isinstance(layout, Sharded):
        return False, False
    level = layout.level
    checksum = None if level.write_order is not None else checksum_of(level)
    return None if checksum is None else (checksum, level.location == "start")


def _known_shard(layout: Sharded) -> Callable[[Coords], tuple[Any, bytes] | None]:
    """Return what gives the index of a shard and the version that it is of, if it is cached."""

    def find(coords: Coords) -> tuple[Any, bytes] | None:
        cached = layout.cached_index(layout.key(coords))
        if cached is None or type(cached[0]) is not FileVersion:
            return None
        return cached[1], cached[0].packed()

    return find


def _stored_as(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """What arrays of a data type without the buffer protocol (times, say) are made of; None if it has that."""
    try:
        memoryview(np.empty(1, dtype).data)
    except (ValueError, TypeError, BufferError):
        return np.dtype((np.void, dtype.itemsize))
    return None


def checksum_of(level: Level) -> bool | None:
    """Whether a crc32c follows an index of little-endian numbers; None if it is encoded in another way."""
    shape = *level.place(level.counts), 2
    probe = np.arange(prod(shape), dtype=np.uint64) * np.uint64(0x0102030405060701)
    encoded = bytes(host_view(level.coder.encode([probe.reshape(shape)])[0]))
    numbers = probe.astype("<u8").tobytes()
    if encoded == numbers:
        return False
    if library.codec_number("bytes", checksum=True) is None:
        return None
    from google_crc32c import value  # as the loop has found it

    return True if encoded == numbers + struct.pack("<I", value(numbers)) else None
