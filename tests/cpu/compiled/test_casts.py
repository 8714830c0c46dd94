"""The loop's casts give NumPy's bits, for every pair of numbers of one kind or of a wider one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.casts import NO_CAST, cast_numbers

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
