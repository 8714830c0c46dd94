"""The blog post on saving NumPy arrays: its code, with its (1000, 1000, 100) array scaled down to (100, 100, 20).

It was written for zarr 2: what it shows of files and default codecs is checked with format 2 as the default.
"""

from pathlib import Path

import numpy as np
import pytest
from numcodecs import Blosc

import gzarr as zarr

SHAPE = (100, 100, 20)  # instead of (1000, 1000, 100)


def files(path):
    return sorted(file.name for file in Path(path).iterdir())


@pytest.fixture
def array_3d():
    return np.random.default_rng(1).random(SHAPE)


@pytest.fixture
def array_2d():
    return np.random.default_rng(2).random((100, 100))


@pytest.mark.usefixtures("zarr_format")
def test_convenient_save_and_load(array_3d):
    assert zarr.save("convenient.zarr", array_3d) is None
    loaded = zarr.load("convenient.zarr")
    assert type(loaded) is np.ndarray
    assert np.array_equal(loaded, array_3d)


@pytest.mark.usefixtures("zarr_format")
def test_open_write_and_open_again(array_3d):
    out = zarr.open("out.zarr", mode="w", shape=array_3d.shape, chunks=(100, 100, 1), dtype=array_3d.dtype)
    out[:] = array_3d
    z = zarr.open("out.zarr")
    assert type(z) is zarr.Array
    assert type(z[:]) is np.ndarray
    assert z.shape == SHAPE
    assert z[:, :, 10].mean() == array_3d[:, :, 10].mean()
    z[:, :, 10] = np.ones(SHAPE[:2])
    assert z[:, :, 10].mean() == 1.0
    assert zarr.open("out.zarr")[:, :, 10].mean() == 1.0


@pytest.mark.usefixtures("zarr_format")
def test_only_the_chunks_touched_are_read(array_3d):
    counted = zarr.storage.CountingStore(zarr.MemoryStore())
    z = zarr.array(array_3d, chunks=(100, 100, 1), store=counted)
    counted.reset()
    z[:, :, 10].mean()
    assert len(counted.requests) == 1


@pytest.mark.usefixtures("zarr_format")
def test_an_array_is_no_ndarray(array_3d):
    z = zarr.array(array_3d)
    with pytest.raises(AttributeError, match="'Array' object has no attribute 'mean'"):
        z.mean()
    assert z[:].mean() == array_3d.mean()
    assert np.mean(z) == array_3d.mean()


@pytest.mark.usefixtures("zarr_format")
def test_several_arrays_in_one_file(array_2d, array_3d):
    root = zarr.open("several.zarr", mode="w")
    root.create_dataset("array_3D", data=array_3d)
    root.create_dataset("array_2D", data=array_2d)
    assert type(root) is zarr.Group
    assert type(root["array_3D"]) is zarr.Array
    assert np.array_equal(root["array_2D"][:], array_2d)


@pytest.mark.usefixtures("format_2")
def test_info(array_3d):
    z = zarr.open("out.zarr", mode="w", shape=array_3d.shape, chunks=(100, 100, 1), dtype=array_3d.dtype)
    z[:] = array_3d
    text = str(z.info).splitlines()
    assert text[:11] == [
        "Type               : gzarr.Array",
        "Zarr format        : 2",
        "Data type          : float64",
        "Shape              : (100, 100, 20)",
        "Chunk shape        : (100, 100, 1)",
        "Order              : C",
        "Read-only          : False",
        "Compressor         : Blosc(cname='lz4', clevel=5, shuffle=SHUFFLE, blocksize=0)",
        "Store type         : gzarr.storage.LocalStore",
        "No. bytes          : 1600000 (1.5M)",
        f"No. bytes stored   : {z.nbytes_stored} ({z.nbytes_stored / 2**20:.1f}M)",
    ]
    assert text[11].startswith("Storage ratio      : 1.")
    assert text[12:] == ["Chunks initialized : 20/20"]


@pytest.mark.usefixtures("format_2")
def test_a_file_for_every_chunk(array_3d):
    z = zarr.open("out.zarr", mode="w", shape=array_3d.shape, chunks=(100, 100, 1), dtype=array_3d.dtype)
    z[:] = array_3d
    assert files("out.zarr") == sorted([".zarray", *(f"0.0.{i}" for i in range(20))])
    big = zarr.open("big.zarr", mode="w", shape=array_3d.shape, chunks=SHAPE, dtype=array_3d.dtype)
    big[:] = array_3d
    assert files("big.zarr") == [".zarray", "0.0.0"]


@pytest.mark.usefixtures("zarr_format")
def test_integers_compress_better_than_floats(array_3d):
    compressor = Blosc(cname="zstd", clevel=5, shuffle=Blosc.BITSHUFFLE)
    array_int = np.random.default_rng(1).integers(low=1, high=10, size=SHAPE, dtype="int64")
    ratios = []
    for name, data in (("floats", array_3d), ("ints", array_int)):
        z = zarr.open(
            f"{name}.zarr", mode="w", shape=SHAPE, chunks=(100, 100, 1), dtype=data.dtype, compressor=compressor
        )
        z[:] = data
        assert np.array_equal(z[:], data)
        assert "zstd" in repr(z.info)
        ratios.append(z.nbytes / z.nbytes_stored)
    assert ratios[0] == pytest.approx(1.2, abs=0.1)  # printed: 1.2
    assert ratios[1] > 13  # printed: 16.3, of chunks that are a hundred times larger


