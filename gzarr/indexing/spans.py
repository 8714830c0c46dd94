"""Cuts one axis of a selection along its chunks: which elements of each chunk go where in the result.

Theory of operation. What an axis takes of one chunk is a `Span`. The spans of a long range or list of indices are a
sequence that makes its members when they are looked at (`ColumnSpans`). Tables take their rows of numbers instead,
without an object for each chunk (`make_rows`).
"""

import struct
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.grid import Axis, RegularAxis
from gzarr.indexing.selection import Indices, Range

#: A range over no more chunks is cut at once, and so is a list of no more indices.
MIN_SPAN_CHUNKS, MIN_SPAN_INDICES = 8, 16
#: Ends of chunks of longer axes may have no number of 64 bits.
_MAX_EXTENT = 1 << 62
#: NumPy sorts integers of 16 bits by radix, ten times faster than longer ones.
_MAX_NARROW = 1 << 16

_NO_LISTS = np.empty(0, np.int64)


class Span(NamedTuple):
    """The elements that one axis of a box takes from one chunk.

    Attributes
    ----------
    chunk : int
        Coordinate of the chunk on this axis.
    inside : slice or Indices
        What is taken, relative to the chunk: a slice or an index array.
    out : slice or Indices
        Where it is in the result: a slice or an index array.
    full : bool
        Whether it is every element of the chunk that is within the array.
    """

    chunk: int
    inside: slice | Indices
    out: slice | Indices
    full: bool


#: Columns of a span as a row of numbers: coordinate of the chunk; number of elements; what is taken, relative to the
#: chunk, and where it is in the result, each as start, step and list; and whether that is every element of the chunk
#: within the array. Where a list is not -1, it is the place in a table of indices where ``count`` of them begin.
CHUNK, COUNT, IN_START, IN_STEP, IN_LIST, OUT_START, OUT_STEP, OUT_LIST, FULL = range(9)
N_COLUMNS = 9
pack_span = struct.Struct(f"{N_COLUMNS}q").pack


class IndexLists:
    """The index lists of a table, each of which is there once."""

    __slots__ = ("_firsts", "_lists", "_n")

    def __init__(self) -> None:
        self._firsts: dict[int, int] = {}  # by identity
        self._lists: list[Indices] = []  # which keeps them alive, and so their identities
        self._n = 0

    def sides(self, inside: Any, out: Any) -> tuple[int, ...]:
        """Return the columns `COUNT` to `OUT_LIST` of a span."""
        sides: list[int] = []
        count = 0
        for index in (inside, out):
            if type(index) is slice:
                step = index.step or 1
                count = (index.stop - index.start + step - 1) // step
                sides += index.start, step, -1
            else:
                count = index.size
                sides += 0, 0, self._place_of(index)
        return count, *sides

    def joined(self) -> Indices:
        """Return the lists one after the other."""
        joined = [np.ascontiguousarray(indices, np.int64).reshape(-1) for indices in self._lists]
        return np.concatenate(joined) if joined else _NO_LISTS

    def _place_of(self, index: Indices) -> int:
        name = id(index)
        if name not in self._firsts:
            self._firsts[name] = self._n
            self._lists.append(index)
            self._n += index.size
        return self._firsts[name]


class ColumnSpans(Sequence[Span]):
    """Spans that are rows of numbers, made into objects when they are looked at.

    Attributes
    ----------
    lists : Indices
        Index lists, one after the other.
    """

    __slots__ = ()

    lists = _NO_LISTS

    @property
    @abstractmethod
    def chunks(self) -> Indices:
        """Coordinates of the chunks."""

    @abstractmethod
    def rows(self, numbers: Indices | None = None) -> Indices:
        """Return spans, all or those with some numbers, as rows of `N_COLUMNS` numbers: int64 (n, 9)."""

    def __iter__(self) -> Iterator[Span]:
        return iter([span_of(row, self.lists) for row in self.rows().tolist()])

    def __getitem__(self, index: Any) -> Any:
        """One span by its number; nobody asks for slices."""
        (row,) = self.rows(np.array([range(len(self))[index]])).tolist()
        return span_of(row, self.lists)


