"""Creating arrays: what each keyword means, in the style of zarr 2 and of zarr-python 3, for both formats."""

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr import codecs
from gzarr.errors import MetadataError
from tests.support.naming import name_of

# -- data types --------------------------------------------------------------------------------------------------


def test_objects_that_equal_the_fill_value_but_are_not_it():
    z = gzarr.zeros(4, dtype=object, object_codec=numcodecs.JSON(), zarr_format=2, chunks=2)
    z[:] = [False, False, 0.0, 0]
    assert [(item, type(item)) for item in z[:]] == [(False, bool), (False, bool), (0.0, float), (0, int)]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_objects_without_a_codec_are_refused_before_anything_is_written(zarr_format):
    store = {}
    with pytest.raises(ValueError, match="object"):
        gzarr.array(np.array([{}, 1], object), dtype=object, store=store, zarr_format=zarr_format)
    with pytest.raises(MetadataError, match=r"pickle|Python objects"):
        gzarr.empty(3, dtype=object, object_codec=numcodecs.Pickle(), store=store, zarr_format=zarr_format)
    assert store == {}


# -- fill values -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
def test_fill_values():
    assert gzarr.full(3, 7, dtype="i4")[:].tolist() == [7, 7, 7]
    assert np.isnan(gzarr.full(3, np.nan, dtype="f4")[:]).all()
    assert gzarr.ones(3, dtype=bool)[:].tolist() == [True] * 3
    assert gzarr.full((2,), fill_value="x", dtype="U1")[:].tolist() == ["x", "x"]
    with pytest.raises(MetadataError, match="fill_value"):
        gzarr.full(3, "seven", dtype="i4")
    with pytest.raises(MetadataError, match="fill_value"):
        gzarr.full(3, 300, dtype="u1")


def test_undefined_fill_value():
    assert gzarr.empty(3, zarr_format=2).fill_value is None
    assert gzarr.empty(3, zarr_format=3).fill_value == 0


# -- codecs ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize(
    "given",
    [
        codecs.ZstdCodec(level=5),
        [codecs.ZstdCodec(level=5)],
        {"name": "zstd", "configuration": {"level": 5}},
        {"id": "zstd", "level": 5},
        numcodecs.Zstd(5),
        [numcodecs.Zstd(5)],
    ],
    ids=repr,
)
def test_forms_of_a_compressor(given):
    for keyword in ("compressor", "compressors"):
        assert gzarr.zeros(10, **{keyword: given}).compressor == numcodecs.Zstd(5)


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize("nothing", [{"compressor": None}, {"compressors": None}, {"compressors": []}], ids=repr)
def test_no_compressor(nothing):
    z = gzarr.array(np.arange(1000, dtype="i4"), chunks=1000, **nothing)
    assert z.compressor is None
    assert z.compressors == ()
    assert max(map(len, z.store.values())) == 4000


@pytest.mark.usefixtures("zarr_format")
def test_defaults_by_name():
    z = gzarr.create((10,), compressor="default")
    assert z.compressor == gzarr.zeros(10).compressor
    assert gzarr.create_array(shape=10, compressors="auto", filters="auto").compressor == z.compressor


def test_more_than_one_compressor_needs_format_3():
    two = [codecs.GzipCodec(1), codecs.ZstdCodec(1)]
    z = gzarr.array(np.arange(10), compressors=two)
    assert z.compressors == tuple(two)
    assert z[:].tolist() == list(range(10))
    with pytest.raises(TypeError, match="several compressors"):
        z.compressor
    with pytest.raises(MetadataError, match="one compressor, got 2; give all but the last in filters="):
        gzarr.zeros(10, compressors=two, zarr_format=2)


def test_codecs_are_the_whole_chain():
    z = gzarr.create_array(shape=10, dtype="i4", codecs=[codecs.BloscCodec(cname="lz4", clevel=1)])
    assert [c.name for c in z.codecs] == ["bytes", "blosc"]
    z = gzarr.create_array(shape=(4, 6), dtype=">i4", codecs=[codecs.TransposeCodec((1, 0)), codecs.Crc32cCodec()])
    assert [c.name for c in z.codecs] == ["transpose", "bytes", "crc32c"]
    assert z.serializer == codecs.BytesCodec("big")
    with pytest.raises(MetadataError, match="zarr_format=3"):
        gzarr.create_array(shape=10, codecs=[codecs.BytesCodec()], zarr_format=2)


