"""Names, missing values and codecs translated between formats: readers see the same, and a copy back restores all."""

import base64
import itertools
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.metadata.conventions import decode_mask, encode_mask
from gzarr.storage import MemoryStore

DTYPES = ("u1", "i2", ">i4", "f4", "f8", "b1", "c8", "S3", "U3", "M8[s]", "m8[ms]", "str")
NAN = math.nan
PACKED = {"scale_factor": 0.5, "add_offset": 10.0, "units": "m"}


def text(value):
    """JSON in which NaN equals NaN."""
    return json.dumps(value, sort_keys=True)


def words(store):
    """What the documents say: attributes, names and fill value."""
    if "zarr.json" in store:
        document = json.loads(bytes(store["zarr.json"]))
        said = document["attributes"], document.get("dimension_names"), document["fill_value"]
    else:
        attributes = json.loads(bytes(store[".zattrs"])) if ".zattrs" in store else {}
        said = attributes, None, json.loads(bytes(store[".zarray"]))["fill_value"]
    return text(said)


def numbers(dtype):
    """Data that hold 0, 1, 2 and what means missing."""
    if dtype == "str":
        return np.array(["", "a", "bb"], object)
    plain = np.dtype(dtype)
    if plain.kind in "SU":
        return np.array(["", "a", "bb"], dtype)
    return np.array([0, 1, "NaT"] if plain.kind in "mM" else [0, 1, 2], plain)


def fills(dtype):
    kind = "U" if dtype == "str" else np.dtype(dtype).kind
    if kind in "SU":
        return ["", "a"] if kind == "U" else [b"", b"a"]
    if kind in "mM":
        return [np.array("NaT", dtype)[()], np.array(1, dtype)[()]]
    return [0, 1, NAN] if kind in "fc" else [0, 1]


def arrays_of(zarr_format):
    return st.sampled_from(DTYPES).flatmap(
        lambda dtype: st.fixed_dictionaries(
            {
                "dtype": st.just(dtype),
                "fill_value": st.sampled_from([None, *fills(dtype)] if zarr_format == 2 else fills(dtype)),
                "ndim": st.sampled_from([0, 1, 2]),
                "names": st.sampled_from([None, "all", "some", "none", "long"]),
                "mask": st.sampled_from(["absent", None, 0, 1, -1, 1.5, "NaN", "", "AAAAAAAAAAA=", [0, 1], NAN, 1e300]),
                "missing": st.sampled_from(["absent", 0, "", [1, 2]]),
                "attributes": st.sampled_from([{}, PACKED, {"_ARRAY_DIMENSIONS": "x"}, {"valid_max": NAN}]),
            }
        )
    )


def made(zarr_format, case):
    ndim, dtype = case["ndim"], case["dtype"]
    names = {"all": ["y", "x"][:ndim], "some": [None, "x"][:ndim], "none": [None] * ndim}.get(case["names"])
    attributes = dict(case["attributes"])
    if case["mask"] != "absent":
        attributes["_FillValue"] = case["mask"]
    if case["missing"] != "absent":
        attributes["missing_value"] = case["missing"]
    keywords = {}
    if zarr_format == 2 and names is not None:
        attributes["_ARRAY_DIMENSIONS"] = names
    elif zarr_format == 2 and case["names"] == "long":
        attributes["_ARRAY_DIMENSIONS"] = ["too", "many", "names"]
    elif zarr_format == 3:
        keywords["dimension_names"] = names
    data = np.resize(numbers(dtype), (2, 3)[:ndim])
    store = MemoryStore()
    kind = str if dtype == "str" else dtype
    z = gzarr.create_array(
        store, shape=data.shape, chunks=1 if ndim else None, dtype=kind, fill_value=case["fill_value"],
        attributes=attributes, zarr_format=zarr_format, write_empty_chunks=case["fill_value"] is None, **keywords,
    )  # fmt: skip
    z[...] = data
    return z, store


