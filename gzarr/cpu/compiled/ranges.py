"""Chunks that are ranges of files, as the compiled loop is told of them: as those of shards, whose index is known.

Theory of operation. A table (`gzarr.storage.tables`) says in which file each chunk is, and where. Chunks of a batch
that follow each other in one file are an object of the loop, which opens the file, compares its version with the one
that the table is of, before and after, and reads the ranges. What is in no local file is left to the store.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from operator import mul
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.compiled.shards import ABSENT, CHECKED, LEFT, Shard, ShardRows
from gzarr.indexing.selection import Indices
from gzarr.storage.base import Store
from gzarr.storage.local_files import FIXED, WRITTEN, FileVersion
from gzarr.storage.tables import INLINE, ChunkTable, Tables
from gzarr.storage.tables import MISSING as NO_OBJECT

#: Files whose versions are kept at hand.
_N_KEPT = 1024


class FileRanges:
    """The chunks of one array in files.

    Parameters
    ----------
    tables : Tables
        Says which files those are.
    table : ChunkTable
        Where the chunks are.
    """

    def __init__(self, tables: Tables, table: ChunkTable) -> None:
        self._file = lru_cache(_N_KEPT)(lambda number: _file(tables, number))
        self._counts, self._steps = table.counts, table.steps
        self._objects, self._places = table.objects, table.places
        if table.padded_nbytes:
            self._pad(table.padded_nbytes)
        odd = self._objects < 0
        if odd.any() and (self._places[odd] != self._objects[odd, None]).any():
            self._places = np.where(odd[:, None], self._objects[:, None], self._places)  # outside of every file
        first = int(self._objects[int(np.argmin(odd))]) if odd.size else INLINE
        #: The only object, from which the loop may read any chunks in one call; None if there are several.
        self._only = first if first >= 0 and ((self._objects == first) | odd).all() else None
        whole = (self._places[:, 1] < 0) & ~odd
        if self._only is not None and whole.any():
            self._places = np.where(whole[:, None], (0, self._file(self._only).token.nbytes), self._places)

    def _pad(self, nbytes: int) -> None:
        """Let short chunks have so many bytes: what follows in the file stands for elements that nobody sees."""
        self._objects, self._places = self._objects.copy(), self._places.copy()
        for row in np.flatnonzero((self._places[:, 1] < nbytes) & (self._objects >= 0)).tolist():
            fits = self._places[row, 0] + nbytes <= self._file(int(self._objects[row])).token.nbytes
            if fits:
                self._places[row, 1] = nbytes
            else:
                self._objects[row] = INLINE

    def find(self, coords: Indices) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The objects and places of chunks, (n,) and (n, 2); `NO_OBJECT`, or `INLINE` for what the store has to read.

        coords: (n, ndim).
        """
        rows = coords @ self._steps
        objects, places = self._objects[rows], self._places[rows]
        for row in np.flatnonzero((places[:, 1] < 0) & (objects >= 0)).tolist():
            places[row] = 0, self._file(int(objects[row])).token.nbytes
        return objects, places

    def rows(self, coords: Indices) -> ShardRows:
        """Chunks as those of shards, whose keys are paths: chunks that follow each other in a file are of one."""
        objects, places = self.find(coords)
        missing = objects == NO_OBJECT
        if missing.any():  # they stand in the object before them
            objects = objects[np.maximum.accumulate(np.where(missing, 0, np.arange(missing.size)))]
        firsts = np.flatnonzero(np.append(True, objects[1:] != objects[:-1]))
        files = [self._file(number).shard() for number in objects[firsts].tolist()]
        return ShardRows(places.view(np.uint64), np.append(firsts, objects.size), files)

    def shard(self) -> tuple[tuple[int, ...], tuple[Callable[[tuple[int, ...]], tuple[object, ...] | None], Indices]]:
        """The array as `Basic` sees shards: one with all chunks, if they are in one object; else each chunk is one.

        Returns: chunks of a shard; what finds its index, its version and its path, and the entries between chunks.
        """
        steps = self._steps.tolist()

        def find(coords: tuple[int, ...]) -> tuple[object, ...] | None:
            number, places = self._only, self._places
            if number is None:
                row = sum(map(mul, coords, steps))
                number, places = int(self._objects[row]), places[row : row + 1]
                if number >= 0 and places[0, 1] < 0:
                    places = self.find(np.array([coords]))[1]
            path, state, token = self._file(number)
            return (places, _current(token).packed(), os.fsencode(path)) if state == CHECKED else None

        counts = self._counts if self._only is not None else (1,) * len(self._counts)
        return counts, (find, self._steps)


def make_ranges(store: Store, path: str) -> FileRanges | None:
    """The chunks of an array, if they are ranges of files on this machine. Raises: StoreError, CopyError."""
    tables = store.tables
    table = None if tables is None else tables.table(path)
    if tables is None or table is None or store.concurrency > 1:
        return None
    there = table.objects[table.objects >= 0]
    return FileRanges(tables, table) if not there.size or tables.file(int(there[0])) is not None else None


class _File(NamedTuple):
    """A file with chunks: its path, what compiled code may do with it, and the version that is read."""

    path: str
    state: int
    token: FileVersion = FileVersion(0, 0, 0, 0, 0)

    def shard(self) -> Shard:
        """The file as a shard."""
        return Shard(self.path, _current(self.token) if self.state == CHECKED else None, self.state)


def _current(token: FileVersion) -> FileVersion:
    """A version as compiled code compares it: what this process has written to other files does not count."""
    return token if token is FIXED else token._replace(number=int(WRITTEN[token.inode % len(WRITTEN)]))


def _file(tables: Tables, number: int) -> _File:
    if number == NO_OBJECT:
        return _File("", ABSENT)
    found = None if number == INLINE else tables.file(number)
    if found is None or not isinstance(found[1], FileVersion) or "\0" in found[0]:
        return _File("", LEFT)
    return _File(found[0], CHECKED, found[1])


def replaced(found: ShardRows) -> NDArray[np.bool_]:
    """Which chunks are in files that are no longer as they were when they were looked up."""
    changed = [
        isinstance(shard.token, FileVersion) and shard.token is not FIXED and _version(shard.key) != shard.token[:4]
        for shard in found.shards
    ]
    return np.repeat(changed, np.diff(found.bounds))


def _version(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path)  # noqa: PTH116 - pathlib costs more than the system call itself
    except OSError:
        return ()
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
