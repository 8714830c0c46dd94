"""Files whose elements lie one after the other: .npy and FITS."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import gzarr
from gzarr.errors import CopyError
from gzarr.virtual.table import RUN_NBYTES

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<i4", ">f8", "u1", "<M8[s]", "S3", "?", [("a", "<i2"), ("b", "<f4")]], ids=str)
def test_npy_of_every_type(tmp_path, order, dtype):
    data = np.asarray(RNG.integers(0, 100, (7, 5, 4)).astype("i8").astype(dtype), order=order)
    np.save(tmp_path / "a.npy", data)
    array = gzarr.open(tmp_path / "a.npy", mode="r")
    np.testing.assert_array_equal(array[...], data)
    assert array.order == order
    assert array.dtype == np.dtype(dtype).newbyteorder("=") or array.dtype.names


@pytest.mark.parametrize("shape", [(3000, 200), (2, 3, 70_001), (), (0, 4), (5_000_003,)])
def test_large_ones_are_cut_into_virtual_chunks(tmp_path, shape):
    data = RNG.integers(0, 100, shape)
    np.save(tmp_path / "a.npy", data)
    array = gzarr.open(tmp_path / "a.npy", mode="r")
    np.testing.assert_array_equal(array[...], data)
    assert np.prod(array.chunks, dtype=int) * 8 <= RUN_NBYTES
    assert array.nbytes_stored - data.nbytes in range(2000)


def test_python_objects_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(CopyError, match=r"a\.npy"):
        gzarr.open(tmp_path / "a.npy", mode="r")


def card(keyword, value):
    text = f"'{value}'" if isinstance(value, str) else ("T" if value is True else str(value))
    return f"{keyword:8}= {text:>20} / of a test".ljust(80)


def unit(cards, data):
    header = "".join([*(card(*one) for one in cards.items()), "COMMENT nothing", "END"][: len(cards)])
    header += "COMMENT nothing".ljust(80) + "END".ljust(80)
    return header.ljust(-(-len(header) // 2880) * 2880).encode() + data.ljust(-(-len(data) // 2880) * 2880, b"\0")


def test_images_of_fits(tmp_path):
    first, second = RNG.integers(0, 9, (4, 5)).astype(">i2"), RNG.random((2, 3, 4)).astype(">f4")
    axes = {"BITPIX": 16, "NAXIS": 2, "NAXIS1": 5, "NAXIS2": 4}
    table = {"XTENSION": "BINTABLE", "BITPIX": 8, "NAXIS": 2, "NAXIS1": 10, "NAXIS2": 3, "PCOUNT": 0, "GCOUNT": 1}
    image = {"XTENSION": "IMAGE", "BITPIX": -32, "NAXIS": 3, "NAXIS1": 4, "NAXIS2": 3, "NAXIS3": 2, "EXTNAME": "SCI"}
    content = unit({"SIMPLE": True, **axes, "BZERO": 32768, "BLANK": -5, "OBJECT": "M 31"}, first.tobytes())
    content += unit(table, b"x" * 30) + unit(image, second.tobytes())
    (tmp_path / "a.fits").write_bytes(content)
    group = gzarr.open(tmp_path / "a.fits", mode="r")
    assert sorted(group.array_keys()) == ["SCI", "primary"]
    assert "a table (BINTABLE)" in str(group.info)
    np.testing.assert_array_equal(group["primary"][...], first)
    np.testing.assert_array_equal(group["SCI"][...], second)
    expected = {"OBJECT": "M 31", "scale_factor": 1.0, "add_offset": 32768.0, "_FillValue": -5}
    assert dict(group["primary"].attrs) == expected
    (tmp_path / "a.fits").write_bytes(content[:-2880])
    with pytest.raises(CopyError, match="cut off"):
        gzarr.open(tmp_path / "a.fits", mode="r")


def test_odd_files_of_fits(tmp_path):
    data = np.arange(6, dtype=">i2").reshape(2, 3)
    axes = {"BITPIX": 16, "NAXIS": 2, "NAXIS1": 3, "NAXIS2": 2}
    first = unit({"SIMPLE": True, **axes, "EXTNAME": ".."}, data.tobytes())
    (tmp_path / "a.fits").write_bytes(first + b"other records".ljust(2880))
    np.testing.assert_array_equal(gzarr.open(tmp_path / "a.fits", mode="r")["image"][...], data)
    groups = unit({"SIMPLE": True, **axes, "NAXIS1": 0, "GROUPS": True, "GCOUNT": 2, "PCOUNT": 1}, b"")
    (tmp_path / "a.fits").write_bytes(groups)
    with pytest.raises(CopyError, match="random groups"):
        gzarr.open(tmp_path / "a.fits", mode="r")


# -- netCDF-3 ----------------------------------------------------------------------------------------------------------

FORMATS = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("width", [3, 200_000], ids=["small records", "large records"])
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
        file.title = "hello\0"
    with xr.open_dataset(path, engine="netcdf4") as one, xr.open_dataset(path, engine="gzarr") as other:
        xr.testing.assert_identical(one.load(), other.load())
    group = gzarr.open(path, mode="r")
    assert group.attrs["title"] == "hello"
    assert group["odd"].nbytes_stored == len(group.store["odd/zarr.json"]) + 14
    gzarr.convert.from_netcdf(path, tmp_path / "a.zarr")
    assert gzarr.open(tmp_path / "a.zarr/odd", mode="r").chunks == (7,)
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        np.testing.assert_array_equal(group["v"][5:2:-1, ::2], file["v"][5:2:-1, ::2])


def test_a_single_record_variable_is_not_padded(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("t", None)
        file.createVariable("v", "i1", ("t",))[:] = range(11)
    assert gzarr.open(tmp_path / "a.nc/v", mode="r")[:].tolist() == list(range(11))
