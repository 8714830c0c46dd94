"""Chunk geometry: how each axis of an array is cut, regularly or at given boundaries.

Axes are independent, so a grid is a tuple of axes. A regular axis has chunks of one length, the last of which may reach
past the extent (it is stored whole, padded). A rectilinear axis has a length for every chunk.
Source: Zarr v3 core, "regular grid"; zarr-extensions, chunk grid "rectilinear".
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RegularAxis:
    """Chunks of ``length`` elements over ``extent`` elements."""

    extent: int
    length: int

    @property
    def nchunks(self) -> int:
        """Number of chunks that hold at least one element."""
        return -(-self.extent // self.length)

    def locate(self, index: int) -> int:
        """The chunk that holds an element."""
        return index // self.length

    def locate_all(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The chunks that hold many elements."""
        return indices // self.length

    def bounds(self, chunk: int) -> tuple[int, int]:
        """First element of a chunk and one past its last, padding included."""
        return chunk * self.length, (chunk + 1) * self.length

    def starts_of(self, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
        """First elements of many chunks."""
        return chunks * self.length

    def edges(self) -> list[int]:
        """Chunk boundaries, from 0 to the extent."""
        return [*range(0, self.extent, self.length), self.extent] if self.extent else [0]

    def subdivided(self, length: int) -> "RegularAxis":
        """The axis with every chunk cut into chunks of ``length``."""
        return RegularAxis(self.extent, length)

    def resized(self, extent: int, multiple: int = 1) -> "RegularAxis":
        """The axis with another extent; its chunks stay as long as they are."""
        return RegularAxis(extent, self.length)


@dataclass(frozen=True, slots=True)
class VaryingAxis:
    """Chunks of the given lengths over ``extent`` elements; together they cover it."""

    extent: int
    lengths: tuple[int, ...]
    starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", (0, *accumulate(self.lengths)))

    @property
    def nchunks(self) -> int:
        """Number of chunks that hold at least one element."""
        return self.locate(self.extent - 1) + 1 if self.extent else 0

    def locate(self, index: int) -> int:
        """The chunk that holds an element."""
        return bisect_right(self.starts, index) - 1

    def locate_all(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The chunks that hold many elements."""
        return np.searchsorted(np.asarray(self.starts), indices, side="right").astype(np.int64) - 1

    def bounds(self, chunk: int) -> tuple[int, int]:
        """First element of a chunk and one past its last."""
        return self.starts[chunk], self.starts[chunk + 1]

    def starts_of(self, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
        """First elements of many chunks."""
        return np.asarray(self.starts, np.int64)[chunks]

    def edges(self) -> list[int]:
        """Chunk boundaries, from 0 to the extent."""
        return [*self.starts[: self.nchunks], self.extent] if self.extent else [0]

    def subdivided(self, length: int) -> "VaryingAxis":
        """The axis with every chunk cut into chunks of ``length``, which divides them all."""
        return VaryingAxis(self.extent, tuple(length for n in self.lengths for _ in range(n // length)))

    def resized(self, extent: int, multiple: int = 1) -> "VaryingAxis":
        """The axis with another extent: growing past the last chunk adds one, shrinking drops those left empty.

        multiple: what the length of a chunk that is added must be a multiple of.
        """
        if extent > self.starts[-1]:
            return VaryingAxis(extent, (*self.lengths, -(-(extent - self.starts[-1]) // multiple) * multiple))
        keep = max(bisect_right(self.starts, extent - 1), 1) if extent else 1
        return VaryingAxis(extent, self.lengths[:keep])


Axis: TypeAlias = RegularAxis | VaryingAxis
Grid: TypeAlias = tuple[Axis, ...]


def chunk_shape(grid: Sequence[Axis], coords: Sequence[int]) -> tuple[int, ...]:
    """Shape in elements of one chunk, padding included."""
    axes = zip(grid, coords, strict=True)
    return tuple([axis.length if isinstance(axis, RegularAxis) else axis.lengths[c] for axis, c in axes])


def largest_chunk(grid: Sequence[Axis]) -> tuple[int, ...]:
    """Shape in elements of the largest chunk, padding included."""
    return tuple([axis.length if isinstance(axis, RegularAxis) else max(axis.lengths) for axis in grid])


def is_regular(grid: Sequence[Axis]) -> bool:
    """Whether every chunk has the same shape."""
    return VaryingAxis not in map(type, grid)


def nchunks(grid: Sequence[Axis]) -> int:
    """Number of chunks of the grid."""
    return prod([axis.nchunks for axis in grid])


def cut_chunks(grid: Sequence[Axis]) -> tuple[int, ...]:
    """Coordinate of the chunk of each axis that reaches past the extent; -1 where there is none."""
    lasts = [(axis, axis.nchunks - 1) for axis in grid]
    return tuple([last if last >= 0 and axis.bounds(last)[1] > axis.extent else -1 for axis, last in lasts])
