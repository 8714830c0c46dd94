"""Cuts one axis of a selection along its chunks: which elements of each chunk go where in the result.

Theory of operation. What an axis takes of one chunk is a `Span`. The spans of a long range or list of indices are a
sequence that makes its members when they are looked at (`ColumnSpans`). Whoever works with tables takes their columns
instead: as many numbers, without an object for each chunk.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, NamedTuple, TypeAlias, cast, overload

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


#: Numbers of every span, or one that is the same for all.
Column: TypeAlias = Indices | int


class Columns(NamedTuple):
    """Spans as columns of numbers.

    Attributes
    ----------
    chunks, counts : Indices
        int64 (n,): coordinate of the chunk, and number of elements.
    in_start, in_step, in_list : Column
        What is taken, relative to the chunk: an arithmetic progression, or, where ``in_list`` is not -1, ``count``
        numbers of ``lists`` from there on.
    out_start, out_step, out_list : Column
        Where it is in the result, in the same way.
    lists : Indices
        Index lists, one after the other.
    """

    chunks: Indices
    counts: Indices
    in_start: Column
    in_step: Column
    in_list: Column
    out_start: Column
    out_step: Column
    out_list: Column
    lists: Indices


class ColumnSpans(Sequence[Span]):
    """Spans that are columns of numbers, made into objects when they are looked at."""

    __slots__ = ()

    @property
    @abstractmethod
    def chunks(self) -> Indices:
        """Coordinates of the chunks."""

    @abstractmethod
    def columns(self) -> Columns:
        """Return all spans as columns."""

    @abstractmethod
    def full(self) -> NDArray[np.bool_]:
        """Which spans take every element of their chunk that is within the array."""

    @abstractmethod
    def in_order(self) -> NDArray[np.bool_]:
        """Which of them do so in the chunk's order."""


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

    def columns(self) -> Columns:
        """Return all spans as columns."""
        return self.columns_of(0, self._n)

    def columns_of(self, first: int, n: int) -> Columns:
        """Return ``n`` spans as columns, from number ``first`` on."""
        start, step, size = self.wanted
        chunks = np.arange(self._first + first, self._first + first + n + 1)
        lows = chunks * self._axis.length - start
        places = lows.copy() if step == 1 else -(-lows // step)
        places[0], places[-1] = max(places[0], 0), min(places[-1], size)
        out = places[:-1]
        return Columns(chunks[:-1], places[1:] - out, out * step - lows[:-1], step, -1, out, 1, -1, _NO_LISTS)

    def full(self) -> NDArray[np.bool_]:
        """Which spans take every element of their chunk that is within the array."""
        full = np.full(self._n, self.wanted.step == 1)  # only at its ends a chunk may be cut
        full[[0, -1]] &= self[0].full, self[-1].full
        return full

    def in_order(self) -> NDArray[np.bool_]:
        """Which of them do so in the chunk's order."""
        return self.full()

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Span]:
        return iter(_cut_range(self.wanted, self._axis))

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...
    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        chunk = self._first + range(self._n)[index]
        start, step, size = self.wanted
        low, high = self._axis.bounds(chunk)
        done, end = max(-((start - low) // step), 0), min(-((start - high) // step), size)
        piece = Range(start + done * step, step, end - done)
        (span,) = _cut_range(piece, self._axis)
        return span._replace(out=slice(done, end))


class IndexSpans(ColumnSpans):
    """The spans of a list of indices, of which there is at least one."""

    __slots__ = ("_columns", "_full")

    def __init__(self, indices: Indices, axis: Axis) -> None:
        self._columns, self._full = _index_columns(indices, axis)

    @property
    def chunks(self) -> Indices:
        """Coordinates of the chunks."""
        return self._columns.chunks

    def columns(self) -> Columns:
        """Return all spans as columns."""
        return self._columns

    def full(self) -> NDArray[np.bool_]:
        """Which spans take every element of their chunk that is within the array."""
        return self._full

    def in_order(self) -> NDArray[np.bool_]:
        """Which of them do so in the chunk's order."""
        columns = self._columns
        sliced = np.maximum(columns.in_list, columns.out_list) < 0
        return np.asarray(self._full & sliced & (np.asarray(columns.in_step) == 1))

    def __len__(self) -> int:
        return len(self._columns.chunks)

    def __iter__(self) -> Iterator[Span]:
        return iter(self[:])

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...
    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        if not isinstance(index, slice):
            index = range(len(self))[index]
            return self[index : index + 1][0]
        *columns, lists = self._columns
        some = [column if isinstance(column, int) else column[index] for column in columns]
        chunks, counts, *sides = cast(list[Any], some)
        inside, out = _indices(lists, counts, *sides[:3]), _indices(lists, counts, *sides[3:])
        return tuple(map(Span, chunks.tolist(), inside, out, self._full[index].tolist()))


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
    if step <= length and count * step > MIN_SPAN_CHUNKS * length:
        return RangeSpans(wanted, axis)
    return _cut_range(wanted, axis)


def chunks_of(spans: Sequence[Span]) -> Indices:
    """Coordinates of the chunks of spans."""
    return spans.chunks if isinstance(spans, ColumnSpans) else np.array([span.chunk for span in spans], np.int64)


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
        full = last - first >= size and _takes_all(inside, size)
        out: slice | Indices = slice(first, last) if order is None else _as_slice(order[first:last])
        spans.append(Span(chunk, _as_slice(inside), out, full))
    return tuple(spans)


def _takes_all(indices: Indices, size: int) -> bool:
    taken = np.zeros(size, np.bool_)
    taken[indices] = True
    return bool(taken.all())


def _as_slice(indices: Indices) -> slice | Indices:
    """The slice that selects the same, if the indices are evenly spaced and increasing; NumPy copies those faster."""
    first = int(indices[0])
    if indices.size == 1:
        return slice(first, first + 1, 1)
    step = int(indices[1]) - first
    if step > 0 and bool(np.all(indices[1:] - indices[:-1] == step)):
        return slice(first, int(indices[-1]) + 1, step)
    return indices


def _index_columns(indices: Indices, axis: Axis) -> tuple[Columns, NDArray[np.bool_]]:
    chunks = axis.locate_all(indices)
    order = None
    if not bool(np.all(chunks[1:] >= chunks[:-1])):
        order = np.argsort(chunks.astype(np.uint16) if axis.nchunks <= _MAX_NARROW else chunks, kind="stable")
        chunks, indices = chunks[order], indices[order]
    firsts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(chunks[1:] != chunks[:-1]) + 1])
    chunk = chunks[firsts]
    inside = indices - axis.starts_of(chunks)
    sizes = np.minimum(axis.starts_of(chunk + 1), axis.extent) - axis.starts_of(chunk)
    if len(firsts) == len(indices):  # an index a chunk
        places = firsts if order is None else order
        return Columns(chunk, np.ones_like(chunk), inside, 1, -1, places, 1, -1, _NO_LISTS), sizes == 1
    counts = np.diff(firsts, append=len(indices))
    full = _are_full(indices, firsts, counts, sizes)
    in_start, in_step, in_list, in_lists = _side(inside, firsts, counts)
    if order is None:
        return Columns(chunk, counts, in_start, in_step, in_list, firsts, 1, -1, in_lists), full
    out_start, out_step, out_list, out_lists = _side(order, firsts, counts)
    if not isinstance(out_list, int):
        out_list = np.where(out_list < 0, -1, out_list + in_lists.size)
    lists = np.concatenate([in_lists, out_lists])
    return Columns(chunk, counts, in_start, in_step, in_list, out_start, out_step, out_list, lists), full


