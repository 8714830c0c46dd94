"""The array as users hold it: properties, NumPy's protocols, views, iteration, writing values of every form."""

import gc
import hashlib
import itertools
import operator
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr import codecs
from gzarr.errors import MetadataError, ReadOnlyError, SelectionError
from gzarr.storage import CountingStore
from tests.support.naming import name_of


@pytest.fixture
def z(zarr_format):
    array = gzarr.zeros((5, 7), chunks=(2, 3), dtype="i4", store={}, path="a/b")
    array[:] = np.arange(35).reshape(5, 7)
    return array


WHOLE = np.arange(35, dtype="i4").reshape(5, 7)


# -- what it is --------------------------------------------------------------------------------------------------


def test_properties(z, zarr_format):
    assert (z.shape, z.ndim, z.size, z.dtype, z.itemsize, z.nbytes) == ((5, 7), 2, 35, np.int32, 4, 140)
    assert (z.chunks, z.shards, z.nchunks, z.cdata_shape) == ((2, 3), None, 9, (3, 3))
    assert z.chunk_sizes == ((2, 2, 1), (3, 3, 1))
    assert (z.name, z.path, z.basename, z.read_only, z.order, z.fill_value) == ("/a/b", "a/b", "b", False, "C", 0)
    assert (z.zarr_format, z.device, z.is_view) == (zarr_format, "cpu", False)
    assert z.nchunks_initialized == 9
    assert z.nbytes_stored == sum(len(v) for k, v in z.store.items() if k.startswith("a/b/"))
    assert z.metadata.shape == (5, 7)
    assert z.attrs.asdict() == {}
    assert z.dimension_names is None
    assert repr(z) == str(z) == f"<Array {z.store}/a/b shape=(5, 7) dtype=int32>"


def test_codecs_of_either_format():
    v2 = gzarr.zeros(3, dtype="i4", zarr_format=2, filters=[numcodecs.Delta("i4")], compressor=numcodecs.Zstd(2))
    assert v2.filters == [numcodecs.Delta("i4")]
    assert v2.compressors == (numcodecs.Zstd(2),)
    assert v2.serializer is None
    assert gzarr.zeros(3, zarr_format=2).filters is None
    v3 = gzarr.zeros(3, dtype="i4", compressors=codecs.ZstdCodec(2), serializer=codecs.BytesCodec("big"))
    assert (v3.filters, v3.serializer, v3.compressors) == ((), codecs.BytesCodec("big"), (codecs.ZstdCodec(2),))
    assert v3.codecs == (codecs.BytesCodec("big"), codecs.ZstdCodec(2))


def test_sharded_properties():
    z = gzarr.create_array(shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="i4")
    assert (z.chunks, z.shards, z.nchunks, z.cdata_shape) == ((2, 2), (4, 4), 16, (4, 4))
    assert z.nchunks_initialized == 0
    z[:2, :4] = 1
    assert z.nchunks_initialized == 2
    z[...] = 2
    assert z.nchunks_initialized == 16


def test_placement(z):
    placed = z.placement
    assert {step.device if hasattr(step, "device") else step[1] for step in placed} == {"host"}
    assert repr(placed).startswith("step")


def test_refresh(z):
    other = gzarr.open(z.store, path="a/b")
    other.resize(9, 7)
    other.attrs["x"] = 1
    assert z.shape == (5, 7)
    assert z.refresh() is z
    assert (z.shape, z.attrs["x"]) == ((9, 7), 1)
    del gzarr.open(z.store)["a/b"]
    with pytest.raises(gzarr.ArrayNotFoundError, match="any more"):
        z.refresh()


# -- NumPy protocols ---------------------------------------------------------------------------------------------


def test_as_numpy(z):
    assert type(np.asarray(z)) is np.ndarray
    assert np.array_equal(np.asarray(z), WHOLE)
    assert np.asarray(z, dtype="f8").dtype == np.float64
    assert np.array(z).flags.writeable
    with pytest.raises(ValueError, match="copy"):
        np.asarray(z, copy=False)
    assert np.mean(z) == WHOLE.mean()
    assert np.array_equal(np.sum(z, axis=0), WHOLE.sum(axis=0))
    assert np.array_equal(np.zeros_like(z, dtype=bool), np.zeros((5, 7), bool))
    assert np.array_equal(np.add(z, 1), WHOLE + 1)
    assert np.array_equal(np.concatenate([z, z]), np.concatenate([WHOLE, WHOLE]))
    for name in ("mean", "sum", "reshape", "T"):
        with pytest.raises(AttributeError, match=f"'Array' object has no attribute '{name}'"):
            getattr(z, name)


