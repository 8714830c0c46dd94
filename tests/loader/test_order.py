"""Orders are bijections, the same everywhere, well mixed, and cost nothing however many samples there are."""

from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.loader.order import (
    EqualBlocks,
    Order,
    Permutation,
    SequentialOrder,
    VaryingBlocks,
    is_repeatable,
    make_order,
    make_sampled,
    parse_shuffle,
)
from tests.support.memory import traced


def everything(order: Order) -> np.ndarray:
    return order(np.arange(order.n))


def chi_square(counts: np.ndarray) -> float:
    """How many standard deviations the counts of equally likely events are from equal ones."""
    expected = counts.mean()
    free = counts.size - 1
    return float(((counts - expected) ** 2).sum() / expected - free) / np.sqrt(2 * free)


@given(st.integers(1, 3000), st.integers(-(2**70), 2**70), st.integers(0, 5))
def test_a_permutation_is_a_bijection(n: int, seed: int, epoch: int) -> None:
    found = everything(Permutation(n, seed, epoch))
    assert found.dtype == np.int64
    np.testing.assert_array_equal(np.sort(found), np.arange(n))


@given(st.integers(1, 200))
def test_every_tweak_is_a_bijection_of_its_own(n: int) -> None:
    found = Permutation(n, 0)(np.tile(np.arange(n), 3), np.repeat([0, 1, 2**40], n)).reshape(3, n)
    np.testing.assert_array_equal(np.sort(found), np.tile(np.arange(n), (3, 1)))
    if n > 20:
        assert (found[0] != found[1]).any()
        assert (found[1] != found[2]).any()


def test_the_same_seed_gives_the_same_order_on_every_platform() -> None:
    assert everything(Permutation(10, 0, 0)).tolist() == [4, 6, 2, 5, 9, 8, 7, 0, 3, 1]
    assert Permutation(10**9, 7, 3)(np.array([0, 1, 10**9 - 1])).tolist() == [103303652, 393052145, 781480876]
    blocks = make_order(23, "blocks", seed=1, epoch=2, runs=4, block_chunks=2)
    pinned = (7, 22, 20, 5, 4, 21, 6, 12, 19, 16, 17, 14, 15, 13, 18, 1, 3, 8, 10, 2, 11, 9, 0)
    assert tuple(everything(blocks)) == pinned


def test_positions_may_be_asked_for_in_any_order() -> None:
    order = Permutation(1000, 1)
    some = np.array([999, 3, 3, 500])
    np.testing.assert_array_equal(order(some), everything(order)[some])
    assert order(np.empty(0, np.int64)).shape == (0,)


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_every_order_of_few_samples_is_equally_likely(n: int) -> None:
    times = factorial(n) * 50
    found = Permutation(n, 5)(np.tile(np.arange(n), times), np.repeat(np.arange(times), n)).reshape(times, n)
    _, counts = np.unique(found @ n ** np.arange(n), return_counts=True)
    assert len(counts) == factorial(n)
    assert abs(chi_square(counts)) < 4


