"""The zarr 2 tutorial, section by section: its calls in its order, and what it says they print.

Arrays of 10000 x 10000 are scaled down; everything else is as printed there. The tutorial predates NumPy 2, so printed
arrays are compared in NumPy's legacy style.
"""

import lzma

import numpy as np
import pytest
from numcodecs import LZMA, Blosc, Zstd, blosc

import gzarr as zarr

N = 2000  # instead of 10000
CHUNK = 200  # instead of 1000


@pytest.fixture(autouse=True)
def _legacy_printing():
    with np.printoptions(legacy="1.13"):
        yield


def lines(report):
    """A printed report as {name: value}, continuation lines joined."""
    found = {}
    name = None
    for line in repr(report).splitlines():
        label, _, value = line.partition(" : ")
        name = label.strip() or name
        found[name] = f"{found[name]} {value}" if name in found else value
    return found


def arange_2d(dtype="i4"):
    return np.arange(N * N, dtype=dtype).reshape(N, N)


# -- compressors and filters -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("format_2")
def test_info_of_a_compressed_array():
    compressor = Blosc(cname="zstd", clevel=3, shuffle=Blosc.BITSHUFFLE)
    z = zarr.array(arange_2d(), chunks=(CHUNK, CHUNK), compressor=compressor)
    text = repr(z.info)
    assert text.splitlines()[:10] == [
        "Type               : gzarr.Array",
        "Zarr format        : 2",
        "Data type          : int32",
        "Shape              : (2000, 2000)",
        "Chunk shape        : (200, 200)",
        "Order              : C",
        "Read-only          : False",
        "Compressor         : Blosc(cname='zstd', clevel=3, shuffle=BITSHUFFLE,",
        "                   : blocksize=0)",
        "Store type         : gzarr.storage.MemoryStore",
    ]
    assert text.splitlines()[10] == "No. bytes          : 16000000 (15.3M)"
    assert text.splitlines()[11].startswith("No. bytes stored   : ")
    assert text.splitlines()[13] == "Chunks initialized : 100/100"
    assert float(lines(z.info)["Storage ratio"]) > 40
    assert len(text.splitlines()) == 14


@pytest.mark.usefixtures("format_2")
def test_default_compressor_of_format_2():
    z = zarr.zeros((100, 100), chunks=(10, 10))
    assert repr(z.compressor) == "Blosc(cname='lz4', clevel=5, shuffle=SHUFFLE, blocksize=0)"


def test_default_compressor_of_format_3():
    z = zarr.zeros((100, 100), chunks=(10, 10))
    assert repr(z.compressor) == "Zstd(level=0)"
    assert z.compressors == (zarr.codecs.ZstdCodec(level=0),)


def test_lzma_with_a_filter_pipeline(zarr_format):
    lzma_filters = [{"id": lzma.FILTER_DELTA, "dist": 4}, {"id": lzma.FILTER_LZMA2, "preset": 1}]
    data = np.arange(10000, dtype="i4").reshape(100, 100)
    z = zarr.array(data, chunks=(50, 50), compressor=LZMA(filters=lzma_filters), store="lzma.zarr")
    assert np.array_equal(z[:], data)
    again = zarr.open("lzma.zarr", mode="r")
    assert repr(again.compressor) == repr(z.compressor)
    assert np.array_equal(again[:], data)
    # Format 2 sorts the fields of its documents, which is how the tutorial came to print "dist" first.
    delta = {2: "{'dist': 4, 'id': 3}", 3: "{'id': 3, 'dist': 4}"}[zarr_format]
    assert repr(z.compressor) == (
        f"LZMA(format=1, check=-1, preset=None, filters=[{delta}, {{'id': 33, 'preset': 1}}])"
    )


@pytest.mark.usefixtures("zarr_format")
def test_changing_the_default_compressor(monkeypatch):
    monkeypatch.setattr(zarr.storage, "default_compressor", Zstd(level=1))
    z = zarr.zeros(100000000, chunks=1000000)
    assert repr(z.compressor) == "Zstd(level=1)"
    monkeypatch.setattr(zarr.storage, "default_compressor", Blosc())
    assert repr(zarr.zeros(100, chunks=10).compressor) == ("Blosc(cname='lz4', clevel=5, shuffle=SHUFFLE, blocksize=0)")


# -- groups ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
def test_groups():
    root = zarr.group()
    assert repr(root).startswith("<Group memory://")
    foo = root.create_group("foo")
    bar = foo.create_group("bar")
    z1 = bar.zeros("baz", shape=(10000, 10000), chunks=(1000, 1000), dtype="i4")
    assert repr(z1).endswith("/foo/bar/baz shape=(10000, 10000) dtype=int32>")
    z = bar.create_dataset("quux", shape=(10000, 10000), chunks=(1000, 1000), dtype="i4")
    assert z.name == "/foo/bar/quux"
    assert (root.name, foo.name, bar.name) == ("/", "/foo", "/foo/bar")
    assert root["foo"] == foo
    assert root["foo/bar"] == bar
    assert root["foo/bar/baz"] == z1
    assert repr(root["foo/bar"]).endswith("/foo/bar>")
    assert repr(root.tree()) == (
        "/\n└── foo\n    └── bar\n        ├── baz (10000, 10000) int32\n        └── quux (10000, 10000) int32"
    )


