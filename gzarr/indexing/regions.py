"""Cuts an array into regions that are copied or compared one at a time: whole objects, bounded in memory.

Every stored object of the destination is in one region, so it is written once and never read back. A source chunk in
several regions is decoded once for each. Regions grow, within their limit, along the axis that saves most of that.
"""

from __future__ import annotations

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
    """The regions of an array: the product of the cuts of its axes.

    Attributes
    ----------
    cuts : tuple
        For every axis, the (start, stop) of its pieces.
    nbytes : int
        Decoded size of the largest region.
    reads : float
        How often a source chunk is decoded on average; 1.0 if every region holds whole source chunks.
    """

    cuts: tuple[tuple[tuple[int, int], ...], ...]
    nbytes: int
    reads: float

    def __len__(self) -> int:
        return math.prod(len(axis) for axis in self.cuts)

    def __iter__(self) -> Iterator[Region]:
        return (tuple(slice(*piece) for piece in pieces) for pieces in itertools.product(*self.cuts))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the largest region."""
        return tuple(max((stop - start for start, stop in axis), default=0) for axis in self.cuts)


def cut(source: Grid, dest: Grid, itemsize: int, limit_nbytes: int, target_nbytes: int = TARGET_NBYTES) -> Regions:
    """Cut an array into regions of at most ``limit_nbytes`` decoded bytes, but at least one object of the destination.

    ``source`` is the grid of chunks that are read whole, ``dest`` the grid of objects that are written whole, and
    ``itemsize`` the bytes of an element. Regions grow to ``target_nbytes`` even if that saves nothing.
    """
    counts = [1] * len(dest)

    def nbytes(counts: Sequence[int]) -> int:
        return math.prod(_length(axis, k) for axis, k in zip(dest, counts, strict=True)) * itemsize

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
    return Regions(tuple(_pieces(d, k) for d, k in zip(dest, counts, strict=True)), nbytes(counts), reads)


def _length(axis: Axis, count: int) -> int:
    """Elements of the longest run of ``count`` chunks."""
    if isinstance(axis, RegularAxis):
        return min(axis.length * count, axis.extent)
    return max((stop - start for start, stop in _pieces(axis, count)), default=0)


def _pieces(axis: Axis, count: int) -> tuple[tuple[int, int], ...]:
    """An axis cut after every ``count`` chunks."""
    starts = [axis.bounds(chunk)[0] for chunk in range(0, axis.nchunks, count)]
    return tuple(zip(starts, [*starts[1:], axis.extent][: len(starts)], strict=True))


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
        npieces = -(-dest.extent // length)
        common = (dest.extent - 1) // math.lcm(source.length, length)
    else:
        pieces = _pieces(dest, count)
        npieces = len(pieces)
        common = len({start for start, _ in pieces[1:]} & set(source.edges()[1:-1]))
    return (source.nchunks + npieces - 1 - common) / source.nchunks
