"""Brings encoded chunks into one slab of memory by the compiled loop (`loop/fetch.c`), without an object for each.

Theory of operation. The parts of a read are those of `Boxes`, shard by shard. A wave is a table of *runs*: a shard's
number, its first part and how many. The loop opens every file once, reads of it what is wanted and answers in columns.
The index of a shard is read and verified with its chunks, from one descriptor, so both are of one version, and nothing
is cached. What is odd in any way is left to the reference path, which finds out what is wrong.

Rules: a wave with several runs of one shard, runs that several threads read, and waves that share a shard may see
several versions of it. Whoever cuts a shard compares its tokens (`token_of`) before the first and after the last.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import Pool, run_in_threads
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.source import MAX_EXTENT, MAX_NDIM
from gzarr.cpu.compiled.tables import Windows
from gzarr.cpu.threads import spread
from gzarr.indexing.grid import RegularAxis, chunk_shape
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.shard import Level
from gzarr.layout.sharded import Sharded
from gzarr.storage.base import Store, host_view

#: Instead of a size: there is no such chunk; the reference path must look at it.
MISSING, LEFT = -1, -2
#: Chunks begin at multiples of this many bytes, plus a phase; as many are spare behind the last one.
ALIGNMENT = 16
#: Runs, int64 (m, 3): number of the shard in the product of the windows, first part of its window, number of parts.
Runs: TypeAlias = NDArray[np.int64]

#: Larger indexes are cached, which the reference path does.
_MAX_INDEX_NBYTES = 16 << 20
#: Indexes from this size on are not read for fewer than one of so many chunks.
_LARGE_INDEX_NBYTES, _MIN_SHARE = 1 << 16, 64
#: Decoded bytes of a shard that one thread reads: it copies as much in some milliseconds.
_UNCUT_NBYTES = 1 << 24
_ANY = 1 << 62
#: Pieces for every thread, so that one that is slow does not hold up the others; chunks of the smallest.
_PIECES_PER_THREAD, _MIN_PIECE = 4, 16

_READ, _LOCATE, _SPANS = 0, 1, 2
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


class Fetched(NamedTuple):
    """Encoded chunks, a row for each part in the order of the runs.

    Attributes
    ----------
    offsets : Indices
        int64 (n,), where each begins in the slab (`locate`: in its file); -1 if it is not there.
    sizes : Indices
        int64 (n,), its bytes, `MISSING` or `LEFT`. A chunk with a size and no offset has no room in the slab.
    spans : NDArray[np.int32]
        int32 (n, ndim), the row of its part's span on every axis.
    used : int
        Bytes of the slab in use, with the spare ones behind the last chunk.
    """

    offsets: Indices
    sizes: Indices
    spans: NDArray[np.int32]
    used: int


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
    shard = _shard_of(layout) if isinstance(layout, Sharded) else (0, 0, 0, 0, (0,) * ndim, (0,) * ndim)
    if isinstance(shard, str):
        return shard
    n_entries, index_nbytes, checksum, at_start, counts, steps = shard
    head = ndim, ord(names.keys.separator), n_entries, checksum, at_start
    places = struct.pack(f"{5 + 2 * ndim}q", *head, *counts, *steps)
    return Fetch(prefix + names.keys.prefix, places, n_entries, index_nbytes)


def fetch(
    source: Fetch,
    windows: Windows,
    runs: Runs,
    slab: NDArray[np.uint8],
    phase: int = 0,
    n_threads: int = 1,
    uncut: int = _ANY,
) -> Fetched:
    """Read the chunks of some runs into a slab.

    Parameters
    ----------
    source : Fetch
        How they are found.
    windows : Windows
        The windows that the runs are in.
    runs : Runs
        The runs, each with at least one part.
    slab : NDArray[np.uint8]
        uint8, from an address that is a multiple of `ALIGNMENT`. An empty one asks for sizes alone.
    phase : int
        What remains of the places of chunks, divided by `ALIGNMENT`.
    n_threads : int
        How many threads read, at most.
    uncut : int
        Most chunks of a run of a shard that one thread has to read, so that they are of one version.

    Returns
    -------
    Fetched
        What became of every chunk.
    """
    return _fetched(source, windows, runs, (slab, phase, _READ), (n_threads, uncut))


def longest_uncut(chunk_nbytes: int) -> int:
    """Most chunks of a shard that one thread should read. chunk_nbytes: of a decoded chunk."""
    return max(_UNCUT_NBYTES // max(chunk_nbytes, 1), 1)


def locate(source: Fetch, windows: Windows, runs: Runs, n_threads: int = 1) -> Fetched:
    """Find the chunks of some runs in their files (`Windows.coords`, `Windows.shards`), without reading them.

    Files are closed when this returns: they may be replaced before somebody reads them.
    """
    return _fetched(source, windows, runs, (np.empty(0, np.uint8), 0, _LOCATE), (n_threads, _ANY))


def spans_of(windows: Windows, runs: Runs) -> NDArray[np.int32]:
    """The spans of the parts of some runs, as in `Fetched`, wherever the chunks are stored."""
    ndim = len(windows.chunks)
    places = struct.pack(f"{5 + 2 * ndim}q", ndim, *(0,) * (4 + 2 * ndim))
    empty = np.empty(0, np.int64)
    answer = Fetched(empty, empty, np.empty((int(runs[:, 2].sum()), ndim), np.int32), 0)
    _call((b"", places), windows, (np.empty(0, np.uint8), 0, _SPANS), answer, np.zeros(1, np.int64), (0, runs))
    return answer.spans


def measure(buffers: Sequence[Any]) -> Indices:
    """The sizes of what a store returned, in bytes, `MISSING` for None: int64 (n,)."""
    loop = library.loop()
    if loop is None:
        sizes = [MISSING if buffer is None else host_view(buffer).nbytes for buffer in buffers]
        return np.array(sizes, np.int64)
    found = np.empty(len(buffers), np.int64)
    loop.copy(buffers, bytearray(), np.full(len(buffers), -1, np.int64), found)
    return found


def copy(buffers: Sequence[Any], slab: NDArray[np.uint8], offsets: Indices) -> None:
    """Copy what a store returned into a slab, without the interpreter's lock.

    Negative offsets and None are left out.
    """
    loop = library.loop()
    if loop is not None:
        loop.copy(buffers, slab, offsets, np.empty(len(buffers), np.int64))
        return
    target = host_view(slab)
    for buffer, start in zip(buffers, offsets.tolist(), strict=True):
        if buffer is not None and start >= 0:
            view = host_view(buffer)
            target[start : start + view.nbytes] = view


def _fetched(
    source: Fetch, windows: Windows, runs: Runs, into: tuple[NDArray[np.uint8], int, int], threads: tuple[int, int]
) -> Fetched:
    """into: slab, phase and mode. threads: how many, and the longest run of a shard that is not cut."""
    n_threads, uncut = threads
    n, ndim = int(runs[:, 2].sum()), len(windows.chunks)
    cursor = np.zeros(1, np.int64)
    answer = Fetched(np.empty(n, np.int64), np.empty(n, np.int64), np.empty((n, ndim), np.int32), 0)
    pieces = _pieces(runs, n, n_threads, uncut if source.n_entries else 0)
    where = os.fsencode(source.prefix), source.places
    if len(pieces) < 2 or n_threads < 2:
        _call(where, windows, into, answer, cursor, (0, runs))
    else:
        picked = map(pieces.__getitem__, spread(len(pieces), n_threads))
        run_in_threads(lambda piece: _call(where, windows, into, answer, cursor, piece), picked, n_threads, _pool)
    used = int(cursor[0])
    return answer._replace(used=used + ALIGNMENT if used else 0)


def _call(
    where: tuple[bytes, bytes],
    windows: Windows,
    into: tuple[NDArray[np.uint8], int, int],
    answer: Fetched,
    cursor: Indices,
    piece: tuple[int, Runs],
) -> None:
    """Let the loop do some runs. where: prefix and places. piece: number of the first part, and the runs."""
    first, runs = piece
    offsets, sizes, spans, _ = answer
    prefix, places = where
    table = np.ascontiguousarray(runs, np.int64)
    library.extension().fetch(
        places,
        windows.axes,
        windows.column,
        windows.table,
        table,
        windows.numbers,
        prefix,
        *into,
        offsets,
        sizes,
        spans,
        cursor,
        first,
    )


def _pieces(runs: Runs, n: int, n_threads: int, uncut: int) -> list[tuple[int, Runs]]:
    """Cut runs into pieces for threads: the first part of each, and its runs. uncut: the longest run left whole."""
    size = max(-(-n // (n_threads * _PIECES_PER_THREAD)), _MIN_PIECE)
    if n_threads < 2 or n <= size:
        return [(0, runs)]
    ends = np.cumsum(runs[:, 2])
    cuts = np.arange(size, n, size)
    within = np.searchsorted(ends, cuts)
    cuts = np.unique(np.where(runs[within, 2] <= uncut, ends[within], cuts))
    cuts = cuts[cuts < n]
    return list(_cut(runs, ends, [0, *cuts.tolist(), n]))


def _cut(runs: Runs, ends: Indices, cuts: list[int]) -> Iterator[tuple[int, Runs]]:
    for first, last in pairwise(cuts):
        begin, end = np.searchsorted(ends, [first + 1, last]).tolist()
        some = runs[begin : end + 1].copy()
        before = first - (int(ends[begin]) - int(some[0, 2]))
        some[-1, 2] -= int(ends[end]) - last
        some[0, 1:] += before, -before
        yield first, some


def _shard_of(layout: Sharded) -> tuple[int, int, int, int, Sequence[int], Sequence[int]] | str:
    """Entries and bytes of the index, whether it has a checksum and comes first, chunks and steps of every axis."""
    if not layout.is_flat:
        return "shards are nested, or codecs are around them"
    if not all(isinstance(axis, RegularAxis) for axis in (*layout.grid, *layout.objects)):
        return "shards differ in shape"
    first = (0,) * len(layout.grid)
    level = layout.levels(chunk_shape(layout.objects, first))[0]
    if level.index_nbytes > _MAX_INDEX_NBYTES:
        return f"the indexes of shards are larger than {_MAX_INDEX_NBYTES >> 20} MiB"
    checksum = checksum_of(level)
    if checksum is None:
        return "the indexes of shards are encoded in a way that the loop does not know"
    steps = layout.blank_index(first)[1].steps
    return prod(level.counts), level.index_nbytes, checksum, level.location == "start", level.counts, steps


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
