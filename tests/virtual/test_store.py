"""Files of other formats that are read across a network."""

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import h5py
import netCDF4
import numpy as np
import pytest
import tifffile

import gzarr
from gzarr.storage.tables import ChunkTable
from gzarr.virtual.store import LazyTables, Reader

DATA = np.arange(64 * 64, dtype="u2").reshape(64, 64)


def test_files_of_every_format_are_read_by_url(http_server: tuple[str, Path]) -> None:
    url, folder = http_server
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("g/x", data=DATA, chunks=(16, 16), compression="gzip", shuffle=True)
        file["g/text"] = ["a", "b"]
    with netCDF4.Dataset(folder / "a.nc", "w", format="NETCDF3_CLASSIC") as classic:
        classic.createDimension("t", None)
        classic.createDimension("x", 64)
        classic.createVariable("v", "i2", ("t", "x"))[:] = DATA
    tifffile.imwrite(folder / "a.tif", DATA, tile=(16, 16), compression="zlib")
    np.save(folder / "a.npy", DATA)
    for name in ("a.h5/g/x", "a.nc/v", "a.tif", "a.npy"):
        array = gzarr.open_array(f"{url}/{name}", mode="r")
        np.testing.assert_array_equal(array[...], DATA)
        np.testing.assert_array_equal(array[3:40:5, ::7], DATA[3:40:5, ::7])
    assert gzarr.open_array(f"{url}/a.h5/g/text", mode="r")[:].tolist() == ["a", "b"]


def test_tables_of_many_chunks_are_in_files(tmp_path, monkeypatch):
    monkeypatch.setattr("gzarr.storage.tables.MAX_IN_MEMORY", 50)
    data = np.arange(4000.0).reshape(100, 40)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (120, 40), "f8", chunks=(5, 2), compression="gzip", maxshape=(None, 40))[:100] = data
    expected = np.concatenate([data, np.zeros((20, 40))])
    gzarr.save_references(tmp_path / "a.h5", tmp_path / "refs.parquet")
    for name in ("a.h5", "refs.parquet"):
        array = gzarr.open(tmp_path / name, mode="r")["x"]
        assert isinstance(array.store.tables.table("x").places, np.memmap)
        np.testing.assert_array_equal(array[...], expected)
        np.testing.assert_array_equal(array.oindex[[7, 99, 110], 3:], expected[[7, 99, 110], 3:])


def test_a_table_that_the_disk_cannot_hold_is_an_error(monkeypatch):
    monkeypatch.setattr("gzarr.storage.tables.MAX_IN_MEMORY", 50)
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=OSError(28, "No space left")), raising=False)
    with pytest.raises(gzarr.StoreError, match=r"cannot hold the places of 60 chunks.*No space left"):
        ChunkTable.empty((60,))


def test_a_table_of_many_chunks_takes_no_memory_of_its_own():
    def anonymous_kb() -> int:
        return int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1])

    before = anonymous_kb()
    table = ChunkTable.empty((12_000_000,))
    assert anonymous_kb() - before < 100_000
    assert (table.objects[-1], table.places[0].tolist()) == (-1, [-1, -1])


# -- lazy tables -------------------------------------------------------------------------------------------------------


def test_a_table_is_made_once_and_one_at_a_time() -> None:
    made: list[str] = []

    def make(path: str) -> Reader:
        before = len(made)
        time.sleep(0.01)
        made.append(path)
        assert len(made) == before + 1
        return Reader((1,), lambda _: [])

    tables = LazyTables({path: partial(make, path) for path in "ab"})
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
