"""Opening, saving and loading: what each mode does to what is there, and how stores are named."""

import gc
import zipfile

import numpy as np
import pytest

import gzarr
from gzarr import errors
from gzarr.hierarchy import reaching


def close(node):
    node.store.close()


# -- archives ----------------------------------------------------------------------------------------------------


def test_mode_w_never_empties_an_archive_that_another_writer_has_just_released(tmp_path, monkeypatch):
    path = tmp_path / "x.zip"
    other = gzarr.open_group(path, "w")
    other.create_array("a", data=[1, 2])
    opened = reaching.open_store

    def open_and_release(*args, **kwargs):
        try:
            return opened(*args, **kwargs)
        finally:
            close(other)

    monkeypatch.setattr(reaching, "open_store", open_and_release)
    with pytest.raises(errors.StoreError, match="another store has"):
        gzarr.open_array(path, "w", path="b", shape=3)
    assert gzarr.open_array(path, "r", path="a")[:].tolist() == [1, 2]


@pytest.mark.parametrize("mode", ["w-", "x"])
def test_mode_w_minus_creates_a_new_member_of_an_archive(tmp_path, mode):
    path = tmp_path / "x.zip"
    group = gzarr.open_group(path, mode)
    group.create_array("a", data=[1, 2])
    close(group)
    close(gzarr.open_array(path, mode, path="b", shape=3))
    with pytest.raises(errors.ContainsArrayError):
        gzarr.open_array(path, mode, path="a", shape=3)
    assert sorted(gzarr.open_group(path, "r")) == ["a", "b"]


# -- modes -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize("opener", [gzarr.open, gzarr.open_array])
def test_modes_of_arrays_that_are_missing(opener, place):
    for mode in ("r", "r+"):
        with pytest.raises(errors.NodeNotFoundError):
            opener(place, mode=mode, shape=(3,))
    z = opener(place, mode="a", shape=(3,))
    z[0] = 1
    close(z)
    z = opener(place, mode="r")
    assert z[0] == 1
    close(z)


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize("opener", [gzarr.open, gzarr.open_array])
def test_modes_of_arrays_that_are_there(opener, place):
    close(gzarr.save_array(place, np.arange(3)) or gzarr.open(place, mode="a"))
    z = opener(place, mode="r")
    assert z.read_only
    for change in (
        lambda: z.__setitem__(0, 9),
        lambda: z.resize(5),
        lambda: z.append([1]),
        lambda: z.attrs.put({"a": 1}),
    ):
        with pytest.raises(errors.ReadOnlyError):
            change()
    close(z)
    for mode in ("r+", "a", None):
        z = opener(place, mode=mode, shape=(7,))
        assert z.shape == (3,)
        z[0] += 1
        close(z)
    z = opener(place, mode="r")
    assert z[:].tolist() == [3, 1, 2]
    close(z)
    for mode in ("w-", "x"):
        with pytest.raises((errors.ContainsArrayError, FileExistsError)):
            opener(place, mode=mode, shape=(7,))
    z = opener(place, mode="w", shape=(7,))
    assert z[:].tolist() == [0] * 7
    close(z)


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize("opener", [gzarr.open, gzarr.open_group])
def test_modes_of_groups(opener, place):
    for mode in ("r", "r+"):
        with pytest.raises(errors.NodeNotFoundError):
            opener(place, mode=mode)
    g = opener(place, mode="a")
    g["a"] = np.arange(3)
    close(g)
    g = opener(place, mode="r")
    assert list(g) == ["a"]
    for change in (
        lambda: g.create_group("b"),
        lambda: g.require_group("b"),
        lambda: g.create_array("b", shape=3),
        lambda: g.__setitem__("b", 1),
        lambda: g.__delitem__("a"),
        lambda: g.move("a", "b"),
        lambda: g.attrs.update(x=1),
        lambda: g["a"].__setitem__(0, 1),
    ):
        with pytest.raises(errors.ReadOnlyError):
            change()
    assert list(g) == ["a"]
    assert g.require_group("/") == g
    close(g)
    for mode in ("r+", "a", None):
        g = opener(place, mode=mode)
        assert list(g) == ["a"]
        assert not g.read_only
        close(g)
    for mode in ("w-", "x"):
        with pytest.raises((errors.ContainsGroupError, FileExistsError)):
            opener(place, mode=mode)
    g = opener(place, mode="w")
    assert list(g) == []
    close(g)


