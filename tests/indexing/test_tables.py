"""Plans as batches of tables: what they copy is what the plan's parts do, however they are cut."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gzarr.indexing.copies import cut_boxes, make_batches, make_copies
from gzarr.indexing.grid import Grid, RegularAxis, VaryingAxis
from gzarr.indexing.plan import BoxPlan, Part, joint_index, make_plan
from gzarr.indexing.selection import Box, Range
from gzarr.indexing.tables import BoxBatches, table_of_parts


@st.composite
def axes(draw: Any) -> tuple[Any, Any, Any]:
    """An axis of chunks, one of objects, and what is wanted of it."""
    length, per_object = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    extent = draw(st.integers(1, 60))
    chunks: Any = RegularAxis(extent, length)
    objects: Any = RegularAxis(extent, length * per_object)
    if draw(st.booleans()):
        n = -(-extent // (length + 1))
        objects = VaryingAxis(extent, (length + 1,) * n)
        chunks = VaryingAxis(extent, (length, 1) * n)
    if draw(st.booleans()):
        some = draw(st.lists(st.integers(0, extent - 1), min_size=1, max_size=40))
        return chunks, objects, np.array(some, np.int64)
    start, step = draw(st.integers(0, extent - 1)), draw(st.integers(1, 5))
    return chunks, objects, Range(start, step, draw(st.integers(1, (extent - 1 - start) // step + 1)))


def plan_of(drawn: list[tuple[Any, Any, Any]]) -> tuple[BoxPlan, Grid]:
    grid = tuple(axis[0] for axis in drawn)
    wanted = tuple(axis[2] for axis in drawn)
    shape = tuple(one.size for one in wanted)
    plan = make_plan(Box(wanted, shape, None), grid)
    assert isinstance(plan, BoxPlan)
    return plan, tuple(axis[1] for axis in drawn)


def plain(part: Part) -> tuple[Any, ...]:
    """What a part takes, element by element."""
    sides = []
    for index in (part.inside, part.out):
        cells = np.indices((70,) * len(part.coords))
        sides.append([cells[axis][index].tolist() for axis in range(len(part.coords))])
    return part.coords, *sides, part.full


@given(st.lists(axes(), min_size=1, max_size=2), st.integers(1, 20), st.booleans(), st.booleans())
def test_batches_of_a_box_have_its_parts(drawn: list[Any], size: int, sharded: bool, whole: bool) -> None:
    plan, objects = plan_of(drawn)
    if not sharded:
        objects = plan.grid
    groups = list(plan.groups(objects))
    batches = BoxBatches(plan, objects, size, whole=whole)
    found = []
    for number in reversed(range(batches.n)):
        table = batches.table(number)
        assert table.nchunks <= size
        parts = batches.parts(number, table, range(table.nchunks))
        assert table.coords.tolist() == [list(part.coords) for part in parts]
        found = parts + found
        if table.owners is not None:
            owners = np.repeat(table.owners, np.diff(table.bounds), axis=0).tolist()
            assert owners == [
                list(owner) for part in parts for owner, members in groups if part.coords in {p.coords for p in members}
            ]
            assert not whole or len(table.owners) == 1
            assert table.cut == (batches.cuts > 1,) * 2
    assert list(map(plain, found)) == [plain(part) for _, members in groups for part in members]


@given(st.integers(1, 9), st.integers(1, 5), st.booleans(), st.data())
def test_batches_of_boxes_are_rows_of_their_plan(size: int, length: int, sharded: bool, data: Any) -> None:
    grid: Grid = (RegularAxis(20, 4), RegularAxis(20, 4))
    objects: Grid = (RegularAxis(20, 8), RegularAxis(20, 8)) if sharded else grid
    starts = np.array(
        data.draw(st.lists(st.tuples(*[st.integers(0, 20 - length)] * 2), min_size=1, max_size=9)), np.int64
    )
    fragments = cut_boxes(starts, (length, length), grid)
    plan = make_copies(fragments, fragments.box, (len(starts), length, length), 2, grid, objects)
    batches = make_batches(plan, objects, size)
    source = np.arange(400).reshape(20, 20)
    out = np.full((len(starts), length, length), -1)
    seen: list[list[int]] = []
    for number in range(batches.n):
        table = batches.table(number)
        firsts = np.arange(table.nchunks + 1) if table.firsts is None else table.firsts
        for chunk in range(table.nchunks):
            seen.append(table.coords[chunk].tolist())
            for row in range(firsts[chunk], firsts[chunk + 1]):
                inside, to = [], []
                for at, count, start, step, _, place, stride, _, _ in table.spans[row].tolist():
                    inside.append(slice(at * 4 + start, at * 4 + start + count, step))
                    to.append(slice(place, place + count, stride))
                out[(table.slots[row], *to)] = source[tuple(inside)]
        assert [part.coords for part in batches.parts(number, table, [0])] == [tuple(table.coords[0].tolist())]
        if table.bounds is not None:
            assert (table.bounds[0], table.bounds[-1]) == (0, table.nchunks)
            assert (np.diff(table.bounds) > 0).all()
    assert seen == plan.table(0, plan.nparts).coords.tolist()
    assert np.array_equal(out, [source[a : a + length, b : b + length] for a, b in starts.tolist()])


def test_long_axes_take_no_memory() -> None:
    axis = RegularAxis(1 << 40, 1 << 10)
    plan = make_plan(Box((Range(5, 1, (1 << 40) - 9),), ((1 << 40) - 9,), None), (axis,))
    assert isinstance(plan, BoxPlan)
    batches = BoxBatches(plan, (RegularAxis(1 << 40, 1 << 30),), 1000)
    assert (batches.n, batches.cuts) == (1049 << 10, 1049)
    table = batches.table(batches.n - 1)
    assert table.coords[-1] == [(1 << 30) - 1]
    assert batches.parts(0, table, [table.nchunks - 1])[0].out[0].stop == (1 << 40) - 9


def test_parts_of_boxes_are_tables_whatever_they_take() -> None:
    part = Part((1, 2), (slice(0, 3), slice(1, 9, 2)), (slice(4, 7), slice(0, 4)), full=False)
    far = part._replace(coords=(1 << 63, 0), full=True)
    table = table_of_parts([part, far])
    assert table is not None
    wanted = [[0, 3, 0, 1, -1, 4, 1, -1, 0], [0, 4, 1, 2, -1, 0, 1, -1, 0]]
    assert table.spans.tolist() == [wanted, [[*row[:-1], 1] for row in wanted]]
    two_lists = part._replace(inside=joint_index((np.array([5, 3, 4]), np.arange(4))))
    table = table_of_parts([two_lists, part, two_lists])
    assert table is not None
    assert table.lists.tolist() == [5, 3, 4, 0, 1, 2, 3]
    assert table.spans[2].tolist() == [[0, 3, 0, 0, 0, 4, 1, -1, 0], [0, 4, 0, 0, 3, 0, 1, -1, 0]]


def test_parts_of_points_are_no_tables() -> None:
    mask = np.ones((2, 2), np.bool_)
    for inside, out in (((np.arange(2), np.arange(2)), slice(0, 2)), (mask, (np.arange(4),))):
        assert table_of_parts([Part((0, 0), inside, out, full=False)]) is None
