"""Writes batches of chunks by the compiled loop (`loop/write.c`), which gathers, encodes and stores them.

Theory of operation. As in `gzarr.cpu.compiled.read`, a write is cut into batches, or into shards, each of which may be
several tables. The loop itself replaces chunks that are files; it puts shards together in memory, and the store takes
them. Values that do not cover a chunk are laid over its old contents. The store gives the old bytes of a shard, whose
other chunks are copied encoded. The reference path does what the loop leaves, whole shards at a time. The loop stores
the same bytes as the reference path.

Rules: only files of stores that say so (`Files.target`) are written by the loop; the caller holds the locks of a batch
(`LoopWrite.keys`).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from operator import eq
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Work
from gzarr.codecs.spec import fill_of
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.encoder import Encoder
from gzarr.cpu.compiled.read import BATCHES_PER_THREAD, MAX_NBYTES, STORE_NBYTES
from gzarr.cpu.compiled.source import WHOLE, Source
from gzarr.cpu.scratch import lent_scratch
from gzarr.cpu.threads import share as share_out
from gzarr.cpu.threads import spread
from gzarr.errors import CodecError
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Groups, Part
from gzarr.indexing.selection import Indices
from gzarr.indexing.tables import Batches
from gzarr.layout.chunk_layout import MISSING
from gzarr.layout.shard import Level, decode_index, split_index
from gzarr.layout.shard_file import can_be_large, find_shard_file
from gzarr.layout.sharded import Sharded
from gzarr.profiling.recorder import here, stage
from gzarr.storage.base import Buffer, Request, Target, host_view

#: All chunks of a batch are locked while it is written.
_MAX_NCHUNKS = 64
#: Chunks of a batch at least, as far as all threads have one, and decoded bytes: a batch costs some 50 us besides.
_MIN_NCHUNKS, _LARGE_NBYTES = 8, 1 << 18
#: Shards that could become larger are put together by the reference path.
_MAX_SHARD_NBYTES = 9 << 25

#: Decoded bytes of a shard that are worth a thread. Four chunks of 40 kB take two threads 0.2 ms longer than one.
_SHARE_NBYTES = 1 << 19

#: Status of a part: stored (0), left to the reference path, or equal to the fill value.
_LEFT, _EMPTY = 1, 2


class _Batch(NamedTuple):
    """Chunks that are objects, or the chunks of a shard.

    Attributes
    ----------
    tables : list
        The tables, by their numbers.
    nchunks : int
        How many chunks these have.
    shard : tuple of int, or None
        Coordinates of the shard.
    """

    tables: list[tuple[int, Any]]
    nchunks: int
    shard: tuple[int, ...] | None


@dataclass(slots=True, eq=False)
class LoopWrite:
    """A write that the loop can do.

    Attributes
    ----------
    source : Source
        Where the chunks are, and what they are.
    target : Target or None
        How their files may be written; None if the store takes every object.
    tables : Batches
        What is written; a table has chunks of one shard.
    work : Work
        How much there is to do.
    value : object
        The values: they must live as long as their address is used.
    job, encoder, fill
        Arguments of the loop that are the same for all tables.
    n_threads : int
        How many threads share the work.
    threads_a_shard : int
        How many threads encode the chunks of one shard, if there are fewer shards than threads.
    """

    source: Source
    target: Target | None
    tables: Batches
    work: Work
    value: Any
    job: bytes
    encoder: bytes
    fill: bytes
    n_threads: int
    threads_a_shard: int = 1
    stage = "loop"

    @property
    def batches(self) -> Iterator[_Batch]:
        """The batches, once: shards are whole."""
        cuts = self.tables.cuts
        for number in spread(self.tables.n // cuts, self.n_threads):
            tables = [(at, self.tables.table(at)) for at in range(number * cuts, (number + 1) * cuts)]
            tables = [(at, table) for at, table in tables if table.nchunks]
            owners = tables[0][1].owners
            shard = None if owners is None else tuple(owners[0].tolist())
            yield _Batch(tables, sum(table.nchunks for _, table in tables), shard)

    def objects(self, batch: _Batch) -> tuple[Sequence[str], Sequence[str]]:
        """The objects of a batch, and those that are merged: its shard, or its chunks in part.

        Old bytes of files are read by the loop itself.
        """
        if batch.shard is not None:
            keys = [self.source.layout.key(batch.shard)]
            return keys, () if self._covers(batch) else keys
        ((_, table),) = batch.tables
        keys = self.source.layout.keys(table.coords)
        return keys, () if self.target is not None else self._partial(batch, keys)

    def _partial(self, batch: _Batch, keys: Sequence[str]) -> list[str]:
        """Keys of the chunks that are not replaced whole, or that others may have appended to. keys: of all."""
        layout, ((_, table),) = self.source.layout, batch.tables
        cut = (layout.cut or layout.find_cut())[0]
        partial = ~table.full | (table.coords == np.array(cut)).any(axis=1)
        return [keys[chunk] for chunk in np.flatnonzero(partial).tolist()]

    def _covers(self, batch: _Batch) -> bool:
        layout, shard = self.source.layout, batch.shard or ()
        reaches_out = True in map(eq, shard, (layout.cut or layout.find_cut())[1])
        is_whole = not reaches_out and layout.is_whole(shard, batch.nchunks)
        return is_whole and self.tables.npoints < 0 and all(table.full.all() for _, table in batch.tables)

    def write(self, batch: _Batch, keys: Sequence[str], merged: Sequence[str]) -> Groups:
        """Write a batch, all but the parts that are returned. Raises: StoreError."""
        loop = library.loop()
        layout, started = self.source.layout, perf_counter()
        if loop is None:  # switched off meanwhile
            left: Sequence[int] = range(batch.nchunks)
        elif isinstance(layout, Sharded):
            left = () if self._write_shard(loop, layout, batch, keys[0], covered=not merged) else range(batch.nchunks)
        else:
            left = self._write_chunks(loop, batch.tables[0][1], keys, merged)
        self.source.write_chunk_time.note(perf_counter() - started, batch.nchunks)
        return self._left(batch, left) if left else []

    def _write_chunks(self, loop: Any, table: Any, keys: Sequence[str], merged: Sequence[str]) -> Sequence[int]:
        """Write the chunks of a table, which are files or are given to the store. Returns: numbers of those left."""
        store, chain, target, n = self.source.store, self.source.chain, self.target, table.nchunks
        old = dict(zip(merged, store.get_many(list(map(Request, merged))), strict=True)) if merged else {}
        status, nbytes = bytearray(n), n * chain.max_encoded if target is None else 0
        with lent_scratch() as scratch:
            room = scratch.room(nbytes + chain.write_nbytes)
            into: tuple[Any, Any, Any] = None, None, (list(map(old.get, keys)), room[:nbytes])
            if target is not None:
                prefix = os.fsencode(target.prefix + self.source.keys.prefix)
                into = (prefix, os.fsencode(target.temporary), target.number()), None, None
            try:
                n_left, taken, placed, *made = self._call(loop, table, into, room[nbytes:], status)
            except (TypeError, BufferError):  # old contents that are no plain memory
                return range(n)
        emptied = [key for key, code in zip(keys, status, strict=True) if code == _EMPTY]
        if target is None:
            with stage("store") as noted:
                store.set_many([item for item in zip(keys, made[0], strict=True) if item[1] is not None])
                if emptied:
                    store.delete_many(emptied)
                if noted:
                    noted.count(0, placed, placed)
        elif emptied:
            target.tidy(emptied)
        if doing := here():
            doing.count(n - n_left, taken, placed)
        return [i for i, code in enumerate(status) if code == _LEFT] if n_left else ()

    def _write_shard(self, loop: Any, layout: Sharded, batch: _Batch, key: str, *, covered: bool) -> bool:
        """Put a shard together and store it. Returns: whether that could be done."""
        chain, level, index = self.source.chain, layout.level, layout.level.blank_index()
        if not covered and batch.shard is not None and self._is_appended(layout, batch.shard, batch.nchunks):
            return False
        try:
            old = (None, None) if covered else self._old_shard(layout, level, batch, key)
        except CodecError:  # the reference path says what is wrong
            return False
        head = level.index_nbytes if level.location == "start" else 0
        entries = [layout.entries(batch.shard or (), table.coords) for _, table in batch.tables]
        shares = self._shares(batch, entries, head, len(old[0] or b""), index.size // 2)
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
                for table, numbers in share.tables:
                    until = share.until if table is share.tables[-1][0] else 0
                    into = shard[: share.limit], index, share.end, after, until, *old, numbers
                    answer = self._call(loop, table, (None, into, None), rest, bytearray(table.nchunks))
                    share.n_left, *counts, share.end, after = answer
                    done.append((counts[0], counts[1]))
                    if share.n_left:
                        return

            share_out(encode, shares)
            if any(share.n_left for share in shares):
                return False
            end = _join(shard, index.reshape(-1, 2), shares)
            if end == head and (index == MISSING).all():
                self.source.store.delete_many([key])
            else:
                if level.write_order is not None:
                    _reorder(shard, index.reshape(-1, 2), head, level.write_order)
                encoded = np.frombuffer(level.coder.encode([index.astype("<u8", copy=False)])[0], np.uint8)
                at = 0 if head else end
                shard[at : at + len(encoded)] = encoded
                self.source.store.set(key, shard.data[: end if head else end + len(encoded)])
        if doing := here():
            doing.count(batch.nchunks, *map(sum, zip(*done, strict=True)))
        return True

    def _is_appended(self, layout: Sharded, shard: Coords, nchunks: int) -> bool:
        """Whether the reference path replaces chunks in a copy of the shard's file."""
        return can_be_large(layout.level, self.source.chain.nbytes) and (
            find_shard_file(layout, self.source.store, shard, nchunks) is not None
        )

    def _shares(
        self, batch: _Batch, entries: Sequence[Indices], head: int, old_nbytes: int, n_entries: int
    ) -> "list[_Share]":
        """Cut the tables of a shard into runs that are encoded at once.

        entries: of the chunks of each table. head: where the first chunk begins.
        """
        chain, tables = self.source.chain, [(table, of) for (_, table), of in zip(batch.tables, entries, strict=True)]
        most = _most_encoded(chain.widest)
        n = min(self.threads_a_shard, len(tables), batch.nchunks * chain.nbytes // _SHARE_NBYTES)
        if n < 2 or batch.nchunks * most + n * (old_nbytes + most) > _MAX_SHARD_NBYTES:
            n = 1
        shares: list[_Share] = []
        each = -(-len(tables) // n)
        for first in range(0, len(tables), each):
            some = tables[first : first + each]
            start, entry = (shares[-1].limit, int(some[0][1][0])) if shares else (head, 0)
            limit = start + old_nbytes + sum(table.nchunks for table, _ in some) * most + chain.max_encoded
            shares.append(_Share(len(shares), some, start, limit, entry, n_entries))
        for share, following in pairwise(shares):
            share.until = following.entry
        return shares

    def _old_shard(self, layout: Sharded, level: Level, batch: _Batch, key: str) -> tuple[Buffer | None, Any]:
        """The bytes and the index of a shard. Raises: CodecError."""
        stored = self.source.store.get_one(Request(key))
        if stored is None:
            return b"", level.blank_index()
        encoded = split_index(host_view(stored), level.index_nbytes, level.location)
        # A copy: the index may lie anywhere in the bytes, its numbers across the words of memory.
        return stored, np.array(decode_index(encoded, level.coder), np.uint64, order="C")

    def _call(self, loop: Any, table: Any, into: tuple[Any, Any, Any], room: Any, status: bytearray) -> Any:
        """Let the loop write a table. into: what it writes to, of files, a shard in memory, or chunks for a store."""
        return loop.write(self.job, self.encoder, (*table.columns, None), self.fill, *into, room, status)

    def _left(self, batch: _Batch, chunks: Sequence[int]) -> Groups:
        """Chunks as parts by stored object, for the reference path."""
        if batch.shard is not None:
            return [(batch.shard, [part for at, table in batch.tables for part in self._parts(at, table)])]
        ((at, table),) = batch.tables
        return [(part.coords, [part]) for part in self.tables.parts(at, table, chunks)]

    def _parts(self, number: int, table: Any) -> list[Part]:
        return self.tables.parts(number, table, range(table.nchunks))


@dataclass(slots=True)
class _Share:
    """A run of the chunks of a shard, which is put together apart from the others.

    Attributes
    ----------
    number : int
        Of the share.
    tables : list
        Its chunks, and the entries of the index that are theirs.
    start, limit : int
        Where its bytes begin, and where there is no more room.
    entry, until : int
        First entry of the index, and the end of its entries.
    end : int
        Where its bytes end.
    n_left : int
        Chunks that the reference path must do.
    """

    number: int
    tables: list[tuple[Any, Indices]]
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


def write_size(source: Source, target: Target | None, nparts: int, n_threads: int) -> int:
    """Number of chunks that a table of a write should have. nparts: of the plan."""
    nbytes = source.chain.nbytes
    size = max(min(_MAX_NCHUNKS, MAX_NBYTES // nbytes), 1)
    if isinstance(source.layout, Sharded):
        return size
    smallest = STORE_NBYTES // nbytes  # a store may wait for its lock
    smallest = min(max(smallest, min(-(-nparts // n_threads), 2 * smallest)), size)
    if target is not None:
        smallest = min(_MIN_NCHUNKS, -(-_LARGE_NBYTES // nbytes), nparts // n_threads)
    return max(min(size, -(-nparts // (n_threads * BATCHES_PER_THREAD))), smallest, 1)


def shared_size(source: Source, size: int) -> int:
    """Number of chunks that a table should have where threads share the tables of a shard. size: if they do not."""
    return max(min(size, _SHARE_NBYTES // source.chain.nbytes), 1)


def make_write(
    where: tuple[Source, Target | None, Batches],
    given: tuple[Any, int, tuple[int, ...] | None],
    *,
    keep_empty: bool,
    n_threads: int,
) -> LoopWrite:
    """Prepare a write for the loop.

    Parameters
    ----------
    where : tuple[Source, Target | None, Batches]
        Where the chunks are; how their files may be written, None if the store takes every object; what is written, in
        tables of `write_size` chunks.
    given : tuple[Any, int, tuple[int, ...] | None]
        The value, of the plan's shape; how many of its bytes are swapped at a time; the loop's struct Element for a
        field, None for whole elements.
    keep_empty : bool
        Whether chunks equal to the fill value are stored.
    n_threads : int
        How many threads will share the work.
    """
    (source, target, batches), (value, swap, element) = where, given
    chain, nobjects = source.chain, batches.nobjects
    drops = not keep_empty and chain.chunk.fill_value is not None
    extents = tuple([axis.extent for axis in source.layout.grid])
    keep_beyond = source.layout.cut is None or {*source.layout.cut[0]} != {-1}
    own_dtype = element is not None or value.dtype == chain.chunk.dtype
    each = -(-batches.nchunks // (nobjects or batches.n))
    return LoopWrite(
        source=source,
        target=target,
        tables=batches,
        work=Work(batches.nchunks, chain.nbytes, each, unlocked=True, chunk_s=source.write_chunk_time.chunk_s),
        value=value,
        job=chain.job(swap, source.keys.separator, value, batches.npoints, element or WHOLE),
        encoder=(chain.encoder or Encoder()).table(extents, keep_empty=not drops, keep_beyond=keep_beyond),
        fill=chain.fill if own_dtype else np.asarray(fill_of(chain.chunk), value.dtype).tobytes(),
        n_threads=n_threads,
        threads_a_shard=n_threads // nobjects if nobjects and chain.encoder is not None else 1,
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
