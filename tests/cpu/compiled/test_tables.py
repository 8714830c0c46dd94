"""The pieces that the compiled loop is given, and their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.cpu.compiled.tables import Boxes, Piece, spread
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.plan import BoxPlan, make_plan
from gzarr.indexing.selection import normalize_basic


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 65])
@pytest.mark.parametrize("n_threads", [0, 1, 2, 3, 16, 100])
def test_spread_takes_every_number_once(n: int, n_threads: int) -> None:
    assert sorted(spread(n, n_threads)) == list(range(n))


def test_threads_that_take_turns_stay_apart() -> None:
    assert list(spread(8, 1)) == list(range(8))
    assert list(spread(8, 2)) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert list(spread(7, 3)) == [0, 3, 6, 1, 4, 2, 5]


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_pieces_cover_what_they_were_cut_from(size: int, n_threads: int) -> None:
    whole = Piece(5, 23, None, ((0, 28),), (0, 28))
    pieces = list(whole.cut(size, n_threads))
    assert sorted(at for piece in pieces for at in range(piece.first, piece.first + piece.n)) == list(range(5, 28))
    assert max(piece.n for piece in pieces) <= size


@settings(max_examples=100)
@given(first=st.integers(0, 50), last=st.integers(51, 100), step=st.sampled_from([1, 1, 1, 2, 3]), at=st.data())
def test_a_window_is_full_if_all_of_its_parts_are(first: int, last: int, step: int, at: st.DataObject) -> None:
    """Of a range over many chunks, whose spans are not made, and of one over few."""
    chunk = at.draw(st.sampled_from([1, 3, 10, 25]))
    plan = make_plan(normalize_basic(slice(first, last, step), (100,)), (RegularAxis(100, chunk),))
    assert isinstance(plan, BoxPlan)
    boxes = Boxes(plan)
    begin = at.draw(st.integers(0, plan.nparts - 1))
    n = at.draw(st.integers(1, plan.nparts - begin))
    piece = Piece(0, n, (0,), ((begin, n),), (0, n))
    assert boxes.are_full(piece) == all(boxes.part(piece, number).full for number in range(n))


@pytest.mark.parametrize("shards", [None, (24, 60)])
@pytest.mark.parametrize(
    "selection",
    [np.s_[:], np.s_[3:95, 1::2], np.s_[5, :], np.s_[::3, ::5], np.s_[90:, 100:101], ([3, 50, 4], slice(None))],
)
def test_tables_of_each_piece_do_what_one_of_all_does(
    selection: Any, shards: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gzarr.cpu.compiled.tables._MAX_SPANS", 8)
    monkeypatch.setattr("gzarr.cpu.compiled.read.PIECE_NCHUNKS", 7)
    values = np.arange(96 * 120, dtype="i4").reshape(96, 120)
    array = gzarr.create_array(tmp_path, shape=values.shape, chunks=(6, 10), shards=shards, dtype="i4")
    array[:] = values
    np.testing.assert_array_equal(array.oindex[selection], values[selection])
    array.oindex[selection] = values[selection] = values[selection] + 7
    np.testing.assert_array_equal(array[:], values)


def test_tables_of_pieces_take_no_memory_for_other_chunks() -> None:
    plan = make_plan(normalize_basic(slice(None), (10**7,)), (RegularAxis(10**7, 1),))
    assert isinstance(plan, BoxPlan)
    boxes = Boxes(plan)
    assert boxes.are_many
    tables, (firsts, counts), first = boxes.tables_of(Piece(4_000_000, 256, None, ((0, 10**7),), (0, 10**7)))
    assert (firsts, counts, first) == ([0], [256], 0)
    assert len(tables[0]) == 256 * 64
