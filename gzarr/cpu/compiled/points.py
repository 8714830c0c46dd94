"""Points as tables of numbers for the compiled loop (`loop/points.c`), which sorts them (`loop/sort.c`)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.source import LoopChain
from gzarr.cpu.compiled.tables import Piece, Shards, Tables
from gzarr.cpu.threads import share, thread_count
from gzarr.cpu.window import MIN_NBYTES
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Part, PointPlan, PointTable
from gzarr.layout.chunk_layout import Layout

#: Points of large chunks are sorted by pieces of so many bytes (GRANULE), too.
_GRANULE_NBYTES = 1 << 15
#: The loop sorts by numbers of 62 bits, and divides numbers of 50 bits.
_MAX_KEYS, _MAX_EXTENT, _MAX_POINTS = 1 << 62, 1 << 50, 1 << 32
#: Each thread sorts so many points, at least: they take 100 us, and a thread some 30 to wake. It takes blocks of them,
#: so that one that is slow does not hold up the others.
_MIN_SORTED, _BLOCKS_PER_THREAD = 1 << 13, 2


class Rows:
    """The parts of a list of points: a row for every chunk.

    Attributes
    ----------
    nparts
        Number of parts.
    npoints
        Number of points.
    are_many
        False: one table serves all pieces.
    """

    are_many = False

    def __init__(self, plan: PointPlan, layout: Layout, axes: NDArray[np.int64], granule_bits: int, start: int) -> None:
        """Sort the points.

        axes: of every axis extent, lengths of shards and chunks, and bytes of a chunk's stride. start: in an element.
        """
        self._plan, self._layout, self.npoints = plan, layout, plan.shape[0]
        self._per_shard = axes[:, 1] // axes[:, 2]
        self._order, self._places = np.empty((2, self.npoints), np.int64)
        starts, rows = np.empty(self.npoints + 1, np.int64), np.empty((self.npoints, len(axes)), np.int64)
        coords = tuple([np.ascontiguousarray(column) for column in plan.coords])
        into = self._order, self._places, starts, rows
        loop, n_threads = library.extension(), max(min(thread_count(), self.npoints // _MIN_SORTED), 1)
        n_blocks = 1 if n_threads == 1 else n_threads * _BLOCKS_PER_THREAD
        sort = loop.begin_sort(axes, self.npoints, n_blocks, granule_bits, start)
        found: list[int] = []
        share(lambda _: found.append(loop.sort_points(sort, coords, *into)), range(n_threads))
        self.nparts = found[0]
        self._starts, self._rows = starts[: self.nparts + 1], rows[: self.nparts]
        self._table: PointTable | None = None

    def tables(self) -> Tables:
        """The loop's tables."""
        return self._rows, self._starts, self._places, self._order

    def are_full(self, piece: Piece) -> bool:
        """False: points are laid over what is there."""
        return False

    def coords(self, piece: Piece) -> Iterator[Coords]:
        """Coordinates of the chunks of a piece, in the order of its parts."""
        return map(tuple, self._rows[piece.first : piece.first + piece.n].tolist())

    def whole(self) -> Piece:
        """All parts, of chunks that are files."""
        return Piece(0, self.nparts, None, (), (0, self.nparts))

    def by_shard(self) -> Shards:
        """The parts of every shard, in the order of the table, and the number of shards."""
        owners = self._rows // self._per_shard
        firsts = np.flatnonzero(np.append(True, (owners[1:] != owners[:-1]).any(axis=1)))
        counts = np.diff(firsts, append=self.nparts).tolist()
        shards = zip(map(tuple, owners[firsts].tolist()), firsts.tolist(), counts, strict=True)
        return (Piece(at, n, shard, (), (at, n)) for shard, at, n in shards), len(counts)

    def places(self, piece: Piece) -> tuple[list[int], list[int]]:
        """Zeros: the loop finds rows by their numbers."""
        nothing = [0] * len(self._plan.grid)
        return nothing, nothing

    def keys(self, piece: Piece, prefix: str, separator: str) -> list[str]:
        """Keys of the chunks of a piece, in the order of its parts."""
        rows = self._rows[piece.first : piece.first + piece.n].tolist()
        return [prefix + separator.join(map(str, row)) for row in rows]

    def part(self, piece: Piece, number: int) -> Part:
        """One part, for the reference path, which sorts the chunks in the same way."""
        if self._table is None:
            self._table = self._plan.table(self._layout.objects)
        return self._plan.part(self._table, number)


def make_rows(plan: PointPlan, layout: Layout, chain: LoopChain, start: int = 0) -> Rows | None:
    """Return the parts of a list of points; None if the loop cannot sort them.

    start: byte of an element from which on it is wanted.
    """
    axes: list[Any] = []
    for chunks, objects, stride in zip(layout.grid, layout.objects, chain.strides, strict=True):
        if not isinstance(chunks, RegularAxis) or not isinstance(objects, RegularAxis) or chunks.extent > _MAX_EXTENT:
            return None
        axes.append((chunks.extent, objects.length, chunks.length, stride))
    granule_bits = (chain.nbytes // _GRANULE_NBYTES).bit_length() if chain.nbytes >= MIN_NBYTES else 0
    n_keys = prod(-(-extent // shard) * (shard // chunk) for extent, shard, chunk, _ in axes)
    if n_keys << granule_bits > _MAX_KEYS or plan.shape[0] >= _MAX_POINTS:
        return None
    return Rows(plan, layout, np.array(axes), granule_bits, start)
