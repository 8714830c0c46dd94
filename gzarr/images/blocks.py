"""Arrays cut into blocks of one shape."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """A regular grid of blocks over an array.

    Attributes
    ----------
    shape, block : tuple of int
        Shapes of the array and of a block; the last blocks of an axis may be smaller.
    """

    shape: Coords
    block: Coords

    @property
    def counts(self) -> Coords:
        """Number of blocks along each axis."""
        return tuple(-(-extent // step) for extent, step in zip(self.shape, self.block, strict=True))

    def __len__(self) -> int:
        return prod(self.counts)

    def __iter__(self) -> Iterator[Coords]:
        return itertools.product(*map(range, self.counts))

    def region(self, coords: Coords) -> Region:
        """Where a block lies."""
        each = zip(coords, self.block, self.shape, strict=True)
        return tuple(slice(at * step, min((at + 1) * step, extent)) for at, step, extent in each)

    def at(self, number: int) -> Coords:
        """The coordinates of the block with a number, in order."""
        return tuple(map(int, np.unravel_index(number, self.counts))) if self.counts else ()

    def neighbour(self, coords: Coords, step: Coords) -> Coords | None:
        """The block a step away; None beyond the ends."""
        there = tuple(at + move for at, move in zip(coords, step, strict=True))
        inside = all(0 <= at < count for at, count in zip(there, self.counts, strict=True))
        return there if inside else None


def start_of(region: Region) -> Coords:
    """Where a region begins."""
    return tuple(part.start for part in region)
