"""Writes many chunks by the compiled loop (`loop/write.c`), which gathers, encodes and stores them.

Theory of operation. As in `gzarr.cpu.bulk` a plan is cut into pieces. Of chunks that are files the loop replaces the
files itself, and lays the values over old contents where they do not cover a chunk; shards that are covered whole it
puts together in memory, and the store takes them. What it leaves goes the usual way: other shards, and all that fails.
The bytes it stores are those of the usual path.

Rules: only stores that say so (`Store.local_target`) have their files written by others; the caller holds the locks of
a piece (`BulkWrite.keys`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gzarr.backend import Chain, Work
from gzarr.codecs.spec import fill_of
from gzarr.cpu import native
from gzarr.cpu.bulk import MAX_GROWTH_NBYTES, MAX_NBYTES, PIECE_NBYTES, PIECES_PER_THREAD, Left, make_job, swapped
from gzarr.cpu.direct import PLAIN_ARRAYS, Direct, lent_scratch
from gzarr.cpu.encoders import make_encoder
from gzarr.cpu.tables import MAX_EXTENT, MAX_NDIM, Boxes, Piece, make_window
from gzarr.grid import RegularAxis
from gzarr.layout import Layout, Names, Sharded
from gzarr.plan import BoxPlan, Plan
from gzarr.stages import here
from gzarr.storage.base import Store, Target

#: Fewer chunks are not worth the tables.
MIN_NCHUNKS = 2
#: All chunks of a piece are locked while it is written.
_PIECE_NCHUNKS = 64
#: Shards that could become larger are put together by the usual path.
_MAX_SHARD_NBYTES = 9 << 25

#: What the loop says of a part: stored, left, or equal to the fill value.
_LEFT, _EMPTY = 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class BulkWrite:
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
        loop = native.loop()
        if loop is None:  # switched off meanwhile
            return self._left(piece, range(piece.n))
        if piece.shard is None or not isinstance(self.layout, Sharded):
            return self._write_files(loop, piece, keys)
        if not self.layout.is_whole(piece.shard, piece.n) or not self._write_shard(loop, self.layout, piece, keys[0]):
            return self._left(piece, range(piece.n))
        return []

    def _write_files(self, loop: Any, piece: Piece, keys: Sequence[str]) -> Left:
        prefix = os.fsencode(self.target.prefix + self.names.keys.prefix)
        names = prefix, os.fsencode(self.target.temporary)
        status = bytearray(piece.n)
        into = status, self.target.written, None, None, 0, self.target.number()
        with lent_scratch() as scratch:
            room = scratch.room(self.nbytes + self.max_encoded)
            n_left, *done, _ = self._call(loop, piece, (self.window, names), room, into)
        emptied = [key for key, code in zip(keys, status, strict=True) if code == _EMPTY]
        if emptied:
            self.store.delete_many(emptied)
        if doing := here():
            doing.count(piece.n - n_left, *done)
        return self._left(piece, [i for i, code in enumerate(status) if code == _LEFT]) if n_left else []

    def _write_shard(self, loop: Any, layout: Sharded, piece: Piece, key: str) -> bool:
        """Put a shard together and store it. Returns: whether that could be done."""
        level, index = layout.blank_index(piece.shard or ())
        window = make_window(*self.parts.places(piece), index.origin, index.steps)
        capacity = level.index_nbytes + piece.n * _most(self.nbytes) + self.max_encoded
        head = end = level.index_nbytes if level.location == "start" else 0
        taken = placed = 0
        with lent_scratch() as scratch:
            room = scratch.room(capacity + self.nbytes + self.max_encoded)
            shard, rest = room[:capacity], room[capacity:]
            for part in piece.cut(self.piece_nchunks):
                into = bytearray(part.n), None, shard, index.entries, end, 0
                n_left, n_taken, n_placed, end = self._call(loop, part, (window, (b"", b"")), rest, into)
                if n_left:
                    return False
                taken, placed = taken + n_taken, placed + n_placed
            if end == head:
                self.store.delete_many([key])
            else:
                encoded = np.frombuffer(level.coder.encode([index.entries.astype("<u8", copy=False)])[0], np.uint8)
                at = 0 if head else end
                shard[at : at + len(encoded)] = encoded
                self.store.set(key, shard.data[: end if head else end + len(encoded)])
        if doing := here():
            doing.count(piece.n, taken, placed)
        return True

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
    direct: Direct | None = chain.direct
    if plan.nparts < MIN_NCHUNKS or direct is None or direct.number is None or native.loop() is None:
        return None
    names: Names | None = getattr(layout, "names", None)
    if not isinstance(plan, BoxPlan) or names is None or not _suits(direct, layout, plan, value):
        return None
    encoder = make_encoder(direct.compressor, checksum=bool(direct.outer))
    swap, target = swapped(direct.dtype, value.dtype), store.local_target(names.path)
    if encoder is None or swap is None or target is None or "\0" in target.prefix:
        return None
    parts = Boxes(plan)
    share = max(-(-parts.nparts // (n_threads * PIECES_PER_THREAD)), 1)
    size = max(min(_PIECE_NCHUNKS, PIECE_NBYTES // direct.nbytes, share), 1)
    max_encoded = direct.nbytes + direct.nbytes // 8 + MAX_GROWTH_NBYTES
    drops = not keep_empty and chain.chunk.fill_value is not None
    spans, lists, *_ = parts.tables()
    return BulkWrite(
        store=store,
        layout=layout,
        names=names,
        target=target,
        parts=parts,
        queue=_queue(parts, layout, size, n_threads),
        piece_nchunks=size,
        work=Work(parts.nparts, direct.nbytes, size, unlocked=True),
        value=value,
        job=make_job(direct, (max_encoded, direct.number, swap, ord(names.keys.separator)), value, parts.npoints),
        encoder=encoder.table(tuple(axis.extent for axis in layout.grid), keep_empty=not drops),
        tables=(spans, lists),
        fill=np.asarray(fill_of(chain.chunk), value.dtype).tobytes(),
        max_encoded=max_encoded,
        nbytes=direct.nbytes,
        window=make_window(*parts.places(parts.whole())),
    )


def _queue(parts: Boxes, layout: Layout, size: int, n_threads: int) -> Iterator[Piece]:
    return parts.by_shard(layout, n_threads)[0] if isinstance(layout, Sharded) else parts.whole().cut(size, n_threads)


def _most(nbytes: int) -> int:
    """The most bytes that a chunk of a shard may have, encoded: what the compressors ask for, and a checksum."""
    return nbytes + nbytes // 128 + 128


def _suits(direct: Direct, layout: Layout, plan: BoxPlan, value: Any) -> bool:
    if type(value) not in PLAIN_ARRAYS or value.shape != plan.shape or value.dtype.hasobject:
        return False
    if len(direct.shape) > MAX_NDIM or direct.nbytes > MAX_NBYTES:
        return False
    if any(axis.extent > MAX_EXTENT for axis in layout.grid):
        return False
    if not all(isinstance(axis, RegularAxis) for axis in (*layout.grid, *layout.objects)):
        return False
    if isinstance(layout, Sharded):
        level, _ = layout.blank_index((0,) * len(layout.grid))
        nbytes = prod(level.counts) * _most(direct.nbytes)
        if not layout.is_flat or level.order is not None or nbytes > _MAX_SHARD_NBYTES:
            return False
        # No shard can be covered whole by fewer chunks than one has, but one at an edge of the array.
        return plan.nparts >= prod(min(n, axis.nchunks) for n, axis in zip(level.counts, layout.grid, strict=True))
    return True
