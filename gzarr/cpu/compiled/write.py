"""Writes many chunks by the compiled loop (`loop/write.c`), which gathers, encodes and stores them.

Theory of operation. As in `gzarr.cpu.compiled.read`, a plan is cut into pieces. The loop itself replaces chunks that
are files; it puts shards together in memory, and the store takes them. Values that do not cover a chunk are laid over
its old contents. The store gives the old bytes of a shard, whose other chunks are copied encoded. The reference path
does what the loop leaves, whole shards at a time. The loop stores the same bytes as the reference path.

Rules: only files of stores that say so (`Files.target`) are written by the loop; the caller holds the locks of a piece
(`CompiledWrite.keys`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from operator import eq, mul, sub
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Work
from gzarr.codecs.spec import fill_of
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.buffers import BATCH_NBYTES
from gzarr.cpu.compiled.encoder import Encoder
from gzarr.cpu.compiled.points import Rows
from gzarr.cpu.compiled.read import PIECE_NBYTES, PIECES_PER_THREAD, Left
from gzarr.cpu.compiled.source import Source
from gzarr.cpu.compiled.tables import Boxes, Piece, Shards, Tables, piece_tables
from gzarr.cpu.decode_into import lent_scratch
from gzarr.cpu.threads import share as share_out
from gzarr.errors import CodecError
from gzarr.indexing.grid import chunk_shape
from gzarr.indexing.keys import join_path
from gzarr.layout.shard import MISSING, Level, decode_index, split_index
from gzarr.layout.sharded import Sharded, ShardIndex
from gzarr.profiling.recorder import here, stage
from gzarr.storage.base import Buffer, Request, Target, host_view

#: All chunks of a piece are locked while it is written.
_PIECE_NCHUNKS = 64
#: Shards that could become larger are put together by the reference path.
_MAX_SHARD_NBYTES = 9 << 25

#: Decoded bytes of a shard that are worth a thread. Four chunks of 40 kB take two threads 0.2 ms longer than one.
_SHARE_NBYTES = 1 << 19

#: Status of a part: stored (0), left to the reference path, or equal to the fill value.
_LEFT, _EMPTY = 1, 2


class CompiledWrite(NamedTuple):
    """A write that the loop can do.

    Attributes
    ----------
    source : Source
        Where the chunks are, and what they are.
    target : Target or None
        How their files may be written; None if the store takes every object.
    parts : Boxes or Rows
        The parts that are written.
    pieces : iterator of Piece
        The pieces, once: shards are uncut.
    piece_nchunks : int
        How many parts one call of the loop may have.
    work : Work
        How much there is to do.
    value : object
        The values: they must live as long as their address is used.
    job, encoder, fill, element
        Arguments of the loop that are the same for all pieces.
    tables : Tables or None
        Others; None if each piece has its own.
    threads_a_shard : int
        How many threads encode the chunks of one shard, if there are fewer shards than threads.
    """

    source: Source
    target: Target | None
    parts: Boxes | Rows
    pieces: Iterator[Piece]
    piece_nchunks: int
    work: Work
    value: Any
    job: bytes
    encoder: bytes
    tables: Tables | None
    fill: bytes
    element: bytes | None
    threads_a_shard: int = 1
    stage: str = "loop"

    def keys(self, piece: Piece) -> list[str]:
        """The objects of a piece."""
        layout = self.source.layout
        if piece.shard is not None:
            return [layout.key(piece.shard)]
        keys = self.source.keys
        return self.parts.keys(piece, join_path(self.source.path, "_")[:-1] + keys.prefix, keys.separator)

    def merged(self, piece: Piece, keys: Sequence[str]) -> Sequence[str]:
        """Its shard, unless the piece covers it whole; its chunks in part. Files are read by the loop itself."""
        if piece.shard is not None:
            return () if self._covers(piece) else keys
        return () if self.target is not None or self._is_full(piece) else self._partial(piece, keys)

    def _is_full(self, piece: Piece) -> bool:
        """Whether all chunks of a piece are replaced whole, also what others may have appended to them."""
        layout = self.source.layout
        return {*(layout.cut or layout.find_cut())[0]} == {-1} and self.parts.are_full(piece)

    def _partial(self, piece: Piece, keys: Sequence[str]) -> list[str]:
        """Keys of the chunks that are not replaced whole. keys: of all."""
        layout = self.source.layout
        cut = (layout.cut or layout.find_cut())[0]
        parts = [self.parts.part(piece, number) for number in range(piece.first, piece.first + piece.n)]
        found = zip(keys, parts, strict=True)
        return [key for key, part in found if not part.full or True in map(eq, part.coords, cut)]

    def _covers(self, piece: Piece) -> bool:
        layout, shard = self.source.layout, piece.shard or ()
        reaches_out = True in map(eq, shard, (layout.cut or layout.find_cut())[1])
        return not reaches_out and layout.is_whole(shard, piece.n) and self.parts.are_full(piece)

    def again(self) -> None:
        """Nothing: the reference path does the rest of a piece at once."""

    def do(self, piece: Piece, keys: Sequence[str]) -> Left:
        """Write a piece, all but the parts that are returned. keys: its objects. Raises: StoreError."""
        loop = library.loop()
        if loop is None:  # switched off meanwhile
            return self._left(piece, range(piece.n))
        layout = self.source.layout
        started = perf_counter()
        if piece.shard is None or not isinstance(layout, Sharded):
            left = (self._write_items if self.target is None else self._write_files)(loop, piece, keys)
        else:
            left = [] if self._write_shard(loop, layout, piece, keys[0]) else self._left(piece, range(piece.n))
        self.source.write_pace.note(perf_counter() - started, piece.n)
        return left

    def _write_items(self, loop: Any, piece: Piece, keys: Sequence[str]) -> Left:
        """Encode the chunks of a piece, which the store takes."""
        store, chain = self.source.store, self.source.chain
        merged = self.merged(piece, keys)
        old = dict(zip(merged, store.get_many(list(map(Request, merged))), strict=True)) if merged else {}
        status = bytearray(piece.n)
        (spans, lists, *_), window, first = piece_tables(self.parts, self.tables, piece)
        with lent_scratch() as scratch:
            room = scratch.room(piece.n * chain.max_encoded + chain.write_nbytes)
            slab, rest = room[: piece.n * chain.max_encoded], room[piece.n * chain.max_encoded :]
            where = list(map(old.get, keys)), self.fill, first, rest, status, slab
            try:
                n_left, *done, made = loop.write_buffers(self.job, self.encoder, window, spans, lists, *where)
            except (TypeError, BufferError):  # old contents that are no plain memory
                return self._left(piece, range(piece.n))
        with stage("store") as noted:
            store.set_many([item for item in zip(keys, made, strict=True) if item[1] is not None])
            if emptied := [key for key, code in zip(keys, status, strict=True) if code == _EMPTY]:
                store.delete_many(emptied)
            if noted:
                noted.count(0, done[1], done[1])
        if doing := here():
            doing.count(piece.n - n_left, *done)
        return self._left(piece, [i for i, code in enumerate(status) if code == _LEFT]) if n_left else []

    def _write_files(self, loop: Any, piece: Piece, keys: Sequence[str]) -> Left:
        if self.target is None:
            raise TypeError("the store takes every object")
        prefix = os.fsencode(self.target.prefix + self.source.keys.prefix)
        names = prefix, os.fsencode(self.target.temporary)
        status = bytearray(piece.n)
        into = status, self.target.written, None, None, 0, self.target.number(), None, None, 0, 0
        with lent_scratch() as scratch:
            room = scratch.room(self.source.chain.write_nbytes)
            n_left, *done, _, _ = self._call(loop, piece, ((), names), room, into)
        emptied = [key for key, code in zip(keys, status, strict=True) if code == _EMPTY]
        if emptied:
            self.target.tidy(emptied)
        if doing := here():
            doing.count(piece.n - n_left, *done)
        return self._left(piece, [i for i, code in enumerate(status) if code == _LEFT]) if n_left else []

    def _write_shard(self, loop: Any, layout: Sharded, piece: Piece, key: str) -> bool:
        """Put a shard together and store it. Returns: whether that could be done."""
        level, index = layout.blank_index(piece.shard or ())
        chain = self.source.chain
        try:
            old = self._old_shard(layout, level, piece, key)
        except CodecError:  # the reference path says what is wrong
            return False
        head = level.index_nbytes if level.location == "start" else 0
        shares = self._shares(piece, index, head, len(old[0] or b""))
        nbytes = shares[-1].limit
        if nbytes > _MAX_SHARD_NBYTES:
            return False
        done: list[tuple[int, int]] = []
        with lent_scratch() as scratch:
            room = scratch.room(nbytes + level.index_nbytes + len(shares) * chain.write_nbytes)
            shard, rests = room[: nbytes + level.index_nbytes], room[nbytes + level.index_nbytes :]

            def encode(share: _Share) -> None:
                rest = rests[share.number * chain.write_nbytes :][: chain.write_nbytes]
                share.end, after = share.start, share.entry
                for part in share.piece.cut(self.piece_nchunks):
                    is_last = part.first + part.n == share.piece.first + share.piece.n
                    target = shard[: share.limit], index.entries, share.end, 0
                    into = bytearray(part.n), None, *target, *old, after, share.until if is_last else 0
                    where = (index.origin, index.steps), (b"", b"")
                    share.n_left, *counts, share.end, after = self._call(loop, part, where, rest, into)
                    done.append((counts[0], counts[1]))
                    if share.n_left:
                        return

            share_out(encode, shares)
            if any(share.n_left for share in shares):
                return False
            end = _join(shard, index.entries.reshape(-1, 2), shares)
            if end == head and (index.entries == MISSING).all():
                self.source.store.delete_many([key])
            else:
                if level.write_order is not None:
                    _reorder(shard, index.entries.reshape(-1, 2), head, level.write_order)
                encoded = np.frombuffer(level.coder.encode([index.entries.astype("<u8", copy=False)])[0], np.uint8)
                at = 0 if head else end
                shard[at : at + len(encoded)] = encoded
                self.source.store.set(key, shard.data[: end if head else end + len(encoded)])
        if doing := here():
            doing.count(piece.n, *map(sum, zip(*done, strict=True)))
        return True

    def _shares(self, piece: Piece, index: ShardIndex, head: int, old_nbytes: int) -> list[_Share]:
        """Cut the parts of a shard into runs that are encoded at once. head: where its first chunk begins."""
        chain = self.source.chain
        n = min(self.threads_a_shard, piece.n, piece.n * chain.nbytes // _SHARE_NBYTES)
        most = _most_encoded(chain.widest)
        if n < 2 or not isinstance(self.parts, Boxes) or piece.n * most + n * (old_nbytes + most) > _MAX_SHARD_NBYTES:
            n = 1
        shares: list[_Share] = []
        for run in piece.cut(-(-piece.n // n)):
            start, entry = (shares[-1].limit, self._entry(run, index)) if shares else (head, 0)
            limit = start + old_nbytes + run.n * most + chain.max_encoded
            shares.append(_Share(len(shares), run, start, limit, entry, index.entries.size // 2))
        for share, following in pairwise(shares):
            share.until = following.entry
        return shares

    def _entry(self, run: Piece, index: ShardIndex) -> int:
        """The place of the first chunk of a run in the index of its shard."""
        coords = self.parts.part(run, run.first).coords
        return sum(map(mul, map(sub, coords, index.origin), index.steps))

    def _old_shard(self, layout: Sharded, level: Level, piece: Piece, key: str) -> tuple[Buffer | None, Any]:
        """The bytes and the index of a shard; None if a piece covers it whole. Raises: CodecError."""
        if self._covers(piece):
            return None, None
        stored = self.source.store.get_one(Request(key))
        if stored is None:
            return b"", layout.blank_index(piece.shard or ())[1].entries
        encoded = split_index(host_view(stored), level.index_nbytes, level.location)
        # A copy: the index may lie anywhere in the bytes, its numbers across the words of memory.
        return stored, np.array(decode_index(encoded, level.coder), np.uint64, order="C")

    def _call(self, loop: Any, piece: Piece, where: tuple[Any, Any], room: Any, into: tuple[Any, ...]) -> Any:
        shard, names = where
        status, *sink = into
        tables, window, first = piece_tables(self.parts, self.tables, piece, shard)
        where = window, *tables[:2], *names
        more = *tables[2:], self.element
        return loop.write(self.job, self.encoder, *where, self.fill, first, room, status, *sink, *more)

    def _left(self, piece: Piece, numbers: Sequence[int]) -> Left:
        """Parts by stored object, for the reference path."""
        parts = [self.parts.part(piece, piece.first + number) for number in numbers]
        return [(piece.shard, parts)] if piece.shard is not None else [(part.coords, [part]) for part in parts]


@dataclass(slots=True)
class _Share:
    """A run of the parts of a shard, which is put together apart from the others.

    Attributes
    ----------
    number : int
        Of the share.
    piece : Piece
        Its parts.
    start, limit : int
        Where its bytes begin, and where there is no more room.
    entry, until : int
        First entry of the index, and the end of its entries.
    end : int
        Where its bytes end.
    n_left : int
        Parts that the reference path must do.
    """

    number: int
    piece: Piece
    start: int
    limit: int
    entry: int
    until: int
    end: int = 0
    n_left: int = 0


def _join(shard: Any, entries: NDArray[np.uint64], shares: Sequence[_Share]) -> int:
    """Move the bytes of shares together. entries: (offset, size) of each chunk. Returns: where they end."""
    memory, end = memoryview(shard), shares[0].end
    for share in shares[1:]:
        moved = share.end - share.start
        memory[end : end + moved] = memory[share.start : share.end]
        mine = entries[share.entry : share.until, 0]
        mine[mine != MISSING] -= np.uint64(share.start - end)
        end += moved
    return end


def make_write(
    where: tuple[Source, Target | None, Boxes | Rows, Shards | None],
    given: tuple[Any, int, bytes | None],
    *,
    keep_empty: bool,
    n_threads: int,
) -> CompiledWrite:
    """Prepare a write for the loop.

    Parameters
    ----------
    where : tuple[Source, Target | None, Boxes | Rows, Shards | None]
        Where the chunks are; how their files may be written, None if the store takes every object; the parts that are
        written; the same by shard, or None for chunks that are objects.
    given : tuple[Any, int, bytes | None]
        The value, of the plan's shape; how many of its bytes are swapped at a time; the loop's struct Element for a
        field, None for whole elements.
    keep_empty : bool
        Whether chunks equal to the fill value are stored.
    n_threads : int
        How many threads will share the work.
    """
    (source, target, parts, shards), (value, swap, element) = where, given
    chain = source.chain
    size = max(min(_PIECE_NCHUNKS, PIECE_NBYTES // chain.nbytes), 1)
    if shards is None:
        share = -(-parts.nparts // (n_threads * PIECES_PER_THREAD))
        smallest = 1 if target is not None else min(BATCH_NBYTES // chain.nbytes, size)  # a store may wait for its lock
        wave_nchunks = size = max(min(size, share), smallest)
        pieces = parts.whole().cut(size, n_threads)
    else:
        pieces, wave_nchunks = shards[0], -(-parts.nparts // shards[1])
    drops = not keep_empty and chain.chunk.fill_value is not None
    extents = tuple([axis.extent for axis in source.layout.grid])
    keep_beyond = source.layout.cut is None or {*source.layout.cut[0]} != {-1}
    own_dtype = element is not None or value.dtype == chain.chunk.dtype
    return CompiledWrite(
        source=source,
        target=target,
        parts=parts,
        pieces=pieces,
        piece_nchunks=size,
        work=Work(parts.nparts, chain.nbytes, wave_nchunks, unlocked=True, chunk_s=source.write_pace.chunk_s),
        value=value,
        job=chain.job(swap, source.keys.separator, value, parts.npoints),
        encoder=(chain.encoder or Encoder()).table(extents, keep_empty=not drops, keep_beyond=keep_beyond),
        tables=None if parts.are_many else parts.tables(),
        fill=chain.fill if own_dtype else np.asarray(fill_of(chain.chunk), value.dtype).tobytes(),
        element=element,
        threads_a_shard=n_threads // shards[1] if shards is not None and chain.encoder is not None else 1,
    )


def _reorder(shard: Any, entries: NDArray[np.uint64], head: int, order: Sequence[int]) -> None:
    """Put the chunks of a shard into another order. entries: (offset, size) of each. head: where the first begins."""
    stored = np.array([i for i in order if entries[i, 0] != MISSING], np.int64)
    places = entries[stored].tolist()
    joined = np.concatenate([shard[offset : offset + size] for offset, size in places])
    entries[stored, 0] = np.uint64(head) + np.cumsum([0, *(size for _, size in places)], dtype=np.uint64)[:-1]
    shard[head : head + len(joined)] = joined


def _most_encoded(nbytes: int) -> int:
    """The most bytes that a chunk of a shard may have, encoded: what the compressors ask for, and a checksum."""
    return nbytes + nbytes // 128 + 128


def fits(level: Level, nbytes: int) -> bool:
    """Whether the loop can put shards together. nbytes: of a decoded chunk."""
    return prod(level.counts) * _most_encoded(nbytes) <= _MAX_SHARD_NBYTES


def level_of(layout: Sharded) -> Level:
    """The level of a flat layout."""
    return layout.levels(chunk_shape(layout.objects, (0,) * len(layout.grid)))[0]
