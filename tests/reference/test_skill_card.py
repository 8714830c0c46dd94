"""The skill card for zarr-python 3: its snippets and recipes with local and memory stores, scaled down.

Its snippets for Dask and Xarray are in test_ecosystem, those for S3 in test_tutorial_storage.
"""

import os
import zipfile

import numpy as np
import pytest

import gzarr as zarr
from gzarr.codecs import BytesCodec, GzipCodec, ShardingCodec, ZstdCodec
from gzarr.codecs.blosc import BloscCodec
from gzarr.storage import LocalStore, MemoryStore, ZipStore

RNG = np.random.default_rng(3)


@pytest.mark.usefixtures("zarr_format")
def test_quick_start():
    z = zarr.create_array(store="data/my_array.zarr", shape=(1000, 1000), chunks=(100, 100), dtype="f4")
    z[:, :] = RNG.random((1000, 1000)).astype("f4")
    subset = z[0:100, 0:100]
    assert f"Shape: {subset.shape}, dtype: {subset.dtype}" == "Shape: (100, 100), dtype: float32"


@pytest.mark.usefixtures("zarr_format")
def test_array_creation():
    z = zarr.zeros(shape=(10000, 10000), chunks=(1000, 1000), dtype="f4", store="data.zarr")
    assert (z.shape, z.chunks, z.dtype) == ((10000, 10000), (1000, 1000), np.float32)
    z = zarr.ones((5000, 5000), chunks=(500, 500), dtype="f4")
    assert z[4999, 4999] == 1
    assert z.nchunks_initialized == 0
    z = zarr.full((1000, 1000), fill_value=42, chunks=(100, 100), dtype="i4")
    assert np.all(z[:] == 42)
    assert z.nchunks_initialized == 0
    data = np.arange(10000, dtype="f4").reshape(100, 100)
    z = zarr.array(data, chunks=(10, 10), store="from_numpy.zarr")
    shown = f"Created: shape={z.shape}, chunks={z.chunks}, dtype={z.dtype}"
    assert shown == "Created: shape=(100, 100), chunks=(10, 10), dtype=float32"
    z2 = zarr.zeros_like(z)
    assert (z2.shape, z2.chunks, z2.dtype, z2.zarr_format) == (z.shape, z.chunks, z.dtype, z.zarr_format)
    assert not np.any(z2[:])


@pytest.mark.usefixtures("zarr_format")
def test_opening():
    zarr.zeros(shape=(10, 10), chunks=(5, 5), dtype="f4", store="data.zarr")
    z = zarr.open_array("data.zarr", mode="r+")
    z[0, 0] = 1
    z = zarr.open_array("data.zarr", mode="r")
    assert z[0, 0] == 1
    with pytest.raises(zarr.ReadOnlyError):
        z[0, 0] = 2
    assert isinstance(zarr.open("data.zarr"), zarr.Array)


@pytest.mark.usefixtures("zarr_format")
def test_reading_writing_and_indexing():
    z = zarr.zeros((1000, 1000), chunks=(100, 100), dtype="f4")
    want = np.zeros((1000, 1000), "f4")
    z[0, :] = want[0, :] = np.arange(1000, dtype="f4")
    z[10:20, 50:60] = want[10:20, 50:60] = RNG.random((10, 10))
    assert np.array_equal(z[:], want)
    assert np.array_equal(z.vindex[[0, 5, 10], [2, 8, 55]], want[[0, 5, 10], [2, 8, 55]])
    assert np.array_equal(z.oindex[0:10, [5, 10, 15]], want[0:10][:, [5, 10, 15]])
    assert np.array_equal(z.blocks[0, 0], want[:100, :100])
    z[:] = 42
    row = z[5, :]
    block = z[0:100, 0:100]
    assert f"Row shape: {row.shape}, block shape: {block.shape}" == "Row shape: (1000,), block shape: (100, 100)"


@pytest.mark.usefixtures("zarr_format")
def test_resize_and_append():
    z = zarr.zeros((1000, 1000), chunks=(100, 100), dtype="f4")
    z.resize(1500, 1500)
    assert z.shape == (1500, 1500)
    # The card appends rows of the old width here, which no array of 1500 columns can take.
    with pytest.raises(ValueError, match=r"shape \(100, 1000\).*shape \(1500, 1500\) along axis 0"):
        z.append(RNG.random((100, 1000)).astype("f4"), axis=0)
    assert z.shape == (1500, 1500)
    assert z.append(np.ones((100, 1500), "f4"), axis=0) == (1600, 1500)


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize(("chunks", "nchunks"), [((10, 10000), 1000), ((10000, 10), 1000), ((512, 512), 400)])
def test_chunk_shapes(chunks, nchunks):
    assert zarr.zeros((10000, 10000), chunks=chunks, dtype="f4").nchunks == nchunks


def test_sharding():
    z = zarr.create_array(
        store="sharded.zarr", shape=(100000, 100000), chunks=(100, 100), shards=(1000, 1000), dtype="f4"
    )
    assert z.chunks == (100, 100)
    assert z.shards == (1000, 1000)
    assert isinstance(z.codecs[0], ShardingCodec)
    z[:1000, :1500] = 1
    files = [name for _, _, names in os.walk("sharded.zarr") for name in names]
    assert len(files) == 1 + 2
    assert z[999, 1499] == 1
    assert z[99999, 99999] == 0


