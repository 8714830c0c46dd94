"""Arrays made by groups, from keywords and from data."""

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsArrayError, ContainsGroupError, ContainsNodeError, MetadataError


def test_assigning_data(root):
    root["n"] = np.arange(6, dtype="i2").reshape(2, 3)
    assert root["n"].dtype == np.int16
    root["n"] = [1.5, 2.5]
    assert root["n"][:].tolist() == [1.5, 2.5]
    root["deep/er/s"] = 42
    assert (root["deep/er/s"].shape, root["deep/er/s"][()]) == ((), 42)
    root["t"] = ["some", "text"]
    assert root["t"][:].tolist() == ["some", "text"]
    with pytest.raises(KeyError, match="not a name"):
        root[""] = 1
    with pytest.raises(ContainsArrayError, match="only groups may have child nodes"):
        root["a/b"] = 1
    assert root["a"].shape == (4, 6)


def test_assigning_an_array_keeps_chunks_codecs_and_attributes(root):
    z = root.create_array(
        "old",
        data=np.arange(24.0).reshape(4, 6),
        chunks=(2, 5),
        compressor=numcodecs.BZ2(3),
        filters=[numcodecs.Delta("f8")],
        fill_value=7,
        order="F",
        attributes={"unit": "K", "list": [1, 2]},
    )
    root["sub/new"] = root["old"]
    new = root["sub/new"]
    assert (new.shape, new.chunks, new.dtype, new.fill_value, new.order) == ((4, 6), (2, 5), z.dtype, 7, "F")
    assert new.codecs == z.codecs
    assert new.attrs.asdict() == {"unit": "K", "list": [1, 2]}
    assert np.array_equal(new[:], z[:])


@pytest.mark.parametrize("kind", ["memory", "local", "zip"])
def test_assigning_across_stores(root, kind, tmp_path):
    place = {"memory": {}, "local": tmp_path / "x.zarr", "zip": tmp_path / "x.zip"}[kind]
    with gzarr.open(place, mode="w") as target:
        target["/data/a"] = root["/a"]
        target["copy"] = root["foo"]
        assert target["data/a"].chunks == (2, 3)
    with gzarr.open(place, mode="r") as target:
        assert np.array_equal(target["data/a"][:], root["a"][:])
        assert sorted(target["copy"]) == ["bar", "x"]
        assert target["copy/bar"].attrs.asdict() == {"unit": "m"}
        assert target["copy/bar/y"][:].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("source", "target"), [(2, 3), (3, 2)])
def test_assigning_across_formats(source, target):
    one = gzarr.group(zarr_format=source)
    two = gzarr.group(zarr_format=target)
    one.create_array("a", data=np.arange(20), chunks=6, compressor=numcodecs.Zstd(3)).attrs["x"] = 1
    two["a"] = one["a"]
    assert two["a"].zarr_format == target
    assert two["a"].chunks == (6,)
    assert two["a"].compressor == numcodecs.Zstd(3)
    assert two["a"].attrs.asdict() == {"x": 1}
    assert two["a"][:].tolist() == list(range(20))
    one["g/b"] = np.arange(3)
    one["g/t"] = ["some", "text"]
    one.create_array("g/text", data=["some", "text"], dtype=str)
    one.create_array("g/f", data=np.arange(6.0).reshape(2, 3), order="F", filters=[numcodecs.Delta("f8")])
    two["g"] = one["g"]
    assert two["g/text"][:].tolist() == two["g/t"][:].tolist() == ["some", "text"]
    assert (two["g/f"].order, two["g/f"][1, 2]) == ("F", 5)
    assert two.zeros_like("z", one["a"]).zarr_format == target
    with pytest.raises(MetadataError, match="leave it out"):
        two.create_array("other", shape=3, zarr_format=source)
    assert "other" not in two
    assert two["g"].zarr_format == two["g/b"].zarr_format == target


