"""Plans of many small boxes, each with a place of its own: samples, windows and crops, or the tiles of an image.

Theory of operation. Boxes of one size are cut along the chunk grid into `Fragments`, which are sorted by chunk. Every
chunk then stands once in a `CopyPlan`, with all the copies that are made of it, so that it is decoded once. The plan
has the columns of a `CopyTable`, and a batch is some of its rows. The boxes are put into *slots*. The memory of slots
is some *blocks* of equal shape, each with the slots of some rows.

Rules: everything is a column of numbers, and no Python object is made for a box. Only the reference path makes a `Part`
for a chunk, which takes all of the chunk and hands it to `Slots`: those make the copies.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise, repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gzarr.errors import SelectionError
from gzarr.indexing.grid import Grid, RegularAxis, nchunks
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import BoxPlan, Owned, Part, SelectionPlan, find_owned, owners_of
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import CHUNK, COUNT, IN_START, N_COLUMNS, OUT_START, sort_by_chunk
from gzarr.indexing.tables import BoxBatches, CopyTable

#: Chunks of one array that have numbers of 64 bits.
_MAX_NCHUNKS = 2**63 - 1
#: Chunks that are made into parts together.
_RUN = 256

_NO_LISTS = np.empty(0, np.int64)


class Fragments(NamedTuple):
    """Which boxes of one size touch which chunks. A row stands for one chunk that a box touches.

    Attributes
    ----------
    box : Indices
        (f,): number of the box; the fragments of a box stand together, in C order of its chunks.
    chunk : Indices
        (f,): number of the chunk, in C order of the grid.
    start : Indices
        (f, ndim): first element of the box, in the array.
    """

    box: Indices
    chunk: Indices
    start: Indices

    def take(self, rows: Any) -> "Fragments":
        """Some of the fragments. rows: an index of NumPy."""
        return Fragments(*[column[rows] for column in self])


class CopyPlan(NamedTuple):
    """The plan of many boxes of one size: every chunk once, with the copies that are made of it.

    Attributes
    ----------
    spans, firsts, slots : Indices
        As in `gzarr.indexing.tables.CopyTable`. The chunks of one stored object stand together.
    shape : tuple[int, ...]
        Number of slots, and the size of each.
    rows : int
        Number of slots of one block.
    grid : Grid
        The chunk grid.
    """

    spans: Indices
    firsts: Indices
    slots: Indices
    shape: tuple[int, ...]
    rows: int
    grid: Grid

    @property
    def nparts(self) -> int:
        """Number of chunks."""
        return len(self.firsts) - 1

    @property
    def nelements(self) -> int:
        """Number of elements that are copied."""
        return int(self.spans[:, :, COUNT].prod(axis=1).sum())

    def some(self, first: int, last: int) -> "CopyPlan":
        """The plan of the chunks from ``first`` to ``last``."""
        firsts = self.firsts[first : last + 1]
        copies = slice(*firsts[[0, -1]].tolist())
        return self._replace(spans=self.spans[copies], firsts=firsts - firsts[0], slots=self.slots[copies])

    def table(self, first: int, last: int) -> CopyTable:
        """The chunks from ``first`` to ``last``, without their objects."""
        spans, firsts, slots, *_ = self.some(first, last)
        return CopyTable(spans, _NO_LISTS, None if len(spans) == last - first else firsts, slots)

    def by_object(self, objects: Grid) -> "CopyPlan":
        """The same with the chunks of one stored object together. objects: the grid of these."""
        by_owner = _object_order(self.spans[self.firsts[:-1], :, CHUNK], self.grid, objects)
        if by_owner is None:
            return self
        order, firsts = _moved(self.firsts, by_owner), _moved_firsts(self.firsts, by_owner)
        return self._replace(spans=self.spans[order], firsts=firsts, slots=self.slots[order])

    def parts(self) -> Iterator[Part]:
        """Every chunk as a part: all of it, for a list of copies, each a part whose ``out`` is (block, row, *slices).

        None of them is ``full``: nobody checks what copies cover.
        """
        for first in range(0, self.nparts, _RUN):
            yield from self.some_parts(first, min(first + _RUN, self.nparts))

    def groups(self, objects: Grid) -> Iterator[tuple[Coords, list[Part]]]:
        """Parts by stored object: (its coordinates in the grid of objects, the parts)."""
        return self.owned(objects).group(self.parts())

    def owned(self, objects: Grid) -> Owned:
        """Whose the chunks are."""
        return find_owned(self.spans[self.firsts[:-1], :, CHUNK], self.grid, objects)

    def some_parts(self, first: int, last: int) -> Iterator[Part]:
        """Some chunks as parts, made column by column: a copy costs a microsecond."""
        make: Any = Part
        table = self.table(first, last)
        ends = (self.firsts[first : last + 1] - self.firsts[first]).tolist()
        blocks, rows = np.divmod(self.slots[self.firsts[first] : self.firsts[last]], self.rows)
        inside, put = (_slices(table.spans[:, :, at], table.spans[:, :, COUNT]) for at in (IN_START, OUT_START))
        taken: Iterator[Any] = zip(*inside, strict=True) if inside else repeat((), len(rows))
        outs = zip(blocks.tolist(), rows.tolist(), *put, strict=True)
        for coords, (low, high) in zip(map(tuple, table.coords.tolist()), pairwise(ends), strict=True):
            n = high - low
            copies_of_chunk = list(map(make, repeat(coords, n), islice(taken, n), islice(outs, n), repeat(False)))
            yield Part(coords, ..., copies_of_chunk, full=False)


Plan: TypeAlias = SelectionPlan | CopyPlan


class CopyBatches:
    """The batches of a plan of many boxes.

    Parameters
    ----------
    plan : CopyPlan
        The plan.
    objects : Grid
        The grid of stored objects.
    size : int
        Most chunks of a batch.
    """

    cuts, npoints = 1, -1

    def __init__(self, plan: CopyPlan, objects: Grid, size: int) -> None:
        self._plan, self._size, self.nchunks = plan, size, plan.nparts
        self.n = -(-plan.nparts // size)
        self._owned = None if objects is plan.grid else plan.owned(objects)
        self.nobjects = 0 if self._owned is None else len(self._owned.owners)

    def table(self, number: int) -> CopyTable:
        """Return a batch by its number."""
        first = number * self._size
        last = min(first + self._size, self.nchunks)
        table = self._plan.table(first, last)
        return table if self._owned is None else self._owned.told(table, first, last)

    def parts(self, number: int, table: CopyTable, chunks: Iterable[int]) -> list[Part]:
        """Return some chunks of a batch as parts."""
        rows = [number * self._size + chunk for chunk in chunks]
        return [part for row in rows for part in self._plan.some_parts(row, row + 1)]


def make_batches(
    plan: BoxPlan | CopyPlan, objects: Grid, size: int, *, whole: bool = False
) -> BoxBatches | CopyBatches:
    """Cut a plan of at least one chunk into batches of at most so many chunks. whole: as of `BoxBatches`; of boxes."""
    if isinstance(plan, CopyPlan):
        return CopyBatches(plan, objects, size)
    return BoxBatches(plan, objects, size, whole=whole)


class Slots:
    """The memory of the slots of a `CopyPlan`, as the result that its parts are placed in.

    Parameters
    ----------
    blocks : tuple
        Arrays of shape (rows, *size) and one dtype.
    """

    __slots__ = ("blocks",)

    def __init__(self, blocks: tuple[Any, ...]) -> None:
        self.blocks = blocks

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the slots."""
        return self.blocks[0].dtype

    def __setitem__(self, copies: list[Part], value: Any) -> None:
        """Make the copies of a chunk. value: the chunk, or the value of all its elements."""
        is_chunk = isinstance(value, np.ndarray) and value.ndim > 0
        with np.errstate(all="ignore"):  # as the loop and devices cast
            for _, inside, (block, *at), _ in copies:
                self.blocks[block][tuple(at)] = value[inside] if is_chunk else value


