"""Groups: a mapping of names to nodes, with the names that h5py, zarr 2 and zarr-python 3 have for its calls."""

from collections.abc import MutableMapping

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsArrayError, ContainsGroupError, ContainsNodeError, MetadataError, ReadOnlyError


@pytest.fixture
def root(zarr_format):
    g = gzarr.group()
    g.create_array("a", shape=(4, 6), chunks=(2, 3), dtype="i4")[:] = np.arange(24).reshape(4, 6)
    g.create_array("foo/x", data=np.arange(5))
    g.create_group("foo/bar", attributes={"unit": "m"})
    g["foo/bar/y"] = np.arange(3)
    return g


# -- paths -------------------------------------------------------------------------------------------------------


def test_access_by_path(root):
    assert root["foo/bar"] == root["foo"]["bar"] == root["/foo/bar/"] == root["foo//bar"]
    assert root["foo"]["/a"] == root["a"]
    assert root["foo/bar/y"][:].tolist() == [0, 1, 2]
    assert root["/"] == root
    assert (root["foo/bar"].name, root["foo/bar"].path, root["foo/bar"].basename) == ("/foo/bar", "foo/bar", "bar")
    with pytest.raises(KeyError, match=r"'foo/nope' is not in memory://\d+"):
        root["foo/nope"]
    with pytest.raises(KeyError):
        root["a/b"]
    with pytest.raises(TypeError, match="strings"):
        root[3]
    with pytest.raises(MetadataError, match="periods"):
        root["foo/.."]
    assert root.get("nope") is None
    assert root.get("nope", 7) == 7
    assert root.foo.bar.y[2] == 2
    with pytest.raises(AttributeError, match="'nope'"):
        root.nope
    assert "foo" in dir(root)


def test_membership(root):
    assert "foo" in root
    assert "foo/bar/y" in root
    assert "/foo" in root["foo"]
    assert "nope" not in root
    assert "a/0.0" not in root
    assert 3 not in root


# -- mapping -----------------------------------------------------------------------------------------------------


def test_mapping(root):
    assert isinstance(root, MutableMapping)
    assert list(root) == list(root.keys()) == ["a", "foo"]
    assert len(root) == 2
    assert [type(node) for node in root.values()] == [gzarr.Array, gzarr.Group]
    assert dict(root.items()) == {"a": root["a"], "foo": root["foo"]}
    assert bool(gzarr.group())
    popped = root.pop("a")
    assert popped.shape == (4, 6)
    assert "a" not in root
    assert root.pop("a", None) is None
    with pytest.raises(KeyError):
        root.pop("a")
    root.update(b=np.arange(2), c=np.arange(3))
    assert sorted(root) == ["b", "c", "foo"]
    assert root.setdefault("b", 5).shape == (2,)
    root.clear()
    assert list(root) == []
    assert list(gzarr.open(root.store)) == []


def test_names_in_a_directory_are_listed_without_reading_a_document(root, tmp_path, monkeypatch):
    gzarr.copy_store(root.store, gzarr.LocalStore(tmp_path))
    (tmp_path / "nothing").mkdir()
    (tmp_path / "a" / "below").mkdir()
    opened = gzarr.open_group(tmp_path, mode="r", use_consolidated=False)
    seen = gzarr.storage.synchronized(gzarr.storage.read_only(gzarr.LocalStore(tmp_path)), gzarr.ThreadSynchronizer())
    view = gzarr.open_group(seen, mode="r", use_consolidated=False)
    monkeypatch.setattr(gzarr.LocalStore, "get_one", None)
    monkeypatch.setattr(gzarr.LocalStore, "get_many", None)
    for group in (opened, view):
        assert list(group) == ["a", "foo"]
        assert len(group) == 2
        assert "foo/bar/y" in group
        assert "a/below" not in group


def test_deleting(root):
    del root["foo/bar"]
    assert "foo/bar/y" not in root
    assert "foo/x" in root
    del root["foo"]
    assert list(root) == ["a"]
    for missing in ("foo", "nope", "/", ""):
        with pytest.raises(KeyError):
            del root[missing]
    assert list(root) == ["a"]
    assert not any(key.startswith("foo") for key in root.store)


