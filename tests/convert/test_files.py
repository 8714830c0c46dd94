"""Files of any format: recognized by what is in them, read within a budget of memory, refused with one clear error."""

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import tifffile

import gzarr
from gzarr import convert
from gzarr.convert.writing import replacing
from gzarr.errors import CopyError
from gzarr.storage import MemoryStore
from tests.support.memory import traced


def test_formats_are_recognized_by_what_is_in_the_file(tmp_path):
    with h5py.File(tmp_path / "a.dat", "w") as file:
        file["x"] = [1]
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["x"] = [1]
    with h5py.File(tmp_path / "block.dat", "w", userblock_size=1024) as file:
        file["x"] = [1]
    np.save(tmp_path / "b.npy", np.arange(3))
    tifffile.imwrite(tmp_path / "d.dat", np.zeros((4, 5), "u1"))
    tifffile.imwrite(tmp_path / "e.dat", np.zeros((4, 5), "u1"), bigtiff=True, byteorder=">")
    names = {p.name: convert.recognize(p) for p in tmp_path.iterdir()}
    assert names == {
        "a.dat": "hdf5",
        "a.nc": "netcdf",
        "block.dat": "hdf5",
        "b.npy": "npy",
        "d.dat": "tiff",
        "e.dat": "tiff",
    }
    for path in list(tmp_path.iterdir()):
        convert.from_file(path, tmp_path / "out" / f"{path.name}.zarr")
    (tmp_path / "text").write_bytes(b"hello")
    with pytest.raises(CopyError, match=r"unknown \(it begins with b'hello'\)"):
        convert.from_file(tmp_path / "text", MemoryStore())
    with pytest.raises(CopyError, match="unknown format 'csv'"):
        convert.from_file(tmp_path / "text", MemoryStore(), format="csv")
    for wrong, error in {"nothing": FileNotFoundError, "text/part": CopyError}.items():
        with pytest.raises(error, match=r"nothing|gzarr copy"):
            convert.from_file(tmp_path / wrong, MemoryStore())


def test_options_of_transfer_reach_the_array(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(200.0).reshape(20, 10))
    seen, dest = [], MemoryStore()
    report = convert.from_file(
        tmp_path / "a.npy",
        dest,
        path="deep/x",
        chunks=(5, 5),
        shards=(10, 10),
        compressors=None,
        progress=lambda *args: seen.append(args),
        budget_nbytes=1000,
    )
    z = gzarr.open(dest, mode="r")["deep/x"]
    assert (z.chunks, z.shards, z.compressors) == ((5, 5), (10, 10), ())
    assert np.array_equal(z[:], np.arange(200.0).reshape(20, 10))
    assert seen[-1][0] == report.nbytes == 1600
    with pytest.raises(CopyError, match="already stored"):
        convert.from_file(tmp_path / "a.npy", dest, path="deep/x")
    assert convert.from_file(tmp_path / "a.npy", dest, path="y", dry_run=True).dry_run
    assert "y" not in gzarr.open(dest, mode="r")


def write_large(path, format):
    """24 MB."""
    data = np.repeat(np.arange(0.0, 1000, 25), 25)[:, None] * np.ones(3000)
    if format == "npy":
        with path.open("wb") as file:
            np.save(file, data)
    elif format == "hdf5":
        with h5py.File(path, "w") as file:
            file.create_dataset("data", data=data, chunks=(25, 300))
    elif format == "netcdf":
        with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
            file.createDimension("y", 1000)
            file.createDimension("x", 3000)
            file.createVariable("data", "f8", ("y", "x"))[:] = data
    else:
        tifffile.imwrite(path, data, rowsperstrip=25, compression="zlib")
    return data


@pytest.mark.parametrize("format", ["npy", "hdf5", "netcdf", "tiff"])
def test_a_file_larger_than_the_budget_is_streamed(tmp_path, format):
    data, budget = write_large(tmp_path / "a.dat", format), 2 << 20
    with gzarr.config.set({"threading.max_workers": 2}):
        convert.from_file(tmp_path / "a.dat", MemoryStore(), format=format)  # whatever is imported or kept by then
        with traced() as peak:
            convert.from_file(
                tmp_path / "a.dat", tmp_path / "z", format=format, chunks=(250, 250), budget_nbytes=budget
            )
            assert peak() < 3 * budget
    found = gzarr.open(tmp_path / "z", mode="r")
    z = found["data"] if format in ("hdf5", "netcdf") else found
    assert z.chunks == (250, 250)
    assert np.array_equal(z[...], data)


def test_files_are_written_where_others_can_put_no_link(tmp_path: Path) -> None:
    with replacing(tmp_path / "x.npy", overwrite=False) as partial:
        assert partial.parent.stat().st_mode & 0o077 == 0
        partial.write_bytes(b"x")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x.npy", b"x")]
