"""Shards that several tasks of Dask write through zarr-python: corrupted by others, whole with gzarr's pipeline."""

import numpy as np
import pytest

da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr", minversion="3.1")
xr = pytest.importorskip("xarray")
install = pytest.importorskip("gzarr.interop.zarr").install

DATA = np.random.default_rng(42).integers(1, 100, (48, 40, 40))


@pytest.fixture(autouse=True)
def pipeline():
    install()
    yield
    zarr.config.reset()


def dask_12583(path):
    da.from_array(DATA, chunks=(10, 10, 10)).to_zarr(path, shards=(24, 20, 20), chunks=(8, 10, 10))


def zarr_3682(path):
    made = zarr.create_array(path, shape=DATA.shape, dtype=DATA.dtype, chunks=(12, 10, 10), shards=(24, 20, 20))
    da.store(da.from_array(DATA, chunks=(12, 10, 10)), made, lock=False)


def zarr_3514(path):
    made = zarr.create_array(path, shape=DATA.shape, dtype=DATA.dtype, chunks=(8, 4, 5), shards=(24, 20, 40))
    da.from_array(DATA, chunks=(13, 13, 13)).store(made, lock=False)


def xarray_10831(path):
    encoding = {"a": {"shards": (24, 20, 40), "chunks": (8, 10, 10)}}
    data = xr.Dataset({"a": (("t", "y", "x"), da.from_array(DATA, chunks=(13, 13, 13)))})
    data.to_zarr(path, zarr_format=3, encoding=encoding, safe_chunks=False, consolidated=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("write", "scheduler"),
    [(each, "threads") for each in (dask_12583, zarr_3682, zarr_3514, xarray_10831)] + [(dask_12583, "processes")],
)
def test_shards_that_tasks_share_are_whole(tmp_path, write, scheduler, monkeypatch):
    import dask

    monkeypatch.setenv("ZARR_CODEC_PIPELINE__PATH", "gzarr.interop.zarr.CodecPipeline")  # of other processes
    for attempt in range(3 if scheduler == "threads" else 1):
        path = str(tmp_path / f"{attempt}.zarr")
        with dask.config.set(scheduler=scheduler, num_workers=3 if scheduler == "threads" else 2):
            write(path)
        found = zarr.open(path, mode="r")
        np.testing.assert_array_equal((found["a"] if write is xarray_10831 else found)[...], DATA)
