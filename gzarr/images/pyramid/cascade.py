"""Takes blocks of an image once and writes all levels of its pyramid: no cell of any level is written twice.

Theory of operation. A *cell* of a level is the smallest block that can go on alone: it holds whole stored objects
(chunks, or shards) of its level and whole windows of the next one. A block that consists of whole cells is written,
downsampled, and goes up. What does not fill a cell of the next level waits there (*pending*) until the rest has come.
The thread that brings the last part takes the cell up. Blocks come in any order, from any thread; an order that stays
within a cell of the highest level, and within it in one of the level below, keeps few cells pending.
"""

import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.concurrency import new_lock
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import Missing
from gzarr.hierarchy.reductions import fill_of
from gzarr.images.gathered import GatheredBlock
from gzarr.images.pyramid.downsample import downsample
from gzarr.images.pyramid.units import Cells
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region

#: Start and shape of a block.
BlockPlace: TypeAlias = tuple[Coords, Coords]


class _PendingCell(GatheredBlock):
    """A cell that waits for parts."""

    def __init__(self, backend: Backend, place: BlockPlace, dtype: np.dtype[Any], fill: Any = None) -> None:
        super().__init__(backend, place[1], dtype, fill)
        self.start = place[0]
        self.earlier: list[BlockPlace] = []  # parts of earlier runs, to be computed again


class _Whole(NamedTuple):
    """A block of whole cells of a level."""

    level: int
    start: Coords
    block: AnyArray
    cell: GatheredBlock | None = None  # whose memory it is, if it is not this thread's


