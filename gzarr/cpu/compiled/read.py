"""Reads batches of chunks by the compiled loop (`loop/read.c`), without the interpreter's lock.

Theory of operation. A read is cut into batches, each one table (`gzarr.indexing.tables`; `gzarr.cpu.compiled.points`
for points). The loop reads the chunks of a table from files or from shards, or is given them, or the shards, by a store
that has them in memory; it decodes and copies them, and reports the chunks that it has left: damaged ones, odd ones,
files that cannot be read. The reference path reads those, so its answers and its errors are the only ones there are.

Rule: memory that somebody may write to is copied before the loop looks at it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from gzarr.backend import Array, Work
from gzarr.concurrency import Turns
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.shards import ReadShards
from gzarr.cpu.compiled.source import PLAIN_ARRAYS, Element, LoopChain, Source, swapped
from gzarr.cpu.scratch import lent_scratch
from gzarr.cpu.threads import spread
from gzarr.indexing.copies import CopyPlan
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Groups, Part
from gzarr.indexing.selection import Indices
from gzarr.indexing.tables import Batches, table_of_parts
from gzarr.layout.sharded import Sharded
from gzarr.profiling.recorder import count_buffers, here, staged
from gzarr.storage.base import Buffer, Request, Store

#: Chunks of one batch at most, and decoded bytes: a signal waits until the batch is done.
MAX_NCHUNKS, MAX_NBYTES = 256, 1 << 22
#: Batches that each thread should get, so that one that is slow does not hold up the others; but no smaller ones than
#: these: a batch costs 30 us besides its chunks, and should take this long, in seconds.
BATCHES_PER_THREAD, _MIN_NCHUNKS, _MIN_NCHUNKS_OF_SHARD, _BATCH_S = 4, 8, 32, 200e-6
#: Decoded bytes that take long beside that, so that a few large chunks are shared by threads; of shards, whose indexes
#: are looked up for every batch.
_LARGE_NBYTES, _LARGE_NBYTES_OF_SHARD = 1 << 18, 1 << 20
#: A batch of a store that has work to do for every call.
STORE_NCHUNKS, STORE_NBYTES = 64, 1 << 20
#: Fewer chunks in memory are no faster by the loop if they are small: it takes 15 us besides decoding.
_FEW_NCHUNKS, _SMALL_NBYTES = 8, 1 << 18
#: A batch that takes so many seconds tells how long its chunks take, however few they are.
_TELLING_S = 100e-6
#: Small chunks are fetched by one thread while another decodes: a store that does not wait for a server needs the
#: interpreter, whose lock two threads would pass to and fro (100 entries of a zip file take 0.8 of the time). One that
#: does wait, perhaps for threads that read other arrays, keeps no others from fetching.
_fetching = Turns(1, 0.02)


@dataclass(slots=True, eq=False)
class LoopRead:
    """A read that the loop can do.

    Attributes
    ----------
    source : Source
        Where the chunks are, and what they are.
    tables : Batches
        What is read.
    work : Work
        How much there is to do.
    blocks : tuple of Array
        The result, or the blocks of a `CopyPlan`: they must live as long as their addresses are used.
    n_threads : int
        How many threads will share the work.
    job, places, fill
        Arguments of the loop that are the same for all batches.
    shards : ReadShards or None
        The shards, if chunks are in shards.
    """

    source: Source
    tables: Batches
    work: Work
    blocks: tuple[Array, ...]
    n_threads: int
    job: bytes
    places: Indices | None
    fill: bytes
    shards: ReadShards | None
    stage = "loop"

    @property
    def batches(self) -> Iterator[int]:
        """The numbers of the batches."""
        return spread(self.tables.n, self.n_threads)

    def read(self, number: int) -> Groups:
        """Read a batch into the result, all but the parts that are returned. Raises: StoreError."""
        table = self.tables.table(number)
        if not table.nchunks:
            return []
        source, shards = self.source, self.shards
        if shards is not None:
            found = shards.find(number, table)
            items = [shard.stored for shard in found.shards] if source.in_memory else None
            sources = found.columns(None if source.in_memory else source.file)
            shards.give_up(number, table, found, self._call(table, sources, items))
            return []
        ranges = None if source.ranges is None else source.ranges.rows(table.coords).columns(str)
        status = self._call(table, ranges, self._items(table) if source.in_memory else None)
        if not any(status):
            return []
        parts = self.tables.parts(number, table, [chunk for chunk, left in enumerate(status) if left])
        return [(part.coords, [part]) for part in parts]

    def _items(self, table: Any) -> Sequence[Buffer | None]:
        """What the store has of the chunks of a table. Raises: StoreError."""
        store, fetch = self.source.store, partial(fetch_items, self.source.store, self.source.layout.keys(table.coords))
        small = store.concurrency == 1 and self.source.chain.nbytes < _SMALL_NBYTES
        return _fetching.call(fetch) if small else fetch()

    def retry(self) -> Iterator[tuple[Coords, list[Part]]] | None:
        """All parts of the shards that were given up; None if none was."""
        return None if self.shards is None else self.shards.retry()

    def _call(self, table: Any, sources: tuple[Any, ...] | None, items: Sequence[Any] | None) -> bytes | bytearray:
        """Let the loop read a table.

        sources: where chunks are in shards. items: the chunks, or the shards, if they are in memory.
        Returns: for every chunk whether it was left.
        """
        source = self.source
        path = os.fsencode(source.prefix + source.keys.prefix)
        arguments = self.job, (*table.columns, self.places), sources, items, path, self.fill
        started = perf_counter()
        status, taken, placed = _call_loop(source.chain, table.nchunks, arguments)
        seconds = perf_counter() - started
        if table.nchunks >= _MIN_NCHUNKS or seconds >= _TELLING_S:
            source.chunk_time.note(seconds, table.nchunks)
        if doing := here():
            doing.count(status.count(0), taken, placed)
        return status


def fetch_items(store: Store, keys: Iterable[str]) -> Sequence[Buffer | None]:
    """What a store has of some chunks or shards. Raises: StoreError."""
    return staged("read", store.get_many, list(map(Request, keys)), count=count_buffers)


def make_read(
    source: Source, plan: Any, batches: Batches, into: tuple[tuple[Array, ...], Element], n_threads: int
) -> LoopRead:
    """Prepare a read for the loop.

    Parameters
    ----------
    source : Source
        Where the chunks are, and what they are.
    plan : Plan
        What is read.
    batches : Batches
        The same in batches, of `batch_size` chunks.
    into : tuple
        The result, of the plan's shape, or the blocks of a `CopyPlan`; and what is taken of every element.
    n_threads : int
        How many threads will share the work.
    """
    (blocks, element), chain, places, rows = into, source.chain, None, 0
    if isinstance(plan, CopyPlan):
        rows = plan.rows
        places = np.array([(address_of(block), block.strides[0]) for block in blocks], np.int64)
    first = blocks[0][0] if rows else blocks[0]
    nparts, swap = batches.nchunks, swapped(chain.dtype, chain.chunk.dtype) or 0
    shards, store = None, source.store
    if isinstance(source.layout, Sharded):
        shards = ReadShards(store, source.layout, batches, partial(fetch_items, store) if source.in_memory else None)
    nbytes = plan.nelements * first.itemsize if rows else first.nbytes
    part_nbytes, each = nbytes // nparts, -(-nparts // batches.n)
    return LoopRead(
        source=source,
        tables=batches,
        work=Work(nparts, part_nbytes, each, unlocked=True, chunk_s=source.chunk_time.chunk_s),
        blocks=blocks,
        n_threads=n_threads,
        job=chain.job(swap, source.keys.separator, first, batches.npoints, element.numbers, rows),
        fill=element.fill,
        places=places,
        shards=shards,
    )


def address_of(block: Array) -> int:
    """Where an array begins. Its interface takes six times as long as its buffer, which not every data type has."""
    try:
        return addressof(c_char.from_buffer(block))
    except (TypeError, ValueError, BufferError):
        return int(block.__array_interface__["data"][0])


def batch_size(source: Source, nparts: int, n_threads: int) -> int:
    """Number of chunks that a batch of a read should have. nparts: of the plan."""
    nbytes = source.chain.nbytes
    smallest = min(_MIN_NCHUNKS, -(-_LARGE_NBYTES // nbytes))
    if isinstance(source.layout, Sharded) or source.ranges is not None:
        smallest = min(_MIN_NCHUNKS_OF_SHARD, -(-_LARGE_NBYTES_OF_SHARD // nbytes))
    if source.chunk_time.chunk_s:
        smallest = max(int(_BATCH_S / source.chunk_time.chunk_s), smallest)
    share = max(-(-nparts // (n_threads * BATCHES_PER_THREAD)), smallest)
    size = max(min(MAX_NCHUNKS, MAX_NBYTES // nbytes, share), 1)
    if source.in_memory:  # shared by the threads, if the parts are not few
        size = max(size, min(STORE_NBYTES // nbytes, STORE_NCHUNKS, max(-(-nparts // n_threads), STORE_NCHUNKS // 2)))
    return size


def are_few(chunk_nbytes: int, nchunks: int) -> bool:
    """Whether so many chunks in memory are decoded as fast one by one."""
    return nchunks < _FEW_NCHUNKS and chunk_nbytes < _SMALL_NBYTES


def place_buffers(chain: LoopChain, buffers: Sequence[Any], parts: Sequence[Part], out: Array) -> Sequence[int]:
    """Decode chunks that the reference path has loaded, and copy their parts into the result.

    Returns: numbers of the parts that are left to the reference path.
    """
    is_known = type(out) in PLAIN_ARRAYS and out.dtype == chain.chunk.dtype and out.ndim == len(chain.lengths)
    swap = swapped(chain.dtype, chain.chunk.dtype)
    table = table_of_parts(parts) if is_known and swap is not None else None
    if table is None or swap is None:
        return range(len(parts))
    arguments = chain.job(swap, "/", out), (*table.columns, None), None, buffers, b"", chain.fill
    status, *_ = _call_loop(chain, len(parts), arguments)
    return [number for number, left in enumerate(status) if left]


def _call_loop(chain: LoopChain, n: int, arguments: tuple[Any, ...]) -> tuple[bytes | bytearray, int, int]:
    """Call the loop for so many chunks. Returns: for every chunk whether it was left, bytes read, bytes placed."""
    status, loop = bytearray(n), library.loop()
    if loop is not None:  # it may have been switched off meanwhile
        with lent_scratch() as scratch:
            try:
                _, taken, placed = loop.read(*arguments, scratch.room(chain.max_encoded + chain.nbytes), status)
            except (TypeError, BufferError):  # a buffer that lies apart in memory
                pass
            else:
                return status, taken, placed
    return b"\1" * n, 0, 0
