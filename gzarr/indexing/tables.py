"""What is copied, as tables of numbers: a batch of chunks and all copies that are made of them.

Theory of operation. Every read and write of many chunks, of whatever selection, is cut into batches of a bounded number
of chunks (`Batches`), and each batch is one `CopyTable`, made when it is its turn. A plan is therefore as small as its
axes, and an executor (the compiled loop, a device) sees tables only. The chunks of one stored object stand together.
What an executor leaves becomes `Part`s again, one for a chunk, for the reference path.

Rules: batches may be made in any order, by several threads, and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from gzarr.indexing.grid import Grid
from gzarr.indexing.plan import BoxPlan, Part, joint_index
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import (
    CHUNK,
    COUNT,
    FULL,
    IN_LIST,
    IN_START,
    N_COLUMNS,
    OUT_LIST,
    OUT_START,
    RangeSpans,
    Span,
    make_rows,
)

#: Rows of more spans of an axis (72 bytes each) are made anew for each batch.
_MAX_KEPT_SPANS = 1 << 14


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
    """

    @property
    def n(self) -> int: ...  # noqa: D102 - an attribute
    @property
    def cuts(self) -> int: ...  # noqa: D102 - an attribute
    @property
    def nobjects(self) -> int: ...  # noqa: D102 - an attribute

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

    def __init__(self, plan: BoxPlan, objects: Grid, size: int, *, whole: bool = False) -> None:
        self._axes, self._size = _Axes(plan.axes), size
        self._shape, self._windows = tuple(map(len, plan.axes)), list[Indices]()
        self.nobjects, self.cuts = 0, 1
        self.n = -(-prod(self._shape) // size)
        if objects is plan.grid:
            return
        self._windows = plan.windows(objects)
        self._shape = tuple(map(len, self._windows))
        self.nobjects = prod(self._shape)
        largest = prod([int(windows[:, 2].max()) for windows in self._windows])
        self.cuts = -(-largest // size)
        self._run = 1 if whole else max(size // largest, 1)
        self.n = -(-self.nobjects // self._run) * self.cuts

    def table(self, number: int) -> CopyTable:
        """Return a batch by its number."""
        first = number * self._size
        if not self._windows:
            picked = np.unravel_index(np.arange(first, min(first + self._size, prod(self._shape))), self._shape)
            return CopyTable(*self._axes.rows(picked))
        number, cut = divmod(number, self.cuts)
        objects = np.arange(number * self._run, min((number + 1) * self._run, self.nobjects))
        at = np.unravel_index(objects, self._shape)
        windows = [axis[rows] for axis, rows in zip(self._windows, at, strict=True)]
        owners = np.stack([axis[:, 0] for axis in windows], axis=1)
        counts = np.prod([axis[:, 2] for axis in windows], axis=0)
        if len(objects) == 1:
            low, high = min(cut * self._size, counts[0]), min((cut + 1) * self._size, counts[0])
            bounds = np.array([0, high - low])
            inside = np.unravel_index(np.arange(low, high), [int(axis[0, 2]) for axis in windows])
            picked = tuple([axis[0, 1] + numbers for axis, numbers in zip(windows, inside, strict=True)])
            return CopyTable(*self._axes.rows(picked), None, None, owners, bounds, (self.cuts > 1,) * 2)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        numbers = np.arange(bounds[-1]) - np.repeat(bounds[:-1], counts)
        picked = ()
        for axis in reversed(windows):
            numbers, inner = np.divmod(numbers, np.repeat(axis[:, 2], counts))
            picked = (inner + np.repeat(axis[:, 1], counts), *picked)
        return CopyTable(*self._axes.rows(picked), None, None, owners, bounds)

    def parts(self, number: int, table: CopyTable, chunks: Iterable[int]) -> list[Part]:
        """Return some chunks of a batch as parts."""
        return [_part(table.spans[chunk].tolist(), table.lists) for chunk in chunks]


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


def table_of_parts(parts: Sequence[Part]) -> CopyTable | None:
    """Return parts of boxes as a table; None if some part takes more than slices, or has a chunk beyond 2^63."""
    rows: list[tuple[int, ...]] = []
    try:
        for coords, insides, outs, full in parts:
            if type(insides) is not tuple or type(outs) is not tuple:
                return None
            for chunk, inside, out in zip(coords, insides, outs, strict=True):
                if type(inside) is not slice or type(out) is not slice:
                    return None
                step = out.step or 1
                count = (out.stop - out.start + step - 1) // step
                rows.append((chunk, count, inside.start, inside.step or 1, -1, out.start, step, -1, full))
        spans = np.array(rows, np.int64)
    except OverflowError:
        return None
    return CopyTable(spans.reshape(len(parts), -1, N_COLUMNS), np.empty(0, np.int64))


def _part(spans: list[list[int]], lists: Indices) -> Part:
    """A chunk of a box as a part."""
    sides: tuple[list[Any], list[Any]] = [], []
    for span in spans:
        for indices, column in zip(sides, (IN_START, OUT_START), strict=True):
            start, step, at = span[column : column + 3]
            stop = start + (span[COUNT] - 1) * step + 1
            indices.append(slice(start, stop, step) if at < 0 else lists[at : at + span[COUNT]])
    inside, out = (joint_index(tuple(indices)) for indices in sides)
    return Part(tuple([span[CHUNK] for span in spans]), inside, out, all(span[FULL] for span in spans))