class Cascade:
    """All levels of a pyramid, filled from blocks of level 0.

    Attributes
    ----------
    levels : tuple of Array
        The arrays, level 0 first. They may be replaced by others that end elsewhere.
    factors : tuple[tuple[int, ...], ...]
        For every level but the first, how many elements of the level before become one, by axis.
    cells : tuple[tuple[int, ...], ...]
        For every level, the shape of its cells.
    method : str or callable
        How a level is made of the one before.
    backend : Backend
        That the blocks are on.
    writes_base : bool
        Whether level 0 is written.
    missing : tuple of Missing or None
        For every level, which elements are missing.
    """

    def __init__(
        self,
        levels: Sequence[Array],
        factors: Sequence[tuple[int, ...]],
        method: Any = "mean",
        *,
        backend: Backend,
        write_base: bool = True,
        missing: Missing | None = None,
    ) -> None:
        """Prepare a cascade; nothing is written yet.

        levels: the arrays, level 0 first. method: of `gzarr.images.pyramid.downsample`. backend: that the blocks
        are on. write_base: whether level 0 is written; if not, it holds the elements already. missing: elements of
        level 0 that are left out.
        """
        self.levels, self.factors = tuple(levels), tuple(factors)
        self.method, self.backend, self.writes_base = method, backend, write_base
        self.cells = tuple(
            cell_shape(self.levels, self.factors, k, is_written=write_base or k > 0) for k in range(len(levels))
        )
        above = [missing]
        for step in self.factors:
            above.append(above[-1] and above[-1].above(step))
        self.missing = tuple(above)
        self._waiting: dict[tuple[int, Coords], _PendingCell] = {}
        self._expected: dict[tuple[int, Coords], int] | None = None  # elements that come, if not all blocks do
        self._lock = new_lock()

    @property
    def unit(self) -> Coords:
        """Blocks begin at multiples of this, and end at such or where the array ends."""
        return self.cells[0]

    @property
    def geometry(self) -> Cells:
        """What the cells are like, for `gzarr.images.pyramid.units.plan_units`."""
        covers: list[Coords] = []
        window: Coords = (1,) * len(self.levels[0].shape)
        for cells, factors in zip(self.cells, ((1,) * len(window), *self.factors), strict=True):
            window = tuple(map(operator.mul, window, factors))
            covers.append(tuple(map(operator.mul, cells, window)))
        base = self.levels[0]
        nbytes = [
            math.prod(map(min, cells, array.shape)) * base.dtype.itemsize
            for cells, array in zip(self.cells, self.levels, strict=True)
        ]
        chunk = (1,) * len(window) if self.writes_base else base.chunks
        return Cells(base.shape, base.dtype.itemsize, tuple(covers), tuple(nbytes), chunk)

    @property
    def pending_nbytes(self) -> int:
        """Bytes of the cells that wait for parts."""
        return sum(cell.nbytes for cell in list(self._waiting.values()))

    def put(self, start: Coords, block: AnyArray) -> None:
        """Write a block of level 0, and whatever becomes whole above it.

        Parameters
        ----------
        start : tuple of int
            Where it lies in level 0: at a multiple of `unit`.
        block : array
            On the backend's device; of one or many units. It may be changed after the return on the CPU, on a device
            by later work of the current stream.

        Raises
        ------
        ValueError
            If the block begins or ends between units, or the method gives another shape or dtype.
        StoreError
            If a write fails. What was written before stays.
        """
        start = tuple(start)
        if len(self.levels) > 1 and not self._is_whole(0, (start, block.shape)):
            raise ValueError(
                f"a block of shape {block.shape} at {start} of level 0, of shape {self.levels[0].shape}: expected it "
                f"to begin and end at multiples of {self.unit}, or where the array ends"
            )
        self._rise([_Whole(0, start, block)])

    def finish(self) -> None:
        """Write the cells that are whole since the arrays' ends are known, and check that nothing is missing.

        Arrays that grow say their extents at the end; until then, cells at their ends wait for more.
        Raises: ValueError naming what is missing.
        """
        for level in range(1, len(self.levels)):
            for number, cell in [key for key in self._waiting if key[0] == level]:
                waiting = self._waiting[number, cell]
                shape = self._cell(level, cell)[1]
                if waiting.n_present != math.prod(shape):
                    raise ValueError(
                        f"level {level} is incomplete: its block at {waiting.start}, of shape {shape}, has "
                        f"{waiting.n_present} of {math.prod(shape)} elements; put every block of level 0 once"
                    )
                whole = self._complete(level, cell)
                self._rise([whole._replace(block=whole.block[tuple(slice(n) for n in shape)])])

    def expect(self, blocks: Iterable[BlockPlace]) -> None:
        """Wait for some blocks of level 0 alone: the others hold the fill value, which is not stored."""
        self._expected = {}
        ready = list(blocks)
        for level, factors in enumerate(self.factors, 1):
            places = [_above(place, factors) for place in ready]
            cells: dict[Coords, int] = {}
            ready = [place for place in places if self._is_whole(level, place)]
            for place in places:
                for cell, part in self._parts(level, place) if not self._is_whole(level, place) else ():
                    cells[cell] = cells.get(cell, 0) + math.prod(part[1])
            self._expected |= {(level, cell): n for cell, n in cells.items()}
            ready += [self._cell(level, cell) for cell in cells]

    def note(self, start: Coords, shape: Coords) -> None:
        """Take a block of level 0 for one that an earlier run has put, and written with all that became whole."""
        ready: list[tuple[int, BlockPlace]] = [(0, (start, shape))]
        while ready:
            level, place = ready.pop()
            if level + 1 == len(self.levels):
                continue
            place, level = _above(place, self.factors[level]), level + 1
            if self._is_whole(level, place):
                ready.append((level, place))
                continue
            for cell, part in self._parts(level, place):
                waiting = self._pending_cell(level, cell)
                waiting.earlier.append(part)
                waiting.n_present += math.prod(part[1])
                if waiting.n_present == math.prod(waiting.shape):
                    del self._waiting[level, cell]
                    ready.append((level, (waiting.start, waiting.shape)))

    def restore(self) -> None:
        """Compute the pending parts of `note` again, from the level below them, which has been written."""
        for (level, _), waiting in self._waiting.items():
            below, factors = self.levels[level - 1], self.factors[level - 1]
            for start, shape in waiting.earlier:
                region = tuple(
                    slice(o * f, min((o + n) * f, extent))
                    for o, n, f, extent in zip(start, shape, factors, below.shape, strict=True)
                )
                block = self.downsampled(level - 1, tuple(part.start for part in region), below[region])
                waiting.add(_within((start, shape), waiting.start), block, counts=False)

    def downsampled(self, level: int, start: Coords, block: AnyArray) -> AnyArray:
        """A block of a level as it is in the next one."""
        return downsample(self.backend, block, self.factors[level], self.method, self.missing[level], start)

    def _rise(self, ready: list[_Whole]) -> None:
        """Write blocks of whole cells, and what becomes whole above them."""
        while ready:
            whole = ready.pop()
            ready += self._write(*whole[:3])
            if whole.cell is not None:
                whole.cell.free()

    def _write(self, level: int, start: Coords, block: AnyArray) -> list[_Whole]:
        """Write a block and downsample it. Returns: the blocks of whole cells of the next level."""
        if level or self.writes_base:
            self.levels[level][_region(start, block.shape)] = block
        if level + 1 == len(self.levels):
            return []
        factors = self.factors[level]
        above = self.downsampled(level, start, block)
        place = _above((start, block.shape), factors)
        if self._is_whole(level + 1, place):
            return [_Whole(level + 1, place[0], above)]
        return self._gather(level + 1, place[0], above)

    def _gather(self, level: int, start: Coords, block: AnyArray) -> list[_Whole]:
        """Lay a block into pending cells. Returns: those that it has completed."""
        ready = []
        for cell, part in self._parts(level, (start, block.shape)):
            waiting = self._pending_cell(level, cell)
            n_present = waiting.add(_within(part, waiting.start), block[_within(part, start)])
            if n_present == math.prod(waiting.shape):
                ready.append(self._complete(level, cell))
        return ready

    def _pending_cell(self, level: int, cell: Coords) -> _PendingCell:
        """A cell that waits for parts, from now on if it did not."""
        with self._lock:
            if (level, cell) not in self._waiting:
                array, place = self.levels[level], self._cell(level, cell)
                fill = None if self._expected is None else fill_of(array)
                made = _PendingCell(self.backend, place, array.dtype, fill)
                if self._expected is not None:
                    made.n_present = math.prod(place[1]) - self._expected[level, cell]
                self._waiting[level, cell] = made
            return self._waiting[level, cell]

    def _complete(self, level: int, cell: Coords) -> _Whole:
        """Take a whole cell out of what waits."""
        with self._lock:
            waiting = self._waiting.pop((level, cell))
        return _Whole(level, waiting.start, waiting.take(), waiting)

    def _cell(self, level: int, cell: Coords) -> BlockPlace:
        """Where a cell lies, as far as the level reaches."""
        size, extents = self.cells[level], self.levels[level].shape
        start = tuple(k * c for k, c in zip(cell, size, strict=True))
        return start, tuple(min(c, n - o) for c, n, o in zip(size, extents, start, strict=True))

    def _is_whole(self, level: int, place: BlockPlace) -> bool:
        """Whether a block consists of whole cells."""
        return all(
            o % c == 0 and 0 < n <= extent - o and ((o + n) % c == 0 or o + n == extent)
            for o, n, c, extent in zip(*place, self.cells[level], self.levels[level].shape, strict=True)
        )

    def _parts(self, level: int, place: BlockPlace) -> Iterator[tuple[Coords, BlockPlace]]:
        """Cut a block along the cells of a level. Yields: coordinates of a cell, and the part in it."""
        cells = self.cells[level]
        spans = [range(o // c, -(-(o + n) // c)) for o, n, c in zip(*place, cells, strict=True)]
        for coords in itertools.product(*spans):
            low = tuple(max(o, k * c) for o, k, c in zip(place[0], coords, cells, strict=True))
            high = (min(o + n, (k + 1) * c) for o, n, k, c in zip(*place, coords, cells, strict=True))
            yield coords, (low, tuple(h - o for o, h in zip(low, high, strict=True)))


def cell_shape(levels: Sequence[Array], factors: Sequence[tuple[int, ...]], level: int, *, is_written: bool) -> Coords:
    """Shape of the smallest block of a level that can be written whole, and downsampled whole."""
    stored = unit_of(levels[level]) if is_written else (1,) * levels[level].ndim
    window = factors[level] if level < len(factors) else (1,) * len(stored)
    return tuple(math.lcm(n, f) for n, f in zip(stored, window, strict=True))


def unit_of(array: Array) -> Coords:
    """The smallest block of an array that is stored as a whole."""
    return tuple(axis.length if isinstance(axis, RegularAxis) else axis.extent for axis in array.metadata.grid)


def _above(place: BlockPlace, factors: tuple[int, ...]) -> BlockPlace:
    """The place of a downsampled block."""
    start = tuple(o // f for o, f in zip(place[0], factors, strict=True))
    return start, tuple(-(-n // f) for n, f in zip(place[1], factors, strict=True))


def _region(start: Coords, shape: Coords) -> Region:
    return tuple(slice(o, o + n) for o, n in zip(start, shape, strict=True))


def _within(part: BlockPlace, origin: Coords) -> Region:
    """A part as a selection of the block that begins at an origin."""
    return tuple(slice(o - p, o - p + n) for o, n, p in zip(*part, origin, strict=True))
