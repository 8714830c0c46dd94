"""Cuts a normalized selection along a chunk grid: which elements of which chunks go where in the result.

Theory of operation. For a `Box` every axis is cut on its own into spans, and the parts are their product, made one at a
time: a plan's memory is the sum of the axes, not the product. For `Points` the points are sorted by chunk once, and
each part is a run of the sorted order. `Plan.groups` gathers parts by the stored object (the shard) that holds their
chunks. Tables are made of `BoxPlan.axes`, whose spans may be columns, and of `PointPlan.coords`.

Source: the partition idea is TensorStore's "grid partition": strided axes separate, index arrays form joint sets.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, islice, pairwise, product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.grid import Axis, Grid, RegularAxis, chunk_shape
from gzarr.indexing.selection import MAX_INDEX_ARRAYS, Box, Indices, Points, Range, Selection
from gzarr.indexing.spans import ColumnSpans, RangeSpans, Span, chunks_of, cut_axis, sort_by_chunk, span_of

Coords: TypeAlias = tuple[int, ...]

#: Up to here the coordinates of a point's chunk are sorted as one number.
_MAX_JOINT_KEY = 2**63 - 1


class Part(NamedTuple):
    """The elements that a selection takes from one chunk.

    Attributes
    ----------
    coords : Coords
        Coordinates of the chunk.
    inside : object
        Index into the chunk: an item for every axis, or a mask for points of more axes than NumPy has index arrays for.
    out : object
        Index into the result (as a box, or the flat list of points).
    full : bool
        Whether every element of the chunk that is within the array is taken.
    """

    coords: Coords
    inside: Any
    out: Any
    full: bool


#: Stored objects, by their coordinates in the grid of objects, with the parts wanted of each.
Groups: TypeAlias = list[tuple[Coords, list[Part]]]


class Owned(NamedTuple):
    """Chunks in order, of which those of one stored object stand together: whose they are.

    Attributes
    ----------
    owners : Indices
        (k, ndim): coordinates of the objects.
    bounds : Indices
        (k + 1,): the first chunk of each, and how many chunks there are.
    """

    owners: Indices
    bounds: Indices

    def group(self, parts: Iterator[Part]) -> Iterator[tuple[Coords, list[Part]]]:
        """Parts of all chunks by object."""
        owners, counts = self.owners.tolist(), np.diff(self.bounds).tolist()
        return ((tuple(owner), list(islice(parts, n))) for owner, n in zip(owners, counts, strict=True))

    def told(self, table: Any, first: int, last: int) -> Any:
        """A table of some of the chunks with its `CopyTable.owners`, `bounds` and `cut`."""
        low, high = np.searchsorted(self.bounds, [first, last - 1], side="right").tolist()
        bounds = self.bounds[low - 1 : high + 1]
        cut = bool(bounds[0] < first), bool(bounds[-1] > last)
        return table._replace(owners=self.owners[low - 1 : high], bounds=bounds.clip(first, last) - first, cut=cut)


def find_owned(coords: Indices, grid: Grid, objects: Grid) -> Owned:
    """Find out whose chunks are. coords: (m, ndim), of the chunks. objects: the grid of stored objects."""
    owners = owners_of(coords, grid, objects)
    is_first = np.ones(len(owners), np.bool_)
    is_first[1:] = (owners[1:] != owners[:-1]).any(axis=1)
    firsts = np.flatnonzero(is_first)
    return Owned(owners[firsts], np.append(firsts, len(owners)))


def owners_of(coords: Indices, grid: Grid, objects: Grid) -> Indices:
    """Coordinates (m, ndim) of the stored objects that hold some chunks."""
    if objects is grid:
        return coords
    axes = zip(grid, objects, coords.T, strict=True)
    return np.stack([owner.locate_all(axis.starts_of(at)) for axis, owner, at in axes], axis=1)


class PointTable(NamedTuple):
    """Points sorted by the chunks that hold them: the second kind of table. A row stands for one chunk. All int64.

    Attributes
    ----------
    coords : Indices
        (m, ndim): coordinates of the chunks.
    starts : Indices
        (m + 1,): where the points of each chunk begin, and where the last end.
    places : Indices or None
        (number of points,): of all sorted points their bytes in their chunks, if the loop has sorted them.
    order : Indices
        (number of points,): where they are in the result.
    owners, bounds, cut
        As in `gzarr.indexing.tables.CopyTable`.
    """

    coords: Indices
    starts: Indices
    places: Indices | None
    order: Indices
    owners: Indices | None = None
    bounds: Indices | None = None
    cut: tuple[bool, bool] = (False, False)

    @property
    def nchunks(self) -> int:
        """Number of chunks."""
        return len(self.coords)

    @property
    def full(self) -> NDArray[np.bool_]:
        """None of the chunks: points are laid over what is there."""
        return np.zeros(self.nchunks, np.bool_)

    @property
    def columns(self) -> tuple[Indices | None, ...]:
        """The columns that the compiled loop is given."""
        return self[:4]


class BoxPlan(NamedTuple):
    """The plan of a separable selection.

    Attributes
    ----------
    axes : tuple[Sequence[Span], ...]
        For every array axis its spans: `ColumnSpans`, if they are many, else a tuple.
    shape : tuple[int, ...]
        Shape of the result with one axis per array axis.
    grid : Grid
        The chunk grid that it was cut along.
    """

    axes: tuple[Sequence[Span], ...]
    shape: tuple[int, ...]
    grid: Grid

    @property
    def nparts(self) -> int:
        """Number of chunks touched."""
        return math.prod(map(len, self.axes))

    def parts(self) -> Iterator[Part]:
        """Every part, in C order of the chunks."""
        return _parts(self.axes)

    def groups(self, objects: Grid) -> Iterator[tuple[Coords, list[Part]]]:
        """Parts by stored object: (its coordinates in the grid of objects, the parts)."""
        if objects is self.grid:
            if {*map(len, self.axes)} == {1}:
                part = _only_part(self.axes)
                return iter(((part.coords, [part]),))
            return ((part.coords, [part]) for part in _parts(self.axes))
        grouped = [_by_object(*axis) for axis in zip(self.axes, self.grid, objects, strict=True)]
        return ((tuple(g[0] for g in combo), list(_parts(tuple(g[1] for g in combo)))) for combo in product(*grouped))

    def windows(self, objects: Grid) -> list[Indices]:
        """For every axis, which spans are in one stored object: (n, 3), its coordinate, first span, number of spans."""
        return [_windows(*axis) for axis in zip(self.axes, self.grid, objects, strict=True)]


class PointPlan(NamedTuple):
    """The plan of a joint selection. The result is the flat list of points.

    Attributes
    ----------
    coords : tuple[Indices, ...]
        For every array axis the coordinate of every point.
    shape : tuple[int, ...]
        (number of points,).
    grid : Grid
        The chunk grid that they are in.
    """

    coords: tuple[Indices, ...]
    shape: tuple[int, ...]
    grid: Grid

    @property
    def nparts(self) -> int:
        """Number of chunks touched, at most."""
        return self.shape[0]

    def parts(self) -> Iterator[Part]:
        """Every part, in C order of the chunks."""
        for _, parts in self.groups(self.grid):
            yield from parts

    def groups(self, objects: Grid) -> Iterator[tuple[Coords, list[Part]]]:
        """Parts by stored object: (its coordinates in the grid of objects, the parts)."""
        table = self._sorted(objects)
        return find_owned(table.coords, self.grid, objects).group(self.parts_of(table))

    def parts_of(self, table: PointTable) -> Iterator[Part]:
        """The chunks of a table as parts."""
        order = table.order[slice(*table.starts[[0, -1]].tolist())]
        which, ends = np.arange(table.nchunks).repeat(np.diff(table.starts)), (table.starts - table.starts[0]).tolist()
        axes = zip(self.grid, self.coords, table.coords.T, strict=True)
        insides = [points[order] - axis.starts_of(chunks)[which] for axis, points, chunks in axes]
        may_be_single = all(not isinstance(axis, RegularAxis) or axis.length == 1 for axis in self.grid)
        for coords, (first, last) in zip(map(tuple, table.coords.tolist()), pairwise(ends), strict=True):
            inside: Any = tuple([column[first:last] for column in insides])
            if len(inside) > MAX_INDEX_ARRAYS:
                inside = _as_mask(inside, chunk_shape(self.grid, coords))
            single = may_be_single and {*chunk_shape(self.grid, coords)} <= {1}
            yield Part(coords, inside, order[first:last], single)

    def _sorted(self, objects: Grid) -> PointTable:
        """The points by chunk; the chunks of one object stand together."""
        chunks = [axis.locate_all(c) for axis, c in zip(self.grid, self.coords, strict=True)]
        keys = chunks
        if objects is not self.grid:
            keys = [*[axis.locate_all(c) for axis, c in zip(objects, self.coords, strict=True)], *chunks]
        order, starts = _sort_by(keys, self.shape[0])
        firsts = order[starts]
        coords = np.array([chunk[firsts] for chunk in chunks], np.int64).reshape(len(chunks), firsts.size).T
        return PointTable(coords, np.append(starts, order.size), None, order)


SelectionPlan: TypeAlias = BoxPlan | PointPlan


def make_plan(selection: Selection, grid: Grid) -> SelectionPlan:
    """Cut a selection, whose indices are within the grid's extents, along the grid."""
    if isinstance(selection, Points):
        return PointPlan(selection.coords, (int(np.prod(selection.shape, dtype=np.int64)),), grid)
    # Lists, not generators: this runs for every element access.
    axes = [cut_axis(wanted, axis) for wanted, axis in zip(selection.axes, grid, strict=True)]
    return BoxPlan(tuple(axes), tuple([a.size for a in selection.axes]), grid)


