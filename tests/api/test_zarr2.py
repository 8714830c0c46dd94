"""Names, keywords and calls of zarr 2."""

from __future__ import annotations

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
    with pytest.raises(ArrayNotFoundError, match="nothing is there"):
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
