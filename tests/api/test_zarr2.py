"""Names, keywords and calls of zarr 2."""

from collections.abc import Iterator, KeysView
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArrayNotFoundError, ContainsArrayError, GroupNotFoundError, MetadataError, ReadOnlyError
from gzarr.hierarchy.attributes import Attributes


def test_calling_array_opens_the_array_in_a_store() -> None:
    store: dict[str, bytes] = {}
    gzarr.array(np.arange(4), store=store, path="foo", chunks=2, zarr_version=2)
    z = gzarr.Array(store, path="foo", read_only=True, cache_metadata=True, synchronizer=gzarr.ThreadSynchronizer())
    assert (z.zarr_format, z.name, z[1:].tolist()) == (2, "/foo", [1, 2, 3])
    with pytest.raises(ReadOnlyError):
        z[0] = 1
    with pytest.raises(ArrayNotFoundError, match="it does not exist"):
        gzarr.Array(store, path="bar")
    with pytest.raises(ArrayNotFoundError, match="not of v3"):
        gzarr.Array(store, path="foo", zarr_version=3)
    with pytest.raises(TypeError, match="did you mean 'read_only'"):
        gzarr.Array(store, path="foo", readonly=True)  # type: ignore[call-arg]


def test_calling_group_opens_the_group_in_a_store() -> None:
    store: dict[str, bytes] = {}
    gzarr.group(store).create_group("foo").zeros("bar", shape=3)
    assert list(gzarr.Group(store)) == ["foo"]
    assert gzarr.Group(store, path="foo", read_only=True)["bar"].read_only
    with pytest.raises(GroupNotFoundError):
        gzarr.Group(store, path="nothing")
    with pytest.raises(ContainsArrayError):
        gzarr.Group(store, path="foo/bar")


def test_zarr_version_means_zarr_format() -> None:
    assert gzarr.zeros(3, zarr_version=2).zarr_format == 2
    assert gzarr.open_group({}, zarr_version=2).zarr_format == 2
    assert gzarr.open({}, "w", shape=3, zarr_version=2).zarr_format == 2
    with pytest.raises(MetadataError, match="mean the same"):
        gzarr.zeros(3, zarr_version=2, zarr_format=3)


def test_arrays_are_made_read_only() -> None:
    z = gzarr.array([1, 2], read_only=True)
    assert z.read_only
    assert z[...].tolist() == [1, 2]
    assert not gzarr.zeros(3, read_only=False).read_only