def box_between(lows: Sequence[int], highs: Sequence[int]) -> Box:
    """The box of all elements with ``lows <= index < highs``."""
    counts = tuple(max(high - low, 0) for low, high in zip(lows, highs, strict=True))
    return Box(tuple(Range(low, 1, n) for low, n in zip(lows, counts, strict=True)), counts, None)


def _as_mask(inside: tuple[Indices, ...], shape: Coords) -> NDArray[np.bool_]:
    """Distinct points of a chunk, in C order, as a mask."""
    mask = np.zeros(shape, np.bool_)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    mask.reshape(-1)[sum(i * n for i, n in zip(inside, strides, strict=True))] = True
    return mask


def _parts(axes: tuple[Sequence[Span], ...]) -> Iterator[Part]:
    if not axes:
        yield Part((), (), (), full=True)
        return
    if {*map(len, axes)} == {1}:
        yield _only_part(axes)
        return
    axes = tuple(map(tuple, axes))
    # Column by column, as the interpreter's own loops: a part costs a microsecond.
    chunks, insides, outs, fulls = ([[span[i] for span in spans] for spans in axes] for i in range(4))
    make: Any = Part
    several: tuple[Iterator[Any], Iterator[Any]] = product(*insides), product(*outs)
    if any(type(index) is not slice for columns in (insides, outs) for column in columns for index in column):
        several = map(joint_index, several[0]), map(joint_index, several[1])
    yield from map(make, product(*chunks), *several, map(all, product(*fulls)))