@pytest.fixture
def hierarchy(array_2d, array_3d):
    root = zarr.open("groups.zarr", mode="w")
    root.create_dataset("array_3D", data=array_3d)
    root.create_dataset("array_2D", data=array_2d)
    root.create_group("group_1")
    root["group_1"].create_dataset("array_1D_1", data=np.arange(1000))
    root.create_dataset("group_2/array_1D_2", data=np.arange(100))
    root.create_dataset("group_2/array_1D_3", data=np.arange(10))
    return root


@pytest.mark.usefixtures("zarr_format")
def test_hierarchy(request):
    root = request.getfixturevalue("hierarchy")
    assert str(root.tree()) == (
        "/\n"
        "├── array_2D (100, 100) float64\n"
        "├── array_3D (100, 100, 20) float64\n"
        "├── group_1\n"
        "│   └── array_1D_1 (1000,) int64\n"
        "└── group_2\n"
        "    ├── array_1D_2 (100,) int64\n"
        "    └── array_1D_3 (10,) int64"
    )
    through_root = zarr.open("groups.zarr", mode="r")["group_1/array_1D_1"]
    direct = zarr.open("groups.zarr/group_1/array_1D_1", mode="r")
    assert through_root.read_only
    assert direct.read_only
    assert np.array_equal(through_root[:], direct[:])
    assert direct.shape == (1000,)


@pytest.mark.usefixtures("zarr_format")
def test_attributes(request):
    root = request.getfixturevalue("hierarchy")
    root.attrs["author"] = "Pixel Tracker"
    root.attrs["date"] = "Oct 13, 2022"
    root.attrs["description"] = "A Zarr file containing some NumPy arrays"
    root["group_1"].attrs["description"] = "A test sub-group"
    root["group_1/array_1D_1"].attrs["description"] = "A test array"
    assert [f"{key}: {root.attrs[key]}" for key in root.attrs.keys()] == [  # noqa: SIM118 - as the post has it
        "author: Pixel Tracker",
        "date: Oct 13, 2022",
        "description: A Zarr file containing some NumPy arrays",
    ]
    assert root["group_1"].attrs["description"] == "A test sub-group"
    assert root["group_1/array_1D_1"].attrs["description"] == "A test array"
    assert zarr.open("groups.zarr/group_1/array_1D_1").attrs["description"] == "A test array"


@pytest.mark.usefixtures("format_2")
def test_attributes_are_human_readable(request):
    root = request.getfixturevalue("hierarchy")
    root.attrs["author"] = "Pixel Tracker"
    root.attrs["date"] = "Oct 13, 2022"
    root.attrs["description"] = "A Zarr file containing some NumPy arrays"
    assert Path("groups.zarr/.zattrs").read_text() == (
        "{\n"
        '    "author": "Pixel Tracker",\n'
        '    "date": "Oct 13, 2022",\n'
        '    "description": "A Zarr file containing some NumPy arrays"\n'
        "}"
    )
    assert Path("groups.zarr/.zgroup").read_text() == '{\n    "zarr_format": 2\n}'


@pytest.mark.usefixtures("format_2")
def test_metadata_is_human_readable():
    root = zarr.open("full_size.zarr", mode="w")
    root.create_dataset("array_3D", shape=(1000, 1000, 100), dtype="f8", fill_value=0)
    assert Path("full_size.zarr/array_3D/.zarray").read_text() == (
        "{\n"
        '    "chunks": [\n'
        "        125,\n"
        "        125,\n"
        "        13\n"
        "    ],\n"
        '    "compressor": {\n'
        '        "blocksize": 0,\n'
        '        "clevel": 5,\n'
        '        "cname": "lz4",\n'
        '        "id": "blosc",\n'
        '        "shuffle": 1\n'
        "    },\n"
        '    "dtype": "<f8",\n'
        '    "fill_value": 0.0,\n'
        '    "filters": null,\n'
        '    "order": "C",\n'
        '    "shape": [\n'
        "        1000,\n"
        "        1000,\n"
        "        100\n"
        "    ],\n"
        '    "zarr_format": 2\n'
        "}"
    )


def test_the_cloud_array_in_memory():
    """The array on S3, as a copy of its objects; test_tutorial_storage has it on a server."""
    zarr.config.set(default_zarr_format=2)
    mapping = {}
    made = zarr.group(store=mapping).create_dataset("foo/bar/baz", shape=21, chunks=7, dtype="S1")
    made[:] = np.frombuffer(b"Hello from the cloud!", dtype="S1")
    z = zarr.group(store=mapping)["foo/bar/baz"]
    assert repr(z).endswith("/foo/bar/baz shape=(21,) dtype=|S1>")
    text = repr(z.info).splitlines()
    assert text[0] == "Name               : /foo/bar/baz"
    assert text[3] == "Data type          : |S1"
    assert "No. bytes          : 21" in text
    assert "Storage ratio      : 0.1" in text
    assert "Chunks initialized : 3/3" in text
    assert z[:].tobytes() == b"Hello from the cloud!"
