"""Xarray over gzarr: files go both ways, the engine "gzarr" gives what the engine "zarr" gives, lazily, on a device."""

import asyncio
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import dask.array as da
import numcodecs
import numpy as np
import pytest
import xarray as xr

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.emulated_arrays import EmulatedArray
from gzarr.interop.xarray import GzarrBackendEntrypoint, as_dataarray, open_dataset, to_zarr
from gzarr.storage import CountingStore
from tests.interop.xarray.datasets import ENCODING, IGNORED, climate, opened
from tests.support.building import NO_COMPILERS, build, copy_sources

ROOT = Path(__file__).parents[3]
pytestmark = IGNORED


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def path(request, tmp_path):
    """A dataset written by Xarray with zarr-python, packed into integers."""
    climate().to_zarr(
        tmp_path / "x.zarr", zarr_format=request.param, encoding=ENCODING, consolidated=request.param == 2
    )
    return tmp_path / "x.zarr"


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"mask_and_scale": False}, {"decode_cf": False}, {"decode_times": False}])
def test_the_engine_gives_what_the_engine_zarr_gives(path, options):
    theirs = xr.open_dataset(path, engine="zarr", **options)
    xr.testing.assert_identical(opened(path, **options).load(), theirs.load())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)
        xr.testing.assert_identical(opened("x.zarr", **options).load(), theirs)


def test_gzarr_reads_what_to_zarr_writes(path):
    root = gzarr.open_group(path, "r")
    assert sorted(root) == sorted([*climate().variables])
    packed = root["t"]
    assert (packed.dtype, packed.chunks) == (np.int16, (10, 9, 6))
    assert packed[0, 0, 0] == -9999
    np.testing.assert_array_equal(root["mask"][:], climate()["mask"].values)


def test_open_zarr_reads_what_gzarr_writes(tmp_path, zarr_format):
    root = gzarr.open_group(tmp_path / "x.zarr", "w", zarr_format=zarr_format, attributes={"title": "ours"})
    data = np.arange(60, dtype="f4").reshape(6, 10)
    for name, values, dims in (("t", data, ("y", "x")), ("y", np.arange(6.0), ("y",)), ("x", np.arange(10.0), ("x",))):
        names = {"dimension_names": dims} if zarr_format == 3 else {"attributes": {"_ARRAY_DIMENSIONS": list(dims)}}
        root.create_array(name, data=values, chunks=tuple(min(4, n) for n in values.shape), fill_value=None, **names)
    expected = xr.Dataset({"t": (["y", "x"], data)}, {"y": np.arange(6.0), "x": np.arange(10.0)}, {"title": "ours"})
    theirs = xr.open_zarr(tmp_path / "x.zarr", consolidated=False)
    assert theirs["t"].chunks == ((4, 2), (4, 4, 2))
    xr.testing.assert_identical(theirs.load(), expected)
    ours = opened(tmp_path / "x.zarr")
    xr.testing.assert_identical(ours.load(), expected)
    assert ours["t"].encoding["preferred_chunks"] == {"y": 4, "x": 4}


@pytest.mark.parametrize("write", [xr.Dataset.to_zarr, to_zarr])
def test_what_the_engine_opens_is_stored_again_with_its_codecs_and_fill_values(tmp_path, zarr_format, write):
    names = {"dimension_names": ["x"]} if zarr_format == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["x"]}}
    root = gzarr.open_group(tmp_path / "x.zarr", "w", zarr_format=zarr_format)
    blosc = numcodecs.Blosc("lz4hc", 3, numcodecs.Blosc.BITSHUFFLE)
    made = {
        "ints": {"data": np.arange(9, dtype="i4"), "filters": numcodecs.Delta("<i4"), "fill_value": 7},
        "floats": {"data": np.arange(9.0), "fill_value": -1.0, "chunks": 4},
        "words": {"data": np.array(list("abcdefghi"), object), "dtype": str},
    }
    for name, keywords in made.items():
        root.create_array(name, compressors=blosc, **names, **keywords)
    ours = opened(tmp_path / "x.zarr")
    write(ours, tmp_path / "again.zarr", zarr_format=zarr_format, consolidated=False)
    again = gzarr.open_group(tmp_path / "again.zarr", "r")
    for name, array in root.arrays():
        if name == "words" and zarr_format == 2 and write is not to_zarr:
            continue  # Xarray makes fixed-length text of it
        assert (again[name].codecs, again[name].chunks) == (array.codecs, array.chunks)
        assert again[name].fill_value == array.fill_value
    xr.testing.assert_equal(opened(tmp_path / "again.zarr").load(), ours.load())


