"""Ranks take every sample exactly once between them, in equally many steps, through any sequence of stops."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.loader.ranks import History, RankShare, make_share, parse_ranks

#: (world_size, batch_size, whole steps until the run is stopped)
Runs = list[tuple[int, int, int]]
runs = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(0, 4)), max_size=4)


def shares(
    total: int, history: History, world: int, batch: int, *, contiguous: bool, drop_last: bool
) -> list[RankShare]:
    return [
        make_share(
            total, history, batch_size=batch, rank=rank, world_size=world, contiguous=contiguous, drop_last=drop_last
        )
        for rank in range(world)
    ]


@given(st.integers(0, 150), runs, st.tuples(st.integers(1, 5), st.integers(1, 7)), st.booleans(), st.booleans())
def test_every_sample_is_taken_once_through_stops_and_changes_of_world_size(
    total: int, stops: Runs, end: tuple[int, int], contiguous: bool, drop_last: bool
) -> None:
    history: History = ()
    taken: list[int] = []
    for world, batch, steps in [*stops, (*end, 10**6)]:
        ranks = shares(total, history, world, batch, contiguous=contiguous, drop_last=drop_last)
        assert len({share.n for share in ranks}) == 1
        assert not drop_last or ranks[0].n % batch == 0
        count = min(steps * batch, ranks[0].n)
        for share in ranks:
            taken += share.positions(0, count).tolist()
        history = ranks[0].history(count)
        assert {share.history(count) for share in ranks} == {history}
    found = np.bincount(np.array(taken, np.int64), minlength=total)
    assert len(found) == total
    assert (found == 0).sum() < (end[0] * end[1] if drop_last else 1)
    most_wrapped = sum(world - 1 for world, _, _ in stops) + end[0] - 1
    assert (found - 1).clip(0).sum() <= (0 if drop_last else most_wrapped)


@given(st.integers(1, 150), st.integers(1, 5), st.integers(1, 7), st.integers(0, 9), st.booleans(), st.booleans())
def test_a_stop_does_not_change_what_the_same_ranks_take(
    total: int, world: int, batch: int, steps: int, contiguous: bool, drop_last: bool
) -> None:
    before = shares(total, (), world, batch, contiguous=contiguous, drop_last=drop_last)
    count = min(steps * batch, before[0].n)
    after = shares(total, before[0].history(count), world, batch, contiguous=contiguous, drop_last=drop_last)
    for one, other in zip(before, after, strict=True):
        assert other.n == one.n - count
        np.testing.assert_array_equal(one.positions(count, one.n), other.positions(0, other.n))


@pytest.mark.parametrize("contiguous", [False, True])
def test_parts_of_a_share_may_be_asked_for_in_any_order(contiguous: bool) -> None:
    share = make_share(100, ((3, 4),), batch_size=4, rank=1, world_size=2, contiguous=contiguous, drop_last=False)
    everything = share.positions(0, share.n)
    np.testing.assert_array_equal(share.positions(5, 31), everything[5:31])
    assert share.positions(3, 3).shape == (0,)


def test_batches_are_taken_in_turn() -> None:
    zero, one = shares(19, (), 2, 3, contiguous=False, drop_last=False)
    assert zero.positions(0, zero.n).tolist() == [0, 1, 2, 6, 7, 8, 12, 13, 14, 18]
    assert one.positions(0, one.n).tolist() == [3, 4, 5, 9, 10, 11, 15, 16, 17, 0]  # 0 a second time


def test_parts_are_contiguous() -> None:
    zero, one = shares(19, (), 2, 3, contiguous=True, drop_last=False)
    assert zero.positions(0, zero.n).tolist() == [*range(10)]  # 9 a second time
    assert one.positions(0, one.n).tolist() == [*range(9, 19)]


def test_rests_of_parts_are_put_together_and_cut_anew() -> None:
    history = shares(20, (), 2, 2, contiguous=True, drop_last=True)[0].history(6)
    assert history == ((2, 6),)  # 6 to 9 and 16 to 19 are left
    ranks = shares(20, history, 4, 1, contiguous=True, drop_last=True)
    assert [share.positions(0, share.n).tolist() for share in ranks] == [[6, 7], [8, 9], [16, 17], [18, 19]]


def test_parts_meet_in_one_block_at_most() -> None:
    block = 64
    ranks = shares(1000, (), 3, 10, contiguous=True, drop_last=True)
    blocks = [set((share.positions(0, share.n) // block).tolist()) for share in ranks]
    assert len(blocks[0] & blocks[1]) <= 1
    assert len(blocks[1] & blocks[2]) <= 1
    assert not blocks[0] & blocks[2]


def test_a_billion_samples_cost_nothing() -> None:
    for contiguous in (False, True):
        share = make_share(
            10**9, ((7, 10**6),), batch_size=256, rank=5, world_size=8, contiguous=contiguous, drop_last=True
        )
        assert len(share.positions(share.n - 256, share.n)) == 256


# -- which rank ------------------------------------------------------------------------------------------------------


def test_ranks_are_those_given_or_one_of_one() -> None:
    assert (parse_ranks(2, 4), parse_ranks(None, None)) == ((2, 4), (0, 1))


@pytest.mark.parametrize(("initialized", "expected"), [(True, (3, 8)), (False, (0, 1))])
def test_ranks_of_torch_are_found(monkeypatch: pytest.MonkeyPatch, initialized: bool, expected: tuple) -> None:
    torch = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: initialized, get_rank=lambda: 3, get_world_size=lambda: 8
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    assert parse_ranks(None, None) == expected
    assert parse_ranks(0, 2) == (0, 2)


@pytest.mark.parametrize(
    ("rank", "world_size", "message"),
    [
        (1, None, "belong together, got rank=1 and world_size=None"),
        (None, 2, "belong together"),
        (2, 2, "rank=2 of world_size=2; expected 0 <= rank < world_size"),
        (-1, 2, "rank=-1"),
        (0, 0, "world_size=0"),
    ],
)
def test_ranks_that_cannot_be_are_refused(rank: int, world_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_ranks(rank, world_size)
