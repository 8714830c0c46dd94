"""HDF5 and netCDF-4 files in place: the values of h5py, netCDF4 and xarray, decoded by gzarr's own codecs."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import gzarr
from gzarr.copying import hdf5
from gzarr.errors import CopyError, MetadataError, ReadOnlyError, ReplacedError, StoreError
from gzarr.storage.base import Request
from gzarr.storage.local_files import WRITTEN
from tests.virtual.hdf5_filters import DATA, DATASETS

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def filters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of all filters, written by another process: netCDF4 brings plug-ins for Blosc that fail in h5py's HDF5."""
    path = tmp_path_factory.mktemp("filters") / "filters.h5"
    environment = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
    command = [sys.executable, "-m", "tests.virtual.hdf5_filters", str(path)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], env=environment, timeout=300)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.h5"


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_every_filter(filters, name, device):
    options, is_own = DATASETS[name]
    array = gzarr.open(filters, mode="r", device=device)[name]
    found = array[...]
    np.testing.assert_array_equal(np.asarray(found), DATA)
    np.testing.assert_array_equal(np.asarray(array[5:40:3, [1, 70]].tolist()), DATA[5:40:3, [1, 70]])
    assert (len(array.metadata.codecs) == 1) == (not is_own or "compression" not in options)
    assert array.chunks == options.get("chunks", DATA.shape)


ELEMENTS = {
    "big": np.arange(12, dtype=">f8").reshape(3, 4),
    "bool": np.array([True, False]),
    "bytes": np.array([b"ab", b"c"], "S5"),
    "complex": np.array([1 + 2j, 3]),
    "empty": np.zeros((0, 5), "u2"),
    "half": np.arange(5, dtype="f2"),
    "record": np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")]),
    "mixed": np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", ">f8")]),
    "padded": np.zeros(3, np.dtype([("a", "u1"), ("b", "<f8")], align=True)),
    "scalar": np.float64(3.5),
    "text": np.array("ä", object),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_every_type(path, name):
    with h5py.File(path, "w") as file:
        file["x"] = ELEMENTS[name]
    found = gzarr.open(path, mode="r")["x"][...]
    assert np.asarray(found).tolist() == ELEMENTS[name].tolist()


def test_texts_enumerations_and_what_was_never_written(path):
    with h5py.File(path, "w") as file:
        file["texts"] = ["a", "bcd", "", "ü"]
        file.create_dataset("many", data=[["x"] * 7] * 5, chunks=(2, 3), dtype=h5py.string_dtype())
        file.create_dataset("enum", data=[0, 1], dtype=h5py.enum_dtype({"red": 0, "green": 1}, "i1"))
        sparse = file.create_dataset("sparse", (100, 100), "i2", chunks=(10, 10), fillvalue=7)
        sparse[5:25, 5:25] = 3
        file.create_dataset("unwritten", (4, 4), "f4", fillvalue=2.5)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((3,)), compact).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.arange(3, dtype="i4")
        )
        expected = sparse[...]
    group = gzarr.open_group(path, mode="r")
    assert group["texts"][:].tolist() == ["a", "bcd", "", "ü"]
    assert group["many"][3:, 5:].tolist() == [["x", "x"]] * 2
    assert group["enum"].attrs["enum"] == {"red": 0, "green": 1}
    np.testing.assert_array_equal(group["sparse"][...], expected)
    assert group["sparse"].nchunks_initialized == 9
    assert set(group["unwritten"][...].ravel().tolist()) == {2.5}
    assert group["compact"][:].tolist() == [0, 1, 2]


def test_chunks_that_skip_a_filter_are_read_all_the_same(path):
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (32, 16), "i4", chunks=(16, 16), compression="gzip", shuffle=True)
        dataset[:16] = np.arange(256).reshape(16, 16)
        raw = np.arange(256, 512, dtype="<i4").reshape(16, 16)
        dataset.id.write_direct_chunk((16, 0), raw.tobytes(), filter_mask=0b11)
    np.testing.assert_array_equal(gzarr.open(path, mode="r")["x"][...], np.arange(512).reshape(32, 16))


