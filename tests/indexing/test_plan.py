"""Plans against a brute force over all elements: each element once, from the right chunk, to the right place."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.indexing.grid import Grid, RegularAxis, VaryingAxis, chunk_shape
from gzarr.indexing.plan import BoxPlan, Part, PointPlan, SelectionPlan, box_between, make_plan
from gzarr.indexing.selection import (
    Box,
    Points,
    Range,
    Selection,
    normalize_basic,
    normalize_coordinates,
    normalize_mask,
    normalize_orthogonal,
)
from tests.properties.cases import basic_keys, coordinate_keys, masks, orthogonal_keys


@st.composite
def axes(draw: Any) -> RegularAxis | VaryingAxis:
    extent = draw(st.integers(0, 15))
    if draw(st.booleans()):
        return RegularAxis(extent, draw(st.integers(1, 6)))
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    return VaryingAxis(extent, (*lengths, *[4] * (-(-max(extent - sum(lengths), 0) // 4))))


@st.composite
def grids(draw: Any) -> Grid:
    return tuple(draw(axes()) for _ in range(draw(st.integers(0, 3))))


@st.composite
def selections(draw: Any, shape: tuple[int, ...]) -> Selection:
    kind = draw(st.sampled_from(["basic", "orthogonal", "points", "mask"]))
    if kind == "basic":
        return normalize_basic(draw(basic_keys(shape)), shape)
    if kind == "orthogonal":
        return normalize_orthogonal(draw(orthogonal_keys(shape)), shape)
    if kind == "mask":
        return normalize_mask(draw(masks(shape)), shape)
    return normalize_coordinates(draw(coordinate_keys(shape)), shape)


# -- the naive oracle ------------------------------------------------------------------------------------------------


def elements_of(selection: Selection) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Place in the result -> element of the array, one by one."""
    if isinstance(selection, Points):
        n = int(np.prod(selection.shape, dtype=int))
        return {(i,): tuple(int(c[i]) for c in selection.coords) for i in range(n)}
    rows = [
        [axis.start + i * axis.step for i in range(axis.size)] if isinstance(axis, Range) else axis.tolist()
        for axis in selection.axes
    ]
    places = product(*(range(len(row)) for row in rows))
    return {place: tuple(row[i] for row, i in zip(rows, place, strict=True)) for place in places}


def owner_of(element: tuple[int, ...], grid: Grid) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the chunk that holds an element, the element's place in it), found by walking along the chunks."""
    coords, inside = [], []
    for index, axis in zip(element, grid, strict=True):
        chunk, start = 0, 0
        length = axis.length if isinstance(axis, RegularAxis) else axis.lengths[0]
        while start + length <= index:
            chunk, start = chunk + 1, start + length
            length = axis.length if isinstance(axis, RegularAxis) else axis.lengths[chunk]
        coords.append(chunk)
        inside.append(index - start)
    return tuple(coords), tuple(inside)


def moves_of(parts: list[Part], plan: SelectionPlan) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """(place in the result, chunk, place in the chunk) of every element that the parts move, as NumPy reads them."""
    places = np.empty(plan.shape, object)
    for place in np.ndindex(*plan.shape):
        places[place] = place
    moves = []
    for part in parts:
        shape = chunk_shape(plan.grid, part.coords)
        inside = np.empty(shape, object)
        for place in np.ndindex(*shape):
            inside[place] = place
        taken, put = inside[part.inside], places[part.out]
        if not isinstance(taken, np.ndarray):  # without axes NumPy takes the element itself
            taken, put = as_single(taken), as_single(put.reshape(-1)[0] if isinstance(put, np.ndarray) else put)
        assert taken.shape == put.shape
        moves += [(out, part.coords, into) for out, into in zip(put.reshape(-1), taken.reshape(-1), strict=True)]
    return moves


def as_single(value: tuple[int, ...]) -> np.ndarray:
    single = np.empty(1, object)
    single[0] = value
    return single


def check(selection: Selection, grid: Grid) -> None:
    plan = make_plan(selection, grid)
    parts = list(plan.parts())
    wanted = {place: owner_of(element, grid) for place, element in elements_of(selection).items()}
    moves = moves_of(parts, plan)
    assert {place: (coords, inside) for place, coords, inside in moves} == wanted
    assert len(moves) == len(wanted)
    assert len({part.coords for part in parts}) == len(parts)
    assert plan.nparts == len(parts) if isinstance(plan, BoxPlan) else plan.nparts >= len(parts)
    for part in parts:
        if part.full:
            assert within(part, grid) == {inside for _, coords, inside in moves if coords == part.coords}
    if isinstance(selection, Box):
        for part in parts:
            covered = {inside for _, coords, inside in moves if coords == part.coords}
            assert part.full == (covered == within(part, grid))