@pytest.mark.parametrize("zarr_format", [2, 3])
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_there_and_back_is_the_identity(zarr_format, data):
    z, store = made(zarr_format, data.draw(arrays_of(zarr_format)))
    there, back = MemoryStore(), MemoryStore()
    gzarr.transfer(z, there, zarr_format=5 - zarr_format)
    gzarr.transfer(there, back, zarr_format=zarr_format)
    assert words(back) == words(store)
    for copy in (there, back):
        np.testing.assert_array_equal(gzarr.open(copy, "r")[...], z[...])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_usual_arrays_need_no_record(zarr_format):
    root = gzarr.group(zarr_format=zarr_format)
    names = {"attributes": {"_ARRAY_DIMENSIONS": ["x"]}} if zarr_format == 2 else {"dimension_names": ["x"]}
    root.create_array("mask", data=np.array([0, 1, 2], "u1"), fill_value=None, **names)
    root.create_array(
        "scalar", data=1.5, fill_value=NAN, attributes={} if zarr_format == 3 else {"_ARRAY_DIMENSIONS": []}
    )
    if zarr_format == 3:
        root["scalar"].attrs["_FillValue"] = encode_mask(NAN, np.dtype("f8"))
    root.create_array("unnamed", data=np.array([0, 1, 2], "u1"), fill_value=7)
    copy, back = gzarr.group(zarr_format=5 - zarr_format), gzarr.group(zarr_format=zarr_format)
    for name in root:
        gzarr.copy(root[name], copy)
        gzarr.copy(copy[name], back)
        assert words_of(back[name]) == words_of(root[name])
        assert not copy[name].metadata.extra


def words_of(array):
    meta = array.metadata
    return text([dict(meta.attributes), meta.dimension_names, str(meta.fill_value)])


def test_a_record_of_what_was_changed_meanwhile_does_not_count():
    z = gzarr.array(np.array([0, 1, 2], "i2"), fill_value=5, dimension_names=["x"])
    there, back = MemoryStore(), MemoryStore()
    gzarr.transfer(z, there, zarr_format=2)
    assert gzarr.open(there).metadata.extra["gzarr_copied_from"]["fill_value"] == 5
    gzarr.open(there).attrs["units"] = "m"
    gzarr.transfer(there, back, zarr_format=3)
    assert (gzarr.open(back).attrs["units"], gzarr.open(back).fill_value) == ("m", 5)
    gzarr.open(there).attrs["_ARRAY_DIMENSIONS"] = ["t"]
    gzarr.transfer(there, back, zarr_format=3, if_exists="replace")
    assert (gzarr.open(back).dimension_names, gzarr.open(back).fill_value) == (("t",), 0)
    for record in (None, {"zarr_format": 3}, {"zarr_format": 3, "fill_value": "x", "dimension_names": 1}):
        document = json.loads(bytes(there[".zarray"]))
        there[".zarray"] = json.dumps({**document, "gzarr_copied_from": record}).encode()
        back = MemoryStore()
        gzarr.transfer(there, back, zarr_format=3)
        assert gzarr.open(back).fill_value == 0


def test_given_names_and_fill_values_win():
    z = gzarr.array(np.array([0, 1, 2], "i2"), fill_value=5, dimension_names=["x"])
    there, back = MemoryStore(), MemoryStore()
    gzarr.transfer(z, there, zarr_format=2, fill_value=2)
    assert gzarr.open(there).fill_value == 2
    gzarr.transfer(there, back, zarr_format=3, dimension_names=["t"])
    assert (gzarr.open(back).dimension_names, gzarr.open(back).attrs["_FillValue"]) == (("t",), 2)


def test_chunks_are_copied_encoded_unless_some_would_show_another_fill_value():
    full = gzarr.array(np.arange(8), chunks=2, dimension_names=["x"], dtype="i4")
    sparse = gzarr.zeros(8, chunks=2, dimension_names=["x"], dtype="i4")
    sparse[:2] = 3
    for z, how in ((full, "objects"), (sparse, "decode")):
        dest = MemoryStore()
        report = gzarr.transfer(z, dest, zarr_format=2, dimension_separator=".")
        assert report.arrays[0].how == how
        assert gzarr.open(dest)[:].tolist() == z[:].tolist()
        assert gzarr.open(dest).nchunks_initialized == 4


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i8", "u1", "b1"])
def test_values_for_missing_data_are_written_as_xarray_reads_them(dtype):
    pytest.importorskip("xarray", reason="the extra xarray is not installed")
    from xarray.backends.zarr import FillValueCoder

    kind = np.dtype(dtype)
    for value in (kind.type(1), kind.type(0), kind.type(NAN if kind.kind in "fc" else 1)):
        encoded = encode_mask(value, kind)
        assert encoded == FillValueCoder.encode(value, kind)
        np.testing.assert_equal(decode_mask(encoded, kind), FillValueCoder.decode(encoded, kind))