def test_length_and_iteration(z):
    assert len(z) == 5
    assert [row.tolist() for row in z] == WHOLE.tolist()
    assert [row[0] for row in itertools.islice(z, 2)] == [0, 7]
    assert list(gzarr.zeros(0)) == []
    scalar = gzarr.array(7)
    for call in (len, iter, lambda a: next(iter(a))):
        with pytest.raises(TypeError, match="0-dimensional"):
            call(scalar)


def test_iteration_decodes_each_chunk_once():
    store = CountingStore(gzarr.MemoryStore())
    z = gzarr.array(np.arange(40).reshape(20, 2), chunks=(5, 2), store=store)
    store.reset()
    assert sum(row.sum() for row in z) == 780
    assert len(store.requests) == 4


def test_arrays_of_one_element():
    z = gzarr.array(7)
    assert (int(z), float(z), bool(z), operator.index(int(z))) == (7, 7.0, True, 7)
    assert z[()] == z[...] == 7
    z[()] = 8
    z[...] = 9
    assert int(z) == 9
    two = gzarr.array([5, 0])
    assert (int(gzarr.array([5])), int(two.lazy[0]), float(two.lazy[:1]), bool(two.lazy[1:])) == (5, 5, 5.0, False)
    for array in (two, two.lazy):
        with pytest.raises(TypeError, match="one element"):
            int(array)
        with pytest.raises(ValueError, match="ambiguous"):
            bool(array)


def test_equality(z):
    same = gzarr.open(z.store, path="a/b")
    assert z == same
    assert hash(z) == hash(same)
    assert z != gzarr.open(z.store, path="a/b", mode="r")
    assert z != gzarr.zeros((5, 7), dtype="i4")
    assert z != 3
    assert (z == WHOLE) is False


# -- reading and writing -----------------------------------------------------------------------------------------


def test_reads_give_arrays_of_their_own(z):
    first = z[:]
    first[:] = -1
    assert np.array_equal(z[:], WHOLE)
    row = gzarr.array(np.arange(4), chunks=4, compressor=None)
    taken = row[:]
    taken[0] = 99
    assert row[0] == 0


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (slice(None), np.zeros((4, 7)), ValueError),
        (slice(None), np.zeros((7, 5)), ValueError),
        ((0, slice(None)), np.zeros(6), ValueError),
        ((0, 0), [1, 2], ValueError),
        (slice(None), np.zeros((2, 5, 7)), ValueError),
        ((slice(0, 3), 2), np.zeros((3, 3)), ValueError),
        (slice(None), "text", ValueError),
        (slice(None), object(), TypeError),
        (slice(None), [1, "x"], ValueError),
        (slice(None), np.array([["1"] * 7] * 4 + [["x"] * 7]), ValueError),
        (slice(None), np.array([[1] * 7] * 4 + [[{}] * 7], object), TypeError),
        ((0, 0), 2**40, OverflowError),
        ((0, 0), 1j, TypeError),
        ((9, 0), 1, SelectionError),
        ((0, 0, 0), 1, SelectionError),
        ("field", 1, SelectionError),
    ],
    ids=name_of,
)
def test_values_that_do_not_fit_write_nothing(z, key, value, error):
    before = dict(z.store)
    with pytest.raises(error):
        z[key] = value
    assert dict(z.store) == before


# -- views -------------------------------------------------------------------------------------------------------


def test_astype(z):
    view = z.astype("f4")
    assert (view.dtype, view.shape, view.is_view, view.read_only) == (np.float32, (5, 7), True, True)
    assert view[:].dtype == np.float32
    assert np.array_equal(view[1:3], WHOLE[1:3].astype("f4"))
    assert view.nbytes == 140
    with pytest.raises((MetadataError, ReadOnlyError)):
        view[0, 0] = 1
    z[0, 0] = 77
    assert view[0, 0] == 77


def test_view(z):
    unsigned = z.view(dtype="u4")
    assert unsigned.dtype == np.uint32
    assert unsigned.is_view
    z[0, 0] = -1
    assert unsigned[0, 0] == 2**32 - 1
    assert z.view(dtype="f4")[1, 0] == np.array(7, "i4").view("f4")
    assert (z.view(shape=(3, 7))[:].shape, z.view(fill_value=5).fill_value) == ((3, 7), 5)
    assert z.view(read_only=True).read_only
    with pytest.raises(MetadataError, match="4 bytes"):
        z.view(dtype="i8")
    with pytest.raises(MetadataError, match="chunks"):
        z.view(chunks=(1, 1))
    assert gzarr.open(z.store, path="a/b").dtype == np.int32