def cut_boxes(starts: Indices, size: tuple[int, ...], grid: Grid) -> Fragments:
    """Cut boxes, which are within the array, along the grid. starts: (n, ndim). Raises: SelectionError."""
    n = len(starts)
    if nchunks(grid) > _MAX_NCHUNKS:
        raise SelectionError(f"the array has {nchunks(grid)} chunks, more than have numbers of 64 bits")
    if 0 in size:
        n, starts = 0, starts[:0]
    cut = [i for i, axis in enumerate(grid) if axis.nchunks > 1]
    lows = {i: grid[i].locate_all(starts[:, i]) for i in cut}
    spans = {i: grid[i].locate_all(starts[:, i] + (size[i] - 1)) - lows[i] + 1 for i in cut}
    one_each = all(bool((span == 1).all()) for span in spans.values())
    box = np.arange(n)
    if not one_each:
        per_box = math.prod(spans.values())
        box = np.repeat(box, per_box)
        number = np.arange(len(box)) - np.repeat(np.cumsum(per_box) - per_box, per_box)
    chunk, scale = np.zeros(len(box), np.int64), 1
    for i in reversed(cut):
        coords = lows[i]
        if not one_each:
            number, nth = np.divmod(number, spans[i][box])
            coords = coords[box] + nth
        chunk += coords * scale
        scale *= grid[i].nchunks
    return Fragments(box, chunk, starts if one_each else starts[box])