def test_groups_attributes_and_names_of_axes(path):
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "hello"
        group = file.create_group("a/b")
        group.attrs["numbers"] = [1, 2]
        group["x"] = np.arange(3)
        group["y"] = DATA[:3, :2]
        group["x"].make_scale("x")
        group["y"].dims[0].attach_scale(group["x"])
        file["link"] = h5py.SoftLink("/a/b/x")
    root = gzarr.open(path, mode="r")
    assert dict(root.attrs) == {"title": "hello"}
    assert dict(root["a/b"].attrs) == {"numbers": [1, 2]}
    assert (root["a/b/y"].dimension_names, root["link"][:].tolist()) == (("x", None), [0, 1, 2])
    assert gzarr.open(path / "a/b/x", mode="r")[2] == 2
    assert sorted(name for name, _ in root.members(None)) == ["a", "a/b", "a/b/x", "a/b/y", "link"]


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF4_CLASSIC"])
def test_xarray_sees_what_it_sees_through_netcdf4(path, format):
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.createDimension("t", None)
        file.createDimension("y", 4)
        file.createDimension("x", 3)
        file.createVariable("t", "f8", ("t",))[:] = range(5)
        file["t"].units = "days since 2000-01-01"
        file.createVariable("y", "f4", ("y",))[:] = range(4)
        packed = file.createVariable("packed", "i2", ("t", "y", "x"), fill_value=-9, zlib=True)
        packed.scale_factor, packed.add_offset = 0.5, 3.0
        packed[:] = np.ma.masked_less(RNG.integers(0, 9, (5, 4, 3)), 3)
        file.createVariable("number", "i4", ())[...] = 7
        file.title = "hello"
    with xr.open_dataset(path, engine="netcdf4") as one, xr.open_dataset(path, engine="gzarr") as other:
        xr.testing.assert_identical(one.load(), other.load())


def test_the_store_is_read_only_and_is_pickled(path):
    with h5py.File(path, "w") as file:
        file["x"] = DATA
    array = gzarr.open_array(path / "x", mode="r")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array))[...], DATA)
    with pytest.raises(ReadOnlyError):
        array[0, 0] = 1
    with pytest.raises(ReadOnlyError, match="read in place and never changed"):
        gzarr.open(path, mode="r+")["x"][0, 0] = 1
    with h5py.File(path, "r+") as file:  # nobody holds it open
        file["x"][0, 0] = 5


def test_a_file_that_is_replaced_or_cut_off_is_noticed(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=DATA, chunks=(16, 16), compression="gzip")
        file["texts"] = ["a", "b"]
    array, texts = (gzarr.open(path, mode="r")[name] for name in ("x", "texts"))
    assert array[0, 0] == DATA[0, 0]
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0")
    with pytest.raises(ReplacedError, match=r"a\.h5.*was replaced; open it again"):
        array[0, 0]
    with pytest.raises(ReplacedError, match=r"a\.h5.*was replaced; open it again"):
        texts[0]
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises((CopyError, StoreError), match=r"a\.h5"):
        gzarr.open(path, mode="r")["x"][...]


def test_files_that_this_process_writes_are_not_taken_for_the_one_that_is_read(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=DATA, chunks=(16, 16), compression="gzip")
        file["texts"] = ["a", "b"]
    group = gzarr.open(path, mode="r")
    array = group["x"]
    assert array[0, 0] == DATA[0, 0]
    WRITTEN[path.stat().st_ino % len(WRITTEN)] += 1  # as a file does whose inode has the same remainder
    np.testing.assert_array_equal(array[...], DATA)
    np.testing.assert_array_equal(array[40], DATA[40])
    assert group["texts"][0] == "a"
    assert group.store.get_many([Request("x/c/0/0")])[0] is not None