@pytest.mark.usefixtures("zarr_format")
def test_open_finds_what_is_there(place):
    g = gzarr.group(place)
    g["a/b"] = np.arange(3)
    close(g)
    for path, kind in (("", gzarr.Group), ("a", gzarr.Group), ("a/b", gzarr.Array), ("/a/b/", gzarr.Array)):
        node = gzarr.open(place, mode="r", path=path)
        assert type(node) is kind
        close(node)
    with pytest.raises(errors.NodeNotFoundError, match="a/c"):
        gzarr.open(place, mode="r", path="a/c")
    with pytest.raises(errors.ArrayNotFoundError, match="a group is there"):
        gzarr.open_array(place, mode="r", path="a")
    with pytest.raises(errors.ContainsArrayError, match="an array, not a group"):
        gzarr.open_group(place, mode="r", path="a/b")


@pytest.mark.parametrize("function", [gzarr.open, gzarr.open_array, gzarr.open_group])
def test_the_error_says_what_is_there_instead(tmp_path, function):
    gzarr.save(tmp_path / "x.zarr", [1], zarr_format=3)
    with pytest.raises(errors.NodeNotFoundError, match="an array of Zarr v3 is there, not of v2"):
        function(tmp_path / "x.zarr", mode="r", zarr_format=2)
    (tmp_path / "y").mkdir()
    (tmp_path / "y/letter.txt").write_text("text")
    with pytest.raises(errors.NodeNotFoundError, match="a folder without Zarr metadata is there"):
        function(tmp_path / "y", mode="r")


@pytest.mark.parametrize("mode", ["x", "w-"])
def test_without_a_shape_the_error_is_that_something_is_there(tmp_path, mode):
    gzarr.save(tmp_path / "x.zarr", [1])
    with pytest.raises(errors.ContainsArrayError, match=r"already stored .*; pass mode='w' to"):
        gzarr.open_array(tmp_path / "x.zarr", mode=mode)


@pytest.mark.usefixtures("zarr_format")
def test_open_array_where_nothing_is_and_no_shape_is_given(tmp_path):
    with pytest.raises(errors.ArrayNotFoundError, match="it does not exist"):
        gzarr.open_array(tmp_path / "x.zarr")
    with pytest.raises(errors.MetadataError, match="shape"):
        gzarr.open_array(tmp_path / "x.zarr", mode="w")
    with pytest.raises(errors.GroupNotFoundError, match="it does not exist"):
        gzarr.open_group(tmp_path / "x.zarr", mode="r+")
    assert not (tmp_path / "x.zarr").exists()
    with pytest.raises(errors.GroupNotFoundError, match="'/dev/null' is a device, a pipe or a socket; choose another"):
        gzarr.open_group("/dev/null", mode="r+")


@pytest.mark.parametrize("opener", [gzarr.open, gzarr.open_array, gzarr.open_group])
@pytest.mark.parametrize("mode", ["rw", "", "R", 3])
def test_unknown_modes_are_named(opener, mode, tmp_path):
    with pytest.raises(ValueError, match="mode"):
        opener(tmp_path / "x.zarr", mode=mode)


@pytest.mark.usefixtures("zarr_format")
def test_mode_w_replaces_an_array_by_a_group_and_back(tmp_path):
    path = tmp_path / "x.zarr"
    gzarr.save(path, np.arange(3))
    assert list(gzarr.open(path, mode="w")) == []
    gzarr.open(path)["sub"] = np.arange(3)
    assert gzarr.open(path, mode="w", shape=4).shape == (4,)
    assert not (path / "sub").exists()


def test_mode_w_never_deletes_what_is_not_zarr(tmp_path):
    folder = tmp_path / "photos"
    (folder / "2024").mkdir(parents=True)
    (folder / "2024" / "cat.jpg").write_bytes(b"cat")
    (folder / "notes.txt").write_text("keep me")
    for call in (
        lambda: gzarr.open(folder, mode="w"),
        lambda: gzarr.open(folder, mode="w", shape=3),
        lambda: gzarr.open_group(folder, mode="w"),
        lambda: gzarr.group(folder, overwrite=True),
        lambda: gzarr.create_group(folder, overwrite=True),
        lambda: gzarr.create_array(folder, shape=3, overwrite=True),
        lambda: gzarr.save(folder, np.arange(3)),
        lambda: gzarr.save(folder, a=np.arange(3)),
    ):
        with pytest.raises(errors.ContainsGroupError, match=r"notes\.txt.*not Zarr data"):
            call()
    assert (folder / "2024" / "cat.jpg").read_bytes() == b"cat"
    assert sorted(p.name for p in folder.iterdir()) == ["2024", "notes.txt"]


def test_mode_w_never_deletes_a_folder_that_holds_zarr_among_other_things(tmp_path):
    gzarr.save(tmp_path / "a.zarr", np.arange(3))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(errors.ContainsGroupError, match="'photos', which is not Zarr data"):
        gzarr.open(tmp_path, mode="w")
    (tmp_path / "photos" / "cat.jpg").rename(tmp_path / "cat.jpg")
    (tmp_path / "photos").rmdir()
    with pytest.raises(errors.ContainsGroupError, match=r"'cat\.jpg', which is not Zarr data"):
        gzarr.save(tmp_path, np.arange(3))
    assert gzarr.load(tmp_path / "a.zarr").tolist() == [0, 1, 2]
    (tmp_path / "cat.jpg").unlink()
    assert list(gzarr.open(tmp_path, mode="w")) == []