def test_listing(root):
    assert list(root.array_keys()) == ["a"]
    assert list(root.group_keys()) == ["foo"]
    assert [z.path for z in root.array_values()] == ["a"]
    assert [g.path for g in root.group_values()] == ["foo"]
    assert [name for name, _ in root.arrays(recurse=True)] == ["a", "y", "x"]
    assert [name for name, _ in root.groups(recurse=True)] == ["foo", "bar"]
    assert [path for path, _ in root.members()] == ["a", "foo"]
    assert [path for path, _ in root.members(None)] == ["a", "foo", "foo/bar", "foo/bar/y", "foo/x"]
    assert root.nmembers() == 2
    assert root.nmembers(1) == 4
    assert root.nmembers(None) == 5


def test_visiting(root):
    seen = []
    assert root.visit(seen.append) is None
    assert seen == ["a", "foo", "foo/bar", "foo/bar/y", "foo/x"]
    assert root.visitvalues(lambda node: node.name if isinstance(node, gzarr.Group) else None) == "/foo"
    assert root.visititems(lambda path, node: path if node.ndim == 2 else None) == "a"
    assert root["foo"].visitkeys(lambda path: path if path == "x" else None) == "x"


def test_tree_and_level(root):
    text = "/\n├── a (4, 6) int32\n└── foo\n    ├── bar\n    │   └── y (3,) int64\n    └── x (5,) int64"
    assert repr(root.tree()) == text
    assert repr(root.tree(level=0)) == "/"
    assert repr(root.tree(level=1)) == "/\n├── a (4, 6) int32\n└── foo"
    assert repr(root["foo/bar"].tree()) == "bar\n└── y (3,) int64"
    assert root.tree()._repr_html_() == f"<pre>{text}</pre>"
    assert repr(gzarr.group().tree()) == "/"


# -- assigning ---------------------------------------------------------------------------------------------------


def test_assigning_data(root):
    root["n"] = np.arange(6, dtype="i2").reshape(2, 3)
    assert root["n"].dtype == np.int16
    root["n"] = [1.5, 2.5]
    assert root["n"][:].tolist() == [1.5, 2.5]
    root["deep/er/s"] = 42
    assert root["deep/er/s"].shape == ()
    assert root["deep/er/s"][()] == 42
    root["t"] = ["some", "text"]
    assert root["t"][:].tolist() == ["some", "text"]
    with pytest.raises(KeyError, match="not a name"):
        root[""] = 1
    with pytest.raises(ContainsArrayError, match="below"):
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


def test_assigning_a_sharded_array():
    g = gzarr.group()
    z = g.create_array("s", shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="i4", dimension_names=["y", "x"])
    z[:] = np.arange(64).reshape(8, 8)
    g["t"] = z
    assert (g["t"].chunks, g["t"].shards, g["t"].dimension_names) == ((2, 2), (4, 4), ("y", "x"))
    assert np.array_equal(g["t"][:], z[:])


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
    assert two["g/f"].order == "F"
    assert two["g/f"][1, 2] == 5
    assert two.zeros_like("z", one["a"]).zarr_format == target
    with pytest.raises(MetadataError, match="leave it out"):
        two.create_array("other", shape=3, zarr_format=source)
    assert "other" not in two
    assert two["g"].zarr_format == two["g/b"].zarr_format == target


def test_assigning_to_itself_loses_nothing(root):
    root["a"] = root["a"]
    assert root["a"][3, 5] == 23
    assert root["a"].chunks == (2, 3)
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


# -- creating ----------------------------------------------------------------------------------------------------


def test_create_group(root):
    made = root.create_group("new/er", attributes={"x": 1})
    assert made.path == "new/er"
    assert "new" in root
    with pytest.raises(ContainsGroupError, match=r"a group is already stored.*overwrite=True"):
        root.create_group("foo")
    with pytest.raises(ContainsArrayError, match="an array is already stored"):
        root.create_group("a")
    with pytest.raises(ContainsArrayError, match="nothing can lie below"):
        root.create_group("a/b/c")
    assert list(root.create_group("foo", overwrite=True)) == []
    assert [g.path for g in root.create_groups("g1", "g2")] == ["g1", "g2"]
    for bad in ("", "/"):
        with pytest.raises(KeyError, match="not a name"):
            root.create_group(bad)
    with pytest.raises(TypeError, match="JSON"):
        root.create_group("a", overwrite=True, attributes={"x": object()})
    assert root["a"].shape == (4, 6)


def test_require_group(root):
    assert root.require_group("foo") == root["foo"]
    assert root.require_group("/foo/bar", overwrite=False) == root["foo/bar"]
    assert root["foo"].require_group("new").path == "foo/new"
    assert [g.path for g in root.require_groups("g1", "foo")] == ["g1", "foo"]
    with pytest.raises(ContainsArrayError, match="an array, not a group"):
        root.require_group("a")
    assert list(root.require_group("foo", overwrite=True)) == []
    assert root.require_group("/") == root


