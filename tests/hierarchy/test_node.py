"""User attributes: a mapping that is stored at once, and holds what JSON has."""

import json
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gzarr
from gzarr.errors import MetadataError, NodeNotFoundError, ReadOnlyError


@pytest.fixture(params=["array", "group"])
def node(request, zarr_format):
    root = gzarr.group()
    return root.create_array("n", shape=(3,)) if request.param == "array" else root.create_group("n")


def stored(node):
    return gzarr.open(node.store, path="n").attrs.asdict()


def test_they_are_a_mapping(node):
    attrs = node.attrs
    assert isinstance(attrs, MutableMapping)
    attrs["a"] = 1
    attrs["b"] = [1, 4, 7, 12]
    assert sorted(attrs) == sorted(attrs.keys()) == ["a", "b"]
    assert "a" in attrs
    assert "c" not in attrs
    assert len(attrs) == 2
    assert (attrs["b"], attrs.get("c", 5)) == ([1, 4, 7, 12], 5)
    assert dict(attrs.items()) == {"a": 1, "b": [1, 4, 7, 12]}
    assert attrs.pop("a") == 1
    assert attrs.setdefault("d", {"x": None}) == {"x": None}
    assert stored(node) == {"b": [1, 4, 7, 12], "d": {"x": None}}
    del attrs["b"]
    assert stored(node) == {"d": {"x": None}}
    assert repr(attrs) == "Attributes({'d': {'x': None}})"
    attrs.clear()
    assert stored(node) == {}
    for missing in (lambda: attrs["nope"], lambda: attrs.pop("nope"), lambda: attrs.__delitem__("nope")):
        with pytest.raises(KeyError, match="nope"):
            missing()


def test_put_replaces_and_update_adds(node):
    node.attrs.put({"a": 1, "b": 2})
    node.attrs.put({"c": 3})
    assert stored(node) == {"c": 3}
    node.attrs.update({"d": 4}, e=5)
    node.attrs.update([("f", 6)])
    assert stored(node) == {"c": 3, "d": 4, "e": 5, "f": 6}
    assert node.update_attributes({"g": 7}) is node
    node.attrs = {"h": 8}
    assert stored(node) == {"h": 8}


def test_asdict_is_a_copy(node):
    node.attrs["a"] = 1
    copy = node.attrs.asdict()
    copy["b"] = 2
    assert node.attrs.asdict() == {"a": 1}


def test_numpy_values_become_json(node):
    node.attrs.update(
        f=np.float32(1.5), i=np.int64(4), b=np.bool_(True), s=np.str_("x"), a=np.arange(3), deep={"l": [np.uint8(7)]}
    )
    want = {"f": 1.5, "i": 4, "b": True, "s": "x", "a": [0, 1, 2], "deep": {"l": [7]}}
    assert node.attrs.asdict() == stored(node) == want
    assert type(node.attrs["i"]) is int


def test_what_json_has_not_is_refused_and_changes_nothing(node):
    node.attrs["a"] = 1
    before = dict(node.store)
    with pytest.raises(TypeError, match="Object of type object is not JSON serializable"):
        node.attrs["x"] = object()
    with pytest.raises(TypeError, match="not JSON serializable"):
        node.attrs.update(b=2, x={1, 2})
    with pytest.raises(TypeError, match="not JSON serializable"):
        node.attrs.put({"x": 1j})
    with pytest.raises(TypeError, match="datetime64 is not JSON serializable"):
        node.attrs["x"] = np.datetime64(1, "ns")  # which NumPy makes a number of
    with pytest.raises(TypeError, match="strings, got 1"):
        node.attrs[1] = 2
    assert dict(node.store) == before
    assert node.attrs.asdict() == {"a": 1}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_only_python_writes(node, value):
    node.attrs["x"] = value
    assert np.array_equal(stored(node)["x"], value, equal_nan=True)


def test_text_of_any_language(node):
    node.attrs["größe"] = "Ωμέγα 🜚 \n\"'\\"
    assert stored(node) == {"größe": "Ωμέγα 🜚 \n\"'\\"}


def test_two_handles_never_undo_each_other(node):
    other = gzarr.open(node.store, path="n")
    node.attrs["a"] = 1
    other.attrs["b"] = 2
    assert stored(node) == {"a": 1, "b": 2}
    assert node.attrs.asdict() == {"a": 1}
    node.attrs.refresh()
    assert node.attrs.asdict() == {"a": 1, "b": 2}


def test_threads_never_lose_each_others_attributes(node, tmp_path):
    root = gzarr.group(tmp_path / "x.zarr", zarr_format=node.zarr_format)

    def put(i):
        gzarr.open(tmp_path / "x.zarr").attrs[f"k{i}"] = i

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(40)))
    assert len(gzarr.open(tmp_path / "x.zarr").attrs) == 40
    root.attrs.refresh()
    assert len(root.attrs) == 40


def test_attributes_and_shape_are_changed_apart(zarr_format):
    z = gzarr.zeros((3,), store={})
    other = gzarr.open(z.store)
    z.resize(5)
    other.attrs["a"] = 1
    z.resize(7)
    found = gzarr.open(z.store)
    assert (found.shape, found.attrs.asdict()) == ((7,), {"a": 1})


def test_read_only_and_deleted_nodes(node):
    node.attrs["a"] = 1
    reader = gzarr.open(node.store, path="n", mode="r")
    assert reader.attrs["a"] == 1
    for change in (
        lambda: reader.attrs.__setitem__("a", 2),
        lambda: reader.attrs.__delitem__("a"),
        reader.attrs.clear,
        lambda: reader.attrs.update(a=2),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    del gzarr.open(node.store)["n"]
    with pytest.raises(NodeNotFoundError, match="was deleted"):
        node.attrs["b"] = 1
    assert "n/.zattrs" not in node.store
    assert "n/zarr.json" not in node.store


def test_damaged_attributes_are_named(tmp_path):
    gzarr.zeros(3, store=tmp_path / "x.zarr", zarr_format=2, attributes={"a": 1})
    for text, error in (("{", "not valid JSON"), ("[1]", "JSON object"), ("", "not valid JSON")):
        (tmp_path / "x.zarr" / ".zattrs").write_text(text)
        with pytest.raises(MetadataError, match=rf"x\.zarr: \.zattrs.*{error}"):
            gzarr.open(tmp_path / "x.zarr")


def test_documents_of_format_2(tmp_path):
    z = gzarr.zeros(3, store=tmp_path / "x.zarr", zarr_format=2)
    assert not (tmp_path / "x.zarr" / ".zattrs").exists()
    z.attrs["b"] = 1
    z.attrs["a"] = 2
    text = (tmp_path / "x.zarr" / ".zattrs").read_text()
    assert text == '{\n    "a": 2,\n    "b": 1\n}'
    z.attrs.clear()
    assert not (tmp_path / "x.zarr" / ".zattrs").exists()


def test_documents_of_format_3(tmp_path):
    z = gzarr.zeros(3, store=tmp_path / "x.zarr", attributes={"b": 1})
    z.attrs["a"] = 2
    document = json.loads((tmp_path / "x.zarr" / "zarr.json").read_text())
    assert document["attributes"] == {"b": 1, "a": 2}
    assert document["shape"] == [3]
