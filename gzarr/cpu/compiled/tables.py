"""Parts of a box as tables of numbers for devices, without an object for each chunk."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import BoxPlan
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import IN_LIST, OUT_LIST, chunks_of, make_rows
from gzarr.layout.chunk_layout import Layout

_NOTHING: Indices = np.empty(0, np.int64)


class Windows(NamedTuple):
    """The parts of a box by shard: those of the first shard, then those of the next one, in C order of the shards.

    Chunks that are files are in one window, as if in a single shard.

    Attributes
    ----------
    shape : tuple[int, ...]
        How many windows every axis has; their product are the shards.
    ends : Indices
        int64 (shards + 1,): number of the first part of each shard, and how many parts there are.
    chunks : tuple[Indices, ...]
        Coordinates of the chunks of the spans of every axis.
    axes, column, table : Indices
        The loop's tables: of every axis (ndim, 4); `chunks`, one axis after the other; of every window (windows, 3),
        its shard's coordinate, its first span, and how many.
    numbers : Indices
        int64 (parts,): for a list of chunks, the number of each in its shard's window; empty for a box, of which all
        parts of every window are wanted.
    owners : Indices
        int64 (shards,): for a list of chunks, the numbers of their shards in the product of the windows.
    """

    shape: tuple[int, ...]
    ends: Indices
    chunks: tuple[Indices, ...]
    axes: Indices
    column: Indices
    table: Indices
    numbers: Indices = _NOTHING
    owners: Indices = _NOTHING

    def runs(self, first: int, last: int) -> Indices:
        """Some parts, by their numbers, as a table of runs (m, 3): shard, first part, how many.

        The first part is counted in the shard's window, or among `numbers` if there are any.
        """
        low, high = np.searchsorted(self.ends, [first, last - 1], side="right").tolist()
        shards = np.arange(low - 1, high) if last > first else np.arange(0)
        begins = np.maximum(self.ends[shards], first)
        counts = np.minimum(self.ends[shards + 1], last) - begins
        if self.numbers.size:
            return np.stack([self.owners[shards], begins, counts], axis=1)
        return np.stack([shards, begins - self.ends[shards], counts], axis=1)

    def coords(self, spans: NDArray[np.int32]) -> Indices:
        """Coordinates (n, ndim) of the chunks of some parts. spans: (n, ndim), the row of each on every axis."""
        return np.stack([chunks[rows] for chunks, rows in zip(self.chunks, spans.T, strict=True)], axis=1)

    def shard(self, number: int) -> Coords:
        """Coordinates of one of the shards that have parts."""
        numbers = np.array([number]) if not self.owners.size else self.owners[number : number + 1]
        return tuple(self.shards(numbers)[0].tolist())

    def shards(self, numbers: Indices) -> Indices:
        """Coordinates (n, ndim) of some shards, by their numbers in the product of the windows."""
        picked = np.unravel_index(numbers, self.shape)
        return np.stack([self.table[row[2] + at, 0] for row, at in zip(self.axes, picked, strict=True)], axis=1)


class Boxes:
    """The parts of a box: number i is the i-th of the product of a window's spans."""

    def __init__(self, plan: BoxPlan) -> None:
        self._plan = plan
        self._starts = tuple(accumulate((len(spans) for spans in plan.axes), initial=0))[:-1]
        self._chunks: list[Indices] | None = None  # of all spans, for every axis

    def tables(self) -> tuple[bytes, bytes]:
        """The loop's tables of spans and of index lists."""
        rows, lists, nlists = [], [], 0
        for spans in self._plan.axes:
            own, named = make_rows(spans)
            sides = own[:, [IN_LIST, OUT_LIST]]
            own = own.copy()
            own[:, [IN_LIST, OUT_LIST]] = np.where(sides >= 0, sides + nlists, -1)
            rows.append(own)
            lists.append(named)
            nlists += named.size
        return np.concatenate(rows).tobytes(), np.concatenate(lists).tobytes()

    def windows(self, layout: Layout) -> Windows:
        """The parts by shard, or all in one window if chunks are files, for calls that take runs of them."""
        spans = [len(axis) for axis in self._plan.axes]
        by_axis = [[(0, 0, n)] for n in spans]
        if layout.objects is not layout.grid:
            by_axis = [axis.tolist() for axis in self._plan.windows(layout.objects)]
        shape = tuple(map(len, by_axis))
        counts = np.ones(1, np.int64)
        for windows in by_axis:
            counts = np.multiply.outer(counts, [n for _, _, n in windows]).reshape(-1)
        return Windows(
            shape=shape,
            ends=np.concatenate([[0], np.cumsum(counts)]),
            chunks=(chunks := tuple(self._columns())),
            axes=np.stack([self._starts, spans, _starts_of(shape), shape], axis=1),
            column=np.concatenate(chunks),
            table=np.array([window for windows in by_axis for window in windows], np.int64),
        )

    def _columns(self) -> list[Indices]:
        """Coordinates of the chunks of all spans, for every axis."""
        # No cached_property: before Python 3.12 it has a lock, which a fork may copy locked.
        if self._chunks is None:
            self._chunks = [chunks_of(spans) for spans in self._plan.axes]
        return self._chunks


def list_windows(coords: Indices, layout: Layout) -> Windows:
    """Make the windows of a list of chunks. coords: (n, ndim), those of one shard together."""
    axes = [np.unique(column, return_inverse=True) for column in coords.T]
    chunks, spans = [axis[0] for axis in axes], np.stack([axis[1] for axis in axes])
    firsts = [np.zeros(1, np.int64) for _ in axes]
    owners = [np.zeros(1, np.int64) for _ in axes]
    if layout.objects is not layout.grid:
        for a, (axis, owner_axis) in enumerate(zip(layout.grid, layout.objects, strict=True)):
            owners[a], firsts[a] = np.unique(owner_axis.locate_all(axis.starts_of(chunks[a])), return_index=True)
    counts = [np.diff(first, append=chunk.size) for first, chunk in zip(firsts, chunks, strict=True)]
    numbers, shards = np.zeros(len(coords), np.int64), np.zeros(len(coords), np.int64)
    for first, count, span in zip(firsts, counts, spans, strict=True):
        window = np.searchsorted(first, span, side="right") - 1
        shards = shards * first.size + window
        numbers = numbers * count[window] + (span - first[window])
    begins = np.flatnonzero(np.concatenate([[True], shards[1:] != shards[:-1]]))
    return Windows(
        shape=(shape := tuple(first.size for first in firsts)),
        ends=np.append(begins, len(coords)),
        chunks=tuple(chunks),
        axes=np.stack([_starts_of(map(len, chunks)), list(map(len, chunks)), _starts_of(shape), shape], axis=1),
        column=np.concatenate(chunks),
        table=np.stack([np.concatenate(columns) for columns in (owners, firsts, counts)], axis=1),
        numbers=numbers,
        owners=shards[begins],
    )


def _starts_of(counts: Iterable[int]) -> list[int]:
    """Where each of some pieces begins that follow one another."""
    return list(accumulate(counts, initial=0))[:-1]
