"""Copy plans against NumPy: every box whole in its slot, every chunk once, the chunks of a shard together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gzarr.errors import SelectionError
from gzarr.indexing.copies import CopyPlan, Slots, cut_boxes, make_copies
from gzarr.indexing.grid import Grid, RegularAxis, VaryingAxis, chunk_shape
from gzarr.indexing.spans import COUNT, IN_START, OUT_START

IMAGES = (RegularAxis(5, 2), RegularAxis(7, 3))


@st.composite
def grids(draw: Any) -> tuple[Grid, Grid]:
    """The grids of chunks and of the objects that hold them."""
    grid: list[Any] = []
    objects: list[Any] = []
    for _ in range(draw(st.integers(0, 3))):
        extent, chunk = draw(st.integers(1, 13)), draw(st.integers(1, 4))
        if draw(st.booleans()):
            objects.append(RegularAxis(extent, chunk * draw(st.integers(1, 3))))
            grid.append(objects[-1].subdivided(chunk))
        else:
            lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
            grid.append(VaryingAxis(extent, (*lengths, *[4] * (-(-max(extent - sum(lengths), 0) // 4)))))
            objects.append(grid[-1])
    chunks = tuple(grid)
    return chunks, chunks if draw(st.booleans()) else tuple(objects)


@st.composite
def boxes(draw: Any, grid: Grid) -> tuple[np.ndarray, tuple[int, ...]]:
    size = tuple(draw(st.integers(0, axis.extent)) for axis in grid)
    start = st.tuples(*[st.integers(0, axis.extent - n) for axis, n in zip(grid, size, strict=True)])
    starts = draw(st.lists(start, max_size=6))
    return np.array(starts, np.int64).reshape(len(starts), len(grid)), size


def carry_out(plan: CopyPlan, array: np.ndarray, n_blocks: int) -> np.ndarray:
    """The slots that the plan's parts fill; slots that they leave are -1."""
    blocks = [np.full((plan.rows, *plan.shape[1:]), -1) for _ in range(n_blocks)]
    slots = Slots(tuple(blocks))
    for part in plan.parts():
        bounds = [axis.bounds(c) for axis, c in zip(plan.grid, part.coords, strict=True)]
        chunk = array[tuple(slice(low, high) for low, high in bounds)]
        slots[part.out] = chunk[part.inside]
    return np.concatenate(blocks) if blocks else np.empty((0, *plan.shape[1:]))


@given(st.data())
@settings(max_examples=60)
def test_every_box_is_whole_in_its_slot(data: st.DataObject) -> None:
    grid, objects = data.draw(grids())
    starts, size = data.draw(boxes(grid))
    array = np.arange(np.prod([axis.extent for axis in grid], dtype=int)).reshape([axis.extent for axis in grid])
    rows, n = data.draw(st.integers(1, 4)), len(starts)
    n_blocks = -(-n // rows)
    slots = np.array(data.draw(st.permutations(range(n_blocks * rows)))[:n], np.int64)
    fragments = cut_boxes(starts, size, grid)
    assert all(column.dtype == np.int64 for column in fragments)
    plan = make_copies(fragments, slots[fragments.box], (n_blocks * rows, *size), rows, grid, objects)
    filled = carry_out(plan, array, n_blocks)
    for slot, start in zip(slots, starts.tolist(), strict=True):
        wanted = array[tuple(slice(low, low + n) for low, n in zip(start, size, strict=True))]
        np.testing.assert_array_equal(filled[slot], wanted)
    assert (filled >= 0).sum() == n * np.prod(size, dtype=int)


@given(st.data())
@settings(max_examples=40)
def test_every_chunk_is_there_once_and_those_of_an_object_stand_together(data: st.DataObject) -> None:
    grid, objects = data.draw(grids())
    starts, size = data.draw(boxes(grid))
    fragments = cut_boxes(starts, size, grid)
    plan = make_copies(fragments, fragments.box, (8, *size), 8, grid, objects)
    coords = plan.table(0, plan.nparts).coords
    assert plan.nparts == len(np.unique(coords, axis=0)) == len(np.unique(fragments.chunk))
    assert plan.firsts[0] == 0
    assert plan.firsts[-1] == len(fragments.box)
    assert (np.diff(plan.firsts) > 0).all()
    assert plan.nelements == len(starts) * np.prod(size, dtype=int)
    groups = list(plan.groups(objects))
    assert len({owner for owner, _ in groups}) == len(groups)
    for owner, parts in groups:
        for part in parts:
            starts = [axis.bounds(c)[0] for axis, c in zip(grid, part.coords, strict=True)]
            assert owner == tuple(axis.locate(start) for axis, start in zip(objects, starts, strict=True))
            shape = chunk_shape(grid, part.coords)
            assert all(0 <= i.start < i.stop <= n for copy in part.out for i, n in zip(copy.inside, shape, strict=True))


def test_fragments_are_in_c_order_of_chunks_for_each_box() -> None:
    fragments = cut_boxes(np.array([[1, 2], [4, 0]]), (1, 3), IMAGES)
    assert fragments.box.tolist() == [0, 0, 1]
    assert fragments.chunk.tolist() == [0, 1, 6]
    assert fragments.start.tolist() == [[1, 2], [1, 2], [4, 0]]
    plan = make_copies(fragments, fragments.box, (2, 1, 3), 2, IMAGES, IMAGES)
    assert plan.spans[:, :, COUNT].tolist() == [[1, 1], [1, 2], [1, 3]]
    assert plan.spans[:, :, IN_START].tolist() == [[1, 2], [1, 0], [0, 0]]
    assert plan.spans[:, :, OUT_START].tolist() == [[0, 0], [0, 1], [0, 0]]


def test_no_boxes_make_an_empty_plan() -> None:
    fragments = cut_boxes(np.empty((0, 2), np.int64), (1, 3), IMAGES)
    plan = make_copies(fragments, fragments.box, (4, 1, 3), 4, IMAGES, IMAGES)
    assert plan.nparts == 0
    assert plan.firsts.tolist() == [0]
    assert list(plan.groups(IMAGES)) == []


def test_a_box_that_is_copied_twice_needs_its_chunk_once() -> None:
    fragments = cut_boxes(np.array([[3, 0], [3, 0]]), (1, 3), IMAGES)
    plan = make_copies(fragments, np.array([5, 2]), (6, 1, 3), 3, IMAGES, IMAGES)
    (part,) = plan.parts()
    assert part.coords == (1, 0)
    assert [copy.out[:2] for copy in part.out] == [(1, 2), (0, 2)]
    assert part.out[0].out[2:] == (slice(0, 1), slice(0, 3))


def test_chunks_without_numbers_are_refused() -> None:
    grid = (RegularAxis(2**62, 1), RegularAxis(4, 1))
    with pytest.raises(SelectionError, match="numbers of 64 bits"):
        cut_boxes(np.zeros((1, 2), np.int64), (1, 1), grid)
