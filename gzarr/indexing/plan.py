"""Cuts a normalized selection along a chunk grid: which elements of which chunks go where in the result.

Theory of operation. For a `Box` every axis is cut on its own into spans, and the parts are their product, made one at a
time: a plan's memory is the sum of the axes, not the product. For `Points` the points are sorted by chunk once, and
each part is a run of the sorted order. `Plan.groups` gathers parts by the stored object (the shard) that holds their
chunks. Backends that want tables read `BoxPlan.axes`, whose spans may be columns, and `PointPlan.table`.

Source: the partition idea is TensorStore's "grid partition": strided axes separate, index arrays form joint sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.grid import Axis, Grid, RegularAxis, chunk_shape
from gzarr.indexing.selection import MAX_INDEX_ARRAYS, Box, Indices, Points, Range, Selection
from gzarr.indexing.spans import ColumnSpans, RangeSpans, Span, chunks_of, cut_axis, span_of

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


class PointTable(NamedTuple):
    """Points sorted by the chunks that hold them. A row stands for one chunk.

    Attributes
    ----------
    rows : list of Coords
        Coordinates of every chunk.
    owners : list of Coords
        Coordinates of the stored object that holds it.
    starts : list of int
        Where the points of every chunk begin, and where the last end.
    inside : list of Indices
        For every axis the positions of the sorted points, relative to their chunks.
    order : Indices
        Where the sorted points are in the result.
    contiguous : bool
        Whether they are sorted in the result, too.
    may_be_single : bool
        Whether some chunks may have a single element.
    """

    rows: list[Coords]
    owners: list[Coords]
    starts: list[int]
    inside: list[Indices]
    order: Indices
    contiguous: bool
    may_be_single: bool


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
        if not self.shape[0]:
            return
        table = self.table(objects)
        current, batch = table.owners[0], list[Part]()
        for row, owner in enumerate(table.owners):
            if owner != current:
                yield current, batch
                current, batch = owner, []
            batch.append(self.part(table, row))
        yield current, batch

    def part(self, table: PointTable, row: int) -> Part:
        """The part of one chunk of the plan's table."""
        coords, run = table.rows[row], slice(table.starts[row], table.starts[row + 1])
        single = table.may_be_single and all(n == 1 for n in chunk_shape(self.grid, coords))
        out = run if table.contiguous else table.order[run]
        inside: Any = tuple(a[run] for a in table.inside)
        if len(inside) > MAX_INDEX_ARRAYS:
            inside = _as_mask(inside, chunk_shape(self.grid, coords))
        return Part(coords, inside, out, single)

    def table(self, objects: Grid) -> PointTable:
        """The points, of which there must be some, by chunk; the chunks of one object stand together."""
        chunks = [axis.locate_all(c) for axis, c in zip(self.grid, self.coords, strict=True)]
        owners = chunks
        if objects is not self.grid:
            owners = [axis.locate_all(c) for axis, c in zip(objects, self.coords, strict=True)]
        order, starts = _sort_by(chunks if owners is chunks else [*owners, *chunks])
        firsts = order[starts]
        rows = _rows(chunks, firsts)
        owner_rows = rows if owners is chunks else _rows(owners, firsts)
        axes = zip(self.grid, self.coords, chunks, strict=True)
        inside = [(coords - axis.starts_of(chunk))[order] for axis, coords, chunk in axes]
        contiguous = bool(np.all(order[1:] > order[:-1]))
        may_be_single = all(not isinstance(axis, RegularAxis) or axis.length == 1 for axis in self.grid)
        return PointTable(rows, owner_rows, [*starts.tolist(), order.size], inside, order, contiguous, may_be_single)


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
    if isinstance(spans, ColumnSpans):
        made = tuple(spans)
        return [(owner, made[at : at + n]) for owner, at, n in _windows(spans, chunks, objects).tolist()]
    groups: dict[int, list[Span]] = {}
    for span in spans:
        groups.setdefault(objects.locate(chunks.bounds(span.chunk)[0]), []).append(span)
    return [(owner, tuple(members)) for owner, members in groups.items()]


def _rows(columns: list[Indices], picked: Indices) -> list[Coords]:
    """Coordinates of some points, as one tuple each."""
    if not columns:
        return [()] * picked.size
    return list(zip(*[column[picked].tolist() for column in columns], strict=True))


def _sort_by(keys: list[Indices]) -> tuple[Indices, Indices]:
    """Stable order that sorts points by their keys, which are not negative, and where each distinct key begins."""
    if not keys:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
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
        narrow = joint.astype(np.uint16) if math.prod(extents) <= 1 << 16 else joint
        order = np.argsort(narrow, kind="stable")
        in_order = joint[order]
        changed = in_order[1:] != in_order[:-1]
    return order, np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changed) + 1])
