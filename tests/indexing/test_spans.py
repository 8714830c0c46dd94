"""Spans of an axis as columns, as objects, and element by element."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.indexing.grid import Axis, RegularAxis, VaryingAxis
from gzarr.indexing.selection import Range
from gzarr.indexing.spans import (
    CHUNK,
    COUNT,
    FULL,
    IN_START,
    MIN_SPAN_INDICES,
    OUT_START,
    ColumnSpans,
    IndexSpans,
    RangeSpans,
    Span,
    cut_axis,
)


@st.composite
def long_ranges(draw: Any) -> tuple[Range, RegularAxis]:
    """A range over regular chunks that it does not jump over."""
    axis = RegularAxis(draw(st.integers(1, 100)), draw(st.integers(1, 12)))
    start, step = draw(st.integers(0, axis.extent - 1)), draw(st.integers(1, axis.length))
    return Range(start, step, draw(st.integers(1, (axis.extent - 1 - start) // step + 1))), axis


def elements(span: Span) -> tuple[int, range, range]:
    inside, out = span.inside, span.out
    assert isinstance(inside, slice)
    assert isinstance(out, slice)
    return span.chunk, range(inside.start, inside.stop, inside.step), range(out.start, out.stop)


@given(long_ranges())
def test_spans_of_long_ranges_are_the_same_as_numbers_and_one_by_one(drawn: tuple[Range, RegularAxis]) -> None:
    wanted, axis = drawn
    spans = RangeSpans(wanted, axis)
    all_of_them = list(spans)
    assert [i for span in all_of_them for i in elements(span)[2]] == list(range(wanted.size))
    indices = [span.chunk * axis.length + i for span in all_of_them for i in elements(span)[1]]
    assert indices == list(range(wanted.start, wanted.start + wanted.size * wanted.step, wanted.step))
    assert [(elements(spans[i]), spans[i].full) for i in range(len(spans))] == [
        (elements(span), span.full) for span in all_of_them
    ]
    rows = spans.rows()
    columns = rows[:, [CHUNK, IN_START, OUT_START, COUNT]].tolist()
    assert columns == [[c, inside.start, out.start, len(out)] for c, inside, out in map(elements, all_of_them)]
    assert np.array_equal(spans.rows(np.arange(len(spans))[::-1]), rows[::-1])


@st.composite
def lists(draw: Any) -> tuple[np.ndarray, Axis]:
    """Indices in any order, some of them several times, on any axis: many chunks have one, or all of theirs."""
    extent, length = draw(st.integers(1, 24)), draw(st.integers(1, 5))
    varying = VaryingAxis(extent, (length, 1) * (-(-extent // (length + 1))))
    axis = draw(st.sampled_from([RegularAxis(extent, length), varying]))
    some = draw(st.lists(st.integers(0, extent - 1), min_size=1, max_size=40))
    every = draw(st.sampled_from([[], list(range(extent)), list(range(0, extent, 2))]))
    indices = draw(st.permutations([*some, *every]))
    return np.array(sorted(indices) if draw(st.booleans()) else indices, np.int64), axis


def within(index: Any, n: int) -> list[int]:
    return np.arange(n)[index].tolist()


@given(lists())
def test_spans_of_lists_are_the_same_as_numbers_and_as_objects(drawn: tuple[np.ndarray, Axis]) -> None:
    indices, axis = drawn
    spans = IndexSpans(indices, axis)
    found = np.full(len(indices), -1)
    for span in spans:
        low, high = axis.bounds(span.chunk)
        found[span.out] = low + np.arange(high - low)[span.inside]
        n = min(high, axis.extent) - low
        assert span.full is (set(within(span.inside, high - low)) == set(range(n)))
    assert found.tolist() == indices.tolist()
    chunks = [span.chunk for span in spans]
    assert chunks == sorted(set(chunks)) == spans.chunks.tolist()
    assert (spans.rows()[:, FULL] == [span.full for span in spans]).all()
    as_text = [str(span) for span in spans]
    assert [str(spans[i]) for i in range(len(spans))] == as_text
    assert str(spans[-1]) == as_text[-1]


@given(lists())
def test_lists_are_cut_in_the_same_way_however_many_there_are(drawn: tuple[np.ndarray, Axis]) -> None:
    """Few indices become a tuple of spans, many of them columns."""
    indices, axis = drawn[0][:MIN_SPAN_INDICES], drawn[1]
    few, many = cut_axis(indices, axis), IndexSpans(indices, axis)
    assert not isinstance(few, ColumnSpans)
    for one, other in zip(few, many, strict=True):
        assert (one.chunk, one.full) == (other.chunk, other.full)
        for side in ("inside", "out"):
            assert type(getattr(one, side)) is type(getattr(other, side))
            assert within(getattr(one, side), 99) == within(getattr(other, side), 99)


def test_many_indices_are_columns() -> None:
    assert isinstance(cut_axis(np.arange(MIN_SPAN_INDICES + 1), RegularAxis(40, 4)), IndexSpans)


@pytest.mark.parametrize("extent", [1 << 62, (1 << 63) - 1, 1 << 63])
def test_lists_may_end_where_numbers_of_64_bits_do(extent: int) -> None:
    last = min(extent, (1 << 63) - 1) - 1
    indices = np.arange(last - MIN_SPAN_INDICES, last + 1)
    spans = cut_axis(indices, RegularAxis(extent, 1000))
    assert sum(len(range(1000)[span.inside]) for span in spans) == len(indices)
    assert spans[-1].chunk == last // 1000


def test_lists_of_one_index_a_chunk_have_no_index_lists() -> None:
    spans = IndexSpans(np.array([3, 1, 2]), RegularAxis(4, 1))
    assert (spans.rows()[:, [CHUNK, OUT_START]].tolist(), spans.lists.size) == ([[1, 1], [2, 2], [3, 0]], 0)
