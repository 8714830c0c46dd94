"""NetCDF and HDF5 into Zarr and out again; xarray sees the same in all three."""

import datetime as dt
import os
import textwrap

import h5py
import netCDF4
import numpy as np
import pytest
import xarray

import gzarr
from gzarr import convert
from gzarr.errors import CopyError, MetadataError
from gzarr.storage import MemoryStore
from tests.support.processes import run_python

FORMATS = ["NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]


def make_file(path, format="NETCDF4"):
    """A climate file in small: packed values, missing data, an unlimited dimension, characters."""
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.title = "climate"
        file.levels = np.array([1, 2], "i4")
        file.createDimension("time", None)
        file.createDimension("lat", 4)
        file.createDimension("lon", 6)
        file.createDimension("chars", 5)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = [0, 1, 2]
        lat = file.createVariable("lat", "f4", ("lat",))
        lat[:] = [-45, 0, 0, 45]
        packed = file.createVariable("packed", "i2", ("time", "lat", "lon"), fill_value=-999)
        packed.scale_factor, packed.add_offset, packed.missing_value = 0.5, 10.0, np.int16(-999)
        packed.flag_values = np.array([1, 2], "i2")
        packed[:] = np.ma.masked_equal(np.arange(72).reshape(3, 4, 6) * 0.5 + 10, 13.5)
        nan = file.createVariable("nan", "f4", ("lat", "lon"), fill_value=np.nan)
        nan[:] = np.where(np.arange(24).reshape(4, 6) == 5, np.nan, 1.5)
        large = file.createVariable("large", "f8", ("lat",), fill_value=1e20)
        large[:] = [1, 1e20, 0, 3]
        name = file.createVariable("name", "S1", ("lat", "chars"))
        name[:] = netCDF4.stringtochar(np.array(["north", "zero", "z", ""], "S5"))
        scalar = file.createVariable("scalar", "i4", ())
        scalar[...] = 7
        if format == "NETCDF4":
            group = file.createGroup("inner/most")
            group.note = "nested"
            words = group.createVariable("words", str, ("lat",))
            words[:] = np.array(["a", "bé", "", "d"], object)
            chunked = group.createVariable("chunked", "u2", ("lat", "lon"), zlib=True, chunksizes=(2, 3))
            chunked[:] = 3


def raw(path, name):
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        return np.asarray(file[name][...])


@pytest.mark.parametrize("format", FORMATS)
def test_values_names_and_attributes_are_kept(tmp_path, format, zarr_format):
    make_file(tmp_path / "a.nc", format)
    dest = MemoryStore()
    convert.from_netcdf(tmp_path / "a.nc", dest, zarr_format=zarr_format)
    root = gzarr.open_group(dest, mode="r")
    for name in root.array_keys():
        assert np.array_equal(root[name][...], raw(tmp_path / "a.nc", name), equal_nan=name == "nan"), name
    assert (root.attrs["title"], root.attrs["levels"]) == ("climate", [1, 2])
    packed = root["packed"]
    names = packed.attrs["_ARRAY_DIMENSIONS"] if zarr_format == 2 else list(packed.dimension_names)
    assert names == ["time", "lat", "lon"]
    assert (packed.attrs["scale_factor"], packed.attrs["add_offset"]) == (0.5, 10.0)
    assert packed.attrs["missing_value"] == packed.attrs["_FillValue"] == packed.fill_value == -999
    assert root["scalar"].shape == ()
    fill = np.float32(netCDF4.default_fillvals["f4"])  # of elements that nobody has written; v2 has no word for it
    assert gzarr.open_group(tmp_path / "a.nc", mode="r")["lat"].fill_value == fill
    assert root["lat"].fill_value == (None if zarr_format == 2 else fill)
    if format == "NETCDF4":
        assert root["inner/most"].attrs["note"] == "nested"
        assert root["inner/most/words"][:].tolist() == ["a", "bé", "", "d"]
        assert root["inner/most/chunked"].chunks == (2, 3)


def test_the_way_back_gives_the_same_file(tmp_path, zarr_format):
    make_file(tmp_path / "a.nc")
    convert.from_netcdf(tmp_path / "a.nc", tmp_path / "a.zarr", zarr_format=zarr_format)
    convert.to_netcdf(tmp_path / "a.zarr", tmp_path / "b.nc")
    with netCDF4.Dataset(tmp_path / "a.nc") as one, netCDF4.Dataset(tmp_path / "b.nc") as two:
        assert one.title == two.title
        for before, after in ((one, two), (one["inner/most"], two["inner/most"])):
            assert before.variables.keys() == after.variables.keys()
            for name, variable in before.variables.items():
                other = after.variables[name]
                assert (other.dimensions, other.dtype) == (variable.dimensions, variable.dtype)
                assert set(other.ncattrs()) == set(variable.ncattrs()), name
                for key, value in vars(variable).items():  # of the same type, as CF wants
                    assert np.asarray(getattr(other, key)).dtype == np.asarray(value).dtype, key
                assert np.ma.allequal(other[...], variable[...]), name
                assert np.array_equal(np.ma.getmaskarray(other[...]), np.ma.getmaskarray(variable[...])), name


def test_xarray_sees_the_same_in_file_zarr_and_file(tmp_path, zarr_format):
    make_file(tmp_path / "a.nc")
    convert.from_netcdf(tmp_path / "a.nc", tmp_path / "a.zarr", zarr_format=zarr_format)
    convert.to_netcdf(tmp_path / "a.zarr", tmp_path / "b.nc")
    for decode in (True, False):
        with (
            xarray.open_dataset(tmp_path / "a.nc", mask_and_scale=decode) as expected,
            xarray.open_zarr(tmp_path / "a.zarr", consolidated=False, mask_and_scale=decode, chunks=None) as zarr,
            xarray.open_dataset(tmp_path / "b.nc", mask_and_scale=decode) as back,
        ):
            xarray.testing.assert_equal(expected, back)
            if decode:
                xarray.testing.assert_equal(expected, zarr)


def test_types_that_zarr_has_not_are_refused(tmp_path):
    dest = MemoryStore()
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        file.createVariable("good", "i4", ("x",))
        file.createVariable("v", file.createVLType("i4", "ragged"), ("x",))
    with pytest.raises(CopyError, match=r"\.nc:/v has elements that Zarr lacks: arrays of variable length"):
        convert.from_netcdf(tmp_path / "a.nc", dest)
    assert dict(dest) == {}


def test_compound_types_become_structured_ones(tmp_path):
    pairs = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        file.createVariable("v", file.createCompoundType(pairs.dtype, "pair"), ("x",))[:] = pairs
    convert.from_netcdf(tmp_path / "a.nc", tmp_path / "a.zarr")
    assert gzarr.open(tmp_path / "a.zarr")["v"][:].tolist() == pairs.tolist()


def test_enumerations_are_integers(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        kind = file.createEnumType("u1", "cloud", {"clear": 0, "cumulus": 1})
        file.createVariable("v", kind, ("x",), fill_value=0)[:] = [0, 1]
    dest = MemoryStore()
    convert.from_netcdf(tmp_path / "a.nc", dest)
    z = gzarr.open(dest)["v"]
    assert z[:].tolist() == [0, 1]
    assert z.attrs["enum"] == {"clear": 0, "cumulus": 1}
    convert.to_netcdf(dest, tmp_path / "b.nc")
    with netCDF4.Dataset(tmp_path / "b.nc") as file:
        assert file["v"].datatype.enum_dict == {"clear": 0, "cumulus": 1}
        assert (file["v"].ncattrs(), file["v"][:].tolist()) == (["_FillValue"], [None, 1])


def test_unlimited_dimensions_stay_unlimited(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 2)
        for name in ("t", "u"):
            file.createVariable(name, "f4", ("time", "x"))[:] = np.arange(6).reshape(3, 2)
    dest = MemoryStore()
    convert.from_netcdf(tmp_path / "a.nc", dest, chunks={"time": 2})
    assert gzarr.open(dest)["t"].chunks == (2, 2)
    convert.to_netcdf(dest, tmp_path / "b.nc")
    with netCDF4.Dataset(tmp_path / "b.nc") as file:
        assert [file.dimensions[dim].isunlimited() for dim in ("time", "x")] == [True, False]
        assert (file["u"].shape, file.ncattrs()) == ((3, 2), [])
    gzarr.open_group(dest)["u"].resize((4, 2))
    with pytest.raises(CopyError, match="dimension 'time' has 4 elements"):
        convert.to_netcdf(dest, tmp_path / "c.nc")


def test_metadata_of_conversions_are_consolidated(tmp_path, zarr_format):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        file.createVariable("t", "f4", ("x",))[:] = 0
    convert.from_netcdf(tmp_path / "a.nc", tmp_path / "a.zarr", zarr_format=zarr_format)
    assert sorted(gzarr.open_consolidated(tmp_path / "a.zarr")) == ["t"]


def test_xarray_opens_characters_with_a_fill_value(tmp_path, zarr_format):
    xarray = pytest.importorskip("xarray", reason="the extra xarray is not installed")
    pytest.importorskip("zarr", reason="xarray reads Zarr with zarr-python")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        file.createVariable("v", "S1", ("x",), fill_value="z")[:] = [b"a", b"b"]
    convert.from_netcdf(tmp_path / "a.nc", tmp_path / "a.zarr", zarr_format=zarr_format)
    with xarray.open_dataset(tmp_path / "a.zarr", engine="zarr", consolidated=False, decode_cf=False) as dataset:
        assert dataset["v"].values.tolist() == [b"a", b"b"]


def test_the_fill_value_of_v2_counts(tmp_path):
    attributes = {"_ARRAY_DIMENSIONS": ["x"], "_FillValue": 1}  # xarray ignores the attribute
    z = gzarr.array(np.array([0, 1, 2], "i2"), fill_value=2, attributes=attributes, zarr_format=2)
    convert.to_netcdf(z, tmp_path / "a.nc")
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert file["data"][:].tolist() == [0, 1, None]


def test_types_that_netcdf_has_not_are_stored_as_xarray_does(tmp_path, zarr_format):
    root = gzarr.group(zarr_format=zarr_format)
    root.array("flag", data=np.array([True, False]))
    root.array("when", data=np.array(["2020-01-02", "NaT"], "M8[D]"), attributes={"_ARRAY_DIMENSIONS": ["x"]})
    root.array("text", data=np.array(["a", "bcd"]))
    root.array("bytes", data=np.array([b"a", b"bcd"]))
    root.array("big", data=np.arange(3, dtype=">i4"))
    root.attrs.update({"nested": {"a": [1, None]}, "is_valid": False, "valid": [True, False]})
    convert.to_netcdf(root, tmp_path / "a.nc")
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert file["flag"][:].tolist() == [1, 0]
        assert (file.is_valid, file.is_valid.dtype, file.valid.tolist()) == (0, np.int8, [1, 0])
        when = file["when"]
        assert netCDF4.num2date(when[0], when.units) == dt.datetime(2020, 1, 2)  # noqa: DTZ001
        assert when[1] is np.ma.masked
        assert file["text"][:].tolist() == file["bytes"][:].tolist() == ["a", "bcd"]
        assert (file["big"][:].tolist(), file["big"].dimensions) == ([0, 1, 2], ("big_dim_0",))
        assert file.nested == '{"a": [1, null]}'


def test_what_cannot_be_written_leaves_no_file(tmp_path):
    root = gzarr.group()
    root.create_array("a", data=np.arange(3), dimension_names=("x",))
    root.create_array("b", data=np.arange(4), dimension_names=("x",))
    with pytest.raises(CopyError, match="dimension 'x' has 4 elements, in another array of the group 3"):
        convert.to_netcdf(root, tmp_path / "a.nc")
    with pytest.raises(CopyError, match="dtype complex64"):
        convert.to_netcdf(gzarr.zeros(3, dtype="c8"), tmp_path / "a.nc")
    with pytest.raises(CopyError, match="buffer size"):
        convert.to_netcdf(gzarr.array([1.0], attributes={"_FillValue": "AAAA"}), tmp_path / "a.nc")
    damaged = gzarr.array(np.arange(10), chunks=5)
    damaged.store["c/1"] = b"damaged"
    for write in (convert.to_netcdf, convert.to_hdf5):
        with pytest.raises((CopyError, MetadataError, ValueError), match="c/1"):
            write(damaged, tmp_path / "a.nc")
    assert list(tmp_path.iterdir()) == []


FULL_DISK = """
    import resource, signal, sys
    import numpy as np
    import gzarr
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    root = gzarr.group()
    for name in "abc":
        root.create_array(name, data=np.random.default_rng(0).random((300, 100)), chunks=(50, 100))
    try:
        getattr(gzarr.convert, sys.argv[1])(root, sys.argv[2])
    except gzarr.CopyError as error:
        print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit for the size of files")
@pytest.mark.parametrize(("function", "reason"), [("to_hdf5", "File too large"), ("to_netcdf", "HDF error")])
def test_a_file_that_cannot_grow_leaves_nothing_and_the_process_lives(tmp_path, function, reason):
    """HDF5 crashes the process at its end if it could not write a file: here it does not."""
    said = run_python(textwrap.dedent(FULL_DISK), args=[function, tmp_path / "a.out"])
    assert reason in said
    assert "no file was made" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_kept_unless_it_may_be_replaced(tmp_path):
    z = gzarr.array(np.arange(4))
    for write, name in ((convert.to_netcdf, "a.nc"), (convert.to_hdf5, "a.h5")):
        (tmp_path / name).write_bytes(b"precious")
        with pytest.raises(CopyError, match="exists; pass overwrite=True"):
            write(z, tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"precious"
        write(z, tmp_path / name, overwrite=True)
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["data"][:].tolist() == [0, 1, 2, 3]
    assert raw(tmp_path / "a.nc", "data").tolist() == [0, 1, 2, 3]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5", "a.nc"]


# -- HDF5 --------------------------------------------------------------------------------------------------------


def test_hdf5_keeps_chunks_attributes_and_the_names_of_dimensions(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("g/data", data=np.arange(24.0).reshape(4, 6), chunks=(2, 3), fillvalue=-1)
        scale = file["g"].create_dataset("lat", data=np.arange(4))
        scale.make_scale("latitude")
        data.dims[0].attach_scale(scale)
        data.dims[1].label = "lon"
        data.attrs["unit"], data.attrs["range"] = b"m", np.array([0.5, 23])
        file["flag"] = np.array([True, False])
        file["date"] = np.array(["2020-01-01"], "M8[D]").astype(h5py.opaque_dtype("M8[D]"))
        file["text"] = ["a", "bé"]
        file["pair"] = np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
        file["level"] = np.array([0, 1], h5py.enum_dtype({"low": 0, "high": 1}))
    dest = MemoryStore()
    convert.from_hdf5(tmp_path / "a.h5", dest)
    root = gzarr.open_group(dest, mode="r")
    z = root["g/data"]
    assert (z.chunks, z.fill_value, z.dimension_names) == ((2, 3), -1.0, ("lat", "lon"))
    convert.from_hdf5(tmp_path / "a.h5", tmp_path / "v2.zarr", zarr_format=2)
    with xarray.open_zarr(tmp_path / "v2.zarr", group="g", chunks=None) as zeros:
        assert zeros["lat"].values.tolist() == [0, 1, 2, 3]  # and not NaN in place of 0
    assert dict(z.attrs) == {"unit": "m", "range": [0.5, 23.0]}
    assert root["g/lat"].dimension_names == ("lat",)
    assert root["flag"].dtype == bool
    assert root["date"][0] == np.datetime64("2020-01-01")
    assert (root["text"][:].tolist(), root["pair"][0].tolist()) == (["a", "bé"], (1, 2.5))
    assert root["level"][:].tolist() == [0, 1]
    convert.from_hdf5(tmp_path / "a.h5", dest, group="g/data", path="only", chunks=(4, 6))
    assert gzarr.open(dest)["only"].chunks == (4, 6)
    with pytest.raises(CopyError, match="no group or dataset 'nothing'"):
        convert.from_hdf5(tmp_path / "a.h5", dest, group="nothing")


@pytest.mark.parametrize("nrecords", [0, 1, 5])
@pytest.mark.parametrize("types", [("i2",), ("i2", "f8", "i1"), ()])
@pytest.mark.parametrize("format", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
def test_a_classic_file_that_is_cut_off_is_not_read_as_zeros(tmp_path, format, types, nrecords):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.createDimension("t", None)
        file.createDimension("x", 7)
        file.title = "a title"
        file.createVariable("fixed", "i4", ("x",))[:] = np.arange(7)
        for number, dtype in enumerate(types):
            variable = file.createVariable(f"v{number}", dtype, ("t", "x"))
            variable.units = "m"
            if nrecords:
                variable[:] = np.ones((nrecords, 7))
    convert.from_netcdf(path, MemoryStore())
    whole = path.read_bytes()
    for left in (len(whole) - 4, len(whole) // 2, 10):
        path.write_bytes(whole[:left])
        with pytest.raises(CopyError, match=r"cut off"):
            convert.from_netcdf(path, MemoryStore())
