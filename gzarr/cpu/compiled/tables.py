"""Parts of a box as tables of numbers for the compiled loop, without an object for each chunk.

The parts are the product of the axes' spans, so the tables are as long as the axes together. A *piece* is a run of
parts that one call of the loop does. The tables of points are in `gzarr.cpu.compiled.points`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.copies import CopyPlan, Fragments, chunk_numbers, make_copies
from gzarr.indexing.grid import Grid, nchunks
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import BoxPlan, Part
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import FULL, RangeSpans, Span, chunks_of, make_rows
from gzarr.layout.chunk_layout import Layout

T = TypeVar("T")

_pack_span = struct.Struct("8q").pack

#: Axes that the loop's tables have room for (MAX_NDIM).
MAX_NDIM = 32
#: Longest axis: no number in the tables overflows, however long the chunks.
MAX_EXTENT = 1 << 62

#: Chunks of an array that have numbers of 64 bits.
_MAX_NCHUNKS = 2**63 - 1
#: The coordinates of fewer chunks are made one by one.
_FEW = 12
#: A table of more spans (64 bytes each) is not made: each piece gets one of its own spans.
_MAX_SPANS = 1 << 14

#: The loop's tables: spans and index lists for a box; for points rows, starts, bytes in chunks, places in the result.
Tables: TypeAlias = tuple[Any, Any, Any, Any]


class Piece(NamedTuple):
    """A run of parts that one call of the loop does.

    Attributes
    ----------
    first, n : int
        Its first part among those of the window, and how many it has.
    shard : Coords or None
        Coordinates of the shard that holds them; None for chunks that are files.
    window : tuple[tuple[int, int], ...]
        First span and number of spans for every axis of a box; nothing for points.
    whole : tuple[int, int]
        First part and number of parts of the piece that this one was cut from.
    """

    first: int
    n: int
    shard: Coords | None
    window: tuple[tuple[int, int], ...]
    whole: tuple[int, int]

    def cut(self, size: int, n_threads: int = 1) -> Iterator[Piece]:
        """The same in pieces of at most so many parts. n_threads: see `spread`."""
        for number in spread(-(-self.n // size), n_threads):
            first = number * size
            yield self._replace(first=self.first + first, n=min(size, self.n - first))


def spread(n: int, n_threads: int) -> Iterator[int]:
    """The numbers below n, in an order in which threads that take them one by one stay apart from each other.

    Chunks beside each other are in the same pages of the result, which the system clears for every thread that finds
    them missing, and in the same directory, which one thread at a time may change.
    """
    share = -(-n // max(n_threads, 1))
    return (number for first in range(share) for number in range(first, n, share))


#: Pieces, one for each shard, and how many shards.
Shards: TypeAlias = tuple[Iterator[Piece], int]


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
    """The parts of a box: number i is the i-th of the product of a window's spans.

    Attributes
    ----------
    nparts
        Number of parts.
    npoints
        -1: these are no points.
    """

    def __init__(self, plan: BoxPlan) -> None:
        self._plan = plan
        self._starts = tuple(accumulate((len(spans) for spans in plan.axes), initial=0))[:-1]
        self.nparts, self.npoints = plan.nparts, -1
        self._chunks: list[Indices] | None = None  # of all spans, for every axis
        self._segments: list[list[str]] | None = None  # the same as parts of keys
        self._full: bool | None = None  # whether all parts are

    def tables(self) -> Tables:
        """The loop's tables."""
        lists = _Lists()
        rows = b"".join(_rows(spans, lists) for spans in self._plan.axes)
        return rows, lists.table(), b"", b""

    @property
    def are_many(self) -> bool:
        """Whether tables are made for each piece, as one of all spans would be large."""
        counts = [len(spans) for spans in self._plan.axes]
        if sum(counts) <= _MAX_SPANS:
            return False
        few = [n for n, spans in zip(counts, self._plan.axes, strict=True) if not isinstance(spans, RangeSpans)]
        return sum(few) <= _MAX_SPANS

    def tables_of(self, piece: Piece) -> tuple[Tables, tuple[list[int], list[int]], int]:
        """The loop's tables of the spans that a piece needs.

        Returns: the tables, for every axis the first span in them and the number of spans, and the piece's first part
        among theirs.
        """
        shape = [n for _, n in piece.window]
        low, high = (_unravel(number, shape) for number in (piece.first, piece.first + piece.n - 1))
        cut = next((a for a, (one, other) in enumerate(zip(low, high, strict=True)) if one != other), len(shape) - 1)
        lists, rows, first = _Lists(), [], 0
        firsts: list[int] = []
        counts: list[int] = []
        for a, (spans, (begin, n)) in enumerate(zip(self._plan.axes, piece.window, strict=True)):
            taken = (low[a], high[a] - low[a] + 1) if a <= cut else (0, n)
            rows.append(_rows(spans, lists, (begin + taken[0], taken[1])))
            firsts.append(sum(counts))
            counts.append(taken[1])
            first = first * taken[1] + (low[a] - taken[0])
        return (b"".join(rows), lists.table(), b"", b""), (firsts, counts), first

    def whole(self) -> Piece:
        """All parts, of chunks that are files."""
        return Piece(0, self.nparts, None, tuple((0, len(spans)) for spans in self._plan.axes), (0, self.nparts))

    def by_shard(self, layout: Layout, n_threads: int) -> Shards:
        """The parts of every shard, and the number of shards. n_threads: see `spread`."""
        windows = [axis.tolist() for axis in self._plan.windows(layout.objects)]
        n = prod(map(len, windows))
        return (_piece_of(_nth(windows, number)) for number in spread(n, n_threads)), n

    def as_copies(self, objects: Grid) -> CopyPlan | None:
        """The parts as copies to a single slot, the result; None if some take more than a run of every axis."""
        rows = np.frombuffer(self.tables()[0], np.int64).reshape(-1, 8)
        n, steps, lists = rows[:, 1:2], rows[:, [3, 6]], rows[:, [4, 7]]
        if (lists >= 0).any() or ((n > 1) & (steps > 1)).any() or nchunks(self._plan.grid) > _MAX_NCHUNKS:
            return None
        axes, shape = self._plan.axes, [len(spans) for spans in self._plan.axes]
        picked = np.indices(shape).reshape(len(axes), -1) + np.array(self._starts)[:, None]
        chunks, counts, inside, place = rows[picked][:, :, [0, 1, 2, 5]].transpose(2, 1, 0)
        slots = np.zeros(len(chunks), np.int64)
        grid = self._plan.grid
        fragments = Fragments(slots, chunk_numbers(chunks, grid), inside, counts, place)
        return make_copies(fragments, slots, (1, *self._plan.shape), 1, grid, objects)

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

    def places(self, piece: Piece) -> tuple[list[int], list[int]]:
        """The first span of every axis in the table, and the number of its spans."""
        firsts = [start + first for start, (first, _) in zip(self._starts, piece.window, strict=True)]
        return firsts, [n for _, n in piece.window]

    def are_full(self, piece: Piece) -> bool:
        """Whether all parts of a piece's window are full."""
        if self._full is None:
            self._full = all(_are_full(spans, 0, len(spans)) for spans in self._plan.axes)
        windows = zip(self._plan.axes, piece.window, strict=True)
        return self._full or all(_are_full(spans, *window) for spans, window in windows)

    def coords(self, piece: Piece) -> Iterator[Coords]:
        """Coordinates of the chunks of a piece, in the order of its parts."""
        if piece.n < _FEW:
            return iter([self._coords_of(piece, number) for number in range(piece.first, piece.first + piece.n)])
        numbers = np.unravel_index(np.arange(piece.first, piece.first + piece.n), [n for _, n in piece.window])
        axes = zip(self._columns(), piece.window, numbers, strict=True)
        return zip(*[chunks[first + rows].tolist() for chunks, (first, _), rows in axes], strict=True)

    def keys(self, piece: Piece, prefix: str, separator: str) -> list[str]:
        """Keys of the chunks of a piece, in the order of its parts."""
        if sum(len(spans) for spans in self._plan.axes) > _MAX_SPANS:
            return [prefix + separator.join(map(str, coords)) for coords in self.coords(piece)]
        if self._segments is None:
            self._segments = [list(map(str, chunks.tolist())) for chunks in self._columns()]
        numbers: Iterable[int] = range(piece.first, piece.first + piece.n)
        columns = []
        for (first, n), segments in zip(reversed(piece.window), reversed(self._segments), strict=True):
            columns.append([segments[first + number % n] for number in numbers])
            numbers = [number // n for number in numbers]
        return [prefix + separator.join(segments) for segments in zip(*columns[::-1], strict=True)]

    def part(self, piece: Piece, number: int) -> Part:
        """One part of a piece's window."""
        return self._plan.part(_spans_of(piece, number))

    def _columns(self) -> list[Indices]:
        """Coordinates of the chunks of all spans, for every axis."""
        # No cached_property: before Python 3.12 it has a lock, which a fork may copy locked.
        if self._chunks is None:
            self._chunks = [chunks_of(spans) for spans in self._plan.axes]
        return self._chunks

    def _coords_of(self, piece: Piece, number: int) -> Coords:
        picked = _spans_of(piece, number)
        return tuple([spans[at].chunk for spans, at in zip(self._plan.axes, picked, strict=True)])


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


def piece_tables(
    parts: Any, tables: Tables | None, piece: Piece, shard: Sequence[Sequence[int]] = ()
) -> tuple[Tables, bytes, int]:
    """What the loop is told of a piece: tables, its struct Window, and the number of the first part.

    parts: `Boxes` or points. tables: of all parts, if they are not many. shard: the last rows of the window.
    """
    places, first = None, piece.first
    if tables is None:
        tables, places, first = parts.tables_of(piece)
    return tables, make_window(*(places or parts.places(piece)), *shard), first


def part_spans(parts: Sequence[Part]) -> tuple[bytes, bytes] | None:
    """The loop's tables for single parts of boxes: spans, and the row of each part's span on every axis.

    Returns: None if some part is not made of slices, or has numbers that the loop does not hold.
    """
    known: list[dict[int, tuple[int, slice, slice]]] = [{} for _ in parts[0].coords]
    spans: list[bytes] = []
    rows: list[int] = []
    for coords, insides, outs, _ in parts:
        if type(outs) is not tuple or type(insides) is not tuple:
            return None
        for axis, chunk, inside, out in zip(known, coords, insides, outs, strict=True):
            if type(inside) is not slice or type(out) is not slice:
                return None
            span = axis.get(chunk)
            if span is None or span[1] != inside or span[2] != out:  # parts of one box share their slices
                step = out.step or 1
                count = (out.stop - out.start + step - 1) // step
                span = axis[chunk] = len(spans), inside, out
                try:
                    spans.append(_pack_span(chunk, count, inside.start, inside.step or 1, -1, out.start, step, -1))
                except struct.error:  # a chunk beyond 2^63
                    return None
            rows.append(span[0])
    return b"".join(spans), np.array(rows, np.int32).tobytes()


def make_window(*rows: Sequence[int]) -> bytes:
    """The loop's struct Window: for every axis the first span, number of spans, first chunk, entries of an index.

    Rows that are left out are zeros.
    """
    ndim = len(rows[0])
    values = [value for row in rows for value in row]
    return struct.pack(f"{4 * ndim}q", *values, *(0,) * (4 * ndim - len(values)))


def _spans_of(piece: Piece, number: int) -> list[int]:
    """Which span of each axis a part of a piece's window is made of."""
    picked = _unravel(number, [n for _, n in piece.window])
    return [first + position for (first, _), position in zip(piece.window, picked, strict=True)]


def _unravel(number: int, shape: Sequence[int]) -> list[int]:
    """The position of an element in C order."""
    picked = []
    for n in reversed(shape):
        number, position = divmod(number, n)
        picked.append(position)
    return picked[::-1]


def _nth(axes: Sequence[Sequence[T]], number: int) -> tuple[T, ...]:
    """One element of the product of some sequences, by its number."""
    picked: list[T] = []
    for axis in reversed(axes):
        number, position = divmod(number, len(axis))
        picked.append(axis[position])
    return tuple(picked[::-1])


def _piece_of(windows: tuple[tuple[int, int, int], ...]) -> Piece:
    counts = tuple((first, n) for _, first, n in windows)
    n = prod(n for _, n in counts)
    return Piece(0, n, tuple(owner for owner, _, _ in windows), counts, (0, n))


class _Lists:
    """Index lists, one after the other."""

    def __init__(self) -> None:
        self._lists: list[Indices] = []
        self._size = 0

    def add(self, indices: Indices) -> int:
        """Add one. Returns: where it begins."""
        self._lists.append(indices)
        self._size += len(indices)
        return self._size - len(indices)

    def table(self) -> bytes:
        """All of them."""
        return np.concatenate(self._lists, dtype=np.int64).tobytes() if self._lists else b""


def _are_full(spans: Sequence[Span], first: int, n: int) -> bool:
    if isinstance(spans, RangeSpans):  # only at its ends a chunk may be cut
        return spans.wanted.step == 1 and spans[first].full and spans[first + n - 1].full
    return bool(make_rows(spans)[0][first : first + n, FULL].all())


def _rows(spans: Sequence[Span], lists: _Lists, some: tuple[int, int] | None = None) -> bytes:
    """The loop's struct Span of every span. lists: where index lists are added. some: the first, and how many."""
    if some is None:
        rows, own = make_rows(spans)
    else:
        picked = slice(some[0], sum(some))
        rows, own = (spans.rows(picked), spans.lists) if isinstance(spans, RangeSpans) else make_rows(spans)
        rows = rows if isinstance(spans, RangeSpans) else rows[picked]
    rows = rows.copy()
    if own.size:
        listed, sides = rows[:, 4] >= 0, rows[:, [4, 7]]
        rows[listed, 3] = rows[listed, FULL]
        rows[:, [4, 7]] = np.where(sides >= 0, sides + lists.add(own), -1)
    return rows[:, :8].tobytes()
