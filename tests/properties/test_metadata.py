"""Metadata that gzarr writes are read back as they were, and written again in the same bytes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.metadata.documents import change_attributes, documents, read_node
from gzarr.metadata.model import ArrayMeta, NodeMeta
from gzarr.storage import MemoryStore
from tests.metadata.strategies import array_metas, attributes, group_metas

# NumPy 2.5 and newer
pytestmark = pytest.mark.filterwarnings("ignore:The 'generic' unit for NumPy timedelta is deprecated")


def same_fill(a: ArrayMeta, b: ArrayMeta) -> bool:
    """Whether two fill values are equal bit for bit."""
    if a.fill_value is None or b.fill_value is None or a.data_type.variable:
        return type(a.fill_value) is type(b.fill_value) and a.fill_value == b.fill_value
    dtype = a.data_type.dtype
    return np.asarray(a.fill_value, dtype).tobytes() == np.asarray(b.fill_value, dtype).tobytes()


def check(meta: NodeMeta, path: str) -> None:
    written = documents(meta, path)
    store = MemoryStore(dict(written))
    read = read_node(store, path)
    assert read is not None
    assert documents(read, path) == written
    if isinstance(meta, ArrayMeta):
        assert isinstance(read, ArrayMeta)
        for field in ("shape", "grid", "keys", "codecs", "attributes", "dimension_names", "zarr_format", "extra"):
            assert getattr(read, field) == getattr(meta, field), field
        if meta.zarr_format == 2:
            assert read.data_type == meta.data_type
        assert same_fill(read, meta)
    else:
        assert read == meta


@pytest.mark.parametrize("zarr_format", [2, 3])
@given(data=st.data())
def test_arrays(zarr_format: int, data: st.DataObject) -> None:
    check(data.draw(array_metas(zarr_format)), data.draw(st.sampled_from(["", "a", "a/b.c"])))


@pytest.mark.parametrize("zarr_format", [2, 3])
@given(data=st.data())
def test_groups(zarr_format: int, data: st.DataObject) -> None:
    check(data.draw(group_metas(zarr_format)), data.draw(st.sampled_from(["", "a", "a/b.c"])))


@pytest.mark.parametrize("zarr_format", [2, 3])
@given(data=st.data())
def test_a_change_of_attributes_changes_nothing_else(zarr_format: int, data: st.DataObject) -> None:
    meta = data.draw(array_metas(zarr_format) | group_metas(zarr_format))
    store = MemoryStore(dict(documents(meta, "a")))
    before = {key: store[key] for key in store}
    read = read_node(store, "a")
    assert read is not None
    changed = type(read)(**{**{f: getattr(read, f) for f in read.__slots__}, "attributes": data.draw(attributes)})
    change_attributes(store, "a", changed.zarr_format, lambda _: changed.attributes)
    if zarr_format == 2:
        assert {k: store[k] for k in store if ".zattrs" not in k} == {
            k: v for k, v in before.items() if ".zattrs" not in k
        }
    else:
        old, new = json.loads(before["a/zarr.json"]), json.loads(store["a/zarr.json"])
        assert new.pop("attributes") == dict(changed.attributes)
        old.pop("attributes")
        assert list(new.items()) == list(old.items())


@given(values=attributes)
def test_attributes_come_back_equal_through_the_api(values: dict) -> None:
    for zarr_format in (2, 3):
        store: dict = {}
        group = gzarr.create_group(store, zarr_format=zarr_format)
        group.attrs.update(values)
        assert gzarr.open_group(store, "r").attrs.asdict() == values


def test_documents_are_the_bytes_that_they_have_always_been() -> None:
    """A change here changes every hash, digest and diff of stored metadata: decide it, do not let it happen."""
    store: dict = {}
    options = {"shape": (4, 6), "chunks": (2, 3), "dtype": "<f4", "fill_value": float("nan"), "attributes": {"é": [1]}}
    gzarr.create_array(store, name="two", zarr_format=2, compressor=None, order="F", **options)
    two = {"chunks": [2, 3], "compressor": None, "dtype": "<f4", "fill_value": "NaN", "filters": None, "order": "F"}
    two |= {"shape": [4, 6], "zarr_format": 2}
    assert store["two/.zarray"].decode() == json.dumps(two, indent=4)
    assert store["two/.zattrs"].decode() == json.dumps(options["attributes"], indent=4)
    store.clear()
    gzarr.create_array(store, name="three", zarr_format=3, compressors=None, dimension_names=["y", None], **options)
    assert json.loads(store["zarr.json"]) == {"zarr_format": 3, "node_type": "group", "attributes": {}}
    three = {"zarr_format": 3, "node_type": "array", "shape": [4, 6], "data_type": "float32"}
    three["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [2, 3]}}
    three["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "/"}}
    three |= {"fill_value": "NaN", "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}
    three |= {"attributes": options["attributes"], "dimension_names": ["y", None]}
    assert store["three/zarr.json"].decode() == json.dumps(three, indent=2)