def test_what_zarr_lacks_is_left_out_and_said(path):
    with h5py.File(path, "w") as file:
        file["x"] = DATA
        file["x"].attrs["who"] = file["x"].ref
        group = file.create_group("g")
        group["refs"] = np.array([file["x"].ref], h5py.ref_dtype)
        group.create_dataset("ragged", (2,), h5py.vlen_dtype("i4"))
        group["empty"] = h5py.Empty("f4")
        group["nowhere"] = h5py.SoftLink("/none")
        group["y"] = [1, 2]
    root = gzarr.open(path, mode="r")
    np.testing.assert_array_equal(root["x"][...], DATA)
    assert set(root["x"].attrs["not_read_in_place"]) == {"attribute who"}
    assert dict(root["g"].members()).keys() == {"y"}
    assert root["g/y"][:].tolist() == [1, 2]
    why = root["g"].attrs["not_read_in_place"]
    assert set(why) == {"refs", "ragged", "empty", "nowhere"}
    with pytest.raises(CopyError, match="elements that Zarr lacks: references"):
        gzarr.open(path / "g/refs", mode="r")
    assert "ragged: " in repr(root.tree())
    assert "arrays of variable length" in repr(root["g"].info)
    with pytest.raises(CopyError, match="empty dataset"):
        gzarr.convert.from_hdf5(path, path.with_name("a.zarr"))
    said = str(gzarr.transfer(root, gzarr.MemoryStore())).splitlines()
    assert sorted(line.split(": ")[1] for line in said[-5:]) == ["attribute who", "empty", "nowhere", "ragged", "refs"]


def test_filters_that_nobody_has_are_named(path):
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((4,))
        properties.set_filter(305, h5py.h5z.FLAG_OPTIONAL, ())  # LZO
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((8,)), properties)
        file["y"] = [1]
    root = gzarr.open(path, mode="r")
    assert (root["x"].shape, root["y"][0]) == ((8,), 1)
    with pytest.raises(CopyError, match=r"filter .*305.*pip install hdf5plugin.*gzarr\.convert"):
        root["x"][...]


def test_the_file_stays_open_for_chunks_that_h5py_reads_until_the_store_is_closed(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=DATA, chunks=(8, 8), compression="lzf")
    array = gzarr.open_array(path / "x", mode="r")
    np.testing.assert_array_equal(array[...], DATA)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array))[...], DATA)
    array.store.close()
    np.testing.assert_array_equal(array[...], DATA)
    array.store.close()
    with h5py.File(path, "r+") as file:
        file["x"][0, 0] = 5


def test_what_was_never_written_behind_a_block_of_the_users(path):
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("x", (4, 4), "i4", fillvalue=7)
    assert set(gzarr.open(path, mode="r")["x"][...].ravel().tolist()) == {7}


def test_shuffled_bytes_that_are_no_whole_number_of_elements(path):
    data = np.arange(12, dtype="i8")
    with h5py.File(path, "w") as file:
        filters = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        filters.set_chunk((6,))
        filters.set_fletcher32()
        filters.set_shuffle()
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT64, h5py.h5s.create_simple((12,)), filters)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, data)
    np.testing.assert_array_equal(gzarr.open(path, mode="r")["x"][...], data)


@pytest.mark.parametrize("locking", [False, None, True, "best-effort"])
def test_files_that_this_process_has_open_in_any_way(path, locking):
    with h5py.File(path, "w", locking=locking) as file:
        file.create_dataset("x", data=np.arange(10), chunks=(5,), compression="lzf")
        with pytest.raises(CopyError, match="is open for writing in this process; close it"):
            gzarr.open(path, mode="r")
    with h5py.File(path, "r", locking=locking):
        assert gzarr.open(path, mode="r")["x"][5:].tolist() == [5, 6, 7, 8, 9]


def test_variables_of_netcdf4_that_were_not_written_to_the_end(path):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("y", 3)
        file.createVariable("whole", "i4", ("t", "y"))[:] = np.arange(12).reshape(4, 3)
        inner = file.createGroup("g")
        for name, options in {"plain": {}, "zlib": {"zlib": True}, "bzip2": {"compression": "bzip2"}}.items():
            variable = inner.createVariable(name, "f4", ("t",), fill_value=-1, chunksizes=(3,), **options)
            variable[:2] = [1, 2]
        inner.createVariable("texts", str, ("t", "y"))[:1] = np.array([["a", "b", "c"]], object)
        inner.createVariable("never", "i2", ("t",))
    group = gzarr.open(path, mode="r")["g"]
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        assert sorted(group.array_keys()) == sorted(file["g"].variables)
        for name, variable in file["g"].variables.items():
            assert group[name][...].tolist() == variable[...].tolist(), name