def _only_part(axes: tuple[Sequence[Span], ...]) -> Part:
    """The part of a box that touches a single chunk."""
    if not axes:
        return Part((), (), (), full=True)
    coords, inside, out, full = zip(*[spans[0] for spans in axes], strict=True)
    if {*map(type, inside + out)} != {slice}:
        inside, out = joint_index(inside), joint_index(out)
    return Part(coords, inside, out, all(full))


def part_of_rows(rows: Sequence[list[int]], lists: Indices) -> Part:
    """The part that is made of a span of each axis, given as rows of numbers with index lists."""
    return _only_part(tuple([(span_of(row, lists),) for row in rows]))


def joint_index(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """An index that NumPy takes axis by axis: several index arrays beside each other would be paired up as points."""
    n_lists = 0
    for i in index:
        n_lists += type(i) is not slice
    if n_lists < 2:
        return index
    return np.ix_(*[np.arange(i.start, i.stop, i.step) if isinstance(i, slice) else i for i in index])


def _windows(spans: Sequence[Span], chunks: Axis, objects: Axis) -> Indices:
    """Which spans are in one stored object: (n, 3), its coordinate, first span, number of spans."""
    if not isinstance(spans, ColumnSpans):  # so few that NumPy would take longer
        groups = groupby(objects.locate(chunks.bounds(span.chunk)[0]) for span in spans)
        counts = [(owner, len(list(members))) for owner, members in groups]
        ends = accumulate(n for _, n in counts)
        return np.array([(owner, end - n, n) for (owner, n), end in zip(counts, ends, strict=True)], np.int64)
    if isinstance(spans, RangeSpans) and type(objects) is RegularAxis:  # which may be too many to look at each
        first, last = spans[0].chunk, spans[-1].chunk
        low, high = (objects.locate(chunks.bounds(chunk)[0]) for chunk in (first, last))
        owners = np.arange(low, high + 1)
        firsts = np.maximum(chunks.locate_all(objects.starts_of(owners)) - first, 0)
    else:
        owners = objects.locate_all(chunks.starts_of(chunks_of(spans)))
        firsts = np.concatenate([[0], np.flatnonzero(owners[1:] != owners[:-1]) + 1])
        owners = owners[firsts]
    windows = np.empty((len(firsts), 3), np.int64)
    windows[:, 0], windows[:, 1] = owners, firsts
    windows[:-1, 2], windows[-1, 2] = firsts[1:] - firsts[:-1], len(spans) - firsts[-1]
    return windows


def _by_object(spans: Sequence[Span], chunks: Axis, objects: Axis) -> list[tuple[int, tuple[Span, ...]]]:
    """The spans of every stored object: (its coordinate, the spans)."""
    made = tuple(spans)
    return [(owner, made[at : at + n]) for owner, at, n in _windows(spans, chunks, objects).tolist()]


def _sort_by(keys: list[Indices], n: int) -> tuple[Indices, Indices]:
    """Stable order that sorts n points by their keys, which are not negative, and where each distinct key begins."""
    if not keys or not n:
        return np.arange(n), np.arange(min(n, 1))
    extents = [int(key.max()) + 1 for key in keys]
    if math.prod(extents) > _MAX_JOINT_KEY:
        order = np.lexsort(keys[::-1])
        changed = np.zeros(order.size - 1, bool)
        for key in keys:
            in_order = key[order]
            changed |= in_order[1:] != in_order[:-1]
    else:
        joint = np.zeros(keys[0].size, np.int64)
        for key, extent in zip(keys, extents, strict=True):
            joint = joint * extent + key
        # NumPy sorts integers of 16 bits by radix, ten times faster than longer ones.
        order, firsts = sort_by_chunk(joint, math.prod(extents))
        return order, firsts[:-1]
    return order, np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changed) + 1])