@pytest.mark.parametrize("n", [100, 257, 5008, 65536])
def test_neighbours_and_places_are_mixed(n: int) -> None:
    """Each pair of coarse places is equally likely: of neighbours in the order, and of a sample and its position."""
    rounds = max(20_000 // n, 1)
    found = np.stack([everything(Permutation(n, seed)) for seed in range(rounds)])
    cells = 8
    place = found * cells // n
    # Places of unequal width and draws without replacement make the counts more equal than those of free draws.
    after = np.bincount((place[:, :-1] * cells + place[:, 1:]).ravel(), minlength=cells**2)
    position = np.bincount((place + np.arange(n) * cells // n * cells).ravel(), minlength=cells**2)
    assert chi_square(after) < 4 if not n % cells else chi_square(after) < 8
    assert chi_square(position) < 4 if not n % cells else chi_square(position) < 8
    steps = np.bincount((np.diff(found) % n * cells // n).ravel(), minlength=cells)
    assert chi_square(steps) < 8


def test_epochs_and_seeds_are_independent() -> None:
    n = 10_000
    orders = [everything(Permutation(n, seed, epoch)) for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert abs(np.corrcoef(orders[one], orders[other])[0, 1]) < 0.04
        assert (orders[one] == orders[other]).sum() < 8  # one is expected


@pytest.mark.parametrize("shuffle", ["exact", "blocks", False])
def test_a_billion_samples_cost_nothing(shuffle: str) -> None:
    n = 10**9 + 7
    with traced() as peak:
        order = make_order(n, shuffle, runs=16)
        found = order(np.arange(n - 300, n))
        assert peak() < 300_000
    assert len(np.unique(found)) == 300
    assert found.min() >= 0
    assert found.max() < n


# -- blocks ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 120), st.integers(1, 9), st.integers(1, 20), st.integers(0, 20))
def test_equal_blocks_take_samples_once_and_few_chunks_at_a_time(n: int, length: int, size: int, seed: int) -> None:
    check_blocks(EqualBlocks(n, length, size, seed), np.append(np.arange(0, n, length), n), size)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 20), st.integers(0, 20))
def test_varying_blocks_take_samples_once_and_few_chunks_at_a_time(lengths: list[int], size: int, seed: int) -> None:
    edges = np.append(0, np.cumsum(lengths))
    check_blocks(VaryingBlocks(edges, size, seed), edges, size)


def check_blocks(order: Order, edges: np.ndarray, size: int) -> None:
    """Each block of ``size`` chunks is taken to its end before the next one begins."""
    found = everything(order)
    np.testing.assert_array_equal(np.sort(found), np.arange(order.n))
    chunks = np.searchsorted(edges, found, side="right") - 1
    seen = chunks[np.sort(np.unique(chunks, return_index=True)[1])]
    blocks = np.argsort(seen)[chunks] // size
    assert (np.diff(blocks) >= 0).all()


def test_the_short_last_chunk_may_stand_anywhere() -> None:
    n, length = 50, 8  # the last chunk has two samples
    places = [int(np.argmax(everything(EqualBlocks(n, length, 1, seed)) >= 48)) // length for seed in range(60)]
    assert set(places) == set(range(7))


# -- samplers --------------------------------------------------------------------------------------------------------


def test_a_sampler_is_a_function_of_positions_and_epoch() -> None:
    order = make_sampled(lambda positions, epoch: (positions * 3 + epoch) % 10, 10, 2)
    assert (order.n, order(np.array([0, 1, 9])).tolist()) == (10, [2, 5, 9])


def test_a_function_with_a_length_says_how_long_an_epoch_is() -> None:
    class Weighted:
        def __len__(self) -> int:
            return 25

        def __call__(self, positions: np.ndarray, epoch: int) -> np.ndarray:
            return positions % 10

    assert make_sampled(Weighted(), 10, 0).n == 25


def test_an_array_is_a_sampler_too() -> None:
    order = make_sampled([4, 4, 0], 5, 0)
    assert (order.n, order(np.array([2, 0])).tolist()) == (3, [0, 4])


def test_an_iterable_sampler_is_asked_once_an_epoch() -> None:
    class Torch:
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch, 3])

    order = make_sampled(Torch(), 5, 2)
    assert order.n == 2
    assert everything(order).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("sampler", "error", "message"),
    [
        (lambda p, e: p + 8, IndexError, r"sample 10 at position 2 of epoch 4; expected 0 to 9: 1 of 3 are out of"),
        (lambda p, e: -1 - p, IndexError, "sample -1 at position 0"),
        (lambda p, e: p / 2, ValueError, r"gave float64 \(3,\) for 3 positions; expected an integer for each"),
        (lambda p, e: p[:2], ValueError, r"gave int64 \(2,\) for 3 positions"),
        (lambda p, e: 1, ValueError, r"gave int64 \(\) for 3 positions"),
        ([1, 2, 10], IndexError, "sample 10 at position 2"),
    ],
)
def test_what_a_sampler_gives_is_checked(sampler, error, message) -> None:
    with pytest.raises(error, match=message):
        make_sampled(sampler, 10, 4)(np.arange(3))


@pytest.mark.parametrize("sampler", [[0.5], [[1, 2]], iter([0.5])])
def test_what_is_no_sampler_is_refused(sampler) -> None:
    with pytest.raises(TypeError, match="sampler"):
        make_sampled(sampler, 10, 0)


def test_what_is_only_iterated_over_is_not_repeatable() -> None:
    assert is_repeatable([1, 2])
    assert is_repeatable(lambda positions, epoch: positions)
    assert not is_repeatable({1, 2})


# -- names -----------------------------------------------------------------------------------------------------------


def test_names_of_orders() -> None:
    assert [parse_shuffle(s) for s in (True, "exact", "blocks", False, None)] == [
        "exact",
        "exact",
        "blocks",
        False,
        False,
    ]
    assert isinstance(make_order(5, False), SequentialOrder)
    assert everything(make_order(5, False)).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"'exact' .*'blocks' or False, got 'random'"):
        parse_shuffle("random")
