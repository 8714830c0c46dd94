"""The skill card's snippets on consolidated metadata."""

import numpy as np

import gzarr as zarr
from gzarr.storage import CountingStore, MemoryStore


def test_consolidated_metadata(zarr_format):
    root = zarr.group("data.zarr")
    root.attrs["project"] = "Climate Analysis"
    for n in range(12):
        root.create_array(f"a{n}", shape=(10,), dtype="f4")
    zarr.consolidate_metadata("data.zarr")
    root = zarr.open_consolidated("data.zarr")  # Single metadata read
    assert root.attrs["project"] == "Climate Analysis"
    assert len(list(root.arrays())) == 12


def test_consolidated_metadata_of_an_array(zarr_format):
    z = zarr.open_array("data/array.zarr", mode="w", shape=(1000, 1000), chunks=(500, 500), dtype="f4")
    z[:] = np.random.default_rng(0).random((1000, 1000)).astype("f4")
    zarr.consolidate_metadata("data/array.zarr")
    assert zarr.open_consolidated("data/array.zarr").shape == (1000, 1000)


def test_cloud_native_data_pipeline(zarr_format):
    store = MemoryStore()
    root = zarr.group(store=store)
    data_arr = root.create_array(name="measurements", shape=(10000, 10000), chunks=(500, 500), dtype="f4")
    data_arr[:500] = 1
    data_arr.attrs["experiment"] = "batch_42"
    zarr.consolidate_metadata(store)
    store_read = CountingStore(store)
    root_read = zarr.open_consolidated(store_read)
    subset = root_read["measurements"][0:100, 0:100]
    assert f"Read subset: {subset.shape}" == "Read subset: (100, 100)"
    assert store_read.nbatches == (2 if zarr_format == 3 else 3)  # the metadata (zarr.json is asked for first), a chunk
