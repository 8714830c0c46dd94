"""Cuts an array into regions that are copied or compared one at a time: whole objects, bounded in memory.

Every stored object of the destination is in one region, so it is written once and never read back. A source chunk in
several regions is decoded once for each. Regions grow, within their limit, along the axis that saves most of that.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gzarr.indexing.grid import Axis, Grid, RegularAxis

Region: TypeAlias = tuple[slice, ...]

#: Regions grow to this size, within their limit, so that their fixed costs do not matter.
TARGET_NBYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Regions:
    """The regions of an array: runs of whole chunks of a grid along every axis. Nothing is listed.

    Attributes
    ----------
    grid : Grid
        The chunks, or objects, that are in one region each.
    counts : tuple of int
        How many of them a region has along every axis; the last may have fewer.
    itemsize : int
        Bytes of an element.
    reads : float
        How often a source chunk is decoded on average; 1.0 if every region holds whole source chunks.
    """

    grid: Grid
    counts: tuple[int, ...]
    itemsize: int
    reads: float = 1.0

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of regions along every axis."""
        return tuple([-(-axis.nchunks // n) for axis, n in zip(self.grid, self.counts, strict=True)])

    def __len__(self) -> int:
        return math.prod(self.lengths)

    def __iter__(self) -> Iterator[Region]:
        return map(self.at, range(math.prod(self.lengths)))

    def region(self, number: Sequence[int]) -> Region:
        """A region by its position."""
        firsts = [i * n for i, n in zip(number, self.counts, strict=True)]
        lasts = [min(i + n, axis.nchunks) - 1 for i, n, axis in zip(firsts, self.counts, self.grid, strict=True)]
        return chunks_region(self.grid, firsts, lasts)

    def at(self, number: int, order: Sequence[int] | None = None) -> Region:
        """A region by its place in the order of all. order: of the axes, the last of which varies fastest.

        Raises: IndexError if there are not so many.
        """
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} regions, from 0 on; there is no region {number}")
        lengths, position = self.lengths, [0] * len(self.counts)
        for axis in reversed(range(len(lengths)) if order is None else order):
            number, position[axis] = divmod(number, lengths[axis])
        return self.region(position)

    def within(self, around: Region) -> Iterator[Region]:
        """The regions in a part of the array, each cut to it."""
        axes = zip(chunk_spans(self.grid, around), self.counts, strict=True)
        for number in itertools.product(*[range(span.start // n, -(-span.stop // n)) for span, n in axes]):
            parts = zip(self.region(number), around, strict=True)
            yield tuple([slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in parts])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the largest region."""
        return tuple([_length(axis, n) for axis, n in zip(self.grid, self.counts, strict=True)])

    @property
    def nbytes(self) -> int:
        """Decoded size of the largest region."""
        return math.prod(self.shape) * self.itemsize


def size_of(region: Region) -> int:
    """Number of elements of a region."""
    return math.prod([part.stop - part.start for part in region])


def chunk_spans(grid: Grid, region: Region) -> list[range]:
    """The chunks that a region touches, along every axis."""
    return [
        range(axis.locate(part.start), axis.locate(part.stop - 1) + 1) if part.stop > part.start else range(0)
        for axis, part in zip(grid, region, strict=True)
    ]


def chunks_region(grid: Grid, first: Sequence[int], last: Sequence[int] | None = None) -> Region:
    """The elements of an array in one chunk, or from one chunk to another."""
    axes = zip(grid, first, first if last is None else last, strict=True)
    return tuple([slice(axis.bounds(a)[0], min(axis.bounds(b)[1], axis.extent)) for axis, a, b in axes])


def cut(source: Grid, dest: Grid, itemsize: int, limit_nbytes: int, target_nbytes: int = TARGET_NBYTES) -> Regions:
    """Cut an array into regions of at most ``limit_nbytes`` decoded bytes, but at least one object of the destination.

    ``source`` is the grid of chunks that are read whole, ``dest`` the grid of objects that are written whole, and
    ``itemsize`` the bytes of an element. Regions grow to ``target_nbytes`` even if that saves nothing.
    """
    counts = [1] * len(dest)

    def nbytes(counts: Sequence[int]) -> int:
        return Regions(dest, tuple(counts), itemsize).nbytes

    while True:
        best, gain = None, 1e-9
        for axis, (s, d) in enumerate(zip(source, dest, strict=True)):
            for more in _candidates(s, d, counts[axis]):
                trial = [*counts[:axis], more, *counts[axis + 1 :]]
                if nbytes(trial) > limit_nbytes:
                    continue
                saved = math.log(_reads(s, d, counts[axis]) / _reads(s, d, more)) / math.log(more / counts[axis])
                if saved > gain:
                    best, gain = trial, saved
        if best is None:
            break
        counts = best
    for axis in reversed(range(len(dest))):
        while counts[axis] < dest[axis].nchunks:
            trial = [*counts[:axis], min(counts[axis] * 2, dest[axis].nchunks), *counts[axis + 1 :]]
            if nbytes(trial) > min(limit_nbytes, target_nbytes):
                break
            counts = trial
    reads = math.prod(_reads(s, d, k) for s, d, k in zip(source, dest, counts, strict=True))
    return Regions(dest, tuple(counts), itemsize, reads)


def _length(axis: Axis, count: int) -> int:
    """Elements of the longest run of ``count`` chunks."""
    if isinstance(axis, RegularAxis):
        return min(axis.length * count, axis.extent)
    starts = _starts(axis, count)
    return max((stop - start for start, stop in itertools.pairwise([*starts, axis.extent])), default=0)


def _starts(axis: Axis, count: int) -> list[int]:
    """Where regions of so many chunks begin on an axis."""
    return [axis.bounds(chunk)[0] for chunk in range(0, axis.nchunks, count)]


def _candidates(source: Axis, dest: Axis, count: int) -> Iterator[int]:
    """Larger numbers of chunks for a region on an axis."""
    if count < dest.nchunks:
        yield min(count * 2, dest.nchunks)
        yield dest.nchunks
        if isinstance(source, RegularAxis) and isinstance(dest, RegularAxis):
            aligned = math.lcm(source.length, dest.length) // dest.length
            covering = -(-source.length // dest.length)
            yield from (k for k in (aligned, covering) if count < k < dest.nchunks)


def _reads(source: Axis, dest: Axis, count: int) -> float:
    """How often a source chunk is read along an axis, on average."""
    if not source.nchunks or not dest.nchunks:
        return 1.0
    if isinstance(source, RegularAxis) and isinstance(dest, RegularAxis):
        length = dest.length * count
        nregions = -(-dest.extent // length)
        common = (dest.extent - 1) // math.lcm(source.length, length)
    else:
        starts = _starts(dest, count)
        nregions, common = len(starts), len(set(starts[1:]) & set(source.edges()[1:-1]))
    return (source.nchunks + nregions - 1 - common) / source.nchunks