def test_an_unknown_codec_does_not_keep_a_dataset_from_being_opened(path):
    document = path / "t" / ".zarray"
    if not document.exists():
        pytest.skip("v3 codecs are opened without their packages")
    text = json.loads(document.read_text())
    text["compressor"] = {"id": "nobody"}
    document.write_text(json.dumps(text))
    assert "compressors" not in opened(path, consolidated=False)["t"].encoding


def test_consolidated_metadata_can_be_required_or_left_out(path):
    gzarr.consolidate_metadata(path)
    store = CountingStore(gzarr.storage.LocalStore(path, read_only=True))
    for consolidated in (None, True, False):
        store.reset()
        opened(store, consolidated=consolidated)
        members = [r.key for r in store.requests if r.key.endswith(("/zarr.json", "/.zarray"))]
        assert bool(members) == (consolidated is False)
    expected = opened(path).load()
    for name in (".zmetadata", "zarr.json"):
        document = path / name
        if document.exists():
            text = json.loads(document.read_text())
            text.pop("consolidated_metadata", None)
            document.unlink() if name == ".zmetadata" else document.write_text(json.dumps(text))
    with pytest.raises(gzarr.MetadataError, match="consolidated"):
        opened(path, consolidated=True)
    with pytest.warns(RuntimeWarning, match="Failed to open Zarr store with consolidated metadata"):
        opened(path)
    xr.testing.assert_identical(open_dataset(path, consolidated=False).load(), expected)


def test_stores_of_every_kind(path, tmp_path):
    expected = opened(path).load()
    group = gzarr.open_group(path, "r")
    memory = gzarr.MemoryStore(dict(group.store))
    with gzarr.ZipStore(tmp_path / "x.zip", "w") as archive:
        for key, value in memory.items():
            archive[key] = value
    for given in (group, group.store, memory, dict(memory), tmp_path / "x.zip", str(tmp_path / "x.zip")):
        found = opened(given)
        xr.testing.assert_identical(found.load(), expected)
        found.close()
    assert group["scalar"][()] == 3  # what the caller opened stays open


@pytest.mark.parametrize("name", ["coads_climatology.nc", "etopo20.nc"])
def test_real_data(name, tmp_path):
    source = ROOT.parent / "shared" / "data" / name
    if not source.exists():
        pytest.skip(f"{source} is not there")
    pytest.importorskip("scipy")  # reads NetCDF 3
    with xr.open_dataset(source, decode_times=False) as given:
        given.load().to_zarr(tmp_path / "x.zarr", consolidated=False)
        xr.testing.assert_identical(opened(tmp_path / "x.zarr", decode_times=False).load(), given)


# -- laziness ------------------------------------------------------------------------------------------------------


def watched(path):
    return CountingStore(gzarr.open_group(path, "r").store)


def chunks_read(store):
    return sorted(r.key for r in store.requests if not r.key.endswith(("json", ".zattrs", ".zgroup", ".zarray")))


def test_only_the_chunks_of_a_selection_are_read(path):
    store = watched(path)
    dataset = opened(store)
    assert not [key for key in chunks_read(store) if key.startswith("t/")]
    store.reset()
    found = dataset["t"].sel(time="2024-06-18", lat=slice(0, 20)).isel(lon=[7, 9])
    assert chunks_read(store) == []
    assert found.shape == (3, 2)
    found.load()
    separator = "." if (path / ".zgroup").exists() else "/"
    assert [key.removeprefix("t/").removeprefix("c/") for key in chunks_read(store) if key.startswith("t/")] == [
        separator.join("201")
    ]