def test_names_of_axes_of_coordinates_that_have_several(path):
    with netCDF4.Dataset(path, "w") as file:
        for name, length in {"station": 2, "length": 4, "y": None}.items():
            file.createDimension(name, length)
        file.createVariable("station", "S1", ("station", "length"))[:] = np.array([list("abcd"), list("efgh")], "S1")
        file.createVariable("y", "f4", ("y", "station"))[:] = np.ones((3, 2))
    group = gzarr.open(path, mode="r")
    assert group["station"].metadata.dimension_names == ("station", "length")
    assert group["y"].metadata.dimension_names == ("y", "station")


@pytest.mark.parametrize("options", [{}, {"chunks": (2,)}, {"chunks": (2,), "compression": "gzip"}])
def test_links_to_other_files(path, options):
    other = Path(path).with_name("other.h5")
    with h5py.File(other, "w") as file:
        file.create_dataset("g/x", data=np.arange(1, 6), **options)
    with h5py.File(path, "w") as file:
        file["padding"] = np.zeros(10_000)
        file["array"] = h5py.ExternalLink(other.name, "/g/x")
        file["group"] = h5py.ExternalLink(other.name, "/g")
    group = gzarr.open(path, mode="r")
    assert group["array"][...].tolist() == group["group/x"][...].tolist() == [1, 2, 3, 4, 5]
    assert not group["padding"][...].any()


def test_elements_that_are_not_stored_as_numpy_has_them(path):
    with h5py.File(path, "w") as file:
        shifted = h5py.h5t.NATIVE_INT16.copy()
        shifted.set_precision(12)
        shifted.set_offset(2)
        short = h5py.h5t.IEEE_F16LE.copy()
        short.set_fields(15, 7, 8, 0, 7)
        short.set_ebias(127)
        spaces = h5py.h5t.C_S1.copy()
        spaces.set_size(4)
        spaces.set_strpad(h5py.h5t.STR_SPACEPAD)
        space = h5py.h5s.create_simple((3,))
        for name, stored, values in (
            (b"shifted", shifted, np.array([1, -2, 1000], "i2")),
            (b"short", short, np.array([1, -2, 0.5], "f4")),
            (b"spaces", spaces, np.array([b"a", b"bc", b""], "S4")),
        ):
            dataset = h5py.h5d.create(file.id, name, stored, space)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
        expected = {name: file[name][...].tolist() for name in file}
    group = gzarr.open(path, mode="r")
    assert {name: array[...].tolist() for name, array in group.arrays()} == expected