@pytest.mark.parametrize(
    "bad",
    [
        {"compressor": numcodecs.Delta("i4"), "zarr_format": 2},
        {"compressor": 7},
        {"compressor": {"level": 3}},
        {"compressors": {"name": "nobody-knows"}},
        {"filters": [{"id": 3}]},
        {"codecs": [{"name": "bytes", "configuration": {"endian": "middle"}}]},
        {"codecs": [codecs.ZstdCodec(), codecs.BytesCodec()]},
        {"compressor": numcodecs.Zstd(), "compressors": numcodecs.Zstd()},
        {"order": "K"},
        {"zarr_format": 4},
        {"dimension_separator": ":"},
        {"chunk_key_encoding": {"name": "other"}},
        {"dimension_names": ["x"]},
        {"dimension_names": ["x", 3]},
        {"dimension_names": ["x", "y"], "zarr_format": 2},
        {"shards": (3, 3), "chunks": (2, 2)},
        {"shards": (4, 4), "chunks": (2, 2), "zarr_format": 2},
        {"fill_value": "x"},
        {"dtype": "no-such-type"},
        {"chunks": (0, 1)},
        {"synchronizer": object()},
    ],
    ids=name_of,
)
def test_bad_keywords_write_nothing_and_delete_nothing(bad):
    store = {}
    gzarr.array(np.arange(6).reshape(2, 3), store=store, path="a")
    before = dict(store)
    for overwrite in (False, True):
        for path in ("a", "b"):
            with pytest.raises((MetadataError, TypeError)):
                gzarr.create_array(store, **{"shape": (4, 4), "name": path, "overwrite": overwrite, **bad})
            assert store == before
    with pytest.raises((MetadataError, TypeError)):
        gzarr.open_array(store, mode="w", path="a", **{"shape": (4, 4), **bad})
    assert store == before


# -- keys, names, order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "key"),
    [
        ({"zarr_format": 2}, "1.2"),
        ({"zarr_format": 2, "dimension_separator": "/"}, "1/2"),
        ({}, "c/1/2"),
        ({"dimension_separator": "."}, "c.1.2"),
        ({"chunk_key_encoding": "v2"}, "1.2"),
        ({"chunk_key_encoding": {"name": "v2", "separator": "/"}}, "1/2"),
        ({"chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}}, "c.1.2"),
    ],
    ids=repr,
)
def test_chunk_keys(keywords, key):
    store = {}
    z = gzarr.zeros((4, 6), chunks=2, dtype="i4", store=store, **keywords)
    z[2:, 4:] = 1
    assert key in store
    assert gzarr.open(store)[3, 5] == 1
    assert z.nchunks_initialized == 1


def test_dimension_names_and_attributes_at_creation():
    store = {}
    gzarr.create_array(store, shape=(2, 3), dimension_names=["y", None], attributes={"unit": "K", "n": np.int64(3)})
    z = gzarr.open(store)
    assert z.dimension_names == ("y", None)
    assert z.attrs.asdict() == {"unit": "K", "n": 3}
    store = {}
    gzarr.create_array(store, shape=(2, 3), zarr_format=2, attributes={"unit": "K"})
    assert gzarr.open(store).attrs["unit"] == "K"
    with pytest.raises(TypeError, match="not JSON serializable"):
        gzarr.create_array(store, shape=3, attributes={"x": object()}, overwrite=True)
    assert gzarr.open(store).shape == (2, 3)


# -- like, from data, overwrite ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
def test_like_takes_shape_chunks_dtype_and_codecs():
    codecs = {"compressor": numcodecs.BZ2(3), "filters": [numcodecs.Delta("i2")]}
    z = gzarr.array(np.arange(24, dtype="i2").reshape(4, 6), chunks=(2, 3), **codecs)
    arrays = [gzarr.zeros_like(z), gzarr.ones_like(z), gzarr.full_like(z, fill_value=5), gzarr.empty_like(z)]
    for made, value in zip(arrays, (0, 1, 5, 0), strict=True):
        assert (made.shape, made.chunks, made.dtype) == (z.shape, z.chunks, z.dtype)
        assert (made.codecs, made.zarr_format) == (z.codecs, z.zarr_format)
        assert np.all(made[:] == value)
    other = gzarr.zeros_like(z, dtype="f8", chunks=(4, 6), shape=(8, 6))
    assert (other.shape, other.chunks, other.dtype) == ((8, 6), (4, 6), np.float64)
    assert gzarr.zeros_like(np.ones((3, 4), "u2")).dtype == np.uint16
    uncompressed = gzarr.zeros_like(z, compressor=None)
    assert uncompressed.compressor is None
    assert uncompressed.filters == z.filters
    unfiltered = gzarr.zeros_like(z, filters=None)
    assert unfiltered.compressor == numcodecs.BZ2(3)
    assert not unfiltered.filters


def test_like_keeps_shards_names_and_keys():
    how = {"shards": {"shape": (4, 4), "index_location": "start"}, "chunk_key_encoding": "v2"}
    z = gzarr.create_array(shape=(8, 8), chunks=(2, 2), dtype="i4", dimension_names=["a", "b"], **how)
    made = gzarr.zeros_like(z)
    assert made.metadata == z.metadata
    made[:] = 3
    assert np.all(made[:] == 3)


@pytest.mark.parametrize(("source", "target"), [(2, 3), (3, 2)])
def test_like_into_the_other_format(source, target):
    z = gzarr.array(np.arange(12.0).reshape(3, 4), chunks=(2, 2), zarr_format=source)
    made = gzarr.array(z, zarr_format=target)
    assert made.zarr_format == target
    assert made.chunks == (2, 2)
    assert np.array_equal(made[:], z[:])
    assert gzarr.zeros_like(z, zarr_format=target).chunks == (2, 2)
    assert np.array_equal(gzarr.from_array(data=z, zarr_format=target)[:], z[:])


@pytest.mark.usefixtures("zarr_format")
def test_from_data():
    assert gzarr.array([[1, 2], [3, 4]]).shape == (2, 2)
    assert (gzarr.array(range(5))[:].tolist(), gzarr.array(7)[()]) == ([0, 1, 2, 3, 4], 7)
    assert gzarr.array(np.arange(4), dtype="f4").dtype == np.float32
    assert gzarr.create_array(data=np.ones((2, 2)))[1, 1] == 1
    assert gzarr.create_array(shape=(2, 3), data=5, dtype="i4")[:].tolist() == [[5] * 3] * 2
    z = gzarr.array(np.arange(10), chunks=3)
    assert gzarr.array(z).chunks == (3,)
    assert gzarr.array(z, chunks=5)[:].tolist() == list(range(10))
    assert gzarr.array(["2007-07-13", "2006-01-13"], dtype="M8[D]")[0] == np.datetime64("2007-07-13")


@pytest.mark.usefixtures("zarr_format")
def test_data_that_does_not_fit_writes_and_deletes_nothing():
    store = {}
    gzarr.array(np.arange(3), store=store)
    before = dict(store)
    for data, keywords in (
        (np.arange(6), {"shape": (4,)}),
        (np.array(["1", "x"]), {"dtype": "i4"}),
        (np.array([1, "x"], object), {"dtype": "f8"}),
        (["x"], {"dtype": "i4"}),
    ):
        with pytest.raises((ValueError, TypeError)):
            gzarr.array(data, store=store, overwrite=True, **keywords)
        assert store == before


def test_device():
    assert gzarr.zeros(3, device="cpu").device == "cpu"
    with pytest.raises(gzarr.DeviceError):
        gzarr.zeros(3, device="cuda:99", store=(store := {}))
    with pytest.raises(gzarr.DeviceError):
        gzarr.zeros(3, device="toaster", store=store)
    assert store == {}


def test_write_data_false_takes_only_shape_and_dtype_from_the_data() -> None:
    made = gzarr.from_array(data=np.arange(6, dtype="i2").reshape(2, 3), write_data=False)
    assert (made.shape, made.dtype, made.nchunks_initialized) == ((2, 3), np.dtype("i2"), 0)
    assert gzarr.from_array(data=np.arange(3), write_data=True)[:].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="write_dat"):
        gzarr.zeros(3, write_dat=False)


