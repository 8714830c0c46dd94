"""Blocks that values are gathered in, and the boxes that were given of them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.chunk_io.behind import _all, _pool, block_grid, merged
from gzarr.indexing.grid import RegularAxis, VaryingAxis


@pytest.mark.parametrize(
    ("shape", "most", "lengths"),
    [
        ((1, 100, 100), 1 << 20, (4, 100, 100)),  # no further than a value reaches: along the first axis a chunk
        ((1, 100, 100), 4 * 10 * 30 * 2, (4, 10, 30)),
        ((1, 100, 100), 4 * 20 * 100 * 2, (4, 20, 100)),
        ((8, 10, 10), 1 << 20, (8, 10, 10)),
        ((8, 10, 20), 1, (4, 10, 10)),
    ],
)
def test_blocks_hold_neighbouring_objects(shape: tuple[int, ...], most: int, lengths: tuple[int, ...]) -> None:
    grid = tuple(RegularAxis(100, length) for length in (4, 10, 10))
    assert tuple(axis.bounds(0)[1] for axis in block_grid(grid, 2, shape, most)) == lengths


def test_objects_that_differ_in_shape_are_blocks_of_their_own() -> None:
    grid = RegularAxis(9, 3), VaryingAxis(9, (2, 7))
    assert block_grid(grid, 1, (9, 9), 1 << 20) == grid
    assert block_grid((), 8, (), 1 << 20) == ()


BOXES = st.lists(
    st.tuples(st.tuples(st.integers(0, 5), st.integers(1, 3)), st.tuples(st.integers(0, 5), st.integers(1, 3))),
    max_size=12,
)


@given(BOXES)
@settings(max_examples=100)
def test_boxes_are_made_one_where_they_are_a_box_again(boxes: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    given_ones = np.zeros((8, 8), bool)
    parts: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for (y, height), (x, width) in boxes:
        given_ones[y : y + height, x : x + width] = True
        parts = merged(parts, ((y, x), (y + height, x + width)))
    union = np.zeros_like(given_ones)
    for (y, x), (bottom, right) in parts:
        union[y:bottom, x:right] = True
    np.testing.assert_array_equal(union, given_ones)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 3, 1, 2), (3, 1, 2, 0)])
def test_quarters_become_a_whole(order: tuple[int, ...]) -> None:
    quarters = [((y, x), (y + 2, x + 2)) for y in (0, 2) for x in (0, 2)]
    parts: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for number in order:
        parts = merged(parts, quarters[number])
    assert parts == [((0, 0), (4, 4))]


def test_writes_that_nobody_waits_for_leave_nothing_behind() -> None:
    array = gzarr.create_array(None, shape=(8,), chunks=(4,), dtype="i4")
    array.write_behind(slice(0, 4), 1)
    (behind,) = [one for one in _all if one.io.store is array.store]
    for value in range(50):
        array.write_behind(slice(0, 4), value)
        while not all(block.done for block in behind._blocks.values()):
            time.sleep(0.0001)
    assert behind._queue.ended.qsize() <= 2
    assert array[0] == 49


def test_an_interrupt_while_a_writer_starts_costs_no_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    array = gzarr.create_array(None, shape=(8,), chunks=(4,), dtype="i4")
    with monkeypatch.context() as patch:
        patch.setattr(_pool, "submit", interrupted)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                array.write_behind(slice(0, 4), 1)
    array.write_behind(slice(0, 4), 2)
    assert array[0] == 2
