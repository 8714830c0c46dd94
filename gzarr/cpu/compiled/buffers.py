"""Reads chunks that are in memory by the compiled loop: what a store returned, decoded without the interpreter's lock.

Theory of operation. `BufferRead` is a read of a store that has no files and does not wait: of every piece it asks the
store for the chunks, or for the shard, and has the loop decode and place them. `place_wave` is for a wave that the
reference path has loaded from any other store. What the loop leaves goes through the codecs, one chunk at a time.

Rules: as in `gzarr.cpu.compiled.read`. Memory that somebody may write to is copied before the loop looks at it. The
bytes of a shard and its index are of one object, so they are of one version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array, Work
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.points import Rows
from gzarr.cpu.compiled.read import Left, make_work
from gzarr.cpu.compiled.source import LoopChain, Source, swapped
from gzarr.cpu.compiled.tables import Boxes, Piece, Shards, Tables, make_window, part_spans, piece_tables
from gzarr.cpu.decode_into import PLAIN_ARRAYS, lent_scratch
from gzarr.cpu.window import Window
from gzarr.errors import CodecError
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Part
from gzarr.layout.sharded import Sharded, ShardIndex
from gzarr.profiling.recorder import here, stage, sum_nbytes
from gzarr.storage.base import Buffer, Request

#: Fewer chunks are no faster by the loop if they are small: it takes 15 us besides decoding.
_MIN_NCHUNKS, _SMALL_NBYTES = 8, 1 << 18
#: A piece has so many chunks, or bytes, at least: a store may have work to do for every call.
BATCH_NCHUNKS, BATCH_NBYTES = 64, 1 << 20


class BufferRead(NamedTuple):
    """A read of chunks that a store returns, which the loop can do.

    Its fields are those of `gzarr.cpu.compiled.read.CompiledRead`, and:

    Attributes
    ----------
    shards : dict
        The bytes and the index of every shard that is read in several pieces: all must be of one version.
    """

    source: Source
    parts: Boxes | Rows
    pieces: Iterator[Piece]
    work: Work
    out: Array
    job: bytes
    tables: Tables | None
    shards: dict[Coords, tuple[Buffer, ShardIndex] | None]
    stage: str = "loop"

    def keys(self, piece: Piece) -> tuple[str, ...]:
        """Nothing: reads lock no objects."""
        return ()

    def merged(self, piece: Piece, keys: Sequence[str]) -> tuple[str, ...]:
        """Nothing: reads merge nothing."""
        return ()

    def again(self) -> None:
        """Nothing: the reference path does the rest of a piece at once."""

    def do(self, piece: Piece, keys: Sequence[str]) -> Left:
        """Read a piece into the result, all but the parts that are returned. Raises: StoreError."""
        if piece.shard is not None:
            left = self._do_shard(piece, piece.shard)
            return [(piece.shard, [self.parts.part(piece, piece.first + number) for number in left])] if left else []
        with stage("read") as noted:
            store, encoding, prefix = self.source.store, self.source.keys, self.source.prefix + self.source.keys.prefix
            items = store.get_many(list(map(Request, self.parts.keys(piece, prefix, encoding.separator))))
            if noted:
                noted.count(len(items), sum_nbytes(items), sum_nbytes(items))
        parts = [self.parts.part(piece, piece.first + number) for number in self._call(piece, items, None)]
        return [(part.coords, [part]) for part in parts]

    def _do_shard(self, piece: Piece, shard: Coords) -> Sequence[int]:
        """Read a piece of a shard. Returns: numbers of the parts that are left."""
        try:
            found = self.shards[shard] if shard in self.shards else self._shard(piece, shard)
        except CodecError:  # the reference path says what is wrong
            return range(piece.n)
        if found is None:
            return self._call(piece, [None] * piece.n, None)
        return self._call(piece, [found[0]], found[1])

    def _shard(self, piece: Piece, shard: Coords) -> tuple[Buffer, ShardIndex] | None:
        """The bytes of a shard and its index; None if it is missing. Raises: CodecError, StoreError."""
        layout, store = self.source.layout, self.source.store
        if not isinstance(layout, Sharded):
            raise TypeError("chunks are objects")
        with stage("read") as noted:
            stored = store.get_one(Request(layout.key(shard)))
            if noted:
                noted.count(1, sum_nbytes([stored]), sum_nbytes([stored]))
        versions = store.versions
        token = None if versions is None or stored is None else versions.of(stored)
        found = None if stored is None else (stored, layout.index_of(shard, stored, token))
        return found if piece.n == piece.whole[1] else self.shards.setdefault(shard, found)

    def _call(self, piece: Piece, items: Sequence[Any], index: ShardIndex | None) -> Sequence[int]:
        """Let the loop do a piece. Returns: numbers of the parts that it has left."""
        loop, chain, status = library.loop(), self.source.chain, bytearray(piece.n)
        if loop is None:  # switched off meanwhile
            return range(piece.n)
        entries = None if index is None else index.entries
        shard = () if index is None else (index.origin, index.steps)
        tables, window, first = piece_tables(self.parts, self.tables, piece, shard)
        with lent_scratch() as scratch:
            room = scratch.room(chain.max_encoded + chain.nbytes)
            started = perf_counter()
            where = items, entries, chain.fill, first
            try:
                n_left = _count(loop, piece.n, (self.job, window, *tables, *where, room, status))
            except (TypeError, BufferError):  # a buffer that lies apart in memory
                return range(piece.n)
            self.source.pace.note(perf_counter() - started, piece.n)
        return [i for i, left in enumerate(status) if left] if n_left else []


def make_buffer_read(
    source: Source, parts: Boxes | Rows, shards: Shards | None, out: Array, n_threads: int
) -> BufferRead:
    """Prepare a read for the loop. Arguments: as of `gzarr.cpu.compiled.read.make_read`."""
    chain, versions = source.chain, source.store.versions
    size, work = make_work(source, parts, shards, out, n_threads)
    size = max(size, min(BATCH_NBYTES // chain.nbytes, BATCH_NCHUNKS))
    if shards is None:
        pieces = parts.whole().cut(size, n_threads)
    elif versions is None:  # every piece would fetch the shard, perhaps another version of it
        pieces = shards[0]
    else:
        pieces = (piece for shard in shards[0] for piece in shard.cut(size))
    return BufferRead(
        source=source,
        parts=parts,
        pieces=pieces,
        work=work,
        out=out,
        job=chain.job(swapped(chain.dtype, chain.chunk.dtype) or 0, source.keys.separator, out, parts.npoints),
        tables=None if parts.are_many else parts.tables(),
        shards={},
    )


def is_small_wave(chain: LoopChain, nparts: int) -> bool:
    """Whether so many chunks are decoded as fast one by one."""
    return nparts < _MIN_NCHUNKS and (nparts < 2 or chain.nbytes < _SMALL_NBYTES)


def place_wave(chain: LoopChain, buffers: Sequence[Any], parts: Sequence[Part], out: Array) -> Sequence[int]:
    """Decode the chunks of a wave and copy their parts into the result.

    Returns: numbers of the parts that are left to the reference path.
    """
    loop, everything = library.loop(), range(len(parts))
    if is_small_wave(chain, len(parts)) or any(type(buffer) is Window for buffer in buffers):
        return everything
    is_known = type(out) in PLAIN_ARRAYS and out.dtype == chain.chunk.dtype and out.ndim == len(chain.lengths)
    swap = swapped(chain.dtype, chain.chunk.dtype)
    if loop is None or not is_known or swap is None:
        return everything
    tables = part_spans(parts)
    if tables is None:
        return everything
    spans, rows = tables
    status, window = bytearray(len(parts)), make_window((0,) * out.ndim)
    with lent_scratch() as scratch:
        room = scratch.room(chain.max_encoded + chain.nbytes)
        job = chain.job(swap, "/", out, -1)
        try:
            arguments = (job, window, spans, b"", rows, b"", buffers, None, chain.fill, 0, room, status)
            n_left = _count(loop, 0, arguments)
        except (TypeError, BufferError):  # a buffer that lies apart in memory
            return everything
    return np.flatnonzero(np.frombuffer(status, np.uint8)).tolist() if n_left else ()


def _count(loop: Any, n: int, arguments: tuple[Any, ...]) -> int:
    """Call the loop, and note in the profile what it has done of n chunks. Returns: how many it has left."""
    n_left, taken, placed = loop.read_buffers(*arguments)
    if n and (doing := here()):
        doing.count(n - n_left, taken, placed)
    return int(n_left)