def test_mode_w_never_deletes_a_zip_archive_of_other_files(tmp_path):
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("2024/cat.jpg", b"cat")
    for call in (
        lambda: gzarr.open(path, mode="w"),
        lambda: gzarr.open(path, mode="w", shape=3),
        lambda: gzarr.save(path, np.arange(3)),
        lambda: gzarr.create_array(path, shape=3, overwrite=True),
    ):
        with pytest.raises(errors.ContainsGroupError, match="not Zarr data"):
            call()
        assert zipfile.ZipFile(path).read("2024/cat.jpg") == b"cat"


def test_failing_to_replace_a_zip_archive_keeps_it(tmp_path):
    path = tmp_path / "x.zip"
    gzarr.save(path, np.arange(3))
    with pytest.raises(errors.MetadataError, match="shape"):
        gzarr.open(path, mode="w", shape=(-1,))
    with pytest.raises(ValueError, match="shape"):
        gzarr.create_array(path, shape=(2,), data=np.arange(3), overwrite=True)
    assert gzarr.load(path).tolist() == [0, 1, 2]


def test_mode_w_replaces_a_damaged_zip_archive(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK\x03\x04 of a writer that never closed it")
    with pytest.raises(errors.StoreError, match="not a ZIP archive"):
        gzarr.open(path, mode="a")
    gzarr.save(path, np.arange(3))
    assert gzarr.load(path).tolist() == [0, 1, 2]


OPENERS = {
    "open": gzarr.open,
    "open_group": gzarr.open_group,
    "group": gzarr.group,
    "open_array": lambda place: gzarr.open_array(place, shape=3),
    "require_group": lambda place: gzarr.group(place.parent).require_group(place.name),
    "require_array": lambda place: gzarr.group(place.parent).require_array(place.name, shape=3),
}


@pytest.fixture
def root(tmp_path):
    """A group in whose directory other things are."""
    gzarr.create_group(tmp_path)
    return tmp_path


def files_in(folder):
    return sorted((str(file), file.read_bytes()) for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("other/notes.txt", b"keep me", "which holds 'notes.txt'; choose another path"),
        ("other/c/0", bytes(24), "which holds 'c'"),  # chunks without an array
        ("other/attributes.json", b'{"n5": "2.0.0"}', "perhaps N5; open that with N5Store"),
        ("other/snapshots/A", b"", "perhaps of Icechunk; open that as 'icechunk://'"),
        ("other", b"text", "other' is a file of no format that gzarr reads; choose another path"),
        ("other", b"\x89PNG", "an image: convert it with"),
        ("other", b"PK\x03\x04", r"an archive: open it by a name that ends in \.zip"),
        ("other/gzarr-unfinished-copy.json", b'{"source": "abc"}', "an unfinished copy of abc is at .*resume=True"),
        ("other/gzarr-unfinished-copy.json", b"damaged", "an unfinished copy is at"),
        ("gzarr-unfinished-copy.json", b'{"source": "abc"}', "an unfinished copy of abc is at .*resume=True"),
    ],
)
def test_opening_creates_nothing_where_something_else_is(root, opener, name, content, expected):
    (root / name).parent.mkdir(exist_ok=True, parents=True)
    (root / name).write_bytes(content)
    before = files_in(root)
    with pytest.raises(errors.NodeNotFoundError, match=f"other'.*none was created.*{expected}"):
        opener(root / "other")
    with pytest.raises(errors.NodeNotFoundError, match=expected):
        gzarr.open(root / "other", mode="r+")
    assert files_in(root) == before


@pytest.mark.parametrize("opener", [gzarr.open, gzarr.open_group, gzarr.open_array])
@pytest.mark.parametrize("content", [b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"\x93NUMPY", b"II*\0"])
def test_damaged_files_of_other_formats_are_left_alone(tmp_path, opener, content):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(errors.CopyError, match=r"cannot read 'other'.*damaged or cut off"):
        opener(tmp_path / "other")
    assert files_in(tmp_path) == [(str(tmp_path / "other"), content)]


@pytest.mark.parametrize("mode", ["r+", "a", "w", "w-"])
def test_files_of_other_formats_are_not_written_to(tmp_path, mode):
    np.save(tmp_path / "a.npy", np.arange(3))
    before = files_in(tmp_path)
    with pytest.raises((errors.ReadOnlyError, errors.ContainsNodeError)):
        gzarr.open_array(tmp_path / "a.npy", mode, shape=3)[0] = 1
    with pytest.raises((errors.ReadOnlyError, errors.ContainsNodeError)):
        gzarr.save(tmp_path / "a.npy", [1])
    assert files_in(tmp_path) == before