class KeysAndValues:
    """What zarr 2 calls a store at least: no MutableMapping, no length."""

    def __init__(self) -> None:
        self.inner: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.inner)

    def keys(self) -> KeysView[str]:
        return self.inner.keys()

    def __getitem__(self, key: str) -> Any:
        return self.inner[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.inner[key] = value

    def __delitem__(self, key: str) -> None:
        del self.inner[key]


def test_a_class_with_the_methods_of_a_mapping_is_a_store() -> None:
    mapping = KeysAndValues()
    root = gzarr.group(mapping)
    root["a"] = [1, 2]
    assert len(root.store) == len(mapping.inner)
    assert gzarr.open(gzarr.KVStore(mapping), "r")["a"][...].tolist() == [1, 2]
    del root["a"]
    assert "a" not in root


def test_attributes_of_a_document_by_itself() -> None:
    store: dict[str, bytes] = {}
    attributes = Attributes(store, key="foo/.zattrs", synchronizer=gzarr.ThreadSynchronizer())
    assert dict(attributes) == {}
    attributes.update(a=1, b=2)
    del attributes["a"]
    attributes["c"] = [np.float32(1.5)]
    assert dict(Attributes(store, "foo/.zattrs")) == attributes.asdict() == {"b": 2, "c": [1.5]}
    uncached = Attributes(store, "foo/.zattrs", cache=False)
    attributes.put({"d": 4})
    assert uncached["d"] == 4
    with pytest.raises(ReadOnlyError, match="opened read-only"):
        Attributes(store, "foo/.zattrs", read_only=True)["e"] = 5


def test_attributes_are_read_each_time_if_they_are_not_cached() -> None:
    store: dict[str, bytes] = {}
    z = gzarr.zeros(3, store=store, path="a", cache_attrs=False)
    member = gzarr.open_group(store, cache_attrs=False)["a"]
    gzarr.Array(store, path="a").attrs["unit"] = "m"
    assert z.attrs["unit"] == member.attrs["unit"] == "m"
    assert (z.attrs.key, z.attrs.read_only, z.attrs.cache) == ("a/zarr.json", False, False)


def test_keywords_of_h5py() -> None:
    root = gzarr.group(zarr_format=2)
    z = root.create_dataset("a", shape=100, compression="zlib", compression_opts=9, fillvalue=42)
    assert (z.compressor, z.fill_value) == (gzarr.Zlib(9), 42)  # type: ignore[attr-defined]
    assert root.create_dataset("b", shape=3, compression=4).compressor.level == 4
    assert root.create_dataset("c", shape=3, compression="blosc", compression_opts={"cname": "zstd"}).compressor
    assert root.create("e", shape=3, compression="blosc", compression_opts=("zstd", 1, 2)).compressor.cname == "zstd"
    assert gzarr.create(3, compression="none").compressor is None
    with pytest.warns(UserWarning, match="ignoring keyword argument 'shuffle'"):
        root.create_dataset("d", shape=3, shuffle=True, track_times=False)
    with pytest.warns(UserWarning, match="ignoring keyword argument 'compression'"):
        assert gzarr.create(3, compressor=None, compression="gzip").compressor is None
    with pytest.raises(MetadataError, match="goes with compression="):
        gzarr.zeros(3, compression_opts=3)
    with pytest.raises(MetadataError, match="'lzf' is not known"):
        gzarr.zeros(3, compression="lzf")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("keyword", ["compressor", "compressors"])
def test_compressors_by_name(zarr_format: Any, keyword: str) -> None:
    def compressor(text: str) -> Any:
        options: dict[str, Any] = {keyword: text}
        return gzarr.zeros(3, zarr_format=zarr_format, **options).compressor

    assert compressor("zstd:3").level == 3
    assert (compressor("blosc-lz4").cname, compressor("blosc-zstd:7").clevel) == ("lz4", 7)
    assert compressor("none") is None
    with pytest.raises(MetadataError, match="'zstd:high'"):
        compressor("zstd:high")
    with pytest.raises(MetadataError, match="'zstdd:3' is not known"):
        compressor("zstdd:3")


def test_save_stores_no_array_of_a_keyword() -> None:
    store: dict[str, bytes] = {}
    gzarr.save(store, a=np.zeros((4, 6)), b=[[1, 2]], chunks=(1, 2), compressor="zstd:3", zarr_version=2)
    root = gzarr.open_group(store)
    assert sorted(root) == ["a", "b"]
    assert (root["a"].chunks, root["a"].compressor.level, root.zarr_format) == ((1, 2), 3, 2)
    gzarr.save(store, order=[1, 2], chunks=np.arange(3))
    assert sorted(gzarr.open_group(store)) == ["chunks", "order"]
    gzarr.save(store, [1, 2, 3, 4], chunks=[2])
    assert gzarr.open_array(store).chunks == (2,)


def test_arrays_without_axes_and_at_the_root() -> None:
    z = gzarr.zeros((), zarr_format=2, compressor="zstd")
    assert (z.cdata_shape, z.nchunks, z.compressor, z.name, z.basename) == ((1,), 1, None, None, None)
    z = gzarr.zeros((), zarr_format=3)
    assert (z.cdata_shape, z.nchunks, z.name, z.basename) == ((), 1, "/", "")


def test_elements_that_are_arrays_of_one_shape_and_fill_values_from_memory() -> None:
    z = gzarr.zeros(100, dtype=np.dtype("(2, 2)f4"), chunks=(10,))
    assert (z.shape, z.chunks, z.dtype) == ((100, 2, 2), (10, 2, 2), np.dtype("f4"))
    assert gzarr.zeros((), dtype="(2, 2)f4").shape == (2, 2)
    dtype = np.dtype([("a", "<i4"), ("b", "S2")])
    assert gzarr.full(3, dtype=dtype, fill_value=b"").fill_value == np.zeros((), dtype)
    assert gzarr.full(3, dtype=dtype, fill_value=b"\x01\0\0\0x").fill_value.tolist() == (1, b"x")


def test_what_zarr_2_warns_of() -> None:
    with pytest.warns(UserWarning, match=r"(?s)object_codec=JSON.* is ignored: it is for dtype=object, not int32"):
        gzarr.zeros(3, dtype="i4", object_codec=gzarr.JSON(), zarr_format=2)  # type: ignore[attr-defined]


def test_writing_can_be_forbidden_and_allowed() -> None:
    z = gzarr.zeros(3, read_only=True)
    z.read_only = False
    z[:] = 42
    z.read_only = True
    with pytest.raises(ReadOnlyError):
        z[0] = 1
    reader = gzarr.Array(gzarr.MemoryStore(z.store, read_only=True))
    reader.read_only = False
    with pytest.raises(ReadOnlyError):
        reader[0] = 1


def test_a_missing_node_is_a_value_error_too() -> None:
    for function in (gzarr.open, gzarr.open_array, gzarr.open_group):
        with pytest.raises(ValueError, match="it does not exist"):
            function({}, mode="r")  # type: ignore[operator]


def test_an_ellipsis_gives_an_array_even_without_axes() -> None:
    z = gzarr.array(42)
    assert isinstance(z[...], np.ndarray)
    assert isinstance(z.get_basic_selection(), np.ndarray)
    assert (z[...].shape, z[()]) == ((), 42)
    assert not isinstance(z[()], np.ndarray)
    z[...] = 43
    assert z[...] == 43
    text = gzarr.array("abc", dtype=str)
    assert text[...].item() == text[()] == "abc"


def test_moving_what_is_not_there_raises_the_errors_of_both_libraries() -> None:
    for kind in (KeyError, ValueError):
        with pytest.raises(kind, match="'a' is not in"):
            gzarr.group().move("a", "b")


def test_no_fields_are_all_fields() -> None:
    a = np.array([(b"aaa", 1), (b"bbb", 2)], [("foo", "S3"), ("bar", "<i4")])
    z = gzarr.array(a)
    assert z.get_basic_selection(slice(0, 1), fields=[]).tolist() == [(b"aaa", 1)]
    z.set_basic_selection(..., a[::-1], fields=[])
    assert z[...].tolist() == a[::-1].tolist()
    with pytest.raises(IndexError, match="a name or a list of names"):
        z.get_basic_selection(..., fields=slice(None))  # type: ignore[arg-type]


def test_arrays_like_a_list_and_like_nothing_with_a_fill_value() -> None:
    assert gzarr.ones_like([0] * 10, shape=20)[...].tolist() == [1] * 20
    with pytest.raises(TypeError, match="fill_value is missing"):
        gzarr.full_like(np.zeros(3))
