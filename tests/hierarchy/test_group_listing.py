"""Lists of a group's members, near and far, and its tree."""

import gzarr


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


def test_members_lie_deeper_than_python_recurses():
    depth = 1100
    document = b'{"zarr_format": 3, "node_type": "group"}'
    root = gzarr.open_group({"d/" * level + "zarr.json": document for level in range(depth)}, mode="r")
    assert [path.count("/") for path, _ in root.members(None)] == list(range(depth - 1))
    assert [path for path, _ in root.members(2)] == ["d", "d/d", "d/d/d"]