@pytest.mark.parametrize(
    ("codecs", "names"),
    [
        ([BloscCodec(cname="zstd", clevel=5, shuffle="shuffle")], ["bytes", "blosc"]),
        ([BloscCodec(cname="lz4", clevel=1)], ["bytes", "blosc"]),
        ([GzipCodec(level=9)], ["bytes", "gzip"]),
        ([ZstdCodec()], ["bytes", "zstd"]),
        ([BytesCodec()], ["bytes"]),
        ([BytesCodec(), BloscCodec()], ["bytes", "blosc"]),
    ],
    ids=str,
)
def test_codecs_need_no_bytes_codec(codecs, names):
    z = zarr.create_array(store="c.zarr", shape=(1000, 1000), chunks=(100, 100), dtype="f4", codecs=codecs)
    assert [codec.name for codec in z.codecs] == names
    data = np.arange(1e6, dtype="f4").reshape(1000, 1000)
    z[:] = data
    assert np.array_equal(zarr.open("c.zarr")[:], data)


def test_gzip_is_no_compressor_of_blosc():
    with pytest.raises(zarr.MetadataError, match=r"'zlib'.*got 'gzip'"):
        BloscCodec(cname="gzip")


@pytest.mark.usefixtures("zarr_format")
def test_storage_backends():
    z = zarr.open_array("data/array.zarr", mode="w", shape=(100, 100), chunks=(10, 10), dtype="f4")
    assert isinstance(z.store, LocalStore)
    store = MemoryStore()
    z = zarr.open_array(store=store, mode="w", shape=(100, 100), chunks=(10, 10), dtype="f4")
    assert z.store is store
    store = ZipStore("data.zip", mode="w")
    z = zarr.open_array(store=store, mode="w", shape=(100, 100), chunks=(10, 10), dtype="f4")
    data = RNG.random((100, 100)).astype("f4")
    z[:] = data
    store.close()
    with ZipStore("data.zip", mode="r") as store:
        assert np.array_equal(zarr.open_array(store, mode="r")[:], data)
    names = zipfile.ZipFile("data.zip").namelist()
    assert len(names) == len(set(names)) == 101


@pytest.mark.usefixtures("zarr_format")
def test_hierarchies():
    root = zarr.group(store="hierarchy.zarr")
    temperature = root.create_group("temperature")
    precipitation = root.create_group("precipitation")
    temperature.create_array(name="t2m", shape=(365, 720, 1440), chunks=(1, 720, 1440), dtype="f4")
    precipitation.create_array(name="prcp", shape=(365, 720, 1440), chunks=(1, 720, 1440), dtype="f4")
    assert root["temperature/t2m"].shape == (365, 720, 1440)
    assert str(root.tree()) == (
        "/\n"
        "├── precipitation\n"
        "│   └── prcp (365, 720, 1440) float32\n"
        "└── temperature\n"
        "    └── t2m (365, 720, 1440) float32"
    )


@pytest.mark.usefixtures("zarr_format")
def test_attributes_and_metadata():
    z = zarr.zeros((1000, 1000), chunks=(100, 100), dtype="f4")
    z.attrs["description"] = "Temperature data in Kelvin"
    z.attrs["units"] = "K"
    z.attrs["processing_version"] = 2.1
    assert z.attrs["units"] == "K"
    root = zarr.group("data.zarr")
    root.attrs["project"] = "Climate Analysis"
    root.attrs["institution"] = "Research Institute"
    assert zarr.open("data.zarr").attrs.asdict() == {
        "project": "Climate Analysis",
        "institution": "Research Institute",
    }


def test_group_over_an_array_is_refused_by_name():
    """The card reuses "data.zarr", which it made an array of, for a group."""
    zarr.zeros(shape=(10,), store="data.zarr")
    with pytest.raises(zarr.ContainsArrayError, match=r"array, not a group.*data\.zarr"):
        zarr.group("data.zarr")


@pytest.mark.usefixtures("zarr_format")
def test_npy_to_zarr():
    np.save("data.npy", np.arange(100.0))
    z = zarr.array(np.load("data.npy"), chunks="auto", store="from_npy.zarr")
    assert z.chunks == (100,)
    assert zarr.open("from_npy.zarr")[:].sum() == 4950


@pytest.mark.usefixtures("zarr_format")
def test_profiling_recipe(capsys):
    zarr.save("data.zarr", np.zeros((100, 1000)) + 1)
    z = zarr.open("data.zarr")
    print(z.info)
    print(f"Compressed: {z.nbytes_stored / 1e6:.2f} MB")
    print(f"Uncompressed: {z.nbytes / 1e6:.2f} MB")
    print(f"Ratio: {z.nbytes / z.nbytes_stored:.1f}x")
    printed = capsys.readouterr().out
    assert "Uncompressed: 0.80 MB" in printed
    for name in ("Type", "Shape", "Chunk shape", "Data type", "Compressor", "No. bytes stored"):
        assert f"\n{name}" in f"\n{printed}"
    assert isinstance(z.nbytes_stored, int)
    assert isinstance(z.nchunks_initialized, int)


@pytest.mark.usefixtures("zarr_format")
def test_time_series_recipe():
    z = zarr.open("timeseries.zarr", mode="a", shape=(0, 18, 36), chunks=(1, 18, 36), dtype="f4")
    steps = RNG.random((365, 1, 18, 36)).astype("f4")
    for step in steps:
        z.append(step, axis=0)
    assert f"Final shape: {z.shape}" == "Final shape: (365, 18, 36)"
    again = zarr.open("timeseries.zarr", mode="a", shape=(0, 18, 36), chunks=(1, 18, 36), dtype="f4")
    assert np.array_equal(again[:], steps[:, 0])


@pytest.mark.usefixtures("zarr_format")
def test_default_dtype():
    assert zarr.create_array(store={}, shape=(10,)).dtype == np.float64
