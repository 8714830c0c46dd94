"""Many files with the same variables as one group."""

import pickle
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import gzarr
from gzarr.errors import MetadataError, NodeNotFoundError, ReplacedError

RNG = np.random.default_rng(0)


def month(path: Path, number: int, n: int, **changes: Any) -> Any:
    """A file of n days of a month; the rain in it."""
    rain = RNG.random((n, 4)).astype("f4")
    with netCDF4.Dataset(path, "w") as file:
        file.title, file.history = "rain", f"made {number}"
        file.createDimension("time", None)
        file.createDimension("x", 4)
        time = file.createVariable("time", "i4", ("time",))
        time.units, time.calendar = f"days since 2000-{number:02}-01", "standard"
        time[:] = np.arange(n)
        file.createVariable("x", "f8", ("x",))[:] = changes.get("x", np.arange(4))
        file.createVariable("rain", "f4", ("time", "x"), zlib=True, chunksizes=(5, 4))[:] = rain
        if "more" in changes:
            file.createVariable(changes["more"], "f4", ("time",))
    return rain


def test_files_are_joined_along_a_dimension(tmp_path: Path) -> None:
    rain = [month(tmp_path / f"m{number}.nc", number, n) for number, n in ((1, 30), (2, 25), (3, 7))]
    group = gzarr.open_many(tmp_path / "m*.nc", "time")
    np.testing.assert_array_equal(group["rain"][...], np.concatenate(rain))
    assert (group["rain"].chunks, group["rain"].codecs[-1].name) == ((5, 4), "numcodecs.zlib")
    assert (group["time"][[0, 30, 55]].tolist(), group["x"][:].tolist()) == ([0, 31, 60], [0, 1, 2, 3])
    assert group.attrs["title"] == "rain"
    assert "history" not in group.attrs
    assert pickle.loads(pickle.dumps(group))["rain"][40, 1] == rain[1][10, 1]
    backwards = gzarr.open_many([tmp_path / "m2.nc", gzarr.open(tmp_path / "m1.nc", mode="r")], "time")
    np.testing.assert_array_equal(backwards["rain"][...], np.concatenate([rain[1], rain[0]]))


def test_the_joined_files_are_an_xarray_dataset(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    for number in (1, 2):
        month(tmp_path / f"m{number}.nc", number, 20)
    expected = xarray.open_mfdataset([tmp_path / f"m{n}.nc" for n in (1, 2)], combine="nested", concat_dim="time")
    found = xarray.open_dataset(gzarr.open_many(tmp_path / "m*.nc", "time").store, engine="gzarr", chunks={})
    xarray.testing.assert_equal(found.compute(), expected.compute())


def test_files_that_differ_are_refused(tmp_path: Path) -> None:
    month(tmp_path / "a1.nc", 1, 3)
    month(tmp_path / "b2.nc", 2, 3, x=np.arange(4) + 1)
    month(tmp_path / "c3.nc", 3, 3, more="snow")
    with pytest.raises(MetadataError, match=r"a1\.nc/x and .*b2\.nc/x differ, and are not along 'time'"):
        gzarr.open_many([tmp_path / "a1.nc", tmp_path / "b2.nc"], "time")
    with pytest.raises(MetadataError, match="only one of them has 'snow'"):
        gzarr.open_many([tmp_path / "a1.nc", tmp_path / "c3.nc"], "time")
    with pytest.raises(MetadataError, match=r"no array along 'day', only along \['time', 'x'\]"):
        gzarr.open_many([tmp_path / "a1.nc", tmp_path / "b2.nc"], "day")
    with pytest.raises(NodeNotFoundError, match=rf"no file is named '{tmp_path}/z\*\.nc'; correct the pattern"):
        gzarr.open_many(tmp_path / "z*.nc", "time")
    with pytest.raises(NodeNotFoundError, match="no files to join"):
        gzarr.open_many([], "time")


def test_a_file_that_is_replaced_is_noticed_where_a_library_reads_it(tmp_path: Path) -> None:
    paths = [tmp_path / f"m{number}.h5" for number in (1, 2)]
    for path in paths:
        with h5py.File(path, "w") as file:
            file["time"] = np.arange(3)
            file["time"].make_scale("time")
            file["places"] = ["a", "b"]
    group = gzarr.open_many(paths, "time")
    assert group["places"][...].tolist() == ["a", "b"]
    paths[0].write_bytes(paths[0].read_bytes() + b"\0")
    with pytest.raises(ReplacedError, match=r"m1\.h5"):
        group["places"][...]


def test_files_whose_names_are_not_in_the_order_of_time_are_refused(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        month(tmp_path / f"m{number}.nc", number, 3)
    with pytest.raises(MetadataError, match=r"does not go on from .*m10\.nc \(to 276\) to .*m2\.nc \(from 31\)"):
        gzarr.open_many(tmp_path / "m*.nc", "time")
    ordered = gzarr.open_many([tmp_path / f"m{number}.nc" for number in (1, 2, 10)], "time")
    assert ordered["time"][::3].tolist() == [0, 31, 274]