@pytest.mark.parametrize(
    "select",
    [
        lambda a: a.isel(time=3),
        lambda a: a.isel(time=slice(30, 2, -4), lat=-1),
        lambda a: a.isel(time=[5, 1, 1], lon=[3, 2], lat=slice(1, 9, 3)),
        lambda a: a.isel(time=np.arange(40) % 7 == 0),
        lambda a: a.isel(time=xr.DataArray([1, 39, 2], dims="p"), lat=xr.DataArray([0, -1, 2], dims="p")),
        lambda a: a.isel(time=xr.DataArray([[1, 3]], dims=("p", "q")), lat=slice(2, 7, 2), lon=[1, 0]),
        lambda a: a.isel(
            time=xr.DataArray([1, 3], dims="p"), lat=xr.DataArray([2, 3], dims="p"), lon=xr.DataArray([9, 0], dims="p")
        ),
        lambda a: a.isel(time=slice(5, 30)).isel(time=[3, 4]).isel(time=0, lat=[1]),
        lambda a: a.transpose("lon", ...).isel(lon=2),
        lambda a: a.isel(time=[], lat=slice(3, 3)),
        lambda a: a.sel(lat=13.0, method="nearest"),
        lambda a: a.reindex(lat=[10.0, 15.0]),
        lambda a: a.groupby("time.month").mean(),
    ],
)
def test_selections_equal_those_in_memory(path, select):
    expected = opened(path)["t"].load()
    xr.testing.assert_allclose(select(opened(path)["t"]).load(), select(expected))


def test_datasets_say_where_they_come_from(path):
    group = gzarr.open_group(path, "r")
    assert opened(path).encoding["source"] == str(path)
    assert opened(group).encoding["source"] == open_dataset(path).encoding["source"] == str(group.store_path)


def test_drop_variables_and_groups(path):
    dataset = opened(path, drop_variables=["t", "mask"])
    assert {"t", "mask"}.isdisjoint(dataset.variables)
    assert "count" in opened(path, drop_variables="t")
    with pytest.raises(gzarr.GroupNotFoundError, match="nothing"):
        opened(path, group="nothing")
    with pytest.raises(gzarr.GroupNotFoundError, match="missing"):
        opened(path.parent / "missing.zarr")


def test_axes_without_names_are_an_error(tmp_path):
    root = gzarr.open_group(tmp_path / "x.zarr", "w")
    root["plain"] = np.arange(3)
    root.create_array("named", data=np.arange(3), dimension_names=["x"])
    with pytest.raises(gzarr.MetadataError, match=r"plain: Xarray needs.*dimension_names.*drop_variables"):
        opened(tmp_path / "x.zarr")
    assert list(opened(tmp_path / "x.zarr", drop_variables="plain")) == ["named"]


def test_trees_of_groups(tmp_path):
    tree = xr.DataTree.from_dict({"/": climate()[["scalar"]], "/a": climate()[["count"]], "/a/b": climate()[["t"]]})
    tree.to_zarr(tmp_path / "x.zarr", consolidated=False)
    ours = xr.open_datatree(tmp_path / "x.zarr", engine=GzarrBackendEntrypoint)
    xr.testing.assert_identical(
        ours.load(), xr.open_datatree(tmp_path / "x.zarr", engine="zarr", consolidated=False).load()
    )
    assert sorted(xr.open_groups(tmp_path / "x.zarr", engine=GzarrBackendEntrypoint)) == ["/", "/a", "/a/b"]
    below = xr.open_datatree(tmp_path / "x.zarr", engine=GzarrBackendEntrypoint, group="a")
    assert sorted(below.groups) == ["/", "/b"]
    gzarr.consolidate_metadata(tmp_path / "x.zarr")  # of the root, which groups are looked up in
    below = opened(tmp_path / "x.zarr", group="a/b", consolidated=True)
    xr.testing.assert_identical(below.load(), ours["a/b"].to_dataset(inherit=False))


