"""Tables that are made when they are first used."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import gzarr
from gzarr.virtual.store import LazyTables, Reader


def test_a_table_is_made_once_and_one_at_a_time() -> None:
    made: list[str] = []

    def make(path: str) -> Reader:
        before = len(made)
        time.sleep(0.01)
        made.append(path)
        assert len(made) == before + 1
        return Reader((1,), lambda _: None)

    tables = LazyTables(["a", "b"], make)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(tables.__getitem__, "abababab"))
    assert sorted(made) == ["a", "b"]
    assert list(tables) == ["a", "b"]
    assert tables.get("c") is None


def test_arrays_of_joined_files_are_first_used_by_several_threads(tmp_path: Path) -> None:
    for number in range(2):
        root = gzarr.group(tmp_path / f"m{number}.zarr")
        for name in range(20):
            data = np.full((4, 3), 100 * number + name)
            root.create_array(f"v{name}", data=data, chunks=(1, 3), dimension_names=["time", "x"])
    group = gzarr.open_many(tmp_path / "m*.zarr", "time")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: group[f"v{name}"][...], range(20)))
    for name, values in enumerate(found):
        assert values[:, 0].tolist() == [name] * 4 + [100 + name] * 4
