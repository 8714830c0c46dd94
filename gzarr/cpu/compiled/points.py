"""Points as tables of numbers for the compiled loop (`loop/points.c`), which sorts them (`loop/sort.c`)."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.source import MIN_IN_BLOCKS
from gzarr.cpu.threads import share, thread_count
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.plan import Owned, Part, PointPlan, PointTable, find_owned
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import Layout

#: Points of large chunks are sorted by pieces of so many bytes (GRANULE), too.
_GRANULE_NBYTES = 1 << 15
#: The loop sorts by numbers of 62 bits, and divides numbers of 50 bits.
_MAX_KEYS, _MAX_EXTENT, _MAX_POINTS = 1 << 62, 1 << 50, 1 << 32
#: Each thread sorts so many points, at least: they take 100 us, and a thread some 30 to wake. It takes blocks of them,
#: so that one that is slow does not hold up the others.
_MIN_SORTED, _BLOCKS_PER_THREAD = 1 << 13, 2


class PointBatches:
    """The batches of a list of points, which the loop sorts (`make_point_batches`).

    Attributes
    ----------
    n, cuts, nobjects
        As in `gzarr.indexing.tables.Batches`.
    nchunks
        Number of chunks that hold points.
    npoints
        Number of points.
    """

    cuts = 1

    def __init__(self, plan: PointPlan, layout: Layout, points: PointTable, size: int, *, whole: bool) -> None:
        self._plan, self._points = plan, points
        self.nchunks, self.npoints = points.nchunks, plan.shape[0]
        self._firsts = np.append(np.arange(0, self.nchunks, size), self.nchunks)
        self._owned: Owned | None = None
        self.nobjects = 0
        if layout.objects is not layout.grid:
            self._owned = find_owned(points.coords, layout.grid, layout.objects)
            self.nobjects = len(self._owned.owners)
            if whole:
                self._firsts = self._owned.bounds
        self.n = len(self._firsts) - 1

    def table(self, number: int) -> PointTable:
        """Return a batch by its number."""
        first, last = self._firsts[number : number + 2].tolist()
        points = self._points
        table = points._replace(coords=points.coords[first:last], starts=points.starts[first : last + 1])
        return table if self._owned is None else self._owned.told(table, first, last)

    def parts(self, number: int, table: PointTable, chunks: Iterable[int]) -> list[Part]:
        """Return some chunks of a batch as parts."""
        wanted = list(chunks)
        parts = list(self._plan.parts_of(table)) if wanted else []
        return [parts[chunk] for chunk in wanted]


def make_point_batches(
    plan: PointPlan, layout: Layout, chunk: tuple[Sequence[int], int], start: int, size: int, *, whole: bool = False
) -> PointBatches | None:
    """Sort a list of points by the chunks that hold them; None if the loop cannot.

    chunk: the strides of a chunk, in bytes or whatever places are wanted in, and its bytes. start: byte of an element
    from which on it is wanted. size, whole: as in `gzarr.indexing.tables.BoxBatches`.
    """
    strides, nbytes = chunk
    granule_bits = (nbytes // _GRANULE_NBYTES).bit_length() if nbytes >= MIN_IN_BLOCKS else 0
    axes = _sorting_axes(plan, layout, strides, granule_bits)
    if axes is None:
        return None
    n = plan.shape[0]
    order, places = np.empty((2, n), np.int64)
    starts, rows = np.empty(n + 1, np.int64), np.empty((n, len(axes)), np.int64)
    coords = tuple([np.ascontiguousarray(column) for column in plan.coords])
    loop, n_threads = library.extension(), max(min(thread_count(), n // _MIN_SORTED), 1)
    n_blocks = 1 if n_threads == 1 else n_threads * _BLOCKS_PER_THREAD
    sort = loop.begin_sort(axes, n, n_blocks, granule_bits, start)
    found: list[int] = []
    share(lambda _: found.append(loop.sort_points(sort, coords, order, places, starts, rows)), range(n_threads))
    points = PointTable(rows[: found[0]], starts[: found[0] + 1], places, order)
    return PointBatches(plan, layout, points, size, whole=whole)


def _sorting_axes(plan: PointPlan, layout: Layout, strides: Sequence[int], granule_bits: int) -> Indices | None:
    """Of every axis extent, lengths of shards and chunks, a chunk's stride; None if the loop cannot sort."""
    axes: list[Any] = []
    for chunks, objects, stride in zip(layout.grid, layout.objects, strides, strict=True):
        if not isinstance(chunks, RegularAxis) or not isinstance(objects, RegularAxis) or chunks.extent > _MAX_EXTENT:
            return None
        axes.append((chunks.extent, objects.length, chunks.length, stride))
    n_keys = prod(-(-extent // shard) * (shard // chunk) for extent, shard, chunk, _ in axes)
    if n_keys << granule_bits > _MAX_KEYS or plan.shape[0] >= _MAX_POINTS:
        return None
    return np.array(axes)
