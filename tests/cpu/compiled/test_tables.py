"""The pieces that the compiled loop is given, and their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.cpu.threads import spread


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 65])
@pytest.mark.parametrize("n_threads", [0, 1, 2, 3, 16, 100])
def test_spread_takes_every_number_once(n: int, n_threads: int) -> None:
    assert sorted(spread(n, n_threads)) == list(range(n))


def test_threads_that_take_turns_stay_apart() -> None:
    assert list(spread(8, 1)) == list(range(8))
    assert list(spread(8, 2)) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert list(spread(7, 3)) == [0, 3, 6, 1, 4, 2, 5]


@pytest.mark.parametrize("shards", [None, (24, 60)])
@pytest.mark.parametrize(
    "selection",
    [np.s_[:], np.s_[3:95, 1::2], np.s_[5, :], np.s_[::3, ::5], np.s_[90:, 100:101], ([3, 50, 4], slice(None))],
)
def test_tables_of_each_piece_do_what_one_of_all_does(
    selection: Any, shards: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gzarr.indexing.tables._MAX_KEPT_SPANS", 8)
    monkeypatch.setattr("gzarr.cpu.compiled.read.MAX_NCHUNKS", 7)
    values = np.arange(96 * 120, dtype="i4").reshape(96, 120)
    array = gzarr.create_array(tmp_path, shape=values.shape, chunks=(6, 10), shards=shards, dtype="i4")
    array[:] = values
    np.testing.assert_array_equal(array.oindex[selection], values[selection])
    array.oindex[selection] = values[selection] = values[selection] + 7
    np.testing.assert_array_equal(array[:], values)
