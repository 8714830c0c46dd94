"""Writing datasets with gzarr: what Xarray with zarr-python writes, read back by it; regions, appending, trees."""

import json
import subprocess
import sys
from contextlib import nullcontext

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from dask.delayed import Delayed

import gzarr
from gzarr.interop.xarray import open_dataset, to_zarr
from gzarr.storage import CountingStore
from tests.interop.xarray.datasets import ENCODING, IGNORED, climate, opened

pytestmark = IGNORED


def with_text():
    text = np.array(["ab", "c"] * 4 + [""])
    return climate().assign(u=("lat", text), s=("lat", text.astype("S2")))


def encodings(dataset):
    return {name: {k: str(v) for k, v in variable.encoding.items()} for name, variable in dataset.variables.items()}


def test_the_files_are_those_of_xarray(tmp_path, zarr_format):
    dataset, encoding = with_text(), {**ENCODING, "count": {"fill_value": 5} if zarr_format == 3 else {}}
    dataset.to_zarr(tmp_path / "theirs", zarr_format=zarr_format, encoding=encoding)
    root = to_zarr(dataset, tmp_path / "ours", zarr_format=zarr_format, encoding=encoding)
    assert isinstance(root, gzarr.Group)
    theirs, ours = xr.open_zarr(tmp_path / "theirs").load(), xr.open_zarr(tmp_path / "ours").load()
    xr.testing.assert_identical(ours, theirs)
    both = [encodings(dataset.drop_vars("scalar")) for dataset in (ours, theirs)]  # zarr 2 compresses no scalars
    assert both[0] == both[1]
    xr.testing.assert_identical(opened(tmp_path / "ours", consolidated=True).load(), theirs)
    assert root["count"].fill_value == (5 if zarr_format == 3 else None)