def make_copies(
    fragments: Fragments, slots: Indices, shape: tuple[int, ...], rows: int, grid: Grid, objects: Grid
) -> CopyPlan:
    """Sort fragments by chunk, the chunks of one stored object together.

    Parameters
    ----------
    fragments : Fragments
        What is copied; any fragments of `cut_boxes` for the grid.
    slots : Indices
        (f,): the slot of each fragment.
    shape : tuple[int, ...]
        Number of slots, and the size of each.
    rows : int
        Number of slots of one block.
    grid, objects : Grid
        The grids of chunks and of stored objects.
    """
    order, firsts = sort_by_chunk(fragments.chunk, nchunks(grid))
    coords = chunk_coords(fragments.chunk[order[firsts[:-1]]], grid)
    by_owner = _object_order(coords, grid, objects)
    if by_owner is not None:
        coords = coords[by_owner]
        order, firsts = order[_moved(firsts, by_owner)], _moved_firsts(firsts, by_owner)
    coords = np.repeat(coords, np.diff(firsts), axis=0)
    starts, bounds = fragments.start[order], list[tuple[Indices, Indices] | None]()
    for i, (axis, n) in enumerate(zip(grid, shape[1:], strict=True)):
        is_cut = axis.nchunks > 1 or n < axis.extent or starts[:, i].any()
        bounds.append((axis.starts_of(coords[:, i]), axis.starts_of(coords[:, i] + 1)) if is_cut else None)
    return CopyPlan(box_spans(coords, starts, shape[1:], bounds), firsts, slots[order], shape, rows, grid)


def _object_order(coords: Indices, grid: Grid, objects: Grid) -> Indices | None:
    """The order of chunks that brings those of one stored object together; None if they are in it."""
    if objects is grid:
        return None
    owners = chunk_numbers(owners_of(coords, grid, objects), objects)
    return None if (owners[1:] >= owners[:-1]).all() else np.argsort(owners, kind="stable")


def box_spans(
    coords: Indices, starts: Indices, size: tuple[int, ...], bounds: Sequence[tuple[Indices, Indices] | None]
) -> Indices:
    """What boxes have of a chunk each, as rows of spans.

    coords: of the chunks, (f, ndim). starts: of the boxes. bounds: of each axis the first element of the chunks, and
    the one behind the last; None where the chunks are the boxes.
    """
    spans = np.empty((*coords.shape, N_COLUMNS), np.int64)
    spans[:] = 0, 0, 0, 1, -1, 0, 1, -1, 0
    spans[:, :, CHUNK], spans[:, :, COUNT] = coords, size
    for i, n in enumerate(size):
        if (ends := bounds[i]) is not None:
            low, high = ends
            start = starts[:, i]
            begin = np.maximum(start, low)
            spans[:, i, COUNT] = np.minimum(start + n, high) - begin
            spans[:, i, IN_START], spans[:, i, OUT_START] = begin - low, begin - start
    return spans


def plan_arrays(
    which: Indices, starts: Indices, size: tuple[int, ...], grid: Grid, objects: Grid
) -> Iterator[CopyPlan]:
    """Plans of boxes of one size in several arrays of one grid: one for every array, with a block for every box.

    which: int64 (n,), ascending, the array of each box: every number from 0 on. starts: (n, ndim). Raises:
    SelectionError.
    """
    # The arrays are chunks along one more axis, so that all boxes are cut and sorted at once.
    arrays = RegularAxis(int(which[-1]) + 1, 1)
    all_chunks = arrays, *grid
    all_objects = all_chunks if objects is grid else (arrays, *objects)
    fragments = cut_boxes(np.column_stack([which, starts]), (1, *size), all_chunks)
    plan = make_copies(fragments, fragments.box, (len(which), 1, *size), 1, all_chunks, all_objects)
    numbers, chunks = np.arange(arrays.extent + 1), plan.spans[plan.firsts[:-1], 0, CHUNK]
    plan = plan._replace(spans=plan.spans[:, 1:].copy(), grid=grid)
    ends = (pairwise(np.searchsorted(column, numbers).tolist()) for column in (chunks, which))
    for (first, last), (box, end) in zip(*ends, strict=True):
        own = plan.some(first, last)
        yield own._replace(slots=own.slots - box, shape=(end - box, *size))


def _slices(starts: Indices, counts: Indices) -> list[list[slice]]:
    """For every axis a slice of each row."""
    return [list(map(slice, *axis)) for axis in zip(starts.T.tolist(), (starts + counts).T.tolist(), strict=True)]


def chunk_numbers(coords: Indices, grid: Grid) -> Indices:
    """Numbers (n,) of chunks, in C order of a grid. coords: (n, ndim)."""
    numbers = np.zeros(len(coords), np.int64)
    for i, axis in enumerate(grid):
        numbers = numbers * axis.nchunks + coords[:, i]
    return numbers


def _moved(firsts: Indices, by_owner: Indices) -> Indices:
    """Where the fragments are if the runs that begin at ``firsts`` are put into another order."""
    lengths = np.diff(firsts)[by_owner]
    return np.repeat(firsts[:-1][by_owner] - (np.cumsum(lengths) - lengths), lengths) + np.arange(firsts[-1])


def _moved_firsts(firsts: Indices, by_owner: Indices) -> Indices:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(firsts)[by_owner])])


def chunk_coords(numbers: Indices, grid: Grid) -> Indices:
    """Coordinates (n, ndim) of chunks, by their numbers."""
    coords = np.empty((len(numbers), len(grid)), np.int64)
    for i in reversed(range(len(grid))):
        numbers, coords[:, i] = np.divmod(numbers, max(grid[i].nchunks, 1))
    return coords
