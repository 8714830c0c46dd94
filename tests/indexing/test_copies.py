"""Copy plans against NumPy: every box whole in its slot, every chunk once, the chunks of a shard together."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gzarr.errors import SelectionError
from gzarr.indexing.copies import cut_boxes, make_copies
from gzarr.indexing.grid import Grid, RegularAxis, VaryingAxis, chunk_shape

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


def test_no_boxes_make_an_empty_plan() -> None:
    fragments = cut_boxes(np.empty((0, 2), np.int64), (1, 3), IMAGES)
    plan = make_copies(fragments, fragments.box, (4, 1, 3), 4, IMAGES, IMAGES)
    assert (plan.nparts, plan.firsts.tolist()) == (0, [0])
    assert list(plan.groups(IMAGES)) == []


def test_chunks_without_numbers_are_refused() -> None:
    grid = (RegularAxis(2**62, 1), RegularAxis(4, 1))
    with pytest.raises(SelectionError, match="numbers of 64 bits"):
        cut_boxes(np.zeros((1, 2), np.int64), (1, 1), grid)