def _side(indices: Indices, firsts: Indices, counts: Indices) -> tuple[Indices, Indices, Column, Indices]:
    """Start, step and list of runs of indices, which begin at ``firsts``; and the lists.

    NumPy and the loop copy evenly spaced elements faster than lists.
    """
    steps = np.diff(indices, append=0)
    step = np.where(counts > 1, steps[firsts], 1)
    odd = steps != np.repeat(step, counts)
    odd[firsts + counts - 1] = False  # from one run to the next
    listed = np.logical_or.reduceat(odd, firsts) | (step < 1)
    if not listed.any():
        return indices[firsts], step, -1, _NO_LISTS
    return np.where(listed, 0, indices[firsts]), np.where(listed, 0, step), np.where(listed, firsts, -1), indices


def _are_full(indices: Indices, firsts: Indices, counts: Indices, sizes: Indices) -> NDArray[np.bool_]:
    """Which runs of indices, sorted by chunk, hold all elements of their chunk."""
    if not bool((counts >= sizes).any()):
        return np.zeros(len(firsts), np.bool_)
    in_order = np.sort(indices)
    distinct = np.diff(in_order, prepend=in_order[0] - 1) != 0
    return np.asarray(np.add.reduceat(distinct, firsts, dtype=np.int64) == sizes)


def _indices(lists: Indices, count: Indices, start: Indices, step: Column, at: Column) -> list[slice | Indices]:
    """The indices of one side of spans."""
    stops = (start + (count - 1) * step + 1).tolist()
    steps = repeat(step, len(stops)) if isinstance(step, int) else step.tolist()
    found: list[slice | Indices] = list(map(slice, start.tolist(), stops, steps))
    if not isinstance(at, int):
        for number in np.flatnonzero(at >= 0).tolist():
            found[number] = lists[at[number] : at[number] + count[number]]
    return found