# -- diagnostics -------------------------------------------------------------------------------------------------


@pytest.fixture
def sample():
    root = zarr.group()
    foo = root.create_group("foo")
    foo.zeros("bar", shape=1000000, chunks=100000, dtype="i8")[:] = 42
    foo.zeros("baz", shape=(1000, 1000), chunks=(100, 100), dtype="f4")[:] = 4.2
    return root


@pytest.mark.usefixtures("format_2")
def test_group_info(request):
    root = request.getfixturevalue("sample")
    assert repr(root.info) == (
        "Name        : /\n"
        "Type        : gzarr.Group\n"
        "Zarr format : 2\n"
        "Read-only   : False\n"
        "Store type  : gzarr.storage.MemoryStore\n"
        "No. members : 1\n"
        "No. arrays  : 0\n"
        "No. groups  : 1\n"
        "Groups      : foo"
    )
    assert repr(root["foo"].info) == (
        "Name        : /foo\n"
        "Type        : gzarr.Group\n"
        "Zarr format : 2\n"
        "Read-only   : False\n"
        "Store type  : gzarr.storage.MemoryStore\n"
        "No. members : 2\n"
        "No. arrays  : 2\n"
        "No. groups  : 0\n"
        "Arrays      : bar, baz"
    )


@pytest.mark.usefixtures("zarr_format")
def test_tree(request):
    root = request.getfixturevalue("sample")
    shown = "/\n└── foo\n    ├── bar (1000000,) int64\n    └── baz (1000, 1000) float32"
    assert repr(root.tree()) == shown
    assert str(root.tree()) == shown
    assert repr(zarr.tree(root)) == shown
    assert repr(root["foo"].tree()) == "foo\n├── bar (1000000,) int64\n└── baz (1000, 1000) float32"
    assert repr(root.tree(level=1)) == "/\n└── foo"


# -- advanced indexing -------------------------------------------------------------------------------------------


@pytest.fixture
def rows():
    return zarr.array(np.arange(15).reshape(3, 5))


@pytest.mark.usefixtures("zarr_format")
def test_fields_of_structured_arrays():
    a = np.array(
        [(b"aaa", 1, 4.2), (b"bbb", 2, 8.4), (b"ccc", 3, 12.6)], dtype=[("foo", "S3"), ("bar", "i4"), ("baz", "f8")]
    )
    z = zarr.array(a)
    assert repr(z["foo"]) == "array([b'aaa', b'bbb', b'ccc'],\n      dtype='|S3')"
    assert repr(z["baz"]) == "array([  4.2,   8.4,  12.6])"
    assert repr(z.get_basic_selection(slice(0, 2), fields="bar")) == "array([1, 2], dtype=int32)"
    assert repr(z.get_coordinate_selection([0, 2], fields=["foo", "baz"])) == (
        "array([(b'aaa',   4.2), (b'ccc',  12.6)],\n      dtype=[('foo', 'S3'), ('baz', '<f8')])"
    )
    z["bar"] = [7, 8, 9]
    a["bar"] = [7, 8, 9]
    assert np.array_equal(z[:], a)
    z.set_basic_selection(slice(0, 1), 5.5, fields="baz")
    a["baz"][0] = 5.5
    assert np.array_equal(z[:], a)


@pytest.mark.usefixtures("zarr_format")
def test_configuring_blosc(monkeypatch):
    before = blosc.set_nthreads(2)
    data = np.arange(100_000)
    try:
        for use_threads in (True, False, None):
            monkeypatch.setattr(blosc, "use_threads", use_threads)
            z = zarr.array(data, chunks=10_000, compressor=zarr.Blosc(cname="lz4"))
            assert np.array_equal(z[:], data)
    finally:
        assert blosc.set_nthreads(before) == 2


# -- what the tutorial does not show, and programs lean on ---------------------------------------------------------


@pytest.fixture
def z(zarr_format):
    return zarr.array(np.arange(60).reshape(10, 6), chunks=(3, 4), store="z.zarr")


def test_keywords_that_change_nothing(z):
    again = zarr.open_array("z.zarr", mode="r", cache_metadata=False, cache_attrs=False, partial_decompress=True)
    assert again[9, 5] == 59
    assert zarr.zeros(3, meta_array=np.empty(())).meta_array.shape == ()


def test_metadata_key_of_consolidated_metadata():
    g = zarr.group("c.zarr", zarr_format=2)
    g["a"] = np.arange(3)
    zarr.consolidate_metadata("c.zarr", metadata_key=".other")
    assert zarr.open_consolidated("c.zarr", metadata_key=".other")["a"][2] == 2
