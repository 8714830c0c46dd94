"""Descriptors: what is joined, which units are chosen, and what is left to the general kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN, parts
from gzarr.gpu.kernels.parts import TOO_LARGE, TOO_NARROW, Boxes, Shuffles, cut, describe, divisors, plain_shuffles

KIND, TASKS, LEVELS, PER_RUN, APART, EACH = 4, 5, 6, 7, 48, 50


def column(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def described(
    shape: tuple[int, ...],
    source: tuple[int, tuple[int, ...]],
    target: tuple[int, tuple[int, ...]],
    nbytes: int,
    shuffle: tuple[int, int, int, int] = (PLAIN, 1, 1, 1),
    swap_unit: int = 0,
) -> tuple[int, np.ndarray]:
    """(mode, descriptor) of one part. shuffle: mode, typesize, bytes of a block, and of the chunk."""
    boxes = Boxes(
        column(source[0]),
        column(0),
        column(target[0]),
        column(*shape).reshape(-1, 1),
        column(*source[1]).reshape(-1, 1),
        column(*target[1]).reshape(-1, 1),
        nbytes,
        *(np.full((len(shape), 1), -1),) * 2,
        column(),
    )
    mode, typesize, blocksize, size = (column(value) for value in shuffle)
    shuffles = Shuffles(mode.astype(np.uint8), typesize.astype(np.int32), blocksize, size)
    made = describe(boxes, shuffles, swap_unit)
    return int(made.mode[0]), made.table[0]


@given(st.one_of(st.integers(1, 1 << 31), st.integers(0, 31).map(lambda k: 1 << k)), st.data())
def test_divisors_are_exact(number: int, data: st.DataObject) -> None:
    magic, shift = (int(c[0]) for c in divisors(column(number)))
    assert 0 < magic < 1 << 32
    quotient = data.draw(st.integers(0, (1 << 31) // number))
    near = [quotient * number + d for d in (-1, 0, 1, number - 1)]
    for n in [*near, data.draw(st.integers(0, (1 << 31) - 1)), (1 << 31) - 1]:
        if 0 <= n < 1 << 31:
            assert (n * magic + magic >> 32) >> shift == n // number


def test_axes_that_follow_each_other_are_joined() -> None:
    mode, whole = described((3, 4, 8), (1024, (128, 32, 4)), (4096, (128, 32, 4)), 4)
    assert (mode, whole[KIND], whole[TASKS], whole[LEVELS], whole[PER_RUN]) == (PLAIN, 4, 6, 1, 6)
    assert whole[APART : APART + 4].tolist() == [6, 6, 4, 0]
    mode, rows = described((3, 4, 8), (1024, (128, 32, 4)), (4096, (4000, 1000, 4)), 4)
    assert (mode, rows[KIND], rows[TASKS], rows[LEVELS], rows[PER_RUN]) == (PLAIN, 3, 4, 1, 4)
    mode, rows = described((3, 1, 8), (1024, (128, 32, 4)), (4096, (4000, 16, 4)), 4)
    assert (rows[LEVELS], rows[24:27].tolist(), rows[EACH]) == (1, [8, 250, 1], 3)


@pytest.mark.parametrize(
    ("rows", "n", "along", "tasks", "each"),
    [(64, 8, 0, 16, [4, 0]), (67, 8, 0, 16, [4, 3]), (3, 128, 1, 32, [4, 0]), (2, 2, 0, 1, [2, 0])],
)
def test_threads_copy_units_that_are_equally_far_apart(rows: int, n: int, along: int, tasks: int, each: list) -> None:
    """Of rows of n units, along the axis that gives a thread the most of them."""
    _, part = described((rows, 4 * n), (1024, (16 * n + 16, 4)), (4096, (16 * n + 32, 4)), 4)
    assert (part[23], part[APART + 2 : APART + 4].tolist()) == (along, each)
    assert part[TASKS] == tasks * (rows if along else n)
    assert part[APART : APART + 2].tolist() == [tasks * (1 if along else n + k) for k in (1, 2)]


@pytest.mark.parametrize(("address", "kind"), [(4096, 4), (4104, 3), (4100, 2), (4098, 1), (4097, 0)])
def test_units_are_as_wide_as_addresses_allow(address: int, kind: int) -> None:
    for n in (4, 64):  # longer rows of narrow units are copied in windows
        wanted = kind + 64 * (n == 64 and kind < 2)
        assert described((n,), (1024, (4,)), (address, (4,)), 4)[1][KIND] == wanted
        assert described((n,), (address, (4,)), (1024, (4,)), 4)[1][KIND] == wanted


@pytest.mark.parametrize(("n", "last", "count"), [(131, 67, 66), (63, 63, 33), (128, 64, 66)])
def test_rows_of_items_that_lie_apart_are_cut_into_pieces(n: int, last: int, count: int) -> None:
    mode, part = described((33, n), (1024, (1, 33)), (4097, (n, 1)), 1)
    assert (mode, part[KIND], part[TASKS], part[PER_RUN], part[52], part[54]) == (PLAIN, 128, 0, 33, last, count)


@pytest.mark.parametrize(
    ("mode", "typesize", "address", "items"),
    [
        *[(BYTE_SHUFFLED, 2, a, k) for a, k in ((0, 8), (8, 4), (4, 2), (2, 1))],
        *[(BYTE_SHUFFLED, 4, a, k) for a, k in ((0, 4), (8, 2), (4, 1))],
        *[(BYTE_SHUFFLED, 8, a, k) for a, k in ((0, 2), (8, 1))],
        (BYTE_SHUFFLED, 16, 0, 1),
        *[(BIT_SHUFFLED, 1, a, k) for a, k in ((0, 32), (8, 8), (4, 1), (1, 1))],
        *[(BIT_SHUFFLED, 2, a, k) for a, k in ((0, 32), (8, 1), (2, 1))],
        *[(BIT_SHUFFLED, 4, a, k) for a, k in ((0, 32), (8, 1), (4, 1))],
        *[(BIT_SHUFFLED, 8, a, k) for a, k in ((0, 16), (8, 1))],
    ],
)
def test_items_of_a_unit(mode: int, typesize: int, address: int, items: int) -> None:
    shuffle = (mode, typesize, 128 * typesize, 416 * typesize)
    found, part = described((416,), (1024, (typesize,)), (4096 + address, (typesize,)), typesize, shuffle)
    windows = 64 * (mode == BYTE_SHUFFLED and items == 1 and typesize < 8)
    assert (found, part[KIND]) == (mode, windows + 8 * (typesize.bit_length() - 1) + items.bit_length() - 1)


@pytest.mark.parametrize(
    ("typesize", "row", "items"), [(2, 48, 8), (4, 48, 1), (4, 64, 8), (8, 80, 1), (8, 96, 1), (8, 128, 8)]
)
def test_rows_of_the_target_are_whole_units(typesize: int, row: int, items: int) -> None:
    strides, chunk = (8 * typesize, typesize), 64 * typesize
    shuffle = (BIT_SHUFFLED, typesize, chunk, 16 * chunk)  # of a large part, the chunk is unshuffled first
    mode, part = described((8, 8), (1024, strides), (4096, (row, typesize)), typesize, shuffle)
    width = items * typesize
    assert (mode, part[KIND]) == (BIT_SHUFFLED, 8 * (typesize.bit_length() - 1) + items.bit_length() - 1)
    assert (part[PER_RUN] * part[26] * part[EACH] * width, part[24] * width) == (chunk, 8 * typesize)
    assert part[25] * width == row


@pytest.mark.parametrize(
    ("shape", "strides", "shuffle", "swap"),
    [
        ((3, 3, 3, 3, 3), (10000, 2000, 400, 80, 16), (PLAIN, 1, 1, 1), 0),  # levels
        ((4, 8), (0, 4), (PLAIN, 1, 1, 1), 0),  # one target for several elements
        ((8,), (4,), (BYTE_SHUFFLED, 3, 96, 96), 0),  # items of odd sizes
        ((8,), (4,), (BIT_SHUFFLED, 4, 64, 112), 0),  # a last block that is not shuffled
        ((8,), (4,), (BYTE_SHUFFLED, 4, 65, 128), 0),  # blocks with a tail
        ((8,), (4,), (BYTE_SHUFFLED, 2, 128, 128), 4),
    ],
)
def test_the_rest_is_left(shape: tuple[int, ...], strides: tuple[int, ...], shuffle: tuple, swap: int) -> None:
    inner = tuple(8 * s for s in strides) if len(shape) > 2 else strides if 0 not in strides else (32, 4)
    start = 1024 if swap == 0 else 1025  # units of two bytes have no numbers of four
    assert described(shape, (start, inner), (4096, strides), 4, shuffle, swap)[0] < 0


def test_missing_chunks_are_plain() -> None:
    for nbytes, mode in ((1, PLAIN), (16, PLAIN), (12, TOO_NARROW)):
        assert described((8,), (0, (nbytes,)), (4096, (nbytes,)), nbytes, (BYTE_SHUFFLED, 4, 64, 1))[0] == mode
    assert described((8,), (0, (4,)), (4098, (4,)), 4)[0] == TOO_NARROW


def test_pieces_of_parts_that_reach_far_are_few() -> None:
    lists = np.full((1, 1), -1)
    n, at = 3 << 31, column(0)
    part = Boxes(at + 1025, at, at + 4097, column(n)[None], at[None] + 2, at[None] + 1, 1, lists, lists, column())
    assert describe(part, plain_shuffles(1), 0).mode == TOO_LARGE
    pieces = cut(part)
    assert describe(pieces, plain_shuffles(12), 0).mode.tolist() == [PLAIN] * 12
    ends = pieces.counts[0].cumsum()
    assert ends[-1] == n
    assert np.array_equal(pieces.start, 2 * (ends - pieces.counts[0]))
    assert np.array_equal(pieces.target, 4097 + pieces.start // 2)


def test_no_parts_have_no_descriptors() -> None:
    none = column()
    assert describe(parts.runs(none, none, none, 4), plain_shuffles(0), 0).table.shape == (0, parts.PART_WORDS)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Boxes, Shuffles, int]:
    n, axes = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    kinds = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))  # of which some parts have the same

    def of_kinds(values: st.SearchStrategy[int]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=3, max_size=3)), np.int64)[kinds]

    strides = st.sampled_from([0, 1, 2, 4, 12, 48, 64, -4, 1 << 20])
    counts, *along = (
        np.stack([of_kinds(some) for _ in range(axes)]) for some in (st.integers(1, 70), strides, strides)
    )
    addresses = [np.array(draw(st.lists(st.integers(0, 99), min_size=n, max_size=n)), np.int64) << 4 for _ in range(2)]
    source, target = (one + of_kinds(st.sampled_from([0, 0, 4, 1])) for one in addresses)
    none, empty = np.full_like(counts, -1), np.zeros(0, np.int64)
    nbytes = draw(st.sampled_from([1, 2, 3, 4, 16]))
    boxes = Boxes(source, of_kinds(st.integers(0, 40)), target + 16, counts, *along, nbytes, none, none, empty)
    mode = of_kinds(st.sampled_from([PLAIN, PLAIN, BYTE_SHUFFLED, BIT_SHUFFLED])).astype(np.uint8)
    sizes = (of_kinds(st.sampled_from([256, 1000, 4096])) for _ in range(2))
    typesize = of_kinds(st.sampled_from([1, 2, 4, 8])).astype(np.int32)
    return boxes, Shuffles(mode, typesize, *sizes), draw(st.sampled_from([0, nbytes]))


@given(batches())
def test_parts_that_are_alike_are_described_as_each_by_itself(batch: tuple[Boxes, Shuffles, int]) -> None:
    boxes, shuffles, swap_unit = batch
    for _ in range(2):  # the second time from memory
        found = describe(*batch)
        for k, mode in enumerate(found.mode.tolist()):
            some = np.array([k])
            alone = parts._describe(boxes.take(some), shuffles.take(some), swap_unit)
            assert mode == alone.mode[0]
            if mode >= 0:
                used = np.r_[0:13, 20 : parts.PART_WORDS] if mode == PLAIN else np.r_[0 : parts.PART_WORDS]
                np.testing.assert_array_equal(found.table[k, used], alone.table[0, used])