@pytest.mark.parametrize("write", [xr.Dataset.to_zarr, to_zarr])
def test_text_is_numpys_strings_as_of_the_engine_zarr(tmp_path, zarr_format, write):
    text = np.array(["a", "", "é" * 9], np.dtypes.StringDType())
    given = xr.Dataset({"text": ("x", text), "one": ((), text[2]), None: ("x", [1, 2, 3])}, {"x": text[::-1]})
    write(given, tmp_path / "x.zarr", zarr_format=zarr_format)
    for chunks in (None, {}):
        theirs = xr.open_dataset(tmp_path / "x.zarr", engine="zarr", chunks=chunks)
        ours = opened(tmp_path / "x.zarr", chunks=chunks)
        assert {k: v.dtype for k, v in ours.variables.items()} == {k: v.dtype for k, v in theirs.variables.items()}
        xr.testing.assert_identical(ours.load(), theirs.load())
    assert ours["text"].dtype.kind == ("T" if zarr_format == 3 or write is to_zarr else "U")
    gzarr.create_array(
        tmp_path / "x.zarr", name="n", shape=2, dtype=str, zarr_format=2, fill_value=None, overwrite=True
    )
    assert as_dataarray(gzarr.open_array(tmp_path / "x.zarr", path="n")).values.tolist() == ["", ""]


# -- Dask, coroutines, other processes -----------------------------------------------------------------------------


def test_blocks_are_stored_chunks(path):
    dataset = opened(path, chunks={})
    assert isinstance(dataset["t"].data, da.Array)
    assert dataset["t"].chunks == ((10,) * 4, (9,), (6, 6))
    xr.testing.assert_identical(dataset.compute(scheduler="threads"), opened(path).load())


def test_blocks_are_whole_shards(tmp_path):
    z = gzarr.create_array(
        tmp_path / "x.zarr", name="t", data=np.arange(100), chunks=10, shards=50, dimension_names=["x"], fill_value=0
    )
    gzarr.open_group(tmp_path / "x.zarr", "a")
    dataset = opened(tmp_path / "x.zarr", chunks={})
    assert dataset["t"].chunks == ((50, 50),)
    assert open_dataset(tmp_path / "x.zarr", chunks="inner")["t"].chunks == ((10,) * 10,)
    assert dataset["t"].encoding["shards"] == (50,) == z.shards


def test_coroutines_load(path):
    dataset = opened(path, decode_cf=False)  # not every Xarray decodes for coroutines
    asyncio.run(dataset.load_async())
    xr.testing.assert_identical(dataset, opened(path, decode_cf=False).load())


def test_datasets_travel(path):
    import pickle

    xr.testing.assert_identical(pickle.loads(pickle.dumps(opened(path))).load(), opened(path).load())


def test_the_entry_point_is_found_in_an_installed_package(tmp_path):
    path = tmp_path / "x.zarr"
    gzarr.create_array(path, name="t", data=np.arange(9), dimension_names=["x"])
    gzarr.open_group(path, "a")
    wheel = build("wheel", copy_sources(tmp_path / "sources"), tmp_path / "wheel", **NO_COMPILERS)
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    options = "engine='gzarr', consolidated=False"
    code = f"import xarray; print(float(xarray.open_dataset({str(path)!r}, {options})['t'].mean()))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert float(done.stdout) == 4


# -- devices -------------------------------------------------------------------------------------------------------


def test_data_variables_are_on_the_device_and_coordinates_on_the_host(path):
    """No step may make a NumPy array: the device's arrays refuse that, as CuPy's do."""
    dataset = opened(path, device=GpuBackend(EmulatedDevice(arrays="device")))
    assert type(dataset["height"].data) is np.ndarray
    assert dataset["when"].dtype.kind == "M"
    found = dataset["t"].sel(time="2024-06", lat=slice(0, 20)).load()
    assert type(found.data) is EmulatedArray
    expected = opened(path)["t"].sel(time="2024-06", lat=slice(0, 20)).load()
    np.testing.assert_array_equal(found.data.get(), expected.values)
    for indexers in (
        {"time": [3, 1], "lat": [2, 2]},
        {d: xr.DataArray([1, 2], dims="p") for d in ("time", "lat", "lon")},
    ):
        points = dataset["t"].isel(indexers)
        np.testing.assert_array_equal(points.load().data.get(), opened(path)["t"].isel(indexers).values)


