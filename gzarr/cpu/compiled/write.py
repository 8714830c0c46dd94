"""Writes many chunks by the compiled loop (`loop/write.c`), which gathers, encodes and stores them.

Theory of operation. As in `gzarr.cpu.compiled.read` a plan is cut into pieces. Of chunks that are files the loop
replaces the files itself; shards it puts together in memory, and the store takes them. Where the values do not cover a
chunk they are laid over its old contents; of a shard the store gives the old bytes, and what is not written of it is
copied as it is. What the loop leaves goes the usual way, a shard whole. The bytes it stores are those of the usual
path.

Rules: only stores that say so (`Store.local_target`) have their files written by others; the caller holds the locks of
a piece (`BulkWrite.keys`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Chain, Work
from gzarr.codecs.spec import fill_of
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.read import MAX_NBYTES, PIECE_NBYTES, PIECES_PER_THREAD, Left, fixed_of, make_job, swapped
from gzarr.cpu.compiled.tables import MAX_EXTENT, MAX_NDIM, Boxes, Piece, make_window
from gzarr.cpu.decode_into import PLAIN_ARRAYS, DecodeInto, lent_scratch
from gzarr.errors import CodecError
from gzarr.indexing.grid import RegularAxis, chunk_shape
from gzarr.indexing.plan import BoxPlan, Plan
from gzarr.layout.chunk_layout import Layout, Level, Names, Sharded
from gzarr.layout.shard import MISSING, decode_index, split_index
from gzarr.profiling.recorder import here
from gzarr.storage.base import Buffer, Request, Store, Target, host_view

#: The tables of a single chunk take as long as the interpreter takes for it.
MIN_NCHUNKS = 2
#: What the loop saves of shards, in entries, each of which the usual path copies in 4 us: those of every shard, and so
#: many for every chunk that is written, less so many for every shard. It must be worth the tables. (Measured with zstd
#: chunks of 2 to 40 kB: a shard of three chunks takes as long either way, and one chunk of a shard of 100 does.)
_PER_CHUNK, _PER_SHARD, MIN_SAVED = 32, 100, 40
#: All chunks of a piece are locked while it is written.
_PIECE_NCHUNKS = 64
#: Shards that could become larger are put together by the usual path.
_MAX_SHARD_NBYTES = 9 << 25

#: What the loop says of a part: stored, left, or equal to the fill value.
_LEFT, _EMPTY = 1, 2


class BulkWrite(NamedTuple):
    """A write that the loop can do.

    Attributes:
        store, layout: where the chunks are.
        names: how their keys are made.
        target: how their files may be written.
        parts: what is written of them.
        queue: the pieces, once: shards are uncut.
        piece_nchunks: how many parts one call of the loop may have.
        work: how much there is to do.
        value: what is written: it must live as long as its address is used.
        job, encoder, tables, fill: what the loop is told for all pieces.
        max_encoded: bytes that an encoded chunk may have.
        nbytes: bytes of a decoded chunk.
        window: of chunks that are files.
    """

    store: Store
    layout: Layout
    names: Names
    target: Target
    parts: Boxes
    queue: Iterator[Piece]
    piece_nchunks: int
    work: Work
    value: Any
    job: bytes
    encoder: bytes
    tables: tuple[bytes, bytes]
    fill: bytes
    max_encoded: int
    nbytes: int
    window: bytes

    def pieces(self) -> Iterator[Piece]:
        """All there is to do, once."""
        return self.queue

    def keys(self, piece: Piece) -> list[str]:
        """The objects of a piece."""
        if piece.shard is not None:
            return [self.layout.key(piece.shard)]
        return [self.layout.key(coords) for coords in self.parts.coords(piece)]

    def write(self, piece: Piece, keys: Sequence[str]) -> Left:
        """Write a piece, all but the parts that are returned. keys: its objects. Raises: StoreError."""
        loop = library.loop()
        if loop is None:  # switched off meanwhile
            return self._left(piece, range(piece.n))
        if piece.shard is None or not isinstance(self.layout, Sharded):
            return self._write_files(loop, piece, keys)
        return [] if self._write_shard(loop, self.layout, piece, keys[0]) else self._left(piece, range(piece.n))

    def _write_files(self, loop: Any, piece: Piece, keys: Sequence[str]) -> Left:
        prefix = os.fsencode(self.target.prefix + self.names.keys.prefix)
        names = prefix, os.fsencode(self.target.temporary)
        status = bytearray(piece.n)
        into = status, self.target.written, None, None, 0, self.target.number(), None, None, 0, 0
        with lent_scratch() as scratch:
            room = scratch.room(self.nbytes + self.max_encoded)
            n_left, *done, _, _ = self._call(loop, piece, (self.window, names), room, into)
        emptied = [key for key, code in zip(keys, status, strict=True) if code == _EMPTY]
        if emptied:
            self.store.delete_many(emptied)
        if doing := here():
            doing.count(piece.n - n_left, *done)
        return self._left(piece, [i for i, code in enumerate(status) if code == _LEFT]) if n_left else []

    def _write_shard(self, loop: Any, layout: Sharded, piece: Piece, key: str) -> bool:
        """Put a shard together and store it. Returns: whether that could be done."""
        level, index = layout.blank_index(piece.shard or ())
        try:
            old = self._old_shard(layout, level, piece, key)
        except CodecError:  # the usual path says what is wrong
            return False
        window = make_window(*self.parts.places(piece), index.origin, index.steps)
        head = end = level.index_nbytes if level.location == "start" else 0
        nbytes = head + len(old[0] or b"") + piece.n * _most(self.nbytes) + self.max_encoded
        if nbytes > _MAX_SHARD_NBYTES:
            return False
        taken = placed = after = 0
        with lent_scratch() as scratch:
            room = scratch.room(nbytes + level.index_nbytes + self.nbytes + self.max_encoded)
            shard, rest = room[: nbytes + level.index_nbytes], room[nbytes + level.index_nbytes :]
            for part in piece.cut(self.piece_nchunks):
                until = index.entries.size // 2 if part.first + part.n == piece.first + piece.n else 0
                into = bytearray(part.n), None, shard[:nbytes], index.entries, end, 0, *old, after, until
                n_left, n_taken, n_placed, end, after = self._call(loop, part, (window, (b"", b"")), rest, into)
                if n_left:
                    return False
                taken, placed = taken + n_taken, placed + n_placed
            if end == head and (index.entries == MISSING).all():
                self.store.delete_many([key])
            else:
                encoded = np.frombuffer(level.coder.encode([index.entries.astype("<u8", copy=False)])[0], np.uint8)
                at = 0 if head else end
                shard[at : at + len(encoded)] = encoded
                self.store.set(key, shard.data[: end if head else end + len(encoded)])
        if doing := here():
            doing.count(piece.n, taken, placed)
        return True

    def _old_shard(self, layout: Sharded, level: Level, piece: Piece, key: str) -> tuple[Buffer | None, Any]:
        """The bytes and the index of a shard; None if a piece covers it whole. Raises: CodecError."""
        if layout.is_whole(piece.shard or (), piece.n) and self.parts.are_full(piece):
            return None, None
        stored = self.store.get_one(Request(key))
        if stored is None:
            return b"", layout.blank_index(piece.shard or ())[1].entries
        encoded = split_index(host_view(stored), level.index_nbytes, level.location)
        # A copy: the index may lie anywhere in the bytes, its numbers across the words of memory.
        return stored, np.array(decode_index(encoded, level.coder), np.uint64, order="C")

    def _call(self, loop: Any, piece: Piece, where: tuple[bytes, Any], room: Any, into: tuple[Any, ...]) -> Any:
        window, names = where
        status, *sink = into
        return loop.write(
            self.job, self.encoder, window, *self.tables, *names, self.fill, piece.first, room, status, *sink
        )

    def _left(self, piece: Piece, numbers: Sequence[int]) -> Left:
        """Parts by stored object, for the usual path."""
        parts = [self.parts.part(piece, piece.first + number) for number in numbers]
        return [(piece.shard, parts)] if piece.shard is not None else [(part.coords, [part]) for part in parts]


def make_bulk_write(
    store: Store, layout: Layout, chain: Chain, plan: Plan, value: Any, *, keep_empty: bool, n_threads: int
) -> BulkWrite | None:
    """Prepare a write for the loop; None if it is not for the loop, or too small to gain.

    Args:
        store, layout: where the chunks are.
        chain: the one of all chunks.
        plan: what to write.
        value: of the plan's shape.
        keep_empty: whether chunks equal to the fill value are stored.
        n_threads: how many threads will share the work.
    """
    if plan.nparts < MIN_NCHUNKS and not isinstance(layout, Sharded):
        return None
    into: DecodeInto | None = chain.prepared
    names: Names | None = getattr(layout, "names", None)
    if into is None or into.number is None or names is None or library.loop() is None:
        return None
    target = store.local_target(names.path)
    if target is None or "\0" in target.prefix or not isinstance(plan, BoxPlan):
        return None
    if not plan.nparts or not _suits(into, layout, plan, value):
        return None
    fixed, swap = fixed_of(into, chain), swapped(into.dtype, value.dtype)
    if fixed.encoder is None or swap is None:
        return None
    parts = Boxes(plan)
    size = max(min(_PIECE_NCHUNKS, PIECE_NBYTES // into.nbytes), 1)
    if isinstance(layout, Sharded):
        queue, n = parts.by_shard(layout, n_threads)
        if _saved(layout, n, parts.nparts) < MIN_SAVED:
            return None
        wave_nchunks = -(-parts.nparts // n)
    else:
        wave_nchunks = size = min(size, -(-parts.nparts // (n_threads * PIECES_PER_THREAD)))
        queue = parts.whole().cut(size, n_threads)
    drops = not keep_empty and chain.chunk.fill_value is not None
    spans, lists, *_ = parts.tables()
    return BulkWrite(
        store=store,
        layout=layout,
        names=names,
        target=target,
        parts=parts,
        queue=queue,
        piece_nchunks=size,
        work=Work(parts.nparts, into.nbytes, wave_nchunks, unlocked=True),
        value=value,
        job=make_job(into, fixed, (swap, ord(names.keys.separator)), value, parts.npoints),
        encoder=fixed.encoder.table(tuple([axis.extent for axis in layout.grid]), keep_empty=not drops),
        tables=(spans, lists),
        fill=fixed.fill
        if value.dtype == chain.chunk.dtype
        else np.asarray(fill_of(chain.chunk), value.dtype).tobytes(),
        max_encoded=fixed.max_encoded,
        nbytes=into.nbytes,
        window=make_window(*parts.places(parts.whole())),
    )


def _most(nbytes: int) -> int:
    """The most bytes that a chunk of a shard may have, encoded: what the compressors ask for, and a checksum."""
    return nbytes + nbytes // 128 + 128


def _suits(into: DecodeInto, layout: Layout, plan: BoxPlan, value: Any) -> bool:
    if type(value) not in PLAIN_ARRAYS or value.shape != plan.shape or value.dtype.hasobject:
        return False
    if not 0 < len(into.shape) <= MAX_NDIM or into.nbytes > MAX_NBYTES:
        return False
    if any(axis.extent > MAX_EXTENT for axis in layout.grid):
        return False
    if not all(isinstance(axis, RegularAxis) for axis in (*layout.grid, *layout.objects)):
        return False
    if not isinstance(layout, Sharded):
        return True
    level = _level(layout)
    if not layout.is_flat or level.order is not None or prod(level.counts) * _most(into.nbytes) > _MAX_SHARD_NBYTES:
        return False
    return _saved(layout, 1, plan.nparts) >= MIN_SAVED


def _level(layout: Sharded) -> Level:
    return layout.levels(chunk_shape(layout.objects, (0,) * len(layout.grid)))[0]


def _saved(layout: Sharded, nshards: int, nparts: int) -> int:
    """What the loop saves by writing so many parts of so many shards, in entries."""
    return nshards * (prod(_level(layout).counts) - _PER_SHARD) + nparts * _PER_CHUNK
