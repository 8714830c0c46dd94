"""How far ahead samples are taken: the exact numbers are those of simulated epochs in ``test_look_ahead``."""

from __future__ import annotations

import numpy as np

from gzarr.loader.reach import Prospect, reach_of, within_reach


def prospect(slots: int, left: int = 1000, seen: int = 1000) -> Prospect:
    return Prospect(slots, gap=50.0, left=left, seen=seen, at=500, opened=0)


def test_the_reach_fills_the_pool() -> None:
    """Rows that are opened every ``reach + gap`` positions hold this many samples on average."""
    reach, gap = reach_of(1000, 300) / 0.75, 300
    assert np.isclose(reach**2 / (2 * (reach + gap)), 1000)


def test_everything_is_taken_if_the_pool_is_large() -> None:
    far = np.array([10, 400, 999, 3, 700])
    assert within_reach(far, np.array([0, 3]), prospect(5000)).all()


def test_a_row_is_cut_at_a_wide_gap_near_its_reach() -> None:
    even = np.arange(10, 1000, 50)
    gapped = np.concatenate([[10, 20, 30, 40, 50], np.arange(200, 1000, 50)])
    taken = within_reach(np.concatenate([even, gapped]), np.array([0, len(even)]), prospect(30))
    assert abs(taken[: len(even)].sum() * 50 - reach_of(30, 50)) <= 50
    assert taken[len(even) :].sum() == 5


def test_an_end_that_is_not_in_sight_is_no_end() -> None:
    """Samples are held to the end of the epoch, as that spares an opening; nothing is spared at the horizon."""
    far = np.array([10, 60, 110, 160])
    assert within_reach(far, np.array([0]), prospect(60, left=200, seen=200)).all()
    assert not within_reach(far, np.array([0]), prospect(60, left=10_000, seen=200)).all()


def test_no_rows_take_nothing() -> None:
    assert not len(within_reach(np.empty(0, np.int64), np.empty(0, np.int64), prospect(10)))
