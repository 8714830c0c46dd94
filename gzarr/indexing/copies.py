"""Plans of many small boxes, each with a place of its own: samples, windows and crops, or the tiles of an image.

Theory of operation. Boxes of one size are cut along the chunk grid into `Fragments`, and the fragments sorted by chunk
into a `CopyPlan`: every chunk stands there once, with all the copies that are made of it, so that it is decoded once.
The boxes are put into *slots*. The memory of slots is some *blocks* of equal shape, each with the slots of some rows.

Rules: everything is a column of numbers, and no Python object is made for a box. Only the reference path makes a `Part`
for a chunk, which takes all of the chunk and hands it to `Slots`: those make the copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, pairwise, repeat
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gzarr.errors import SelectionError
from gzarr.indexing.grid import Grid, RegularAxis, nchunks
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import BoxPlan, Part, SelectionPlan
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import CHUNK, COUNT, IN_START, N_COLUMNS, OUT_START
from gzarr.indexing.tables import BoxBatches, CopyTable, find_owned

#: Chunks of one array that have numbers of 64 bits.
_MAX_NCHUNKS = 2**63 - 1
#: NumPy sorts integers of 16 bits by radix, ten times faster than longer ones.
_MAX_NARROW = 1 << 16
#: Chunks that are made into parts together.
_RUN = 256


class Fragments(NamedTuple):
    """Boxes cut along a chunk grid. A row stands for one chunk that a box touches.

    Attributes
    ----------
    box : Indices
        (f,): number of the box; the fragments of a box stand together, in C order of its chunks.
    chunk : Indices
        (f,): number of the chunk, in C order of the grid.
    inside, counts, place : Indices
        (f, ndim): first element within the chunk, number of elements, first element within the box.
    """

    box: Indices
    chunk: Indices
    inside: Indices
    counts: Indices
    place: Indices

    def take(self, rows: Any) -> Fragments:
        """Some of the fragments. rows: an index of NumPy."""
        return Fragments(*[column[rows] for column in self])


class CopyPlan(NamedTuple):
    """The plan of many boxes of one size: every chunk once, with the copies that are made of it.

    Attributes
    ----------
    coords : Indices
        (m, ndim): coordinates of the chunks; those of one stored object stand together.
    firsts : Indices
        (m + 1,): where the copies of each begin, and where the last end.
    inside, counts, place : Indices
        (f, ndim): first element within the chunk, number of elements, first element within the slot.
    slots : Indices
        (f,): the slot that a copy goes to: row ``slot % rows`` of block ``slot // rows``.
    shape : tuple[int, ...]
        Number of slots, and the size of each.
    rows : int
        Number of slots of one block.
    grid : Grid
        The chunk grid.
    """

    coords: Indices
    firsts: Indices
    inside: Indices
    counts: Indices
    place: Indices
    slots: Indices
    shape: tuple[int, ...]
    rows: int
    grid: Grid

    @property
    def nparts(self) -> int:
        """Number of chunks."""
        return len(self.coords)

    @property
    def nelements(self) -> int:
        """Number of elements that are copied."""
        return int(self.counts.prod(axis=1).sum())

    def parts(self) -> Iterator[Part]:
        """Every chunk as a part (`part`)."""
        for first in range(0, self.nparts, _RUN):
            yield from self._run(first, min(first + _RUN, self.nparts))

    def groups(self, objects: Grid) -> Iterator[tuple[Coords, list[Part]]]:
        """Parts by stored object: (its coordinates in the grid of objects, the parts)."""
        owners = map(tuple, self.owners(objects).tolist())
        for owner, members in groupby(zip(owners, self.parts(), strict=True), itemgetter(0)):
            yield owner, [part for _, part in members]

    def owners(self, objects: Grid) -> Indices:
        """Coordinates (m, ndim) of the stored objects that hold the chunks."""
        return _owners(self.coords, self.grid, objects)

    def part(self, row: int) -> Part:
        """One chunk as a part: all of it, for a list of copies, each a part whose ``out`` is (block, row, *slices).

        None of them is ``full``: nobody checks what copies cover.
        """
        return next(self._run(row, row + 1))

    def _run(self, first: int, last: int) -> Iterator[Part]:
        """Some chunks as parts, made column by column: a copy costs a microsecond."""
        make: Any = Part
        firsts, chunks = self.firsts[first : last + 1].tolist(), list(map(tuple, self.coords[first:last].tolist()))
        copies = slice(firsts[0], firsts[-1])
        blocks, rows = np.divmod(self.slots[copies], self.rows)
        inside, put = (_slices(starts[copies], self.counts[copies]) for starts in (self.inside, self.place))
        taken: Iterator[Any] = zip(*inside, strict=True) if inside else repeat((), len(rows))
        outs = zip(blocks.tolist(), rows.tolist(), *put, strict=True)
        for coords, (low, high) in zip(chunks, pairwise(firsts), strict=True):
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
        self._owned = None if objects is plan.grid else find_owned(plan.owners(objects))
        self.nobjects = 0 if self._owned is None else len(self._owned.owners)

    def table(self, number: int) -> CopyTable:
        """Return a batch by its number."""
        plan, first = self._plan, number * self._size
        last = min(first + self._size, plan.nparts)
        firsts = plan.firsts[first : last + 1]
        copies = slice(*firsts[[0, -1]].tolist())
        spans = np.empty((copies.stop - copies.start, len(plan.grid), N_COLUMNS), np.int64)
        spans[:] = 0, 0, 0, 1, -1, 0, 1, -1, 0
        one_each = len(spans) == last - first
        coords = plan.coords[first:last]
        spans[:, :, CHUNK] = coords if one_each else np.repeat(coords, np.diff(firsts), axis=0)
        spans[:, :, COUNT], spans[:, :, IN_START] = plan.counts[copies], plan.inside[copies]
        spans[:, :, OUT_START] = plan.place[copies]
        table = CopyTable(spans, np.empty(0, np.int64), None if one_each else firsts - firsts[0], plan.slots[copies])
        if self._owned is None:
            return table
        owners, bounds, cut = self._owned.cut(first, last)
        return table._replace(owners=owners, bounds=bounds, cut=cut)

    def parts(self, number: int, table: CopyTable, chunks: Iterable[int]) -> list[Part]:
        """Return some chunks of a batch as parts."""
        return [self._plan.part(number * self._size + chunk) for chunk in chunks]


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
        dtype: np.dtype[Any] = self.blocks[0].dtype
        return dtype

    def __setitem__(self, copies: list[Part], value: Any) -> None:
        """Make the copies of a chunk. value: the chunk, or the value of all its elements."""
        is_chunk = isinstance(value, np.ndarray) and value.ndim > 0
        with np.errstate(all="ignore"):  # as the loop and devices cast
            for _, inside, (block, *at), _ in copies:
                self.blocks[block][tuple(at)] = value[inside] if is_chunk else value

    def by_block(self, parts: Sequence[Part]) -> Iterator[tuple[Any, list[tuple[int, Part]]]]:
        """Every copy as a part of its own: (a result, the position of each one's chunk in ``parts`` and the part).

        A result is a block, or one of its slots if they do not follow one another in its memory.
        """
        of_block: dict[tuple[int, int], list[tuple[int, Part]]] = {}
        flat = [block.ndim > 1 and block.flags.c_contiguous for block in self.blocks]
        for number, part in enumerate(parts):
            for copy in part.out:
                block, row, *index = copy.out
                if flat[block]:
                    n = self.blocks[block].shape[1]
                    index[0] = slice(row * n + index[0].start, row * n + index[0].stop)
                single = copy._replace(out=tuple(index))
                of_block.setdefault((block, 0 if flat[block] else row), []).append((number, single))
        for (block, row), copies in of_block.items():
            memory = self.blocks[block]
            shape = (-1, *memory.shape[2:]) if flat[block] else memory.shape[1:]
            yield memory.reshape(shape) if flat[block] else memory[row : row + 1].reshape(shape), copies


def cut_boxes(starts: Indices, size: tuple[int, ...], grid: Grid) -> Fragments:
    """Cut boxes, which are within the array, along the grid. starts: (n, ndim). Raises: SelectionError."""
    n, ndim = len(starts), len(grid)
    _check_numbers(grid)
    if 0 in size:
        n, starts = 0, starts[:0]
    # The other axes have a single chunk, which every box takes whole: all of their columns are constant.
    cut = [i for i, axis in enumerate(grid) if axis.nchunks > 1 or size[i] < axis.extent]
    lows = {i: grid[i].locate_all(starts[:, i]) for i in cut}
    spans = {i: grid[i].locate_all(starts[:, i] + (size[i] - 1)) - lows[i] + 1 for i in cut}
    one_each = all(bool((span == 1).all()) for span in spans.values())
    box = np.arange(n)
    if not one_each:
        per_box = math.prod(spans.values())
        box = np.repeat(box, per_box)
        number = np.arange(len(box)) - np.repeat(np.cumsum(per_box) - per_box, per_box)
    chunk, scale = np.zeros(len(box), np.int64), 1
    inside, place = np.zeros((len(box), ndim), np.int64), np.zeros((len(box), ndim), np.int64)
    counts = np.full((len(box), ndim), size, np.int64)
    for i in reversed(cut):
        coords, first = lows[i], starts[:, i]
        if not one_each:
            number, nth = np.divmod(number, spans[i][box])
            coords, first = coords[box] + nth, first[box]
        low, high = grid[i].starts_of(coords), grid[i].starts_of(coords + 1)
        begin = np.maximum(first, low)
        inside[:, i], place[:, i] = begin - low, begin - first
        counts[:, i] = np.minimum(first + size[i], high) - begin
        chunk += coords * scale
        scale *= grid[i].nchunks
    return Fragments(box, chunk, inside, counts, place)


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
    order, firsts = _sort(fragments.chunk, nchunks(grid))
    numbers = fragments.chunk[order[firsts[:-1]]]
    coords = _unravel(numbers, grid)
    if objects is not grid:
        owners = chunk_numbers(_owners(coords, grid, objects), objects)
        if (owners[1:] < owners[:-1]).any():
            by_owner = np.argsort(owners, kind="stable")
            coords = coords[by_owner]
            order, firsts = order[_moved(firsts, by_owner)], _moved_firsts(firsts, by_owner)
    _, _, inside, counts, place = fragments
    return CopyPlan(coords, firsts, inside[order], counts[order], place[order], slots[order], shape, rows, grid)


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
    numbers = np.arange(arrays.extent + 1)
    rows, boxes = np.searchsorted(plan.coords[:, 0], numbers), np.searchsorted(which, numbers)
    firsts = plan.firsts[rows]
    coords, inside, counts, place = (column[:, 1:].copy() for column in plan[:1] + plan[2:5])
    cuts = zip(pairwise(rows.tolist()), pairwise(boxes.tolist()), pairwise(firsts.tolist()), strict=True)
    for (row, end), (box, last), (low, high) in cuts:
        yield CopyPlan(
            coords[row:end],
            plan.firsts[row : end + 1] - low,
            inside[low:high],
            counts[low:high],
            place[low:high],
            plan.slots[low:high] - box,
            (last - box, *size),
            1,
            grid,
        )


def _slices(starts: Indices, counts: Indices) -> list[list[slice]]:
    """For every axis a slice of each row."""
    return [list(map(slice, *axis)) for axis in zip(starts.T.tolist(), (starts + counts).T.tolist(), strict=True)]


def chunk_numbers(coords: Indices, grid: Grid) -> Indices:
    """Numbers (n,) of chunks, in C order of a grid. coords: (n, ndim)."""
    numbers = np.zeros(len(coords), np.int64)
    for i, axis in enumerate(grid):
        numbers = numbers * axis.nchunks + coords[:, i]
    return numbers


def _check_numbers(grid: Grid) -> None:
    if nchunks(grid) > _MAX_NCHUNKS:
        raise SelectionError(f"the array has {nchunks(grid)} chunks, more than have numbers of 64 bits")


def _sort(chunk: Indices, n: int) -> tuple[Indices, Indices]:
    """Stable order that sorts fragments by chunk, and where each chunk's begin (and the last end)."""
    narrow = chunk.astype(np.uint16) if n <= _MAX_NARROW else chunk
    order = np.argsort(narrow, kind="stable")
    in_order = chunk[order]
    cuts = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    return order, np.concatenate([[0] if len(chunk) else [], cuts, [len(chunk)]]).astype(np.int64)


def _moved(firsts: Indices, by_owner: Indices) -> Indices:
    """Where the fragments are if the runs that begin at ``firsts`` are put into another order."""
    lengths = np.diff(firsts)[by_owner]
    return np.repeat(firsts[:-1][by_owner] - (np.cumsum(lengths) - lengths), lengths) + np.arange(firsts[-1])


def _moved_firsts(firsts: Indices, by_owner: Indices) -> Indices:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(firsts)[by_owner])])


def _unravel(numbers: Indices, grid: Grid) -> Indices:
    """Coordinates (n, ndim) of chunks, by their numbers."""
    coords = np.empty((len(numbers), len(grid)), np.int64)
    for i in reversed(range(len(grid))):
        numbers, coords[:, i] = np.divmod(numbers, max(grid[i].nchunks, 1))
    return coords


def _owners(coords: Indices, grid: Grid, objects: Grid) -> Indices:
    """Coordinates (n, ndim) of the stored objects that hold some chunks."""
    if objects is grid:
        return coords
    owners = np.empty_like(coords)
    for i, (axis, owner_axis) in enumerate(zip(grid, objects, strict=True)):
        owners[:, i] = owner_axis.locate_all(axis.starts_of(coords[:, i]))
    return owners