@pytest.mark.parametrize("name", ["require_array", "require_dataset"])
def test_require_array(root, name):
    require = getattr(root, name)
    assert require("a", shape=(4, 6), dtype="i4") == root["a"]
    assert require("a", (4, 6), "i2")[3, 5] == 23
    assert require("a", [4, 6], "i4", exact=True) == root["a"]
    with pytest.raises(TypeError, match=r"expected \(4, 7\), got \(4, 6\)"):
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
    assert root.full("f2", 2, 8)[:].tolist() == [8, 8]
    assert root.empty("e", shape=2).shape == (2,)
    assert root.array("ar", np.arange(3))[:].tolist() == [0, 1, 2]
    for made in (root.zeros_like("zl", root["a"]), root.ones_like("ol", root["a"]), root.empty_like("el", root["a"])):
        assert (made.shape, made.chunks, made.zarr_format) == ((4, 6), (2, 3), zarr_format)
    assert root.full_like("fl", root["a"], 9)[0, 0] == 9
    assert root.full_like("fl2", root["a"], fill_value=9, dtype="f8").dtype == np.float64


def test_formats_are_not_mixed(root, zarr_format):
    assert all(node.zarr_format == zarr_format for _, node in root.members(None))
    foreign = {2: "zarr.json", 3: ".zgroup"}[zarr_format]
    assert not any(key.endswith(foreign) for key in root.store)


# -- moving ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "local", "zip"])
@pytest.mark.usefixtures("zarr_format")
def test_move(kind, tmp_path):
    place = {"memory": {}, "local": tmp_path / "x.zarr", "zip": tmp_path / "x.zip"}[kind]
    with gzarr.open(place, mode="w") as root:
        root["foo/x"] = np.arange(5)
        root["foo"].attrs["k"] = 1
        root["a"] = np.arange(3)
        root.move("foo", "bar/baz")
        assert "foo" not in root
        assert root["bar/baz/x"][:].tolist() == [0, 1, 2, 3, 4]
        assert root["bar/baz"].attrs["k"] == 1
        assert isinstance(root["bar"], gzarr.Group)
        root["bar"].move("baz/x", "/top")
        assert root["top"][4] == 4
        with pytest.raises(KeyError, match="nope"):
            root.move("nope", "x")
        with pytest.raises(ContainsNodeError, match="already stored"):
            root.move("top", "a")
        for dest in ("bar", "bar/in/side"):
            with pytest.raises(ContainsNodeError, match="into itself"):
                root.move("bar", dest)
        with pytest.raises(ContainsArrayError):
            root.move("top", "a/below")
        with pytest.raises(KeyError):
            root.move("/", "x")
        assert root["top"][:].tolist() == [0, 1, 2, 3, 4]


# -- the object itself -------------------------------------------------------------------------------------------


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


def test_context_manager_closes_the_store(tmp_path, zarr_format):
    path = tmp_path / "x.zip"
    with gzarr.open_group(path, mode="w") as root:
        root["a"] = np.arange(3)
    with pytest.raises(gzarr.StoreError, match="closed"):
        root["a"]
    assert gzarr.load(path, path="a").tolist() == [0, 1, 2]


def test_equality_and_repr(root):
    assert root == gzarr.open(root.store)
    assert root != root["foo"]
    assert root["foo"] == root["foo"]
    assert root != 3
    assert hash(root) == hash(gzarr.open(root.store))
    assert repr(root["foo"]) == f"<Group {root.store}/foo>"


def test_read_only(root):
    g = gzarr.open_group(root.store, mode="r")
    assert g.read_only
    assert g["foo"].read_only
    assert g["a"].read_only
    with pytest.raises(ReadOnlyError, match="read-only"):
        g["foo"].create_group("x")
    with pytest.raises(ReadOnlyError):
        g["a"] = np.arange(3)
    assert root["a"].shape == (4, 6)


def test_a_deep_tree():
    g = gzarr.group()
    g.create_group("/".join(["d"] * 200))
    assert g.nmembers(None) == 200
    assert len(repr(g.tree()).splitlines()) == 201


def test_an_array_does_not_replace_a_group() -> None:
    root = gzarr.group()
    root.create_group("a").zeros("b", shape=3)
    with pytest.raises(gzarr.errors.ContainsGroupError, match=r"'a' is a group.*delete it"):
        root["a"] = np.arange(3)
    assert root["a/b"].shape == (3,)