def test_what_leads_out_of_the_folder_is_left_out_unless_allowed(tmp_path):
    (tmp_path / "in").mkdir()
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(20)))
    for where in ("outside.h5", "in/beside.h5"):
        with h5py.File(tmp_path / where, "w") as file:
            file["g/x"] = np.arange(5)
    with h5py.File(tmp_path / "in/a.h5", "w") as file:
        file["own"] = np.arange(4)
        file.create_dataset("raw", (20,), "u1", external=[(str(secret), 0, 20)])
        for name, other in (("out", "../outside.h5"), ("near", "beside.h5")):
            file[f"{name}_group"] = h5py.ExternalLink(other, "/g")
            file[f"{name}_link"] = h5py.ExternalLink(other, "/g/x")
            layout = h5py.VirtualLayout((5,), "i8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "in" / other), "g/x", (5,))
            file.create_virtual_dataset(f"{name}_virtual", layout)
    near = {"own", "near_group", "near_link", "near_virtual"}
    root = gzarr.open(tmp_path / "in/a.h5")
    assert set(root) == near
    assert set(root.attrs["not_read_in_place"]) == {"raw", "out_group", "out_link", "out_virtual"}
    with pytest.raises(CopyError, match=r"a\.h5: it is in .*secret.*virtual_containers="):
        root["raw"]
    allowed = gzarr.open(tmp_path / "in/a.h5", virtual_containers=str(tmp_path))
    assert set(allowed) == near | {"raw", "out_group", "out_link", "out_virtual"}
    np.testing.assert_array_equal(allowed["raw"], np.arange(20))
    for name in ("link", "virtual", "group/x"):
        np.testing.assert_array_equal(allowed[f"out_{name}"], np.arange(5))
        np.testing.assert_array_equal(root[f"near_{name}"], np.arange(5))


@pytest.mark.skipif(np.dtype("longdouble").itemsize == 8, reason="long doubles are doubles here")
def test_a_data_type_that_zarr_lacks_leaves_out_its_dataset_alone(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["own"] = np.arange(4)
        file["long"] = np.ones(3, "longdouble")
    root = gzarr.open(tmp_path / "a.h5")
    assert list(root) == ["own"]
    assert "float128" in root.attrs["not_read_in_place"]["long"]


def test_a_deleted_dimension_scale_leaves_out_its_name_alone(path):
    with h5py.File(path, "w") as file:
        file.attrs["_NCProperties"] = "version=2"
        for name, maxshape in {"t": None, "x": 4}.items():
            file.create_dataset(name, data=np.arange(4), maxshape=(maxshape,)).make_scale(name)
        file.create_dataset("v", data=np.ones((4, 4)), maxshape=(None, 4))
        file.create_dataset("w", data=np.ones((4, 4)))
        for name in "vw":
            file[name].dims[0].attach_scale(file["t"])
            file[name].dims[1].attach_scale(file["x"])
    with h5py.File(path, "r+") as file:
        del file["t"]
        for number in range(40):  # something else is in its place
            file.create_group(f"g{number}").attrs["numbers"] = [1] * 30
    group = gzarr.open(path, mode="r")
    for name in "vw":
        assert group[name].dimension_names == (None, "x")
        np.testing.assert_array_equal(group[name], np.ones((4, 4)))


def test_the_path_of_a_dimension_scale_is_looked_for_once(path):
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["x"].make_scale("x")
        for number in range(20):
            file[f"v{number}"] = np.arange(3)
            file[f"v{number}"].dims[0].attach_scale(file["x"])
        scales = {}
        names = [hdf5.dimension_names(file[f"v{number}"], scales) for number in range(20)]
    assert names == [("x",)] * 20
    assert list(scales.values()) == ["/x"]


def virtual(file: h5py.File, name: str, *sources: tuple[str, str]) -> None:
    """Make a virtual dataset whose rows are datasets of three numbers, each given by file and name."""
    layout = h5py.VirtualLayout((len(sources), 3), "i8")
    for row, (other, path) in enumerate(sources):
        layout[row] = h5py.VirtualSource(other, path, (3,))
    file.create_virtual_dataset(name, layout)


@pytest.mark.parametrize("name", ["linked", "virtual", "raw"])
def test_other_files_that_are_replaced_are_noticed(path, name):
    other, raw = path.with_name("other.h5"), path.with_name("raw")
    raw.write_bytes(bytes(3))
    with h5py.File(other, "w") as file:
        file["x"] = np.arange(3)
    with h5py.File(path, "w") as file:
        file["linked"] = h5py.ExternalLink("other.h5", "/x")
        virtual(file, "virtual", ("other.h5", "x"))
        file.create_dataset("raw", (3,), "u1", external=[(str(raw), 0, 3)])
    array = gzarr.open(path, mode="r")[name]
    assert array[...].ravel().tolist() == ([0, 0, 0] if name == "raw" else [0, 1, 2])
    if name == "raw":
        raw.write_bytes(bytes(4))
    else:
        with h5py.File(path.with_name("new.h5"), "w") as file:
            file["x"] = np.arange(3) + 5
        path.with_name("new.h5").replace(other)
    with pytest.raises(ReplacedError, match=rf"{'raw' if name == 'raw' else 'other.h5'}' was replaced; open it again"):
        array[...]


def test_missing_sources_of_virtual_datasets_are_said(path):
    with h5py.File(path.with_name("other.h5"), "w") as file:
        file["x"] = np.arange(3)
        virtual(file, "onward", ("gone.h5", "x"))
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        virtual(file, "whole", ("other.h5", "x"), (str(path), "x"), ("/nowhere/other.h5", "x"))
        virtual(file, "no_file", ("other.h5", "x"), ("gone.h5", "x"))
        virtual(file, "no_dataset", ("other.h5", "gone"))
        virtual(file, "none_here", (str(path), "gone"))
        virtual(file, "onward", ("other.h5", "onward"))
    root = gzarr.open(path, mode="r")
    assert set(root) == {"x", "whole"}
    assert root["whole"][...].tolist() == [[0, 1, 2]] * 3
    why = root.attrs["not_read_in_place"]
    assert set(why) == {"no_file", "no_dataset", "none_here", "onward"}
    assert "its data are in 'gone.h5', which is missing; put it into" in why["no_file"]
    assert "other.h5', which is missing; put it there" in why["no_dataset"]
    assert "gone.h5" in why["onward"]


def test_sources_do_not_lead_on_to_where_it_is_not_allowed(tmp_path):
    (tmp_path / "in").mkdir()
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(24))
    with h5py.File(tmp_path / "in/other.h5", "w") as file:
        file.create_dataset("raw", (3,), "i8", external=[(str(secret), 0, 24)])
    with h5py.File(tmp_path / "in/a.h5", "w") as file:
        virtual(file, "x", ("other.h5", "raw"))
    with pytest.raises(CopyError, match=r"secret.*virtual_containers="):
        gzarr.open(tmp_path / "in/a.h5/x", mode="r")
    assert not gzarr.open(tmp_path / "in/a.h5/x", mode="r", virtual_containers=str(tmp_path))[...].any()


def test_virtual_datasets_of_a_series_of_files(path):
    for number in range(3):
        with h5py.File(path.with_name(f"50%-{number}.h5"), "w") as file:
            file["x"] = np.arange(5).reshape(1, 5) + number
    unlimited = h5py.h5s.UNLIMITED
    space = h5py.h5s.create_simple((1, 5), (unlimited, 5))
    space.select_hyperslab((0, 0), (unlimited, 1), (1, 1), (1, 5))
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.VIRTUAL)
    properties.set_virtual(space, b"50%%-%b.h5", b"x", h5py.h5s.create_simple((1, 5)))
    with h5py.File(path, "w") as file:
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT64, space, properties)
    array = gzarr.open(path, mode="r")["x"]
    np.testing.assert_array_equal(array, np.arange(5) + np.arange(3)[:, None])
    path.with_name("50%-2.h5").write_bytes(b"")
    with pytest.raises(ReplacedError, match=r"50%-2\.h5"):
        array[...]


def test_a_dataset_is_an_image_of_one_level(tmp_path):
    data = np.arange(600.0).reshape(6, 10, 10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/x", data=data, chunks=(1, 10, 10), compression="gzip")
        file["line"] = [1, 2]
        file["months"], file["many"] = data, data.reshape(1, 1, 1, 6, 10, 10)
        for axis, name in zip(file["months"].dims, ("TIME", "COADSY", "COADSX"), strict=True):
            axis.label = name
    image = gzarr.images.open_image(tmp_path / "a.h5/g/x")
    assert image.axes == ("z", "y", "x")
    np.testing.assert_array_equal(image.region(z=slice(2, 4)).data, data[2:4])
    months = gzarr.images.open_image(
        tmp_path / "a.h5/months"
    )  # names that no image knows are of the axes that are left
    assert (months.axes, months.shape) == (("t", "y", "x"), (6, 10, 10))
    for name in ("line", "many"):
        with pytest.raises(MetadataError, match="an image has 2 to 5"):
            gzarr.images.open_image(tmp_path / "a.h5" / name)
