"""Sizes of memory, and how they are divided between arrays."""

import pytest

from gzarr.indexing.grid import RegularAxis
from gzarr.loader.pool import KEPT_NBYTES, Want, batches_of_step, choose_kept, divide, parse_memory


@pytest.mark.parametrize(
    ("given", "nbytes"),
    [
        (1000, 1000),
        ("1000", 1000),
        ("1 GiB", 1 << 30),
        ("512MiB", 512 << 20),
        ("2 GB", 2 * 10**9),
        ("1.5 kib", 1536),
        ("35 %", 350),
        ("0.5%", 5),
    ],
)
def test_sizes_of_memory(given, nbytes):
    assert parse_memory(given, 1000) == nbytes


@pytest.mark.parametrize("given", ["", "GiB", "1 XiB", "-3", "1e9", "50 % 3", 0, "0 MB"])
def test_malformed_sizes(given):
    with pytest.raises(ValueError, match="memory must be"):
        parse_memory(given, 1000)


@pytest.mark.parametrize("given", [None, 1.5, True, [1]])
def test_what_is_no_size(given):
    with pytest.raises(TypeError, match="memory must be"):
        parse_memory(given, 1000)


def want(nbytes, span=10_000):
    return Want(
        (1, nbytes), (RegularAxis(10_000, 16), RegularAxis(nbytes, nbytes)), nbytes, nbytes, span, span == 10_000
    )


def kept_of(sizes, memory, batch_size=1, row=1000):
    return choose_kept(
        {str(size): size for size in sizes}, {str(size): want(row) for size in sizes}, memory, batch_size
    )


def test_small_arrays_are_kept():
    sizes = [KEPT_NBYTES + 1, KEPT_NBYTES]
    assert kept_of(sizes, 1 << 40) == {str(KEPT_NBYTES)}
    assert kept_of(sizes, KEPT_NBYTES * 7) == set()


def test_small_arrays_that_are_many_are_not_all_kept():
    kept = kept_of(range(1000, 0, -10), 400_000)
    assert 49_000 < sum(map(int, kept)) <= 50_000
    assert "10" in kept
    assert kept_of(range(1000, 0, -10), 400_000, batch_size=4) == set()


def test_arrays_of_tiny_samples_are_kept_if_half_of_the_memory_holds_them():
    assert kept_of([1 << 29], 1 << 30, row=8) == {str(1 << 29)}
    assert kept_of([(1 << 29) + 1], 1 << 30, row=8) == set()
    assert kept_of([1 << 29], 1 << 30, row=8, batch_size=1 << 23) == set()


def test_all_arrays_hold_about_equally_many_samples_within_the_cap():
    wants = [want(100_000), want(2_000)]
    rooms = divide(10_000_000, wants, 8, 2, 2)
    assert [room.mode for room in rooms] == ["pool", "pool"]
    assert sum(room.slots * want.slot_nbytes for room, want in zip(rooms, wants, strict=True)) <= 10_000_000
    assert abs(rooms[0].slots - rooms[1].slots) < 2


def test_memory_for_all_samples_is_used_directly_and_no_more_than_helps():
    (room,) = divide(1 << 30, [want(1000)], 100, 2, 2)
    assert room.mode == "direct"
    (room,) = divide(1 << 30, [want(1000, span=16)], 100, 2, 2)
    assert room.slots < 1000


def test_memory_for_all_samples_as_they_are_stored_but_not_as_they_become():
    n, small = 10_000, want(1000)
    (room,) = divide(n * 3000, [small._replace(sample_nbytes=4000)], 100, 2, 2)
    assert room.mode == "pool"
    assert n < room.slots < n * 1.1


def test_too_little_memory():
    with pytest.raises(ValueError, match="memory=70000 bytes are less than one batch takes: 70 samples of 1128 bytes"):
        divide(70_000, [want(1000)], 70, 2, 2)
    divide(70 * 1128, [want(1000)], 70, 2, 2)


def test_steps_are_larger_where_a_store_waits():
    assert (batches_of_step(1 << 20, waits=False), batches_of_step(1 << 20, waits=True)) == (16, 64)
    assert batches_of_step(1 << 40, waits=True) == batches_of_step(1 << 40, waits=False) == 4