class RangeSpans(ColumnSpans):
    """The spans of a range over many regular chunks, each of which it touches.

    Attributes
    ----------
    wanted : Range
        The range.
    """

    __slots__ = ("_axis", "_first", "_n", "wanted")

    def __init__(self, wanted: Range, axis: RegularAxis) -> None:
        self.wanted, self._axis = wanted, axis
        self._first = axis.locate(wanted.start)
        self._n = axis.locate(wanted.start + (wanted.size - 1) * wanted.step) - self._first + 1

    @property
    def chunks(self) -> Indices:
        """Coordinates of the chunks."""
        return np.arange(self._first, self._first + self._n)

    def rows(self, numbers: Indices | None = None) -> Indices:
        """Return spans as rows of numbers."""
        (start, step, size), length = self.wanted, self._axis.length
        chunks = self.chunks if numbers is None else self._first + numbers
        rows = np.empty((len(chunks), N_COLUMNS), np.int64)
        rows[:] = 0, 0, 0, step, -1, 0, 1, -1, 0
        rows[:, CHUNK] = chunks
        low = chunks * length - start
        done = np.maximum(low if step == 1 else -(-low // step), 0)
        end = low + length
        count = np.minimum(end if step == 1 else -(-end // step), size) - done
        rows[:, COUNT], rows[:, IN_START], rows[:, OUT_START] = count, done * step - low, done
        if step == 1:  # only at its ends a chunk may be cut
            rows[:, FULL] = (count == length) | (low + count == self._axis.extent - start)
        return rows

    def __len__(self) -> int:
        return self._n


class IndexSpans(ColumnSpans):
    """The spans of a list of indices, of which there is at least one, of an axis of at most `_MAX_EXTENT` elements."""

    __slots__ = ("_rows", "lists")

    def __init__(self, indices: Indices, axis: Axis) -> None:
        self._rows, self.lists = _index_rows(indices, axis)

    @property
    def chunks(self) -> Indices:
        """Coordinates of the chunks."""
        return self._rows[:, CHUNK]

    def rows(self, numbers: Indices | None = None) -> Indices:
        """Return spans as rows of numbers."""
        return self._rows if numbers is None else self._rows[numbers]

    def __len__(self) -> int:
        return len(self._rows)


def cut_axis(wanted: Range | Indices, axis: Axis) -> Sequence[Span]:
    """Cut what a selection takes of one axis, within its extent, along the chunks. No chunk has two spans."""
    if not isinstance(wanted, Range):
        return _index_spans(wanted, axis)
    start, step, count = wanted
    if not count or type(axis) is not RegularAxis:
        return _cut_range(wanted, axis)
    length = axis.length
    chunk, first = divmod(start, length)
    end = first + (count - 1) * step + 1
    if end <= length:  # all of it is in one chunk
        full = count == min(length, axis.extent - chunk * length)
        return (Span(chunk, slice(first, end, step), slice(0, count), full),)
    if step <= length and count * step > MIN_SPAN_CHUNKS * length and axis.extent <= _MAX_EXTENT:
        return RangeSpans(wanted, axis)
    return _cut_range(wanted, axis)


def chunks_of(spans: Sequence[Span]) -> Indices:
    """Coordinates of the chunks of spans."""
    return spans.chunks if isinstance(spans, ColumnSpans) else np.array([span.chunk for span in spans], np.int64)


def make_rows(spans: Sequence[Span]) -> tuple[Indices, Indices]:
    """Return spans as rows of `N_COLUMNS` numbers, and their index lists."""
    if isinstance(spans, ColumnSpans):
        return spans.rows(), spans.lists
    lists = IndexLists()
    rows = b"".join([pack_span(chunk, *lists.sides(inside, out), full) for chunk, inside, out, full in spans])
    return np.frombuffer(rows, np.int64).reshape(-1, N_COLUMNS), lists.joined()


def span_of(row: list[int], lists: Indices) -> Span:
    """Return the span that is a row of numbers."""
    chunk, count, in_start, in_step, in_list, out_start, out_step, out_list, full = row
    inside, out = (
        slice(start, start + (count - 1) * step + 1, step) if at < 0 else lists[at : at + count]
        for start, step, at in ((in_start, in_step, in_list), (out_start, out_step, out_list))
    )
    return Span(chunk, inside, out, bool(full))


def _cut_range(wanted: Range, axis: Axis) -> tuple[Span, ...]:
    start, step, count = wanted
    if not count:
        return ()
    chunk = axis.locate(start)
    spans = []
    done = 0
    while done < count:
        low, high = axis.bounds(chunk)
        first = start + done * step
        n = min(count - done, (high - first + step - 1) // step)
        if n > 0:
            full = n == min(high, axis.extent) - low
            inside = slice(first - low, first - low + (n - 1) * step + 1, step if n > 1 else 1)
            spans.append(Span(chunk, inside, slice(done, done + n), full))
            done += n
        # A step longer than the chunk may jump over several of them.
        chunk = chunk + 1 if step <= high - low or done >= count else axis.locate(start + done * step)
    return tuple(spans)


def _index_spans(indices: Indices, axis: Axis) -> Sequence[Span]:
    if indices.size > MIN_SPAN_INDICES and axis.extent <= _MAX_EXTENT:
        return IndexSpans(indices, axis)
    if not indices.size:
        return ()
    chunks = axis.locate_all(indices)
    ordered = bool(np.all(chunks[1:] >= chunks[:-1]))
    order = None if ordered else np.argsort(chunks, kind="stable")
    if order is not None:
        chunks, indices = chunks[order], indices[order]
    cuts = [0, *(np.flatnonzero(chunks[1:] != chunks[:-1]) + 1).tolist(), len(chunks)]
    spans = []
    for first, last in pairwise(cuts):
        chunk = int(chunks[first])
        low, high = axis.bounds(chunk)
        if last - first == 1:
            at = int(indices[first]) - low
            place = first if order is None else int(order[first])
            full = min(high, axis.extent) - low == 1
            spans.append(Span(chunk, slice(at, at + 1, 1), slice(place, place + 1, 1), full))
            continue
        inside = indices[first:last] - low
        size = min(high, axis.extent) - low
        full = last - first >= size and np.unique(inside).size == size
        out: slice | Indices = slice(first, last) if order is None else _as_slice(order[first:last])
        spans.append(Span(chunk, _as_slice(inside), out, full))
    return tuple(spans)


def _as_slice(indices: Indices) -> slice | Indices:
    """The slice that selects the same, if the indices are evenly spaced and increasing; NumPy copies those faster."""
    first = int(indices[0])
    if indices.size == 1:
        return slice(first, first + 1, 1)
    step = int(indices[1]) - first
    if step > 0 and bool(np.all(indices[1:] - indices[:-1] == step)):
        return slice(first, int(indices[-1]) + 1, step)
    return indices


def _index_rows(indices: Indices, axis: Axis) -> tuple[Indices, Indices]:
    """The spans of a list of indices as rows of numbers, and their index lists."""
    chunks = axis.locate_all(indices)
    order = None
    if not bool(np.all(chunks[1:] >= chunks[:-1])):
        order = np.argsort(chunks.astype(np.uint16) if axis.nchunks <= _MAX_NARROW else chunks, kind="stable")
        chunks, indices = chunks[order], indices[order]
    firsts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(chunks[1:] != chunks[:-1]) + 1])
    inside = indices - axis.starts_of(chunks)
    rows = np.empty((len(firsts), N_COLUMNS), np.int64)
    rows[:] = 0, 1, 0, 1, -1, 0, 1, -1, 0
    rows[:, CHUNK] = chunk = chunks[firsts]
    sizes = np.minimum(axis.starts_of(chunk + 1), axis.extent) - axis.starts_of(chunk)
    if len(firsts) == len(indices):  # an index a chunk
        rows[:, IN_START], rows[:, OUT_START] = inside, firsts if order is None else order
        rows[:, FULL] = sizes == 1
        return rows, _NO_LISTS
    rows[:, COUNT] = np.diff(firsts, append=len(indices))
    rows[:, FULL] = _are_full(indices, firsts, rows[:, COUNT], sizes)
    del chunks, indices
    lists = _set_side(rows, IN_START, inside, firsts, 0)
    rows[:, OUT_START] = firsts
    return rows, lists if order is None else np.concatenate(
        [lists, _set_side(rows, OUT_START, order, firsts, lists.size)]
    )


def _set_side(rows: Indices, column: int, indices: Indices, firsts: Indices, at: int) -> Indices:
    """Set start, step and list of runs of indices, which begin at ``firsts``; ``at`` is where their lists begin.

    NumPy and the loop copy evenly spaced elements faster than lists. Returns: the indices, or nothing without lists.
    """
    counts = rows[:, COUNT]
    steps = np.empty_like(indices)
    np.subtract(indices[1:], indices[:-1], out=steps[:-1])
    step = np.where(counts > 1, steps[firsts], 1)
    odd = steps != np.repeat(step, counts)
    odd[firsts + counts - 1] = False  # from one run to the next
    listed = np.logical_or.reduceat(odd, firsts) | (step < 1)
    rows[:, column], rows[:, column + 1] = indices[firsts], step
    if not listed.any():
        return _NO_LISTS
    rows[listed, column : column + 2] = 0
    rows[listed, column + 2] = firsts[listed] + at
    return indices


def _are_full(indices: Indices, firsts: Indices, counts: Indices, sizes: Indices) -> NDArray[np.bool_]:
    """Which runs of indices, sorted by chunk, hold all elements of their chunk."""
    if not bool((counts >= sizes).any()):
        return np.zeros(len(firsts), np.bool_)
    in_order = np.sort(indices)
    distinct = np.diff(in_order, prepend=in_order[0] - 1) != 0
    return np.asarray(np.add.reduceat(distinct, firsts, dtype=np.int64) == sizes)


def sort_by_chunk(chunk: Indices, n: int) -> tuple[Indices, Indices]:
    """Stable order that sorts by numbers of chunks below n, and where each chunk's begin (and the last end)."""
    order = np.argsort(chunk.astype(np.uint16) if n <= _MAX_NARROW else chunk, kind="stable")
    in_order = chunk[order]
    cuts = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    return order, np.concatenate([[0] if len(chunk) else [], cuts, [len(chunk)]]).astype(np.int64)
