"""Files of other formats that are read across a network."""

from __future__ import annotations

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import tifffile

import gzarr

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
