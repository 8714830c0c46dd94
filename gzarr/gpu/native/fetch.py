"""Brings encoded chunks into one buffer of memory, and from memory into files, by compiled code, all at once.

Theory of operation. What is wanted are the chunks of a table: files, by the coordinates of chunks, or ranges of shards,
whose places the layout has found (`gzarr.cpu.compiled.shards`). Every file is opened once, by each thread that reads of
it. What is odd in any way is left to the reference path, which finds out what is wrong. Files and shards
are replaced as by `gzarr.cpu.compiled.write`, each under its lock, which is not waited for.

Rules: whoever stores chunks holds the locks that the store asks for, and has the reference path do what is left; the
memory at the addresses of chunks must live until `Put.put` returns.
"""

import os
import struct
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import Pool, run_in_threads
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.basic import checksum_of
from gzarr.cpu.compiled.ranges import FileRanges, make_ranges
from gzarr.cpu.compiled.shards import ShardRows
from gzarr.cpu.compiled.source import MAX_EXTENT, MAX_NDIM
from gzarr.cpu.threads import spread
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import Layout, Names
from gzarr.layout.sharded import Sharded
from gzarr.storage.base import Store, Target

#: Instead of a size: there is no such chunk; the reference path must look at it.
MISSING, LEFT = -1, -2
#: Chunks begin at multiples of this many bytes, plus a phase; as many are spare behind the last one.
ALIGNMENT = 16

#: Pieces for every thread, so that one that is slow does not hold up the others; chunks of the smallest.
_PIECES_PER_THREAD, _MIN_PIECE = 4, 16

_pool = Pool()


class Fetch(NamedTuple):
    """How the encoded chunks of an array are found in local files.

    Attributes
    ----------
    prefix : str
        Beginning of the paths of its files.
    names : Names
        How the keys of its objects are made.
    ranges : FileRanges or None
        Where the chunks are, if they are ranges of files of another format.
    """

    prefix: str
    names: Names
    ranges: FileRanges | None = None

    @property
    def chunks(self) -> bytes:
        """Beginning of the paths of chunks that are files."""
        return os.fsencode(self.prefix + self.names.keys.prefix)

    def file(self, key: str) -> str:
        """Path of the file of a stored object; of a range, its key is the path."""
        if self.ranges is not None:
            return key
        path = self.names.path
        return self.prefix + (key[len(path) + 1 :] if path else key)


class Wanted(NamedTuple):
    """The chunks of a table.

    Attributes
    ----------
    coords : Indices
        int64 (n, ndim).
    shards : ShardRows or None
        Where they are in shards; None if chunks are files.
    """

    coords: Indices
    shards: ShardRows | None = None

    def keys(self, source: Fetch) -> list[str]:
        """Keys of the objects with the chunks."""
        if self.shards is not None:
            return [shard.key for shard in self.shards.shards]
        key = source.names.keys.under(source.names.path, self.coords.shape[1])
        return list(map(key, map(tuple, self.coords.tolist())))


class Fetched(NamedTuple):
    """Encoded chunks.

    Attributes
    ----------
    offsets : Indices
        int64 (n,), where each begins in the buffer; -1 if it is not there.
    sizes : Indices
        int64 (n,), its bytes, `MISSING` or `LEFT`. A chunk with a size and no offset has no room in the buffer.
    """

    offsets: Indices
    sizes: Indices


def make_fetch(store: Store, layout: Layout) -> Fetch | str:
    """Find out how chunks are found in local files, or why the loop cannot do that."""
    names, files = layout.names, store.files
    if (problem := library.problem()) is not None:
        return problem
    ranges = make_ranges(store, names.path) if layout.objects is layout.grid else None
    prefix = "" if ranges is not None else None if files is None else files.prefix(names.path)
    if prefix is None or "\0" in prefix:
        return f"the store does not expose local files{'' if files else ': it has no files'}"
    if not 0 < len(layout.grid) <= MAX_NDIM:
        return f"the loop supports 1 to {MAX_NDIM} dimensions"
    if any(axis.extent > MAX_EXTENT for axis in layout.grid):
        return "an axis is too long"
    if isinstance(layout, Sharded) and layout.is_wrapped:
        return "codecs are around shards"
    return Fetch(prefix, names, ranges)