# -- as xarray sees them -----------------------------------------------------------------------------------------


@pytest.fixture
def xarray():
    pytest.importorskip("zarr", reason="xarray reads Zarr with zarr-python")
    return pytest.importorskip("xarray", reason="the extra xarray is not installed")


def seen(xarray, path, engine="zarr"):
    dataset = xarray.open_dataset(path, engine=engine, consolidated=False) if engine == "zarr" else None
    dataset = xarray.open_dataset(path, engine=engine) if dataset is None else dataset
    with dataset:
        return dataset.load()


def write_dataset(path, zarr_format):
    """Variables of every kind that xarray reads, each with every fill value."""
    root = gzarr.open_group(path, mode="w", zarr_format=zarr_format, attributes={"title": "all"})
    for dtype, masked in itertools.product(DTYPES, (False, True)):
        for number, fill in enumerate(fills(dtype)):
            case = {"dtype": dtype, "ndim": 1, "names": "all", "fill_value": fill, "attributes": {"units": "m"}}
            if np.dtype("O" if dtype == "str" else dtype).kind in "mM" or (dtype == "S3" and masked):
                continue  # xarray shows fill values of times as attributes, and reads no _FillValue of bytes in v3
            if zarr_format == 2:
                case["fill_value"] = fill if masked else None
            mask = "absent"
            if masked and zarr_format == 3 and np.dtype("O" if dtype == "str" else dtype).kind in "biufc":
                mask = encode_mask(fill, np.dtype(dtype))
            z, _ = made(zarr_format, {**case, "mask": mask, "missing": "absent"})
            name = f"{dtype.strip('>').replace('[', '_').strip(']')}_{number}_{masked}"
            gzarr.copy(z, root, name=name)
    scalar, _ = made(zarr_format, {**case, "dtype": "f4", "fill_value": 7, "ndim": 0, "mask": "absent", "missing": 0})
    gzarr.copy(scalar, root, name="scalar")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("engine", ["zarr", "gzarr"])
@pytest.mark.filterwarnings("ignore")
def test_xarray_sees_the_same_in_a_copy_in_the_other_format(xarray, tmp_path, zarr_format, engine):
    write_dataset(tmp_path / "source", zarr_format)
    gzarr.transfer(tmp_path / "source", tmp_path / "there", zarr_format=5 - zarr_format)
    gzarr.transfer(tmp_path / "there", tmp_path / "back", zarr_format=zarr_format)
    expected = seen(xarray, tmp_path / "source", engine)
    for name in ("there", "back"):
        found = seen(xarray, tmp_path / name, engine)
        for variable in expected.variables:
            assert found[variable].identical(expected[variable]), (name, variable)
        assert found.attrs == expected.attrs


@pytest.mark.filterwarnings("ignore")
def test_zeros_of_a_mask_stay_zeros(xarray, tmp_path):
    dataset = xarray.Dataset({"mask": (("y", "x"), np.array([[0, 1], [2, 0]], "u1")), "lat": ("y", [0.0, 1.0])})
    dataset["t"] = "y", np.array(["2020-01-01", "NaT"], "M8[ns]")
    dataset["packed"] = "y", [0.5, NAN], {}, {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -999}
    dataset["name"] = "x", ["a", ""]
    dataset["scalar"] = 1.5
    dataset.to_zarr(tmp_path / "v3", zarr_format=3)
    gzarr.transfer(tmp_path / "v3", tmp_path / "v2", zarr_format=2)
    gzarr.transfer(tmp_path / "v2", tmp_path / "back", zarr_format=3)
    consolidated = gzarr.consolidate_metadata(tmp_path / "v2")
    assert consolidated["mask"].fill_value is None
    for name in ("v2", "back"):
        assert seen(xarray, tmp_path / name).identical(seen(xarray, tmp_path / "v3")), name
        assert seen(xarray, tmp_path / name)["mask"].values.tolist() == [[0, 1], [2, 0]]


def test_base64_is_that_of_doubles():
    assert encode_mask(1.5, np.dtype("f4")) == base64.standard_b64encode(struct.pack("<d", 1.5)).decode()


# -- between groups ----------------------------------------------------------------------------------------------
