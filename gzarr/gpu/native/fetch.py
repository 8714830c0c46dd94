"""Brings encoded chunks into one buffer of memory by compiled code (`fetch.c`), without an object for each.

Theory of operation. What is wanted are the chunks of a table, by their coordinates, and, of shards, which shard each is
in. Every file is opened once. The index of a shard is read and verified with its chunks, from one descriptor, so both
are of one version, and nothing is cached. What is odd in any way is left to the reference path, which finds out what is
wrong.

Rules: chunks of a shard that several threads read, or that are fetched by several calls, may be of several versions of
it. Whoever cuts a shard compares its tokens (`token_of`) before the first and after the last.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import Pool, run_in_threads
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.basic import checksum_of
from gzarr.cpu.compiled.source import MAX_EXTENT, MAX_NDIM
from gzarr.cpu.threads import spread
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.selection import Indices
from gzarr.indexing.tables import CopyTable
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.sharded import Sharded
from gzarr.storage.base import Store

#: Instead of a size: there is no such chunk; the reference path must look at it.
MISSING, LEFT = -1, -2
#: Chunks begin at multiples of this many bytes, plus a phase; as many are spare behind the last one.
ALIGNMENT = 16

#: Larger indexes are cached, which the reference path does.
_MAX_INDEX_NBYTES = 16 << 20
#: Indexes from this size on are not read for fewer than one of so many chunks.
_LARGE_INDEX_NBYTES, _MIN_SHARE = 1 << 16, 64
#: Decoded bytes of a shard that one thread reads: it copies as much in some milliseconds.
_UNCUT_NBYTES = 1 << 24
_ANY = 1 << 62
#: Pieces for every thread, so that one that is slow does not hold up the others; chunks of the smallest.
_PIECES_PER_THREAD, _MIN_PIECE = 4, 16

_READ, _LOCATE = 0, 1
_pool = Pool()


class Fetch(NamedTuple):
    """How the encoded chunks of an array are found in local files.

    Attributes
    ----------
    prefix : str
        Beginning of the paths of its files.
    places : bytes
        The loop's struct Places.
    n_entries, index_nbytes : int
        Chunks of a shard, and bytes of its index; 0 if chunks are files.
    """

    prefix: str
    places: bytes
    n_entries: int
    index_nbytes: int

    def path(self, coords: Sequence[int]) -> str:
        """Path of the file with a chunk, or with a shard, by its coordinates."""
        (separator,) = struct.unpack_from("q", self.places, 8)
        return self.prefix + chr(separator).join(map(str, coords))

    def obstacle(self, nparts: int, nshards: int) -> str | None:
        """Why the reference path should read so many chunks of so many shards; None if it need not."""
        if (off := library.obstacle()) is not None:
            return off
        if self.index_nbytes > _LARGE_INDEX_NBYTES and nparts * _MIN_SHARE < nshards * self.n_entries:
            return "the indexes of shards are large, few chunks are wanted, and the reference path caches indexes"
        return None


class Wanted(NamedTuple):
    """The chunks of a table.

    Attributes
    ----------
    coords : Indices
        int64 (n, ndim).
    owners, bounds : Indices
        As in `gzarr.indexing.tables.CopyTable`, of shards: a shard may stand there several times. Empty if chunks are
        files.
    """

    coords: Indices
    owners: Indices
    bounds: Indices

    def take(self, chunks: Indices) -> Wanted:
        """Some of the chunks, by their numbers in order."""
        coords = self.coords[chunks]
        if not self.owners.size:
            return Wanted(coords, self.owners, self.bounds)
        owners = self.owner_of(chunks)
        firsts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        return Wanted(coords, self.owners[owners[firsts]], np.append(firsts, chunks.size))

    def owner_of(self, chunks: Indices) -> Indices:
        """The numbers of the shards of some chunks."""
        return np.asarray(np.searchsorted(self.bounds, chunks, side="right") - 1)

    def cut(self, first: int, last: int, low: int, high: int) -> Wanted:
        """The chunks from ``first`` to ``last``, which are in shards ``low`` to ``high``."""
        return Wanted(self.coords[first:last], self.owners[low:high], self.bounds[low : high + 1] - first)


def wanted_of(table: CopyTable) -> Wanted:
    """What a table wants."""
    nothing = np.zeros((0, table.spans.shape[1]), np.int64)
    owners, bounds = (nothing, np.zeros(1, np.int64)) if table.owners is None else (table.owners, table.bounds)
    return Wanted(*map(np.ascontiguousarray, (table.coords, owners, bounds)))


class Fetched(NamedTuple):
    """Encoded chunks.

    Attributes
    ----------
    offsets : Indices
        int64 (n,), where each begins in the buffer (`locate`: in its file); -1 if it is not there.
    sizes : Indices
        int64 (n,), its bytes, `MISSING` or `LEFT`. A chunk with a size and no offset has no room in the buffer.
    """

    offsets: Indices
    sizes: Indices


def make_fetch(store: Store, layout: Layout) -> Fetch | str:
    """Find out how chunks are found in local files, or why the loop cannot do that."""
    ndim, names = len(layout.grid), layout.names
    if (problem := library.problem()) is not None:
        return problem
    files = store.files
    prefix = None if files is None else files.prefix(names.path)
    if prefix is None or "\0" in prefix:
        return f"the store does not expose local files{'' if files else ': it has no files'}"
    if not 0 < ndim <= MAX_NDIM:
        return f"the loop supports 1 to {MAX_NDIM} dimensions"
    if any(axis.extent > MAX_EXTENT for axis in layout.grid):
        return "an axis is too long"
    shard = _shard_of(layout) if isinstance(layout, Sharded) else (0, 0, 0, 0, (0,) * ndim, np.zeros(ndim, np.int64))
    if isinstance(shard, str):
        return shard
    n_entries, index_nbytes, checksum, at_start, counts, steps = shard
    head = ndim, ord(names.keys.separator), n_entries, checksum, at_start
    places = struct.pack(f"{5 + 2 * ndim}q", *head, *counts, *steps)
    return Fetch(prefix + names.keys.prefix, places, n_entries, index_nbytes)


def fetch(
    source: Fetch, wanted: Wanted, buffer: NDArray[np.uint8], phase: int = 0, n_threads: int = 1, uncut: int = _ANY
) -> Fetched:
    """Read chunks into a buffer.

    Parameters
    ----------
    source : Fetch
        How they are found.
    wanted : Wanted
        The chunks.
    buffer : NDArray[np.uint8]
        uint8, from an address that is a multiple of `ALIGNMENT`. An empty one asks for sizes alone.
    phase : int
        What remains of the places of chunks, divided by `ALIGNMENT`.
    n_threads : int
        How many threads read, at most.
    uncut : int
        Most chunks of a shard that one thread has to read, so that they are of one version.

    Returns
    -------
    Fetched
        What became of every chunk.
    """
    return _fetched(source, wanted, (buffer, phase, _READ), n_threads, uncut)


def longest_uncut(chunk_nbytes: int) -> int:
    """Most chunks of a shard that one thread should read. chunk_nbytes: of a decoded chunk."""
    return max(_UNCUT_NBYTES // max(chunk_nbytes, 1), 1)


def locate(source: Fetch, wanted: Wanted, n_threads: int = 1) -> Fetched:
    """Find chunks in their files, without reading them.

    Files are closed when this returns: they may be replaced before somebody reads them.
    """
    return _fetched(source, wanted, (np.empty(0, np.uint8), 0, _LOCATE), n_threads, _ANY)


def _fetched(
    source: Fetch, wanted: Wanted, into: tuple[NDArray[np.uint8], int, int], n_threads: int, uncut: int
) -> Fetched:
    """into: buffer, phase and what to do. uncut: as of `fetch`."""
    n = len(wanted.coords)
    cursor, prefix = np.zeros(1, np.int64), os.fsencode(source.prefix)
    answer = Fetched(np.empty(n, np.int64), np.empty(n, np.int64))

    def read(piece: tuple[int, int, Wanted]) -> None:
        first, last, some = piece
        offsets, sizes = answer.offsets[first:last], answer.sizes[first:last]
        library.extension().fetch(source.places, *some, prefix, *into, offsets, sizes, cursor)

    size = max(-(-n // (n_threads * _PIECES_PER_THREAD)), _MIN_PIECE)
    if n_threads < 2 or n <= size:
        read((0, n, wanted))
        return answer
    pieces = _pieces(wanted, n, size, uncut)
    run_in_threads(read, map(pieces.__getitem__, spread(len(pieces), n_threads)), n_threads, _pool)
    return answer


def _pieces(wanted: Wanted, n: int, size: int, uncut: int) -> list[tuple[int, int, Wanted]]:
    """Cut chunks into pieces of about a size for threads. uncut: shards of more chunks are cut, too."""
    if not wanted.owners.size:
        cuts = [*range(0, n, size), n]
        return [(first, last, wanted.cut(first, last, 0, 0)) for first, last in pairwise(cuts)]
    counts = np.diff(wanted.bounds)
    n_cuts = np.where(counts > uncut, -(-counts // size), 1)
    which = np.arange(counts.size).repeat(n_cuts)
    number = np.arange(which.size) - (n_cuts.cumsum() - n_cuts)[which]
    bounds = np.append(wanted.bounds[which] + number * size, n)
    wanted = Wanted(wanted.coords, wanted.owners[which], bounds)
    ends = np.unique(np.searchsorted(bounds, [*range(0, n, size), n])).tolist()
    starts = bounds.tolist()
    return [
        (starts[low], starts[high], wanted.cut(starts[low], starts[high], low, high)) for low, high in pairwise(ends)
    ]


def _shard_of(layout: Sharded) -> tuple[int, int, int, int, Sequence[int], Indices] | str:
    """Entries and bytes of the index, whether it has a checksum and comes first, chunks and steps of every axis."""
    if not layout.is_flat:
        return "shards are nested, or codecs are around them"
    if not all(isinstance(axis, RegularAxis) for axis in (*layout.grid, *layout.objects)):
        return "shards differ in shape"
    level = layout.level
    if level.index_nbytes > _MAX_INDEX_NBYTES:
        return f"the indexes of shards are larger than {_MAX_INDEX_NBYTES >> 20} MiB"
    checksum = checksum_of(level)
    if checksum is None:
        return "the indexes of shards are encoded in a way that the loop does not know"
    return prod(level.counts), level.index_nbytes, checksum, level.location == "start", level.counts, level.steps