def test_digest(z):
    assert z.hexdigest() == z.digest().hex()
    assert (len(z.digest()), len(z.digest("sha256"))) == (hashlib.sha1().digest_size, 32)
    before = z.hexdigest()
    z[0, 0] = 99
    changed = z.hexdigest()
    assert changed != before
    z[0, 0] = 0
    assert z.hexdigest() == before
    z.attrs["x"] = 1
    assert z.hexdigest() != before
    moved = gzarr.group()
    moved["elsewhere"] = gzarr.open(z.store, path="a/b")
    assert moved["elsewhere"].hexdigest() == z.hexdigest()


def test_to_a_device(z):
    assert z.to("cpu") == z
    with pytest.raises(gzarr.DeviceError):
        z.to("cuda:77")


def test_keywords_of_zarr_python_are_taken():
    z = gzarr.zeros((4, 4), chunks=2, shards=4, dtype="i4")
    mask = np.eye(4, dtype=bool)
    z.set_mask_selection(mask=mask, value=5, prototype=None)
    assert z.get_mask_selection(mask=mask, prototype=None).tolist() == [5, 5, 5, 5]
    assert z.get_basic_selection((0, 0), prototype=None) == 5
    assert (z.read_chunk_sizes, z.write_chunk_sizes) == (((2, 2), (2, 2)), ((4,), (4,)))
    assert z.update_attributes(new_attributes={"k": 1}).attrs["k"] == 1
    z.resize(new_shape=(3, 4))
    assert z.shape == (3, 4)


def test_an_array_comes_from_its_document():
    z = gzarr.array([[1, 2], [3, 4]], chunks=1, attributes={"k": 1})
    for data in (z.metadata, z.metadata.to_dict()):
        assert gzarr.Array.from_dict(z.store_path, data)[...].tolist() == [[1, 2], [3, 4]]
    assert gzarr.Array.open(z.store_path) == gzarr.Array.open(z.store_path, zarr_format=3) == z
    with pytest.raises(MetadataError, match="expected the metadata of an array"):
        gzarr.Array.from_dict({}, gzarr.group().metadata)
    with pytest.raises(gzarr.ArrayNotFoundError):
        gzarr.Array.open({})


def test_an_array_with_a_known_document_is_prepared_when_it_is_first_used(tmp_path: Path) -> None:
    for name, n in {"a": 7, "b": 3}.items():  # their documents differ in shape only
        # Documents that no other test has read, as those are cached with what was made of them then.
        attributes = {"of": str(tmp_path)}
        gzarr.create_array(tmp_path / name, data=range(1, n + 1), chunks=2, device="cpu", attributes=attributes)
    assert gzarr.open_array(tmp_path / "a", "r", device="cpu")[1] == 2
    array = gzarr.open_array(tmp_path / "b", "r+", device="cpu")
    assert array._bound is None
    with ThreadPoolExecutor(4) as pool:  # some use it, some put another array in its place
        reads = [pool.submit(array.__getitem__, slice(3)) for _ in range(4)]
        array.resize(5)
        assert all(read.result().tolist() == [1, 2, 3] for read in reads)
    assert array[...].tolist() == [1, 2, 3, 0, 0]


def test_a_mapping_that_holds_its_array_is_freed() -> None:
    class Holder(dict[str, bytes]):
        array: gzarr.Array

    holder = Holder()
    holder.array = gzarr.create_array(holder, shape=4, chunks=2, dtype="i4", device="cpu")
    holder.array[...] = 1
    assert holder.array[0] == 1
    freed = weakref.ref(holder)
    del holder
    gc.collect()
    assert freed() is None


# -- groups ------------------------------------------------------------------------------------------------------------


def test_info(root, zarr_format):
    assert repr(root["foo"].info) == (
        "Name        : /foo\n"
        "Type        : gzarr.Group\n"
        f"Zarr format : {zarr_format}\n"
        "Read-only   : False\n"
        "Store type  : gzarr.storage.MemoryStore\n"
        "No. members : 2\n"
        "No. arrays  : 1\n"
        "No. groups  : 1\n"
        "Arrays      : x\n"
        "Groups      : bar"
    )
    assert repr(root.info_complete()) == repr(root.info)
    assert root.info._repr_html_().startswith("<table>")
