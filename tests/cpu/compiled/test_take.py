"""Rows of a pool are gathered as NumPy does it, whatever does the work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gzarr.cpu.compiled import casts as taking
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.casts import take

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
