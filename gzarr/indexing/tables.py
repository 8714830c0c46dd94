"""What is copied, as tables of numbers: a batch of chunks and all copies that are made of them.

Theory of operation. Every read and write of many chunks, of whatever selection, is cut into batches of a bounded number
of chunks (`Batches`), and each batch is one `CopyTable`, made when it is its turn. A plan is therefore as small as its
axes, and an executor (the compiled loop, a device) sees tables only. The chunks of one stored object stand together.
What an executor leaves becomes `Part`s again, one for a chunk, for the reference path.

Rules: batches may be made in any order, by several threads, and again.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.grid import Grid
from gzarr.indexing.plan import BoxPlan, Part, part_of_rows
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import (
    CHUNK,
    FULL,
    IN_LIST,
    N_COLUMNS,
    OUT_LIST,
    IndexLists,
    RangeSpans,
    Span,
    make_rows,
    pack_span,
)

#: Rows of more spans of an axis (72 bytes each) are made anew for each batch.
_MAX_KEPT_SPANS = 1 << 14
#: Tables of no more chunks (72 bytes for each axis) are made once, and cut into batches.
_MAX_KEPT_CHUNKS = 1 << 10


class CopyTable(NamedTuple):
    """A batch of chunks, and the boxes that are copied of them. All numbers are int64.

    Attributes
    ----------
    spans : Indices
        (f, ndim, 9): what each copy takes of every axis, in the columns of `gzarr.indexing.spans` (`CHUNK` to `FULL`).
    lists : Indices
        The index lists that spans name.
    firsts : Indices or None
        (m + 1,): where the copies of each chunk begin, and where the last end; None for one copy of each.
    slots : Indices or None
        (f,): the slot that each copy goes to: row ``slot % rows`` of block ``slot // rows``. None for the only one.
    owners : Indices or None
        (k, ndim): coordinates of the stored objects that hold the chunks; None if chunks are objects.
    bounds : Indices or None
        (k + 1,): the number of the first chunk of each object, and how many chunks there are.
    cut : tuple[bool, bool]
        Whether the first, and the last object have chunks in other batches, too.
    """

    spans: Indices
    lists: Indices
    firsts: Indices | None = None
    slots: Indices | None = None
    owners: Indices | None = None
    bounds: Indices | None = None
    cut: tuple[bool, bool] = (False, False)

    @property
    def nchunks(self) -> int:
        """Number of chunks."""
        return len(self.spans) if self.firsts is None else len(self.firsts) - 1

    @property
    def full(self) -> NDArray[np.bool_]:
        """Which chunks are taken whole, as far as they are within the array; of a box."""
        return np.asarray(self.spans[:, :, FULL].all(axis=1))

    @property
    def columns(self) -> tuple[Indices | None, ...]:
        """The columns that the compiled loop is given."""
        return self.spans, self.lists, self.firsts, self.slots

    @property
    def coords(self) -> Indices:
        """Coordinates of the chunks, (m, ndim)."""
        spans = self.spans if self.firsts is None else self.spans[self.firsts[:-1]]
        return spans[:, :, CHUNK]


class Batches(Protocol):
    """A plan as tables.

    Attributes
    ----------
    n : int
        Number of batches. Some may have no chunks.
    cuts : int
        How many batches, one after the other, make a stored object; 1 if objects are not cut.
    nobjects : int
        Number of stored objects; 0 if chunks are objects.
    nchunks : int
        Number of chunks.
    npoints : int
        Number of points; -1 for boxes.
    """

    n: int
    cuts: int
    nobjects: int
    nchunks: int
    npoints: int

    def table(self, number: int) -> Any:
        """Return a batch by its number."""
        ...

    def parts(self, number: int, table: Any, chunks: Iterable[int]) -> list[Part]:
        """Return some chunks of a batch as the reference path has them. chunks: their numbers in the table."""
        ...


class BoxBatches:
    """The batches of a separable selection: chunks in C order, those of one object together.

    Parameters
    ----------
    plan : BoxPlan
        The plan, of at least one axis and one chunk.
    objects : Grid
        The grid of stored objects.
    size : int
        Most chunks of a batch.
    whole : bool
        Whether a batch has no chunks of more than one object.
    """

    npoints = -1

    def __init__(self, plan: BoxPlan, objects: Grid, size: int, *, whole: bool = False) -> None:
        self._axes, self._size, self._run = _Axes(plan.axes), size, size
        self._shape, self._windows = tuple(map(len, plan.axes)), list[Indices]()
        self.nobjects, self.cuts, self.nchunks = 0, 1, plan.nparts
        self.n = -(-self.nchunks // size)
        if objects is not plan.grid:
            self._windows = plan.windows(objects)
            self._shape = tuple(map(len, self._windows))
            self.nobjects = prod(self._shape)
            largest = prod([int(windows[:, 2].max()) for windows in self._windows])
            self.cuts = -(-largest // size)
            self._run = 1 if whole else max(size // largest, 1)
            self.n = -(-self.nobjects // self._run) * self.cuts
        is_kept = self.nchunks <= _MAX_KEPT_CHUNKS and self.cuts == 1
        self._kept = self._make(0, prod(self._shape)) if is_kept else None

    def table(self, number: int) -> CopyTable:
        """Return a batch by its number."""
        number, cut = divmod(number, self.cuts)
        first, last = number * self._run, min((number + 1) * self._run, prod(self._shape))
        if self.cuts > 1:
            return self._part_of_object(first, cut)
        kept = self._kept
        if kept is None:
            return self._make(first, last)
        if kept.bounds is None or kept.owners is None:
            return CopyTable(kept.spans[first:last], kept.lists)
        bounds = kept.bounds[first : last + 1]
        spans = kept.spans[bounds[0] : bounds[-1]]
        return CopyTable(spans, kept.lists, None, None, kept.owners[first:last], bounds - bounds[0])

    def _make(self, first: int, last: int) -> CopyTable:
        """The table of some objects, or of chunks that are objects."""
        at = np.unravel_index(np.arange(first, last), self._shape)
        if not self._windows:
            return CopyTable(*self._axes.rows(at))
        windows = [axis[rows] for axis, rows in zip(self._windows, at, strict=True)]
        counts = reduce(np.multiply, [axis[:, 2] for axis in windows])
        bounds = np.zeros(len(counts) + 1, np.int64)
        counts.cumsum(out=bounds[1:])
        which = np.arange(len(counts)).repeat(counts)
        numbers = np.arange(len(which)) - bounds[which]
        picked: list[Indices] = []
        for axis in reversed(windows):
            of_chunk = axis[which]
            numbers, inner = np.divmod(numbers, of_chunk[:, 2])
            picked.insert(0, inner + of_chunk[:, 1])
        owners = np.array([axis[:, 0] for axis in windows]).T
        return CopyTable(*self._axes.rows(picked), None, None, owners, bounds)

    def _part_of_object(self, number: int, cut: int) -> CopyTable:
        """Some chunks of an object. cut: which of its batches."""
        windows: list[list[int]] = []
        for axis in reversed(self._windows):
            number, at = divmod(number, len(axis))
            windows.insert(0, axis[at].tolist())
        counts = [n for _, _, n in windows]
        low, high = (min(at * self._size, prod(counts)) for at in (cut, cut + 1))
        inside = np.unravel_index(np.arange(low, high), counts)
        picked = [numbers + first for (_, first, _), numbers in zip(windows, inside, strict=True)]
        owner = np.array([[at for at, _, _ in windows]])
        return CopyTable(*self._axes.rows(picked), None, None, owner, np.array([0, high - low]), (True, True))

    def parts(self, number: int, table: CopyTable, chunks: Iterable[int]) -> list[Part]:
        """Return some chunks of a batch as parts."""
        return [part_of_rows(table.spans[chunk].tolist(), table.lists) for chunk in chunks]


class _Axes:
    """The spans of all axes as rows of numbers. Those of long ranges are computed for each batch."""

    def __init__(self, axes: tuple[Sequence[Span], ...]) -> None:
        self._rows: list[Indices | RangeSpans] = []
        self._lists: list[Indices] = []
        nlists = 0
        for spans in axes:
            if isinstance(spans, RangeSpans) and len(spans) > _MAX_KEPT_SPANS:
                self._rows.append(spans)
                continue
            rows, lists = make_rows(spans)
            if lists.size:
                sides = rows[:, [IN_LIST, OUT_LIST]]
                rows = rows.copy()
                rows[:, [IN_LIST, OUT_LIST]] = np.where(sides >= 0, sides + nlists, -1)
                self._lists.append(lists)
                nlists += lists.size
            self._rows.append(rows)
        self.lists = np.concatenate(self._lists) if self._lists else np.empty(0, np.int64)

    def rows(self, picked: Sequence[Indices]) -> tuple[Indices, Indices]:
        """Return `CopyTable.spans` and `CopyTable.lists`. picked: for every axis the spans of the chunks, by number."""
        spans = np.empty((len(picked[0]), len(picked), N_COLUMNS), np.int64)
        for axis, (rows, numbers) in enumerate(zip(self._rows, picked, strict=True)):
            spans[:, axis] = rows.rows(numbers) if isinstance(rows, RangeSpans) else rows[numbers]
        return spans, self.lists


def table_of_parts(parts: Sequence[Part], rows: int = 0) -> CopyTable | None:
    """Return parts of boxes, or of many boxes, as a table without coordinates of chunks; None for parts of points.

    rows: slots of a block; 0 unless the parts are those of a `CopyPlan`.
    """
    lists, spans, slots, firsts = IndexLists(), list[bytes](), list[int](), [0]
    for part in parts:
        for _, insides, outs, full in part.out if rows else (part,):
            if type(insides) is not tuple or type(outs) is not tuple:
                return None
            if rows:
                slots.append(outs[0] * rows + outs[1])
            for inside, out in zip(insides, outs[2:] if rows else outs, strict=True):
                spans.append(pack_span(0, *lists.sides(inside, out), full))
        firsts.append(len(slots))
    table = np.frombuffer(b"".join(spans), np.int64).reshape(firsts[-1] or len(parts), -1, N_COLUMNS)
    if not rows:
        return CopyTable(table, lists.joined())
    return CopyTable(table, lists.joined(), np.array(firsts, np.int64), np.array(slots, np.int64))