def test_all_ranges_of_short_axes() -> None:
    """Random ranges rarely take a part of one chunk, and the whole of none."""
    for extent, length in product(range(1, 9), range(1, 5)):
        for start, step in product(range(extent), (1, 2, 3, 7)):
            for stop in range(start + 1, extent + 1):
                check(normalize_basic(slice(start, stop, step), (extent,)), (RegularAxis(extent, length),))


def test_parts_of_long_ranges_are_in_their_objects() -> None:
    grid, objects = (RegularAxis(61, 2),), (RegularAxis(61, 6),)
    for start, step in product(range(30), (1, 2)):
        plan = make_plan(normalize_basic(slice(start, None, step), (61,)), grid)
        groups = [(owner, part.coords[0]) for (owner,), parts in plan.groups(objects) for part in parts]
        assert groups == [(chunk // 3, chunk) for chunk in range(start // 2, (60 - (60 - start) % step) // 2 + 1)]


def within(part: Part, grid: Grid) -> set[tuple[int, ...]]:
    """The places of a chunk that lie within the array."""
    ends = []
    for axis, coord in zip(grid, part.coords, strict=True):
        low, high = axis.bounds(coord)
        ends.append(min(high, axis.extent) - low)
    return set(product(*map(range, ends)))


@given(st.data())
def test_plans_move_every_element_once(data: st.DataObject) -> None:
    grid = data.draw(grids())
    check(data.draw(selections(tuple(axis.extent for axis in grid))), grid)


@given(st.data())
def test_groups_gather_parts_by_shard(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=3))
    objects: list[Any] = []
    inner: list[Any] = []
    for chunk, factor in lengths:
        extent = data.draw(st.integers(0, 15))
        if data.draw(st.booleans()):
            objects.append(RegularAxis(extent, chunk * factor))
        else:
            cuts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
            objects.append(VaryingAxis(extent, tuple(c * chunk for c in cuts) + (chunk,) * 15))
        inner.append(objects[-1].subdivided(chunk))
    grid, shards = tuple(inner), tuple(objects)
    plan = make_plan(data.draw(selections(tuple(axis.extent for axis in grid))), grid)
    groups = list(plan.groups(shards))
    assert len({coords for coords, _ in groups}) == len(groups)
    for coords, parts in groups:
        assert parts
        for part in parts:
            first = tuple(axis.bounds(c)[0] for axis, c in zip(grid, part.coords, strict=True))
            assert owner_of(first, shards)[0] == coords
    grouped = [part for _, parts in groups for part in parts]
    assert sorted(moves_of(grouped, plan)) == sorted(moves_of(list(plan.parts()), plan))
    alone = [(coords, part.coords) for coords, (part,) in plan.groups(grid)]
    assert sorted(alone) == sorted((part.coords, part.coords) for part in plan.parts())


# -- by example ------------------------------------------------------------------------------------------------------


def test_a_long_step_leaves_chunks_out() -> None:
    plan = make_plan(normalize_basic(slice(1, None, 40), (100,)), (RegularAxis(100, 10),))
    assert [part.coords for part in plan.parts()] == [(0,), (4,), (8,)]
    varying = (VaryingAxis(100, (7, 3) * 10),)
    assert [part.coords for part in make_plan(normalize_basic(slice(1, None, 40), (100,)), varying).parts()] == [
        (0,), (8,), (16,)
    ]  # fmt: skip


def test_evenly_spaced_lists_become_slices() -> None:
    (part,) = make_plan(normalize_orthogonal(([1, 3, 5],), (8,)), (RegularAxis(8, 8),)).parts()
    assert part.inside == (slice(1, 6, 2),)
    assert part.out == (slice(0, 3),)


@pytest.mark.parametrize(
    ("indices", "full"),
    [([0, 1, 2], True), ([2, 0, 1], True), ([0, 1, 1, 2], True), ([0, 0, 1], False), ([0, 2], False)],
)
def test_lists_that_hold_a_whole_chunk_are_full(indices: list[int], full: bool) -> None:
    (part,) = make_plan(normalize_orthogonal((indices,), (3,)), (RegularAxis(3, 5),)).parts()
    assert part.full is full


def test_plans_of_large_boxes_are_small() -> None:
    """A plan's memory is the sum of its axes, not their product: this one has 10**12 parts."""
    plan = make_plan(box_between((0, 0, 0), (10**5,) * 3), (RegularAxis(10**5, 10),) * 3)
    assert plan.nparts == 10**12
    assert next(iter(plan.parts())).coords == (0, 0, 0)


def test_chunks_of_one_element_are_full_for_points() -> None:
    plan = make_plan(normalize_coordinates(([3, 1], [0, 0]), (4, 1)), (RegularAxis(4, 1), RegularAxis(1, 1)))
    assert isinstance(plan, PointPlan)
    assert all(part.full for part in plan.parts())


def test_a_box_between_reversed_bounds_is_empty() -> None:
    assert box_between((2, 5), (4, 3)).shape == (2, 0)
