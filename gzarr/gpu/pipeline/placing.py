"""Makes tables for the placement kernels: which elements of which chunk go where in the result.

The parts of a wave share the spans of their axes, so tables are small: one row for each span of an axis, and one row
number for each part and axis. The rows of a whole plan are made once (`box_columns`), every wave takes some of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, and_, mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels import prefix_sums
from gzarr.indexing.plan import BoxPlan, Part
from gzarr.indexing.spans import COUNT, IN_LIST, IN_START, IN_STEP, OUT_LIST, OUT_START, OUT_STEP, make_rows


@dataclass(frozen=True, slots=True, eq=False)
class BoxTables:
    """Tables of the parts of a separable selection.

    Attributes
    ----------
    spans : NDArray[np.int64]
        int64 (rows, 7): in_start, in_step, out_start, out_step, count, in_list, out_list; the lists are offsets
        into `pool`, or -1 for an arithmetic progression. The rows of an axis are contiguous.
    axis_base : NDArray[np.int64]
        int64 (ndim,), first row of each axis.
    part_span : NDArray[np.int32]
        int32 (parts, ndim), row within the axis.
    elem_start : NDArray[np.int64]
        int64 (parts + 1,), prefix sums of the parts' numbers of elements.
    pool : NDArray[np.int64]
        int64, the index lists.
    """

    spans: NDArray[np.int64]
    axis_base: NDArray[np.int64]
    part_span: NDArray[np.int32]
    elem_start: NDArray[np.int64]
    pool: NDArray[np.int64]

    @property
    def nparts(self) -> int:
        """Number of parts."""
        return len(self.part_span)

    def only(self, which: NDArray[np.intp]) -> BoxTables:
        """The tables with no elements in other parts than these."""
        counts = np.zeros(self.nparts, np.int64)
        counts[which] = np.diff(self.elem_start)[which]
        return replace(self, elem_start=prefix_sums(counts))


class PartSpans(NamedTuple):
    """The spans of parts, int64 (axes, parts) each; the fields are those of `BoxTables.spans`."""

    in_start: NDArray[np.int64]
    in_step: NDArray[np.int64]
    out_start: NDArray[np.int64]
    out_step: NDArray[np.int64]
    counts: NDArray[np.int64]
    in_list: NDArray[np.int64]
    out_list: NDArray[np.int64]

    @property
    def listed(self) -> NDArray[np.bool_]:
        """Which parts have an index list."""
        return np.asarray(((self.in_list >= 0) | (self.out_list >= 0)).any(axis=0))


def spans_of_parts(tables: BoxTables, order: Sequence[int]) -> PartSpans:
    """The spans of every part. order: of the axes."""
    return PartSpans(*tables.spans.T[:, (tables.axis_base + tables.part_span).T[list(order)]])


@dataclass(frozen=True, slots=True, eq=False)
class PointTables:
    """Tables of the parts of a list of points.

    Attributes
    ----------
    nparts : int
        Number of parts.
    part : NDArray[np.int32]
        int32, the part that each point belongs to.
    element : Table
        int64, index of the element within the chunk's memory.
    position : Table
        int64, index of the point in the result.
    """

    nparts: int
    part: NDArray[np.int32]
    element: Table
    position: Table


@dataclass(frozen=True, slots=True, eq=False)
class BoxColumns:
    """The spans of a box plan as tables, for all its waves.

    Attributes
    ----------
    axes : tuple[NDArray[np.int64], ...]
        int64 (spans, 7) for every axis, as `BoxTables.spans`.
    pool : NDArray[np.int64]
        int64, the index lists.
    """

    axes: tuple[NDArray[np.int64], ...]
    pool: NDArray[np.int64]

    def tables(self, part_span: NDArray[np.int32]) -> BoxTables:
        """Make the tables of a wave of at least one part. part_span: int32 (parts, ndim), its span on every axis."""
        lows, highs = part_span.min(axis=0), part_span.max(axis=0) + 1
        rows = [axis[low:high] for axis, low, high in zip(self.axes, lows.tolist(), highs.tolist(), strict=True)]
        part_span = part_span - lows
        elem_start = np.zeros(len(part_span) + 1, np.int64)
        counts = [axis[:, 4][span] for axis, span in zip(rows, part_span.T, strict=True)]
        np.cumsum(reduce(mul, counts), out=elem_start[1:])
        base = np.concatenate([np.zeros(1, np.int64), (highs - lows).cumsum()[:-1]])
        spans, pool = _with_lists(np.concatenate(rows), self.pool)
        return BoxTables(spans, base, part_span, elem_start, pool)


class Targets(NamedTuple):
    """Where in the result the chunks of a plan are that are wanted there as their decoded bytes are.

    Attributes
    ----------
    address : int
        Of the result.
    whole : tuple[NDArray[np.bool_], ...]
        bool (spans,) for every axis, whether the span is all of a chunk, in its order.
    offsets : tuple[Table, ...]
        int64 (spans,) for every axis, bytes from the beginning of the result.
    """

    address: int
    whole: tuple[NDArray[np.bool_], ...]
    offsets: tuple[Table, ...]

    def of(self, part_span: NDArray[np.int32]) -> Table:
        """The addresses of parts; 0 for a part that is something else than a contiguous chunk.

        part_span: as in `BoxColumns.tables`.
        """
        columns = list(zip(self.whole, self.offsets, part_span.T, strict=True))
        at: Table = self.address + reduce(add, (offsets[span] for _, offsets, span in columns))
        at[~reduce(and_, (whole[span] for whole, _, span in columns))] = 0
        return at


def find_targets(
    columns: BoxColumns, chunk: tuple[Sequence[int], Sequence[int]], out: tuple[int, Sequence[int]]
) -> Targets | None:
    """Where in the result chunks are contiguous; None if none is.

    chunk: its shape, and its strides in bytes. out: address and strides of the result.
    """
    address, strides = out
    whole = []
    for axis, count, inside, outside in zip(columns.axes, *chunk, strides, strict=True):
        if count > 1 and inside != outside:
            return None
        in_order = (axis[:, 1] == 1) & (axis[:, 3] == 1) | (count == 1)
        whole.append((axis[:, 4] == count) & in_order & (axis[:, 5:] < 0).all(axis=1))
        if not whole[-1].any():
            return None
    offsets = (axis[:, 2] * stride for axis, stride in zip(columns.axes, strides, strict=True))
    return Targets(address, tuple(whole), tuple(offsets))


def is_box(part: Part) -> bool:
    """Whether a part belongs to a separable selection, not to a list of points, whose result is flat."""
    return isinstance(part.out, tuple)


def tables_of(parts: Sequence[Part], strides: Sequence[int]) -> BoxTables | PointTables:
    """Make the tables of a wave of at least one part. strides: of a decoded chunk, in elements, by array axis."""
    return box_tables(parts, len(strides)) if is_box(parts[0]) else point_tables(parts, strides)


def box_tables(parts: Sequence[Part], ndim: int) -> BoxTables:
    """Make the tables of a wave of at least one part."""
    rows: list[list[list[int]]] = [[] for _ in range(ndim)]
    seen: dict[tuple[int, int, int], int] = {}
    pool: list[NDArray[np.int64]] = []
    pool_size = 0
    part_span = np.zeros((len(parts), ndim), np.int32)
    counts = np.ones(len(parts), np.int64)
    for number, part in enumerate(parts):
        for axis in range(ndim):
            inside, out = part.inside[axis], part.out[axis]
            name = (axis, id(inside), id(out))
            row = seen.get(name)
            if row is None:
                row, lists = _span(inside, out, pool_size)
                pool += lists
                pool_size += sum(item.size for item in lists)
                rows[axis].append(row)
                seen[name] = row = len(rows[axis]) - 1
            part_span[number, axis] = row
            counts[number] *= rows[axis][row][4]
    base = np.cumsum([0, *(len(r) for r in rows)])[:ndim]
    table = np.array([row for axis_rows in rows for row in axis_rows], np.int64).reshape(-1, 7)
    flat = np.concatenate(pool) if pool else np.zeros(1, np.int64)
    return BoxTables(table, base.astype(np.int64), part_span, np.concatenate([[0], np.cumsum(counts)]), flat)


def box_columns(plan: BoxPlan) -> BoxColumns:
    """Make the tables of a plan of at least one axis."""
    pool: list[NDArray[np.int64]] = []
    pool_size = 0
    axes = []
    for spans in plan.axes:
        rows, lists = make_rows(spans)
        table = rows[:, [IN_START, IN_STEP, OUT_START, OUT_STEP, COUNT, IN_LIST, OUT_LIST]]
        table[:, 5:] += pool_size * (table[:, 5:] >= 0)
        axes.append(table)
        pool.append(lists)
        pool_size += lists.size
    return BoxColumns(tuple(axes), np.concatenate(pool) if pool_size else np.zeros(1, np.int64))


def _with_lists(spans: Table, pool: Table) -> tuple[Table, Table]:
    """The spans, with offsets into the lists that they name, and these lists."""
    lists = spans[:, 5:]
    named = lists >= 0
    if not named.any():
        return spans, pool[:1]
    low, high = int(lists[named].min()), int((lists + spans[:, 4:5])[named].max())
    spans = spans.copy()
    spans[:, 5:] -= low * named
    return spans, pool[low:high]


def _span(inside: Any, out: Any, pool_size: int) -> tuple[Any, list[NDArray[np.int64]]]:
    lists: list[NDArray[np.int64]] = []
    fields = []
    for item in (inside, out):
        if isinstance(item, slice):
            start, step = int(item.start), int(item.step or 1)
            fields.append((start, step, len(range(start, int(item.stop), step)), -1))
        else:
            flat = np.ascontiguousarray(item, np.int64).reshape(-1)
            fields.append((0, 0, flat.size, pool_size + sum(x.size for x in lists)))
            lists.append(flat)
    (in_start, in_step, count, in_list), (out_start, out_step, _, out_list) = fields
    return [in_start, in_step, out_start, out_step, count, in_list, out_list], lists


def point_tables(parts: Sequence[Part], strides: Sequence[int]) -> PointTables:
    """Make the tables of a wave. strides: of a decoded chunk, in elements, for every array axis."""
    element, position, owner = [], [], []
    for number, part in enumerate(parts):
        inside = part.inside if isinstance(part.inside, tuple) else np.nonzero(part.inside)  # a mask
        n = inside[0].size if inside else 1
        at = np.zeros(n, np.int64)
        for index, stride in zip(inside, strides, strict=True):
            at += index * stride
        element.append(at)
        out = part.out
        position.append(np.arange(out.start, out.stop) if isinstance(out, slice) else out.reshape(-1))
        owner.append(np.full(n, number, np.int32))
    return PointTables(
        len(parts), np.concatenate(owner), np.concatenate(element), np.concatenate(position).astype(np.int64)
    )
