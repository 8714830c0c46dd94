"""The skill card's workflows with Dask and Xarray, scaled down: as it writes them, and with gzarr alone.

As written, ``da.from_zarr(path)`` and ``xr.open_zarr(path)`` go through zarr-python, on the files that gzarr writes.
"""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import gzarr as zarr
from gzarr.interop.dask import from_zarr, to_zarr
from gzarr.interop.xarray import GzarrBackendEntrypoint

AS_WRITTEN = (da.from_zarr, da.to_zarr)
WITH_GZARR = (from_zarr, to_zarr)

pytestmark = pytest.mark.filterwarnings("ignore:.*[Cc]onsolidated metadata")


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize("functions", [AS_WRITTEN, WITH_GZARR], ids=["as written", "with gzarr"])
def test_dask_parallel_computation(functions):
    pytest.importorskip("zarr")
    load, store = functions
    z = zarr.open("large_data.zarr", mode="w", shape=(1000, 1000), chunks=(100, 100), dtype="f4")
    z[:] = np.random.default_rng(0).random((1000, 1000))
    dask_arr = load("large_data.zarr")
    assert (
        f"Dask array: {dask_arr.shape}, {dask_arr.npartitions} partitions" == "Dask array: (1000, 1000), 100 partitions"
    )
    col_means = dask_arr.mean(axis=0).compute()
    assert f"Column means: {col_means.shape}" == "Column means: (1000,)"
    np.testing.assert_allclose(col_means, z[:].mean(axis=0), rtol=1e-5)
    large_random = da.random.random((1000, 1000), chunks=(100, 100))
    store(large_random, "output.zarr")
    assert zarr.open("output.zarr", mode="r").chunks == (100, 100)


@pytest.mark.parametrize("functions", [AS_WRITTEN, WITH_GZARR], ids=["as written", "with gzarr"])
def test_parallel_write_recipe(functions):
    pytest.importorskip("zarr")
    load, store = functions
    data = da.random.random((1000, 1000), chunks=(100, 100))
    store(data, "parallel_output.zarr")
    z = load("parallel_output.zarr")
    assert f"Written: {z.shape}, {z.npartitions} partitions" == "Written: (1000, 1000), 100 partitions"


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_xarray_workflow(zarr_format):
    rng = np.random.default_rng(0)
    ds = xr.Dataset(
        {
            "temperature": (["time", "lat", "lon"], rng.random((365, 18, 36)).astype("f4")),
            "precipitation": (["time", "lat", "lon"], rng.random((365, 18, 36)).astype("f4")),
        },
        coords={
            "time": pd.date_range("2024-01-01", periods=365),
            "lat": np.arange(-90, 90, 10.0),
            "lon": np.arange(-180, 180, 10.0),
        },
    )
    ds.to_zarr("climate.zarr", zarr_format=zarr_format)
    assert zarr.open_group("climate.zarr", "r")["temperature"].shape == (365, 18, 36)
    for ds_loaded in (xr.open_zarr("climate.zarr"), xr.open_dataset("climate.zarr", engine=GzarrBackendEntrypoint)):
        subset = ds_loaded.sel(time="2024-06", lat=slice(30, 60))
        assert f"June subset: {subset['temperature'].shape}" == "June subset: (30, 4, 36)"
        xr.testing.assert_identical(ds_loaded.load(), ds)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_to_netcdf(zarr_format):
    pytest.importorskip("netCDF4")
    data = np.arange(12.0).reshape(3, 4)
    xr.Dataset({"t": (["y", "x"], data)}).to_zarr("data.zarr", zarr_format=zarr_format)
    xr.open_zarr("data.zarr").to_netcdf("data.nc", engine="netcdf4")  # as written
    xr.open_dataset("data.zarr", engine=GzarrBackendEntrypoint).to_netcdf("data2.nc", engine="netcdf4")
    zarr.convert.to_netcdf("data.zarr", "data3.nc")
    for path in ("data.nc", "data2.nc", "data3.nc"):
        with xr.open_dataset(path, engine="netcdf4") as written:
            np.testing.assert_array_equal(written["t"], data)


@pytest.mark.usefixtures("zarr_format")
def test_dask_reads_an_open_array_and_stores_into_it():
    z = zarr.zeros((100, 100), chunks=(20, 50), dtype="f4")
    da.store(da.ones((100, 100), chunks=(20, 50), dtype="f4"), z, lock=False)
    assert da.from_array(z).sum().compute() == 10_000
