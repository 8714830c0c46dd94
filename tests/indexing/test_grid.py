"""Chunk geometry of one axis, against counting elements one by one."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gzarr.indexing.grid import RegularAxis, VaryingAxis, chunk_shape, is_regular, nchunks


@st.composite
def axes(draw: Any, multiple: int = 1) -> RegularAxis | VaryingAxis:
    extent = draw(st.integers(0, 30))
    if draw(st.booleans()):
        return RegularAxis(extent, multiple * draw(st.integers(1, 8)))
    lengths = [multiple * n for n in draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))]
    while sum(lengths) < extent:
        lengths.append(multiple * 3)
    return VaryingAxis(extent, tuple(lengths))


def owners(axis: RegularAxis | VaryingAxis) -> list[int]:
    """The chunk of every element, counted off."""
    if isinstance(axis, RegularAxis):
        return [i // axis.length for i in range(axis.extent)]
    return [chunk for chunk, length in enumerate(axis.lengths) for _ in range(length)][: axis.extent]


@given(axes())
def test_elements_are_found_in_their_chunks(axis: Any) -> None:
    found = owners(axis)
    assert [axis.locate(i) for i in range(axis.extent)] == found
    assert axis.locate_all(np.arange(axis.extent)).tolist() == found
    assert axis.nchunks == len(set(found))
    for i, chunk in enumerate(found):
        low, high = axis.bounds(chunk)
        assert low <= i < high
        assert found[max(low, 0)] == chunk
        assert found[min(high, axis.extent) - 1] == chunk


@given(axes())
def test_edges_bound_the_chunks_within_the_array(axis: Any) -> None:
    edges = axis.edges()
    assert (edges[0], edges[-1]) == (0, axis.extent)
    assert len(edges) == axis.nchunks + 1
    assert edges[:-1] == [axis.bounds(i)[0] for i in range(axis.nchunks)]
    assert sorted(set(edges)) == edges


@given(st.integers(1, 4).flatmap(lambda n: st.tuples(axes(n), st.just(n))))
def test_subdivided_chunks_lie_within_theirs(drawn: Any) -> None:
    axis, length = drawn
    inner = axis.subdivided(length)
    assert inner.extent == axis.extent
    for i in range(axis.extent):
        assert inner.locate(i) == i // length
        assert axis.locate(inner.bounds(inner.locate(i))[0]) == axis.locate(i)


@given(axes(), st.integers(0, 40), st.integers(1, 4))
def test_resized_axes_keep_the_chunks_that_stay(axis: Any, extent: int, multiple: int) -> None:
    other = axis.resized(extent, multiple)
    assert other.extent == extent
    assert owners(other)[: axis.extent] == owners(axis)[:extent]
    for chunk in range(min(axis.nchunks, other.nchunks)):
        assert other.bounds(chunk) == axis.bounds(chunk)
    if isinstance(other, VaryingAxis):
        assert sum(other.lengths) >= extent
        assert all(n % multiple == 0 for n in other.lengths[len(axis.lengths) :])
        if extent < axis.extent:
            assert other.nchunks == (len(other.lengths) if extent else 0)


def test_shrinking_drops_the_chunks_left_empty() -> None:
    axis = VaryingAxis(9, (4, 2, 3))
    assert axis.resized(6) == VaryingAxis(6, (4, 2))
    assert axis.resized(5) == VaryingAxis(5, (4, 2))
    assert axis.resized(0) == VaryingAxis(0, (4,))
    assert axis.resized(11) == VaryingAxis(11, (4, 2, 3, 2))
    assert axis.resized(11, 3) == VaryingAxis(11, (4, 2, 3, 3))


def test_grids_are_products_of_axes() -> None:
    grid = (RegularAxis(10, 4), VaryingAxis(6, (1, 5)))
    assert nchunks(grid) == 6
    assert chunk_shape(grid, (2, 1)) == (4, 5)
    assert not is_regular(grid)
    assert is_regular(grid[:1])
    assert nchunks(()) == 1
    assert chunk_shape((), ()) == ()