def fetch(
    source: Fetch, wanted: Wanted, buffer: NDArray[np.uint8], phase: int = 0, n_threads: int = 1, uncut: int = 1 << 62
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
        Most chunks of a shard that one thread reads, so that a file is opened once.

    Returns
    -------
    Fetched
        What became of every chunk.
    """
    coords, shards = wanted
    n, ndim = coords.shape
    cursor, prefix, separator = np.zeros(1, np.int64), source.chunks, ord(source.names.keys.separator)
    answer = Fetched(np.empty(n, np.int64), np.empty(n, np.int64))

    def read(piece: tuple[int, int]) -> None:
        some = slice(*piece)
        sources = None if shards is None else shards.cut(*piece).columns(source.file)
        room = buffer, phase, (answer.offsets[some], answer.sizes[some]), cursor
        library.extension().fetch(ndim, separator, coords[some], prefix, sources, *room)

    size = max(-(-n // (n_threads * _PIECES_PER_THREAD)), _MIN_PIECE)
    if n_threads < 2 or n <= size:
        read((0, n))
        return answer
    pieces = list(pairwise(_cuts(n, size, shards, uncut)))
    run_in_threads(read, map(pieces.__getitem__, spread(len(pieces), n_threads)), n_threads, _pool)
    return answer


def _cuts(n: int, size: int, shards: ShardRows | None, uncut: int) -> list[int]:
    """Where chunks are cut into pieces of about a size for threads. uncut: as of `fetch`."""
    if shards is None:
        return [*range(0, n, size), n]
    bounds = shards.bounds.tolist()
    within = [at for low, high in pairwise(bounds) if high - low > uncut for at in range(low, high, size)]
    allowed = np.unique([*bounds, *within])
    cuts: list[int] = np.unique(allowed[np.searchsorted(allowed, [*range(0, n, size), n])]).tolist()
    return cuts


#: Status of a file or shard: stored (0), left to the reference path, or deleted.
NOT_WRITTEN, EMPTY = 1, 2

#: Larger indexes are made by the reference path.
_MAX_INDEX_NBYTES = 16 << 20


class Put(NamedTuple):
    """How the encoded chunks of an array are stored as local files.

    Attributes
    ----------
    places : bytes
        The loop's struct Places.
    target : Target
        How files may be replaced.
    path : bytes
        Beginning of the paths of files.
    """

    places: bytes
    target: Target
    path: bytes

    def put(self, coords: Indices, addresses: Indices, sizes: Indices) -> NDArray[np.uint8]:
        """Store files or whole shards.

        Parameters
        ----------
        coords : Indices
            int64 (n, ndim), coordinates of the files or shards.
        addresses, sizes : Indices
            int64 (n,) or (n, chunks of a shard, in the order of its index), of encoded chunks in memory; -1 for none.

        Returns
        -------
        NDArray[np.uint8]
            The status of each file or shard.
        """
        status = bytearray(len(coords))
        target = self.target
        temporary = os.fsencode(target.temporary)
        where = np.ascontiguousarray(coords, np.int64), addresses, sizes
        library.extension().put(self.places, self.path, temporary, *where, target.number(), status)
        return np.frombuffer(status, np.uint8)


def make_put(store: Store, layout: Layout) -> Put | str:
    """Find out how chunks are stored as local files, or why the loop cannot do that."""
    fetch, names, files = make_fetch(store, layout), layout.names, store.files
    if isinstance(fetch, str):
        return fetch
    target = None if files is None else files.target(names.path)
    if target is None:
        return "only the store may replace its files"
    shard = _shard_of(layout) if isinstance(layout, Sharded) else (0, 0, 0)
    if isinstance(shard, str):
        return shard
    places = struct.pack("5q", len(layout.grid), ord(names.keys.separator), *shard)
    return Put(places, target, os.fsencode(target.prefix + names.keys.prefix))


def _shard_of(layout: Sharded) -> tuple[int, int, int] | str:
    """Entries of the index of shards, whether it has a checksum, and comes first; or why the loop does not make it."""
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
    return prod(level.counts), checksum, level.location == "start"
