"""Groups: a mapping of names to nodes, with the names that h5py, zarr 2 and zarr-python 3 have for its calls."""

import inspect
import sys
from collections.abc import MutableMapping

import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsArrayError, ContainsGroupError, ContainsNodeError, MetadataError

# -- paths -------------------------------------------------------------------------------------------------------


def test_access_by_path(root):
    assert root["foo/bar"] == root["foo"]["bar"] == root["/foo/bar/"] == root["foo//bar"]
    outer = root if root.zarr_format == 2 else root["foo"]  # zarr 2 and h5py begin at the root, zarr-python 3 does not
    assert root["foo"].get("/a") == outer.get("a")
    assert root["foo"].get("/bar") == outer.get("bar")
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
    assert (root.get("nope", 7), root.foo.bar.y[2]) == (7, 2)
    with pytest.raises(AttributeError, match="'nope'"):
        root.nope
    assert "foo" in dir(root)


def test_membership(root):
    assert "foo" in root
    assert "foo/bar/y" in root
    assert ("/foo" in root["foo"]) == (root.zarr_format == 2)
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
    assert (list(root), list(gzarr.open(root.store))) == ([], [])


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
        assert (root["bar/baz/x"][:].tolist(), root["bar/baz"].attrs["k"]) == ([0, 1, 2, 3, 4], 1)
        assert isinstance(root["bar"], gzarr.Group)
        root["bar"].move("baz/x", "/top")
        if root.zarr_format == 3:
            root.move("bar/top", "top")
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


def test_a_deep_tree():
    g = gzarr.group()
    g.create_group("/".join(["d"] * 200))
    assert g.nmembers(None) == 200
    assert len(repr(g.tree()).splitlines()) == 201


def test_create_group(root):
    made = root.create_group("new/er", attributes={"x": 1})
    assert made.path == "new/er"
    assert "new" in root
    with pytest.raises(ContainsGroupError, match=r"a group is already stored.*overwrite=True"):
        root.create_group("foo")
    with pytest.raises(ContainsArrayError, match="an array is already stored"):
        root.create_group("a")
    with pytest.raises(ContainsArrayError, match="only groups may have child nodes"):
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


def test_members_are_got_by_their_kind(root):
    assert root.get_array("foo/x") == root["foo/x"]
    assert root.get_group("foo/bar") == root["foo/bar"]
    with pytest.raises(gzarr.ArrayNotFoundError, match=r"No array found in store: 'memory://\d+/nope'"):
        root.get_array("nope")
    with pytest.raises(gzarr.GroupNotFoundError):
        root.get_group("nope")
    with pytest.raises(gzarr.ContainsGroupError, match="use get_group"):
        root.get_array("foo")
    with pytest.raises(ContainsArrayError, match="use get_array"):
        root.get_group("a")


def test_a_group_comes_from_a_store_or_its_document(zarr_format):
    made = gzarr.Group.from_store({}, attributes={"k": 1}, zarr_format=zarr_format)
    assert gzarr.Group.open(made.store_path) == gzarr.Group.open(made.store, zarr_format=zarr_format) == made
    assert gzarr.Group.from_dict(made.store_path, made.metadata.to_dict()).attrs["k"] == 1
    with pytest.raises(gzarr.GroupNotFoundError):
        gzarr.Group.open(made.store, zarr_format=5 - zarr_format)
    with pytest.raises(gzarr.ContainsGroupError):
        gzarr.Group.from_store(made.store_path, zarr_format=zarr_format)
    with pytest.raises(MetadataError, match="expected the metadata of a group"):
        gzarr.Group.from_dict({}, gzarr.zeros(3).metadata)


def test_a_tree_is_cut_at_max_nodes(root):
    assert len(str(root.tree(plain=True)).splitlines()) == 6
    assert str(root.tree(max_nodes=3)).splitlines()[0] == "Truncated at max_nodes=3: some arrays and groups are missing"
    assert str(root.tree(max_nodes=3)).count("─ ") == 3
    with pytest.raises(ValueError, match="max_depth"):
        root.members(-1)


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


def test_listing(root):
    assert (list(root.array_keys()), list(root.group_keys())) == (["a"], ["foo"])
    assert ([z.path for z in root.array_values()], [g.path for g in root.group_values()]) == (["a"], ["foo"])
    assert [name for name, _ in root.arrays(recurse=True)] == ["a", "y", "x"]
    assert [name for name, _ in root.groups(recurse=True)] == ["foo", "bar"]
    assert [path for path, _ in root.members()] == ["a", "foo"]
    assert [path for path, _ in root.members(None)] == ["a", "foo", "foo/bar", "foo/bar/y", "foo/x"]
    assert (root.nmembers(), root.nmembers(1)) == (2, 4)
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
    assert (repr(root.tree(level=0)), repr(root.tree(level=1))) == ("/", "/\n├── a (4, 6) int32\n└── foo")
    assert repr(root["foo/bar"].tree()) == "bar\n└── y (3,) int64"
    assert root.tree()._repr_html_() == f"<pre>{text}</pre>"
    assert repr(gzarr.group().tree()) == "/"


def test_members_lie_deeper_than_python_recurses():
    usual, depth = sys.getrecursionlimit(), 300
    document = b'{"zarr_format": 3, "node_type": "group"}'
    root = gzarr.open_group({"d/" * level + "zarr.json": document for level in range(depth)}, mode="r")
    sys.setrecursionlimit(len(inspect.stack(0)) + depth // 2)
    try:
        assert [path.count("/") for path, _ in root.members(None)] == list(range(depth - 1))
        assert [path for path, _ in root.members(2)] == ["d", "d/d", "d/d/d"]
    finally:
        sys.setrecursionlimit(usual)