def test_the_modes_of_zarr_python_create_an_array():
    store = gzarr.MemoryStore()
    gzarr.create(3, store=store, mode="w-")
    for mode in ("a", "r+", "w-", "x"):
        with pytest.raises(gzarr.ContainsArrayError):
            gzarr.create(4, store=store, mode=mode)
    with pytest.raises(gzarr.ContainsArrayError):
        gzarr.zeros(4, store=store, mode="w-", overwrite=True)
    assert gzarr.zeros(4, store=store, mode="w").shape == gzarr.zeros(4, store=store, overwrite=True).shape == (4,)
    with pytest.raises(ValueError, match=r"mode must be .*got 'r'"):
        gzarr.create(3, mode="r")
    with pytest.raises(gzarr.ContainsArrayError):
        gzarr.save_array(store, [1], mode="w-")


def test_empty_like_keeps_the_fill_value():
    assert gzarr.empty_like(gzarr.full(3, 7, zarr_format=2)).fill_value == 7
    assert gzarr.group(zarr_format=2).empty_like("a", gzarr.full(3, 7)).fill_value == 7
    assert gzarr.empty_like(gzarr.zeros(3, zarr_format=2), zarr_format=None).zarr_format == 2


def test_an_array_is_opened_like_another_in_a_store():
    store = gzarr.MemoryStore()
    z = gzarr.open_like(gzarr.zeros(3, chunks=2), path="a/b", store=store)
    assert (z.path, z.chunks) == ("a/b", (2,))
    assert gzarr.open_like(gzarr.zeros(5), "a/b", store=store) == z


def test_chunk_shape_means_chunks():
    assert gzarr.create(8, chunk_shape=2).chunks == gzarr.zeros(8, chunk_shape=(2,)).chunks == (2,)
    assert gzarr.create(8, 4, chunk_shape=2).chunks == (4,)


def test_another_dtype_keeps_a_fill_value_that_it_has():
    template = gzarr.full(3, 7, dtype="i4")
    assert gzarr.full_like(template, dtype="f8").fill_value == 7
    assert gzarr.full_like(gzarr.full(3, 300, dtype="i4"), dtype="u1").fill_value == 0
    assert gzarr.full_like(template, dtype=str).fill_value == ""
    assert np.isnan(gzarr.full_like(gzarr.full(3, np.nan), dtype="f4").fill_value)