def test_assigning_to_itself_loses_nothing(root):
    root["a"] = root["a"]
    assert (root["a"][3, 5], root["a"].chunks) == (23, (2, 3))
    with pytest.raises(ContainsGroupError, match="is a group"):
        root["foo"] = root["foo/x"]
    assert root["foo/x"][:].tolist() == [0, 1, 2, 3, 4]


def test_assigning_a_group_into_itself_is_refused(root):
    with pytest.raises(ContainsNodeError, match="into itself"):
        root["foo/inner"] = root["foo"]
    assert sorted(root["foo"]) == ["bar", "x"]
    with pytest.raises(ContainsNodeError):
        root["foo"] = root["foo"]
    assert sorted(root["foo"]) == ["bar", "x"]


@pytest.mark.parametrize("name", ["require_array", "require_dataset"])
def test_require_array(root, name):
    require = getattr(root, name)
    assert require("a", shape=(4, 6), dtype="i4") == root["a"]
    assert require("a", (4, 6), "i2")[3, 5] == 23
    assert require("a", [4, 6], "i4", exact=True) == root["a"]
    with pytest.raises(TypeError, match=r"has shape \(4, 6\), not \(4, 7\)"):
        require("a", (4, 7), "i4")
    with pytest.raises(TypeError, match=r"dtypes \(float64, int32\) cannot be safely cast"):
        require("a", (4, 6), "f8")
    with pytest.raises(TypeError, match=r"dtypes \(int16, int32\) differ exactly"):
        require("a", (4, 6), "i2", exact=True)
    with pytest.raises(ContainsNodeError, match="a group, not an array"):
        require("foo", (3,), "i4")
    made = require("new/z", shape=(3,), dtype="f4", chunks=2, compressor=None)
    assert (made.chunks, made.compressor, made.dtype) == ((2,), None, np.float32)
    text = require("text", shape=2, dtype=str)
    assert require("text", shape=2, dtype=str) == text


@pytest.mark.parametrize("name", ["create_array", "create_dataset", "create"])
def test_create_array(root, name):
    create = getattr(root, name)
    z = create("z", shape=(3, 4), dtype="i2", chunks=(2, 2), compressor=numcodecs.Zstd(2), fill_value=5)
    assert (z.shape, z.dtype, z.chunks, z.fill_value, z.name) == ((3, 4), np.int16, (2, 2), 5, "/z")
    assert create(name="deep/er", shape=3).name == "/deep/er"
    assert create(name="d", data=np.arange(3)).dtype == np.arange(3).dtype
    with pytest.raises(ContainsArrayError, match="overwrite=True"):
        create("z", shape=3)
    assert create("z", shape=3, overwrite=True).shape == (3,)
    with pytest.raises(TypeError, match="'nope'"):
        create("y", shape=3, nope=1)
    with pytest.raises(MetadataError, match="shape"):
        create("y")
    assert "y" not in root


def test_creation_functions(root, zarr_format):
    assert root.zeros("z", shape=(2, 2), dtype="i4")[:].tolist() == [[0, 0], [0, 0]]
    assert root.ones("o", shape=3, chunks=2)[:].tolist() == [1, 1, 1]
    assert root.full("f", shape=2, fill_value=7)[:].tolist() == [7, 7]
    assert (root.full("f2", 2, 8)[:].tolist(), root.empty("e", shape=2).shape) == ([8, 8], (2,))
    assert root.array("ar", np.arange(3))[:].tolist() == [0, 1, 2]
    for made in (root.zeros_like("zl", root["a"]), root.ones_like("ol", root["a"]), root.empty_like("el", root["a"])):
        assert (made.shape, made.chunks, made.zarr_format) == ((4, 6), (2, 3), zarr_format)
    assert root.full_like("fl", root["a"], 9)[0, 0] == 9
    assert root.full_like("fl2", root["a"], fill_value=9, dtype="f8").dtype == np.float64