def test_open_dataset_is_the_engine(path):
    expected = opened(path).load()
    for chunks in (None, {}, "auto", {"time": 7}):
        found = open_dataset(path, chunks=chunks)
        assert (found["t"].chunks is None) == (chunks is None)
        xr.testing.assert_identical(found.compute(scheduler="sync"), expected)
        found.close()


def test_blocks_on_the_device(path):
    dataset = open_dataset(path, device=GpuBackend(EmulatedDevice(arrays="device")), chunks={"lon": 12})
    lazy = dataset["t"].data
    assert isinstance(lazy, da.Array)
    assert dataset["t"].chunks == ((10,) * 4, (9,), (12,))
    assert type(lazy._meta) is EmulatedArray
    assert type(dataset["height"].data) is np.ndarray
    found = (dataset["t"] - 1).data.compute(scheduler="sync")
    assert type(found) is EmulatedArray
    np.testing.assert_array_equal(found.get(), opened(path)["t"].to_numpy() - 1)


# -- single arrays -------------------------------------------------------------------------------------------------


def test_an_array_as_a_lazy_dataarray():
    z = gzarr.create_array({}, name="a/t", data=np.arange(60).reshape(6, 10), dimension_names=["y", "x"], chunks=2)
    store = CountingStore(z.store)
    array = as_dataarray(gzarr.open_group(store, "r")["a/t"], coords={"y": np.arange(6) * 10})
    assert (array.dims, array.name, array.attrs) == (("y", "x"), "t", {})
    store.reset()
    found = array.sel(y=30).isel(x=slice(2, 4))
    assert store.requests == []
    assert found.to_numpy().tolist() == [32, 33]
    assert [r.key for r in store.requests] == ["a/t/c/1/1"]
    assert as_dataarray(gzarr.zeros((2, 3))).dims == ("dim_0", "dim_1")
    assert as_dataarray(gzarr.zeros((2, 3)), dims=("p", "q")).mean("q").dims == ("p",)
    assert as_dataarray(gzarr.array(3.5)).item() == 3.5


def test_a_consolidated_dataset_is_opened_with_one_read_of_metadata(tmp_path, zarr_format):
    climate().drop_vars("place").to_zarr(tmp_path / "x.zarr", zarr_format=zarr_format, consolidated=False)
    gzarr.consolidate_metadata(tmp_path / "x.zarr")
    store = CountingStore(gzarr.storage.LocalStore(tmp_path / "x.zarr", read_only=True))
    dataset = opened(store, decode_cf=False)
    names = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
    asked = [request.key for request in store.requests if request.key.rpartition("/")[2] in names]
    assert set(asked) <= {"zarr.json", ".zmetadata"}
    assert len(asked) <= 2
    assert store.listed == []
    theirs = xr.open_zarr(tmp_path / "x.zarr", consolidated=False, decode_cf=False, chunks=None)
    xr.testing.assert_identical(dataset.load(), theirs.load())


def test_options_reach_the_server(s3_options):
    pytest.importorskip("obstore")
    expected = climate()[["t", "count"]]
    root = gzarr.open_group("s3://bucket/climate.zarr", "w", storage_options=s3_options)
    for name, variable in expected.variables.items():
        if name in ("t", "count"):
            root.create_array(name, data=variable.values, dimension_names=variable.dims)
    for found in (
        xr.open_dataset("s3://bucket/climate.zarr", engine=GzarrBackendEntrypoint, storage_options=s3_options),
        open_dataset("s3://bucket/climate.zarr", storage_options=s3_options, chunks={}),
        xr.open_datatree("s3://bucket/climate.zarr", engine=GzarrBackendEntrypoint, storage_options=s3_options),
    ):
        assert np.array_equal(found["t"].values, expected["t"].values, equal_nan=True)
