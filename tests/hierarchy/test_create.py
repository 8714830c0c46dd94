"""New nodes in stores: what they replace, what they keep, and the groups above them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsArrayError, ContainsGroupError, MetadataError
from gzarr.metadata.model import GroupMeta


@pytest.mark.usefixtures("zarr_format")
def test_overwrite():
    store = {}
    gzarr.array(np.arange(3), store=store, path="x")
    with pytest.raises(ContainsArrayError, match=r"'memory://\d+/x'.*overwrite=True"):
        gzarr.zeros(3, store=store, path="x")
    with pytest.raises(ContainsArrayError, match="only groups may have child nodes"):
        gzarr.zeros(3, store=store, path="x/y")
    with pytest.raises(ContainsGroupError, match=r"a group.*overwrite=True"):
        gzarr.zeros(3, store=store, path="")
    z = gzarr.zeros(5, store=store, path="x", overwrite=True)
    assert z[:].tolist() == [0] * 5
    assert gzarr.zeros(2, store=store, overwrite=True).path == ""
    assert not any(key.startswith("x") for key in store)


@pytest.mark.parametrize("make", [gzarr.group, lambda store, path: gzarr.zeros(3, store=store, path=path)])
def test_the_error_names_the_path_as_it_is(make):
    store = {}
    make(store, path="ocean grid")
    with pytest.raises((ContainsArrayError, ContainsGroupError), match=r"^an? (group|array) .*/ocean grid'"):
        gzarr.zeros(3, store=store, path="ocean grid")


@pytest.mark.usefixtures("zarr_format")
def test_an_array_can_be_overwritten_by_itself_and_by_what_lies_below():
    store = {}
    root = gzarr.group(store)
    root["a/b"] = np.arange(10)
    root["a/b"] = root["a/b"]
    assert root["a/b"][:].tolist() == list(range(10))
    gzarr.create_array(store, name="a", data=root["a/b"], overwrite=True)
    assert root["a"][:].tolist() == list(range(10))


@pytest.mark.usefixtures("zarr_format")
def test_parents_are_created():
    store = {}
    z = gzarr.zeros(3, store=store, path="/a//b/c/")
    assert (z.path, z.name, z.basename) == ("a/b/c", "/a/b/c", "c")
    assert isinstance(gzarr.open(store), gzarr.Group)
    assert list(gzarr.open(store)["a/b"]) == ["c"]
    for bad in ("a/../b", ".", "a/./b"):
        with pytest.raises(MetadataError, match="periods"):
            gzarr.zeros(3, store=store, path=bad)


def test_both_formats_side_by_side_are_refused_at_one_path():
    store = {}
    gzarr.zeros(3, store=store, zarr_format=2)
    with pytest.raises(ContainsArrayError):
        gzarr.zeros(3, store=store, zarr_format=3)
    gzarr.zeros(4, store=store, zarr_format=3, overwrite=True)
    assert gzarr.open(store).shape == (4,)
    assert ".zarray" not in store


def test_overwriting_with_itself_through_another_root_loses_nothing(tmp_path) -> None:
    root = gzarr.open_group(tmp_path / "r", mode="w")
    root.create_array("q/b", data=np.arange(1, 5))
    inner = gzarr.open_array(tmp_path / "r/q/b", mode="r")
    assert root.create_array("q/b", data=inner, chunks=2, overwrite=True)[:].tolist() == [1, 2, 3, 4]
    root["q/b"] = gzarr.open_array(tmp_path / "r/q/b", mode="r")
    assert root["q/b"][:].tolist() == [1, 2, 3, 4]
    gzarr.save(tmp_path / "s", a=np.arange(3))
    gzarr.save(tmp_path / "s", a=gzarr.open_group(tmp_path / "s", mode="r")["a"])
    assert gzarr.load(tmp_path / "s")["a"].tolist() == [0, 1, 2]
    with pytest.raises(gzarr.MetadataError):
        gzarr.save(tmp_path / "s", a=np.ones(2), b=object())
    assert gzarr.load(tmp_path / "s")["a"].tolist() == [0, 1, 2]
    with pytest.raises(gzarr.DeviceError):
        gzarr.create_group(tmp_path / "s", overwrite=True, device="nonsense")
    assert gzarr.load(tmp_path / "s")["a"].tolist() == [0, 1, 2]
    with pytest.raises(KeyError):
        del root["/"]
    with pytest.raises(gzarr.errors.ContainsNodeError, match="into itself"):
        gzarr.open_group(tmp_path / "r/sub", mode="w")["k"] = gzarr.open_group(tmp_path / "r")


@pytest.mark.parametrize("kind", ["memory", "directory", "sqlite"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_one_of_several_threads_creates_an_array_and_the_others_are_told(tmp_path, kind, zarr_format) -> None:
    store = {
        "memory": gzarr.MemoryStore,
        "directory": lambda: gzarr.LocalStore(tmp_path / "x.zarr"),
        "sqlite": lambda: gzarr.SQLiteStore(tmp_path / "x.sqlite"),
    }[kind]()
    start = threading.Barrier(8)

    def create(number: int) -> int | None:
        start.wait()
        try:
            attributes = {"made by": number}
            gzarr.create_array(
                store, name="a/b", shape=number + 1, dtype="i4", attributes=attributes, zarr_format=zarr_format
            )
        except ContainsArrayError:
            return None
        return number

    with store, ThreadPoolExecutor(8) as pool:
        (winner,) = [number for number in pool.map(create, range(8)) if number is not None]
        array = gzarr.open_array(store, path="a/b", mode="r")
        assert (array.shape, dict(array.attrs)) == ((winner + 1,), {"made by": winner})


@pytest.mark.parametrize(
    "open_it",
    [
        lambda store: gzarr.open_group(store, path="a/b", mode="a", attributes={"x": 1}),
        lambda store: gzarr.group(store, path="a/b", attributes={"x": 1}),
        lambda store: gzarr.open_group(store).require_group("a/b"),
        lambda store: gzarr.open_group(store).require_array("a/b", shape=3, dtype="i4"),
        lambda store: gzarr.open_array(store, path="a/b", mode="a", shape=3, dtype="i4"),
        lambda store: gzarr.open(store, path="a/b", mode="a", shape=3, dtype="i4"),
        lambda store: gzarr.open_group(store).create_group("a/" + str(threading.get_ident())).name,
    ],
)
def test_several_threads_that_open_or_create_get_the_same_node(open_it) -> None:
    store = gzarr.MemoryStore()
    start = threading.Barrier(8)

    def run(_: int) -> object:
        start.wait()
        return open_it(store)

    with ThreadPoolExecutor(8) as pool:
        assert all(isinstance(node, (gzarr.Array, gzarr.Group, str)) for node in pool.map(run, range(8)))


LIKE = gzarr.zeros((4, 4), chunks=2, dtype="i4").metadata


def test_nodes_and_the_groups_above_them_are_created(zarr_format):
    array, group = gzarr.zeros((4, 4), chunks=2, dtype="i4").metadata, GroupMeta({"k": 1}, zarr_format)
    store = gzarr.MemoryStore()
    created = dict(gzarr.create_hierarchy(store=store, nodes={"a/x": array, "/b": group, "a/y": array.to_dict()}))
    assert list(created) == ["", "a", "a/x", "a/y", "b"]
    root = gzarr.open_group(store)
    assert {path: root[path] for path in created if path} == {path: node for path, node in created.items() if path}
    assert (root["b"].attrs.asdict(), root["a/y"].metadata) == ({"k": 1}, array)
    assert dict(root["b"].create_hierarchy({"c": array}))["c"] == root["b/c"]


def test_nothing_is_created_if_one_place_is_taken():
    root = gzarr.group(attributes={"kept": 1})
    root.zeros("taken", shape=3)
    with pytest.raises(ContainsArrayError, match="taken"):
        gzarr.create_hierarchy(store=root, nodes={"free": LIKE, "taken": LIKE})
    with pytest.raises(ContainsGroupError):
        gzarr.create_hierarchy(store=root, nodes={"free": LIKE, "": GroupMeta()})
    with pytest.raises(ContainsArrayError, match="only groups may have child nodes"):
        root.create_hierarchy({"free": LIKE, "taken/below": LIKE})
    assert list(root) == ["taken"]
    made = dict(root.create_hierarchy({"free": LIKE, "taken": LIKE}, overwrite=True))
    assert made["taken"].shape == (4, 4)
    assert root.attrs["kept"] == 1


@pytest.mark.parametrize(
    ("nodes", "match"),
    [
        ({"a": LIKE, "/a": LIKE}, "mean the same"),
        ({"a": LIKE, "b": GroupMeta({}, 2)}, "same zarr_format"),
        ({"a": LIKE, "a/b/c": LIKE}, "'a/b/c' would be in it. Only Zarr groups"),
        ({"a": {"zarr_format": 3}}, "node_type"),
    ],
)
def test_what_is_no_hierarchy_is_refused(nodes, match):
    with pytest.raises(MetadataError, match=match):
        gzarr.create_hierarchy(store={}, nodes=nodes)


def test_a_group_refuses_itself_and_the_other_format():
    root = gzarr.group()
    with pytest.raises(MetadataError, match="leave the path '' out"):
        root.create_hierarchy({"": GroupMeta()})
    with pytest.raises(MetadataError, match="has format 3"):
        root.create_hierarchy({"a": GroupMeta({}, 2)})
    with pytest.raises(TypeError, match="expected metadata"):
        root.create_hierarchy({"a": 3})
    assert dict(root.create_hierarchy({})) == {}


def test_nothing_is_replaced_if_a_node_cannot_be_stored():
    root = gzarr.group()
    root["a"] = [1, 2]
    nodes = {"a": root.metadata, "b": replace(root.metadata, attributes={"x": object()})}
    with pytest.raises(gzarr.MetadataError, match="'b' cannot be stored"):
        gzarr.create_hierarchy(store=root.store, nodes=nodes, overwrite=True)
    assert root["a"][1] == 2
