"""NetCDF files of the classic formats in place: what netCDF4 and xarray read, without a library."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import gzarr

FORMATS = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("width", [3, 5000], ids=["small records", "large records"])
def test_xarray_sees_what_it_sees_through_netcdf4(tmp_path, format, width):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.createDimension("t", None)
        file.createDimension("x", width)
        file.createDimension("letters", 4)
        file.createVariable("v", "f4", ("t", "x"), fill_value=-9)[:] = RNG.random((7, width))
        file.createVariable("odd", "i2", ("t",))[:] = range(7)
        file.createVariable("fixed", "f8", ("x",))[:] = RNG.random(width)
        file.createVariable("name", "S1", ("letters",))[:] = np.array(list("abcd"), "S1")
        file["v"].scale_factor, file["v"].valid = 2.0, np.array([1, 2], "i4")
        file.title = "hello"
    with xr.open_dataset(path, engine="netcdf4") as one, xr.open_dataset(path, engine="gzarr") as other:
        xr.testing.assert_identical(one.load(), other.load())
    group = gzarr.open(path, mode="r")
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        np.testing.assert_array_equal(group["v"][5:2:-1, ::2], file["v"][5:2:-1, ::2])


def test_a_single_record_variable_is_not_padded(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("t", None)
        file.createVariable("v", "i1", ("t",))[:] = range(11)
    assert gzarr.open(tmp_path / "a.nc/v", mode="r")[:].tolist() == list(range(11))
