"""The loop's casts give NumPy's bits, for every pair of numbers; rows of a pool are gathered as NumPy does it."""

import itertools
from typing import Any

import numpy as np
import pytest

from gzarr.cpu.compiled import casts as taking
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.casts import NO_CAST, cast_numbers, take

TYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
PAIRS = [pair for pair in itertools.product(TYPES, TYPES) if cast_numbers(*map(np.dtype, pair)) not in {None, NO_CAST}]


def odd(dtype: Any) -> np.ndarray:
    """All values of 16 bits, and of longer types some at their ends, around powers of two, and at random."""
    dtype = np.dtype(dtype)
    if dtype.itemsize <= 2:
        bits = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
        return bits.view(dtype) if dtype.kind != "b" else bits % 2 == 1
    random = np.random.default_rng(3).integers(0, 256, 40000 * dtype.itemsize, np.uint8).view(dtype)
    if dtype.kind != "f":
        powers = np.array([1 << i for i in range(dtype.itemsize * 8 - 1)], dtype)
        return np.concatenate([random, powers, powers - 1, powers + 1, ~powers])
    halves = np.arange(1 << 16, dtype="u2").view("f2").astype(dtype)
    with np.errstate(all="ignore"):
        between = (halves + np.roll(halves, 1)) / 2
        return np.concatenate([random, halves, between, np.nextafter(between, 9), np.nextafter(between, -9)])


@pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_casts_are_numpys(source: str, target: str) -> None:
    values = odd(source)
    with np.errstate(all="ignore"):
        wanted = values.astype(target)
    found = np.empty_like(wanted)
    sizes = values.itemsize, found.itemsize
    numbers = cast_numbers(values.dtype, found.dtype)
    library.extension().take(values, np.zeros(1, np.int64), found, len(values), *sizes, *numbers)
    if source == "f2":  # NumPy widens these bit by bit, not by the processor
        same = found.view(f"u{found.itemsize}") == wanted.view(f"u{found.itemsize}")
    elif wanted.dtype.kind == "f":
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        same &= np.signbit(found) == np.signbit(wanted)
    else:
        same = found == wanted
    assert same.all(), (values[~same][:5], found[~same][:5], wanted[~same][:5])


def test_every_cast_of_a_kind_is_known_but_one_that_rounds_twice() -> None:
    for source, target in itertools.product(map(np.dtype, TYPES), map(np.dtype, TYPES)):
        known = cast_numbers(source, target) is not None
        assert known == (np.can_cast(source, target, "same_kind") and (source, target) != ("f8", "f2"))


OTHERS = [("i4", ">i8"), (">i4", "i8"), ("c8", "c16"), ("i4", "c8"), ("f4", "M8[s]")]


@pytest.mark.parametrize(("source", "target"), OTHERS)
def test_other_casts_are_left(source: str, target: str) -> None:
    assert cast_numbers(np.dtype(source), np.dtype(target)) is None


def test_what_is_alike_needs_no_cast() -> None:
    assert cast_numbers(np.dtype("M8[s]"), np.dtype("M8[s]")) == NO_CAST


CASES = {
    "the same": ("u1", "u1", (6, 4)),
    "a cast": ("u1", "f4", (6, 4)),
    "rounded twice by the loop": ("f8", "f2", (3,)),
    "times": ("M8[s]", "M8[s]", (5,)),
    "fields": ([("a", "i4"), ("b", "u1")], [("a", "i4"), ("b", "u1")], (5,)),
    "objects": (object, object, (5,)),
    "single elements": ("i4", "i8", ()),
    "nothing": ("i4", "i8", (3, 0)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("piece_nbytes", [64, 1 << 20])
def test_rows_are_gathered(name: str, piece_nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "_PIECE_NBYTES", piece_nbytes)
    source, target, shape = CASES[name]
    pool = np.random.default_rng(1).integers(0, 200, (9, *shape)).astype("i8").astype(source)
    slots = np.array([3, 8, 0, 3, 1] * 7)
    out: Any = np.empty((35, *shape), target)
    take(pool, slots, out)
    np.testing.assert_array_equal(out, pool[slots].astype(target))


@pytest.mark.parametrize("step", [1, 2])
def test_rows_may_lie_apart(step: int) -> None:
    pool = np.arange(120).reshape(20, 6)[::2]
    out = np.zeros((6, 6), "i4")
    take(pool, np.array([9, 0, 4, 2, 1, 1])[::step], out[::step])
    np.testing.assert_array_equal(out[::step], pool[np.array([9, 0, 4, 2, 1, 1])[::step]])


@pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")
@pytest.mark.parametrize("slots", [[0, 5], [0, -1], [2**62]])
def test_rows_that_are_not_there_are_refused(slots: list[int]) -> None:
    with pytest.raises(ValueError, match="tables"):
        take(np.zeros((5, 3)), np.array(slots), np.zeros((len(slots), 3)))


@pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")
@pytest.mark.parametrize("numbers", [(0, 8, 8), (2**62, 8, 8), (3, 2**62, 8), (3, 8, 2**62), (3, -8, 8), (16, 8, 8)])
def test_sizes_that_lie_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="tables"):
        library.extension().take(np.zeros((5, 3)), np.zeros(5, np.int64), np.zeros((5, 3)), *numbers, -1, -1)
