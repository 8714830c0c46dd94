"""HDF5 files copied there and back; links are followed, and what Zarr does not have is refused by name."""

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.errors import CopyError
from tests.copying.scenarios import hierarchy


def test_hdf5_round_trip(tmp_path):
    source = hierarchy(gzarr)
    source.create_array("words", data=np.array(["één", ""], object), dtype=str)
    source.array("when", data=np.array(["2020-01-01", "NaT"], "M8[D]"))
    source.array("fixed", data=np.array(["ab", "c"]))
    source.attrs["nested"] = {"a": [1, None]}
    back = gzarr.group()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        gzarr.copy_all(source, file)
        assert file["eggs"].compression == "gzip"
        gzarr.copy_all(file, back)
    for path, node in source.members(None):
        if hasattr(node, "shape"):
            assert np.array_equal(back[path][...].astype(node.dtype), node[...], equal_nan=node.dtype.kind == "M"), path
            assert dict(back[path].attrs) == dict(node.attrs)
    assert back.attrs["nested"] == '{"a": [1, null]}'


HOSTILE = ["..", "...", "a\\b", "zarr.json", ".zarray", "__x", b"\xff\xfe"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_hdf5_are_refused(tmp_path, name):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = 1
        file.create_group("below")[name] = [1, 2]
        dest = gzarr.group(tmp_path / "dest.zarr")
        before = sorted(dest.store)
        with pytest.raises(CopyError, match="below has a member named"):
            gzarr.copy_all(file, dest)
        with pytest.raises(CopyError, match="below has a member named"):
            gzarr.convert.from_hdf5(file, dest.store, path="x")
    assert sorted(dest.store) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5", "dest.zarr"]


def make_cycle(file):
    file["a/b"] = h5py.SoftLink("/a")
    return "leads back"


def make_hard_cycle(file):
    file["a/b/c"] = file["a"]
    return "leads back"


def make_broken_link(file):
    file["a/b"] = h5py.SoftLink("/nowhere")
    return "leads nowhere"


def make_broken_external(file):
    file["a/b"] = h5py.ExternalLink("nowhere.h5", "/x")
    return "leads nowhere"


def make_references(file):
    file["a"].create_dataset("b", data=file["good"].ref, dtype=h5py.ref_dtype)
    return "references"


def make_ragged(file):
    file["a"].create_dataset("b", shape=(2,), dtype=h5py.vlen_dtype("i4"))
    return "variable length"


def make_empty(file):
    file["a"].create_dataset("b", data=h5py.Empty("f4"))
    return "empty dataset"


def make_reference_attribute(file):
    file["a"].attrs["link"] = file["good"].ref
    return "attribute 'link'"


def make_complex_attribute(file):
    file["a"].attrs["z"] = 1j
    return "attribute 'z'"


@pytest.mark.parametrize(
    "make",
    [
        make_cycle,
        make_hard_cycle,
        make_broken_link,
        make_broken_external,
        make_references,
        make_ragged,
        make_empty,
        make_reference_attribute,
        make_complex_attribute,
    ],
    ids=lambda make: make.__name__,
)
def test_what_zarr_has_not_is_refused_by_name(tmp_path, make):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = [1, 2]
        file.create_group("a")
        expected = make(file)
        dest = gzarr.group()
        before = dict(dest.store)
        with pytest.raises(CopyError, match=expected) as caught:
            gzarr.copy_all(file, dest)
        assert "a.h5:/a" in str(caught.value)
        with pytest.raises(CopyError, match=expected):
            gzarr.convert.from_hdf5(file, dest.store, path="x")
        assert dict(dest.store) == before


def test_links_are_followed(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = [5, 6]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = [1, 2]
        file["again"] = file["good"]
        file["soft"] = h5py.SoftLink("/good")
        file["outside"] = h5py.ExternalLink("other.h5", "/x")
        file["type"] = np.dtype("f8")
        dest = gzarr.group()
        gzarr.copy_all(file, dest)
    assert sorted(dest) == ["again", "good", "outside", "soft"]
    assert (dest["soft"][:].tolist(), dest["outside"][:].tolist()) == ([1, 2], [5, 6])


def test_what_has_several_names_is_converted_once(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = [5, 6]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["z/good"] = [1, 2]
        file["z/hard"] = file["z/good"]
        file["a"] = h5py.SoftLink("/z/good")
        file["b/group"] = h5py.SoftLink("/z")
        file["outside"] = h5py.ExternalLink("other.h5", "/x")
        file["outside_too"] = h5py.ExternalLink("other.h5", "/x")
    dest = gzarr.MemoryStore()
    gzarr.convert.from_hdf5(tmp_path / "a.h5", dest)
    root = gzarr.open(dest)
    assert sorted(path for path, _ in root.members(None)) == ["b", "outside", "z", "z/good"]
    assert dict(root.attrs) == {"hdf5_links": {"a": "/z/good", "outside_too": "/outside"}}
    assert root["b"].attrs["hdf5_links"] == {"group": "/z"}
    gzarr.convert.to_hdf5(root, tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5") as file:
        assert file["b/group/hard"] == file["a"] == file["z/good"]
        assert dict(file.attrs) == {}
    copies = gzarr.MemoryStore()
    gzarr.convert.from_hdf5(tmp_path / "a.h5", copies, links="copy")
    assert gzarr.open(copies)["b/group/hard"][:].tolist() == [1, 2]
    with pytest.raises(ValueError, match="links must be"):
        gzarr.convert.from_hdf5(tmp_path / "a.h5", gzarr.MemoryStore(), links="all")


def test_enumerations_keep_their_names(tmp_path):
    names = {"low": 0, "very high": 7}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["level"] = np.array([0, 7], h5py.enum_dtype(names, "u1"))
    dest = gzarr.MemoryStore()
    gzarr.convert.from_hdf5(tmp_path / "a.h5", dest)
    z = gzarr.open(dest)["level"]
    expected = {"enum": names, "flag_values": [0, 7], "flag_meanings": "low very_high"}
    assert (dict(z.attrs), z[:].tolist()) == (expected, [0, 7])
    gzarr.convert.to_hdf5(dest, tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5") as file:
        assert h5py.check_enum_dtype(file["level"].dtype) == names
        assert (file["level"].dtype, file["level"][:].tolist()) == ("u1", [0, 7])
        assert dict(file["level"].attrs) == {}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_names_of_axes_become_dimension_scales(tmp_path, zarr_format):
    root = gzarr.open_group(gzarr.MemoryStore(), "w", zarr_format=zarr_format)
    for name, shape, dims in (
        ("lat", (2,), ["lat"]),
        ("g/t", (2, 3), ["lat", "lon"]),
        ("g/lon", (3,), ["lon"]),
        ("g/u", (3, 4), ["lon", "deep"]),
    ):
        names = {"dimension_names": dims} if zarr_format == 3 else {"attributes": {"_ARRAY_DIMENSIONS": dims}}
        root.create_array(name, data=np.ones(shape), **names)
    gzarr.convert.to_hdf5(root, tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        t, u = file["g/t"], file["g/u"]
        assert [axis.label for axis in t.dims] == ["lat", "lon"]
        assert (t.dims[0][0], t.dims[1][0], u.dims[0][0]) == (file["lat"], file["g/lon"], file["g/lon"])
        assert list(u.dims[1].values()) == []
        assert "_ARRAY_DIMENSIONS" not in t.attrs
    dest = gzarr.MemoryStore()
    gzarr.convert.from_hdf5(tmp_path / "a.h5", dest, zarr_format=3)
    assert gzarr.open(dest)["g/u"].dimension_names == ("lon", "deep")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_missing_data_are_marked_by_plain_values(tmp_path, zarr_format):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        t = file.create_dataset("t", data=np.array([1, -9], "f4"), fillvalue=-9)
        t.attrs.create("_FillValue", [-9], dtype="f4")
        t.dims[0].label = "x"
    dest = gzarr.MemoryStore()
    gzarr.convert.from_hdf5(tmp_path / "a.h5", dest, zarr_format=zarr_format)
    pytest.importorskip("xarray")
    np.testing.assert_array_equal(gzarr.interop.xarray.open_dataset(dest)["t"], [1, np.nan])
    gzarr.convert.to_hdf5(dest, tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5") as file:
        assert (file["t"].attrs["_FillValue"], file["t"].attrs["_FillValue"].dtype) == (-9, "f4")


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("S3", b""),
        ("S3", b"ab"),
        ("S1", None),
        ("U3", "ab"),
        ("c8", 1j),
        ("V2", b"\1\2"),
        ([("a", "i4")], None),
        ("?", True),
        ("M8[s]", 0),
        ("m8[s]", 0),
        (str, "-"),
    ],
)
def test_missing_data_of_every_type_go_to_hdf5_and_back(tmp_path, dtype, fill):
    keywords = {} if fill is None else {"fill_value": fill}
    given = {"dtype": dtype, "zarr_format": 2, "attributes": {"_ARRAY_DIMENSIONS": ["x"]}, **keywords}
    z = gzarr.create_array(gzarr.MemoryStore(), shape=5, chunks=2, **given)
    z[:1] = np.ones(1, dtype) if z.dtype.kind != "V" else np.zeros(1, dtype)
    gzarr.convert.to_hdf5(z, tmp_path / "a.h5")
    gzarr.convert.from_hdf5(tmp_path / "a.h5", dest := gzarr.MemoryStore(), zarr_format=2)
    back = gzarr.open_group(dest)["data"]
    assert np.array_equal(back[:], z[:])
    assert (back.fill_value, back.attrs["_ARRAY_DIMENSIONS"]) == (z.fill_value, ["x"])