def test_a_folder_of_nodes_becomes_a_group_on_request(tmp_path):
    gzarr.save(tmp_path / "a", np.arange(3))
    with pytest.raises(
        errors.NodeNotFoundError, match="with the node 'a': open that, or make the folder a group with open_group"
    ):
        gzarr.open(tmp_path)
    assert list(gzarr.open(tmp_path, "a")) == ["a"]
    (tmp_path / "zarr.json").unlink()
    assert list(gzarr.open_group(tmp_path)) == ["a"]


@pytest.mark.parametrize("opener", [gzarr.open, gzarr.open_group, gzarr.group])
@pytest.mark.parametrize("name", ["", ".DS_Store/", ".ipynb_checkpoints/", "lost+found/"])
def test_an_empty_folder_becomes_a_group(tmp_path, opener, name):
    (tmp_path / "empty" / name).mkdir(parents=True)
    assert list(opener(tmp_path / "empty")) == []


def test_an_archive_of_other_files_stays_unchanged(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("word/document.xml", "text")
    before = (tmp_path / "a.zip").read_bytes()
    with pytest.raises(errors.NodeNotFoundError, match="which holds 'word'"):
        gzarr.open(tmp_path / "a.zip")
    gc.collect()
    assert (tmp_path / "a.zip").read_bytes() == before


def test_what_is_created_on_purpose_leaves_foreign_files_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("keep me")
    gzarr.create_group(tmp_path)["a"] = np.arange(3)
    assert (tmp_path / "notes.txt").read_text() == "keep me"
    assert list(gzarr.open(tmp_path)) == ["a"]
    (tmp_path / "file").write_text("keep me")
    with pytest.raises(errors.StoreError, match="a file is where a directory is needed"):
        gzarr.create_group(tmp_path / "file")


# -- formats -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opener", [gzarr.open, gzarr.open_array])
def test_zarr_format_of_what_is_opened(opener):
    store = {}
    gzarr.zeros(3, store=store, zarr_format=2)
    assert (opener(store).zarr_format, opener(store, zarr_format=2).shape) == (2, (3,))
    with pytest.raises(errors.NodeNotFoundError):
        opener(store, mode="r", zarr_format=3)
    with pytest.raises(errors.MetadataError, match="zarr_format"):
        opener(store, zarr_format=4)


# -- stores ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
def test_nodes_as_stores():
    root = gzarr.group()
    inner = root.create_group("a")
    gzarr.zeros(3, store=inner, path="b")
    assert "a/b" in root
    assert gzarr.open(inner, path="b").name == "/a/b"


# -- groups, like ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
def test_group_opens_or_creates():
    store = {}
    g = gzarr.group(store, attributes={"a": 1})
    g["x"] = np.arange(3)
    assert list(gzarr.group(store)) == ["x"]
    assert gzarr.group(store).attrs["a"] == 1
    assert list(gzarr.group(store, overwrite=True)) == []
    assert gzarr.group(store, path="a/b").name == "/a/b"
    with pytest.raises(errors.ContainsGroupError, match="overwrite=True"):
        gzarr.create_group(store)
    assert gzarr.create_group(store, overwrite=True, attributes={"b": 2}).attrs.asdict() == {"b": 2}
    assert gzarr.open_group(store, path="made", attributes={"c": 3}).attrs["c"] == 3
    read_only = gzarr.MemoryStore(store, read_only=True)
    assert gzarr.group(read_only).read_only
    with pytest.raises(errors.GroupNotFoundError, match="read-only"):
        gzarr.group(read_only, path="missing")
    with pytest.raises(TypeError, match="'attribute'"):
        gzarr.group(store, attribute={})


def test_nothing_is_written_through_a_node_that_refuses_it():
    root = gzarr.group()
    root["a"] = [1, 2]
    array = gzarr.Array(root.store, "a", read_only=True)
    group = gzarr.Group(root.store, read_only=True)
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.open_array(array)[0] = 5
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.Array.open(array)[0] = 5
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.open_group(group, mode="w")
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.create_array(group, name="b", shape=3)
    assert root["a"][0] == 1


def test_the_third_argument_of_a_constructor_is_that_of_zarr_2():
    root = gzarr.group()
    root["a"] = [1, 2]
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.Array(root.store, "a", True)[0] = 5
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.Group(root.store, "", True).create_group("b")
    assert gzarr.Array(root.store, "c", root["a"].metadata).shape == (2,)
    with pytest.raises(TypeError, match=r"ArrayMeta.*from_dict"):
        gzarr.Array(root.store, "a", {"shape": [2]})
    with pytest.raises(TypeError, match="a fourth argument"):
        gzarr.Array(root.store, "a", False, {})