def test_zarr_python_takes_no_part(tmp_path):
    code = (
        "import sys; sys.modules['zarr'] = None; sys.modules['dask'] = None\n"
        "import xarray as xr; from gzarr.interop.xarray import to_zarr, open_dataset\n"
        "to_zarr(xr.Dataset({'t': ('x', [1.5, 2.5]), 'w': ('x', ['a', 'b'])}), sys.argv[1])\n"
        "to_zarr(open_dataset(sys.argv[1]), sys.argv[1], 'w')\n"
        "print(open_dataset(sys.argv[1])['t'].sum().item())"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "x"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("4.0\n", "")


@pytest.mark.parametrize("blocks", [None, {"time": 7, "lon": 5}])
def test_appending(tmp_path, zarr_format, blocks):
    """Blocks that share chunks with each other and with what is stored."""
    dataset = climate()[["t", "count", "mask"]]
    for name, write in (("theirs", xr.Dataset.to_zarr), ("ours", to_zarr)):
        parts = [dataset.isel(time=slice(0, 15)), dataset.isel(time=slice(15, None))]
        if blocks and name == "ours":
            parts = [part.chunk(blocks) for part in parts]
        write(parts[0], tmp_path / name, encoding=ENCODING, zarr_format=zarr_format)
        write(parts[1], tmp_path / name, append_dim="time")
    xr.testing.assert_identical(xr.open_zarr(tmp_path / "ours").load(), xr.open_zarr(tmp_path / "theirs").load())
    assert opened(tmp_path / "ours")["t"].shape == (40, 9, 12)


def test_appending_only_what_has_the_dimension(tmp_path):
    dataset = climate()[["t", "count"]]
    to_zarr(dataset, tmp_path / "x")
    changed = dataset.assign(count=dataset["count"] + 1)
    to_zarr(changed, tmp_path / "x", "a-", append_dim="time")
    assert opened(tmp_path / "x")["count"].values.tolist() == list(range(9))
    to_zarr(changed, tmp_path / "x", append_dim="time")
    assert opened(tmp_path / "x")["count"].values.tolist() == list(range(1, 10))
    assert opened(tmp_path / "x").sizes["time"] == 120


@pytest.mark.parametrize(
    "region", [{"time": slice(7, 19), "lon": slice(2, -1)}, {"time": "auto", "lon": "auto"}, "auto"]
)
def test_regions(tmp_path, region):
    dataset = climate()[["t", "mask"]]
    to_zarr(dataset * 0, tmp_path / "x", encoding=ENCODING)
    part = dataset[["t"]].isel(time=slice(7, 19), lon=slice(2, -1)).drop_vars("height")
    if isinstance(region, dict):
        part = part.drop_vars("lat")
    to_zarr(part.chunk(time=5), tmp_path / "x", region=region)
    expected = (dataset * 0)["t"].copy()
    expected[7:19, :, 2:-1] = dataset["t"][7:19, :, 2:-1]
    np.testing.assert_allclose(opened(tmp_path / "x")["t"], expected, atol=0.006)
    assert not opened(tmp_path / "x")["mask"].any()


def test_variables_are_added_and_overwritten(tmp_path):
    dataset = climate()
    to_zarr(dataset[["t"]], tmp_path / "x", zarr_format=2)
    to_zarr(dataset[["count"]].assign(t=dataset["t"].transpose() + 1), tmp_path / "x", "a")
    found = opened(tmp_path / "x")
    assert found["t"].dims == ("time", "lat", "lon")
    xr.testing.assert_equal(found["t"].load(), dataset["t"] + 1)
    assert found["count"].values.tolist() == list(range(9))


def test_blocks_are_written_later(tmp_path, zarr_format):
    dataset = climate().drop_vars("place").chunk(time=9)
    delayed = to_zarr(dataset, tmp_path / "x", compute=False, zarr_format=zarr_format)
    assert opened(tmp_path / "x")["t"].shape == (40, 9, 12)
    assert opened(tmp_path / "x")["t"].isnull().all()
    assert isinstance(delayed, Delayed)
    assert delayed.compute(scheduler="threads") is None
    xr.testing.assert_equal(opened(tmp_path / "x").load(), dataset.compute())
    assert opened(tmp_path / "x")["t"].encoding["chunks"] == (9, 9, 12)


def test_shards_and_the_varying_chunks_of_blocks(tmp_path):
    dataset = climate()[["t"]].chunk(time=(3, 30, 7))
    encoding = {"t": {"shards": (20, 9, 12), "chunks": (5, 9, 4), "compressors": None}}
    root = to_zarr(dataset, tmp_path / "x", encoding=encoding)
    assert (root["t"].shards, root["t"].chunks) == ((20, 9, 12), (5, 9, 4))
    xr.testing.assert_equal(opened(tmp_path / "x").load(), dataset.compute())
    assert to_zarr(dataset, tmp_path / "x", "w")["t"].chunks == (30, 9, 12)
    varying = root.create_array("v", data=np.arange(9.0), chunks=[[2, 4, 3]], dimension_names=["lat"])
    again = to_zarr(opened(tmp_path / "x")[["v"]], tmp_path / "y")
    assert again["v"].chunk_sizes == varying.chunk_sizes == ((2, 4, 3),)


@pytest.mark.parametrize("chunks", [None, {}])
def test_a_dataset_that_reads_what_it_replaces_is_computed_first(tmp_path, chunks):
    dataset = climate()
    to_zarr(dataset, tmp_path / "x")
    to_zarr(opened(tmp_path / "x", chunks=chunks).isel(time=slice(None, None, -1)), tmp_path / "x", "w")
    xr.testing.assert_equal(opened(tmp_path / "x").load(), dataset.isel(time=slice(None, None, -1)))
    found = opened(tmp_path / "x", chunks=chunks)
    to_zarr(found[["t"]].isel(lat=slice(None, None, -1)).drop_vars(["lat", "height"]), tmp_path / "x", "a")
    np.testing.assert_array_equal(opened(tmp_path / "x")["t"], dataset["t"][::-1, ::-1])


def test_encodings_of_the_other_format(tmp_path, zarr_format):
    to_zarr(climate(), tmp_path / "x", zarr_format=5 - zarr_format, encoding=ENCODING)
    root = to_zarr(opened(tmp_path / "x"), tmp_path / "y", zarr_format=zarr_format)
    assert root["t"].chunks == (10, 9, 6)
    assert ("blosc" in str(root["t"].compressors).lower()) == (zarr_format == 3)
    xr.testing.assert_equal(opened(tmp_path / "y").load(), opened(tmp_path / "x").load())


def test_places(tmp_path):
    dataset = climate()[["t", "count"]]
    memory = gzarr.MemoryStore()
    to_zarr(dataset, memory, group="a/b")
    assert gzarr.open_group(memory, "r").metadata.zarr_format == 3
    xr.testing.assert_identical(open_dataset(memory, group="a/b", consolidated=None).load(), dataset)
    to_zarr(dataset, gzarr.open_group(memory, "r+")["a"], group="c")
    xr.testing.assert_identical(open_dataset(memory, group="a/c").load(), dataset)
    to_zarr(dataset, tmp_path / "x.zip")
    xr.testing.assert_identical(open_dataset(tmp_path / "x.zip").load(), dataset)
    with pytest.raises(gzarr.StoreError, match="compute=False"):
        to_zarr(dataset.chunk(), tmp_path / "y.zip", compute=False)


def test_unlimited_dimensions_are_kept(tmp_path):
    dataset = climate()[["t"]]
    to_zarr(dataset, tmp_path / "x", unlimited_dims=["time"])
    found = opened(tmp_path / "x")
    assert found.encoding["unlimited_dims"] == {"time"}
    assert found.attrs == dataset.attrs == xr.open_zarr(tmp_path / "x").attrs
    to_zarr(found, tmp_path / "y")
    to_zarr(dataset, tmp_path / "y", append_dim="time")
    assert opened(tmp_path / "y").encoding["unlimited_dims"] == {"time"}
    with pytest.raises(ValueError, match="no dimensions"):
        to_zarr(dataset, tmp_path / "z", unlimited_dims=["hour"])


def test_consolidated_metadata(tmp_path):
    dataset = climate()[["t"]]
    to_zarr(dataset, tmp_path / "x", consolidated=False)
    assert "consolidated_metadata" not in json.loads((tmp_path / "x/zarr.json").read_text())
    to_zarr(dataset[["time"]], tmp_path / "x", "a")
    assert "t" in json.loads((tmp_path / "x/zarr.json").read_text())["consolidated_metadata"]["metadata"]
    to_zarr(dataset, tmp_path / "x", append_dim="time")
    assert opened(tmp_path / "x", consolidated=True).sizes["time"] == 80


def test_empty_chunks(tmp_path):
    dataset = xr.Dataset({"t": ("x", np.full(4, np.nan))})
    for empty in (False, True):
        to_zarr(dataset, tmp_path / "x", "w", write_empty_chunks=empty)
        assert (tmp_path / "x/t/c/0").exists() == empty
        (tmp_path / "x/t/c/0").unlink(missing_ok=True)
        to_zarr(dataset, tmp_path / "x", region={"x": slice(0, 4)}, write_empty_chunks=empty)
        assert (tmp_path / "x/t/c/0").exists() == empty


def test_trees(tmp_path):
    tree = xr.DataTree.from_dict({"/": climate()[["scalar"]], "/a": climate()[["count"]], "/a/b": climate()[["t"]]})
    to_zarr(climate()[["t"]], tmp_path / "v2", zarr_format=2)
    to_zarr(tree, tmp_path / "v2", group="new/g")
    assert list(opened(tmp_path / "v2", group="new/g/a")) == ["count"]  # of the format of the group that it is in
    root = to_zarr(tree, tmp_path / "ours", encoding={"/a/b": ENCODING})
    tree.to_zarr(tmp_path / "theirs", encoding={"/a/b": ENCODING})
    assert root["a/b/t"].chunks == (10, 9, 6)
    xr.testing.assert_identical(
        xr.open_datatree(tmp_path / "ours", engine="zarr").load(),
        xr.open_datatree(tmp_path / "theirs", engine="zarr").load(),
    )
    to_zarr(tree, tmp_path / "ours", "w")
    with pytest.raises(gzarr.errors.ContainsNodeError):
        to_zarr(tree, tmp_path / "ours")
    with pytest.raises(ValueError, match="not groups"):
        to_zarr(tree, tmp_path / "z", encoding={"/c": {}})
    with pytest.raises(ValueError, match="datasets"):
        to_zarr(tree, tmp_path / "z", append_dim="time")


@pytest.mark.parametrize(
    ("change", "keywords", "error", "match"),
    [
        (None, {"mode": "x"}, ValueError, "mode must be"),
        (None, {"mode": "w", "append_dim": "time"}, ValueError, "cannot set append_dim"),
        (None, {"mode": "w", "region": "auto"}, ValueError, "cannot set region"),
        (None, {}, gzarr.errors.ContainsNodeError, "stored"),
        (None, {"append_dim": "hour"}, ValueError, "does not match any existing"),
        (None, {"mode": "w", "encoding": {"t": {"chunk": 3}}}, ValueError, "did you mean 'chunks'"),
        (None, {"mode": "w", "encoding": {"t": {"zlib": True}}}, ValueError, "encoding of variable 't': 'zlib'"),
        (None, {"mode": "w", "encoding": {"x": {}}}, KeyError, "no variables"),
        (None, {"mode": "w", "encoding": {"t": {"compressors": "nothing"}}}, gzarr.GzarrError, "nothing"),
        (None, {"mode": "a", "encoding": ENCODING}, ValueError, "but encoding was provided"),
        (lambda d: d.isel(time=slice(3)), {"mode": "a"}, ValueError, "use append_dim= to append"),
        (lambda d: d.assign(new=1), {"mode": "r+"}, ValueError, "non-pre-existing"),
        (lambda d: d.assign({"a/b": 1}), {"mode": "a"}, ValueError, "without '/'"),
        (lambda d: d[["t"]].rename(lat="y"), {"mode": "a"}, ValueError, "has different dimension names"),
        (lambda d: d[["t", "count"]], {"region": {"time": slice(0, 40)}}, ValueError, r"drop_vars\(\['count'"),
        (lambda d: d[["t"]], {"region": {"hour": slice(0, 4)}}, ValueError, "not in Dataset dimensions"),
        (lambda d: d[["t"]], {"region": {"time": slice(0, 40, 2)}}, ValueError, "must be 1"),
        (lambda d: d[["t"]], {"region": 3}, TypeError, "must be a dict"),
        (lambda d: d[["t"]].isel(time=[3, 1]), {"region": {"time": "auto"}}, ValueError, "next to each other"),
        (lambda d: d[["t"]].assign_coords(lat=d.lat + 1), {"region": {"lat": "auto"}}, KeyError, "are missing in"),
    ],
)
def test_faults_change_nothing(tmp_path, change, keywords, error, match):
    dataset = climate()[["t", "count"]].drop_vars("height")
    store = gzarr.MemoryStore()
    to_zarr(dataset, store)
    before = dict(store)
    with pytest.raises(error, match=match):
        to_zarr(change(dataset) if change else dataset, store, **keywords)
    assert dict(store) == before


@pytest.mark.parametrize("units", ["days since 2000-01-01", "hours since 0000-01-01"])  # calendars may lack a year 0
def test_times_that_were_not_decoded_are_appended_as_numbers(tmp_path, units):
    time = xr.DataArray([0.0, 1, 2], dims="time", attrs={"units": units})
    dataset = xr.Dataset({"t": ("time", [5, 6, 7])}, {"time": time})
    to_zarr(dataset, tmp_path / "x")
    later = dataset.assign_coords(time=(time + 3).assign_attrs(units=units))
    to_zarr(later, tmp_path / "x", append_dim="time")
    to_zarr(dataset.isel(time=[1]) * 0, tmp_path / "x", region="auto")
    found = opened(tmp_path / "x", decode_times=False)
    assert (found["time"].values.tolist(), found["t"].values.tolist()) == ([0, 1, 2, 3, 4, 5], [5, 0, 7, 5, 6, 7])
    other = dataset.assign_coords(time=time.assign_attrs(units="seconds since 1970-01-01"))
    with pytest.raises(ValueError, match="has the units 'seconds since"):
        to_zarr(other, tmp_path / "x", append_dim="time")


@pytest.mark.parametrize("times", ["M8", "m8"])
def test_times_are_not_counted_in_other_units_than_stored(tmp_path, times):
    days, hours = (xr.Dataset({"t": ("x", np.array([48], f"{times}[{unit}]").astype(f"{times}[s]"))}) for unit in "Dh")
    root = to_zarr(days, tmp_path / "x")
    root.create_array("s", data=days["t"].values.astype(f"{times}[D]"), dimension_names=["x"])
    to_zarr(hours.rename(t="s"), tmp_path / "x", append_dim="x")
    assert root["s"].refresh()[...].astype(int).tolist() == [48, 2]
    odd = hours + np.timedelta64(1, "h")
    with pytest.warns(UserWarning, match="faithfully"), pytest.raises(ValueError, match=r"in 'hours.* 'days"):
        to_zarr(odd, tmp_path / "x", append_dim="x")
    with pytest.raises(ValueError, match="lacks"):
        to_zarr(odd.rename(t="s"), tmp_path / "x", append_dim="x")


def test_longer_text_is_not_cut_off(tmp_path):
    dataset = xr.Dataset({"s": ("x", np.array([b"ab"]))})
    to_zarr(dataset, tmp_path / "x")
    for longer in (np.array([b"abc"]), np.array(["aä"]), np.array(["abc"], object)):
        with pytest.raises(ValueError, match="does not fit"):
            to_zarr(xr.Dataset({"s": ("x", longer)}), tmp_path / "x", append_dim="x")
    to_zarr(xr.Dataset({"s": ("x", np.array([b"a"]))}), tmp_path / "x", append_dim="x")
    assert opened(tmp_path / "x")["s"].values.tolist() == [b"ab", b"a"]


def test_variable_text_and_empty_axes(tmp_path, zarr_format):
    words = np.array(["a", "bcd"], np.dtypes.StringDType())
    root = to_zarr(xr.Dataset({"w": ("x", words), "s": ((), 2.5)}).chunk(), tmp_path / "x", zarr_format=zarr_format)
    assert root["w"].metadata.data_type.variable == "string"
    assert (opened(tmp_path / "x")["w"].values.tolist(), float(opened(tmp_path / "x")["s"])) == (["a", "bcd"], 2.5)
    to_zarr(xr.Dataset({"t": ("x", np.zeros(0))}), tmp_path / "y")
    to_zarr(xr.Dataset({"t": ("x", np.ones(3))}), tmp_path / "y", append_dim="x")
    assert opened(tmp_path / "y")["t"].values.tolist() == [1, 1, 1]


def test_missing_text_is_stored_as_xarray_does(tmp_path):
    words = np.array(["a", np.nan], np.dtypes.StringDType(na_object=np.nan))
    to_zarr(xr.Dataset({"w": ("x", words)}), tmp_path / "x", zarr_format=2)
    assert opened(tmp_path / "x")["w"].values.tolist() == ["a", ""]


def test_a_variable_without_missing_data(tmp_path, zarr_format):
    dataset = xr.Dataset({"t": ("x", np.ones(2))})
    root = to_zarr(dataset, tmp_path / "x", encoding={"t": {"_FillValue": None}}, zarr_format=zarr_format)
    assert "_FillValue" not in root["t"].attrs
    assert "_FillValue" not in opened(tmp_path / "x")["t"].encoding
    if zarr_format == 2:
        with pytest.raises(ValueError, match="'_FillValue' is the fill value"):
            to_zarr(dataset, tmp_path / "x", "w", encoding={"t": {"fill_value": 3}}, zarr_format=2)


def test_values_on_a_device(tmp_path):
    to_zarr(climate()[["t"]], tmp_path / "x", encoding=ENCODING)
    to_zarr(open_dataset(tmp_path / "x", device="emulated"), tmp_path / "y")
    xr.testing.assert_identical(opened(tmp_path / "y").load(), opened(tmp_path / "x").load())


def test_a_chunk_is_stored_once(tmp_path):
    store = CountingStore(gzarr.MemoryStore())
    to_zarr(climate()[["t"]].chunk(time=7, lat=2), store, encoding=ENCODING)
    written = [key for key in store.written if key.startswith("t/c/")]
    assert len(written) == len(set(written)) == 8


@pytest.mark.parametrize("name", [None, "t", "x"])
def test_arrays_are_written_as_xarray_writes_them(name, tmp_path):
    array = xr.DataArray([1.0, 2.0, 3.0], {"x": [4, 5, 6]}, ("x",), name=name, attrs={"units": "K"})
    to_zarr(array, tmp_path / "ours.zarr")
    array.to_zarr(tmp_path / "theirs.zarr")
    for path in ("ours.zarr", "theirs.zarr"):
        for engine in ("gzarr", "zarr"):
            xr.testing.assert_identical(xr.open_dataarray(tmp_path / path, engine=engine), array)


@pytest.mark.parametrize("inherited", [False, True])
def test_inherited_coordinates_are_written_on_request(inherited, tmp_path):
    tree = xr.DataTree.from_dict({"/": xr.Dataset(coords={"x": [1, 2]}), "/a": xr.Dataset({"t": ("x", [3, 4])})})
    to_zarr(tree, tmp_path / "tree.zarr", write_inherited_coords=inherited)
    assert ("x" in gzarr.open_group(tmp_path / "tree.zarr")["a"]) == inherited
    xr.testing.assert_identical(xr.open_datatree(tmp_path / "tree.zarr", engine="gzarr"), tree)


def test_keywords_of_xarray_are_taken(tmp_path, monkeypatch):
    blocks = xr.Dataset({"t": ("x", np.arange(9.0))}).chunk(x=4)
    store, seen = da.store, {}
    monkeypatch.setattr(da, "store", lambda *args, **how: (seen.update(how), store(*args, **how))[1])
    how = {"safe_chunks": False, "align_chunks": True, "encoding": {"t": {"chunks": (3,)}}}
    to_zarr(blocks, tmp_path / "x.zarr", chunkmanager_store_kwargs={"scheduler": "synchronous"}, **how)
    assert seen["scheduler"] == "synchronous"
    options = {"mode": "r", "zarr_format": 3, "cache_members": False}
    with xr.open_dataset(tmp_path / "x.zarr", engine="gzarr", **options) as opened:
        np.testing.assert_array_equal(opened["t"], np.arange(9.0))
    with pytest.raises(ValueError, match="mode='w' would replace"):
        xr.open_dataset(tmp_path / "x.zarr", engine="gzarr", mode="w")


@pytest.mark.parametrize(
    ("blocks", "how", "refused"),
    [
        (6, {}, False),
        (4, {}, True),
        (9, {"append_dim": "x"}, False),
        (4, {"append_dim": "x"}, True),
        ((3, 6), {"region": {"x": slice(1, 10)}, "mode": "a"}, True),
        ((2, 3, 4), {"region": {"x": slice(1, 10)}, "mode": "a"}, False),
        (9, {"region": {"x": slice(1, 10)}}, True),
        (9, {"region": {"x": slice(3, 12)}}, False),
    ],
)
def test_writes_that_xarray_refuses_are_those_of_its_align_chunks(blocks, how, refused, tmp_path):
    first, encoding = xr.Dataset({"t": ("x", np.arange(12.0))}), {"encoding": {"t": {"chunks": (3,)}}}
    data = xr.Dataset({"t": ("x", np.arange(50.0, 59.0))}).chunk(x=blocks)
    for name in ("safe", "aligned", "ours") if how else ():
        first.to_zarr(tmp_path / name, **encoding)
    how = how or encoding
    with pytest.raises(ValueError, match="overlap") if refused else nullcontext():
        data.to_zarr(tmp_path / "safe", **how)
    data.to_zarr(tmp_path / "aligned", align_chunks=True, **how)
    to_zarr(data, tmp_path / "ours", **how)
    with opened(tmp_path / "ours") as ours, xr.open_zarr(tmp_path / "aligned") as theirs:
        xr.testing.assert_identical(ours.load(), theirs.load())


def test_attributes_that_are_no_json_are_named(tmp_path):
    wrong = xr.Dataset({"t": ("x", [1.0], {"parent": xr.DataArray()})})
    with pytest.raises(TypeError, match=r"Invalid attribute in Dataset\.attrs: 'parent' of variable 't'"):
        to_zarr(wrong, tmp_path / "x.zarr")


@pytest.mark.parametrize("how", [{"mode": "w"}, {"append_dim": "x"}, {"region": {"x": slice(0, 2)}}])
def test_numbers_that_xarray_wraps_are_named(how, tmp_path):
    packing = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    to_zarr(xr.Dataset({"t": ("x", [0.0, 16383.5])}), tmp_path, encoding={"t": packing})
    dataset = xr.Dataset({"t": ("x", [np.nan, 16384.0])})
    with pytest.warns(RuntimeWarning, match="'t': 16384.0 does not fit into int16 and is wrapped"):
        to_zarr(dataset, tmp_path, encoding={"t": packing} if "mode" in how else None, **how)
    assert open_dataset(tmp_path, mask_and_scale=False, consolidated=False)["t"].values[-2:].tolist() == [-1, -32768]
