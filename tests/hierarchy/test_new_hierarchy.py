"""Many arrays and groups at once."""

from dataclasses import replace

import pytest

import gzarr
from gzarr.errors import ContainsArrayError, ContainsGroupError, MetadataError
from gzarr.metadata.model import GroupMeta

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
    with pytest.raises(ContainsArrayError, match="cannot contain"):
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
        ({"a": LIKE, "a/b/c": LIKE}, "cannot contain the node at 'a/b/c'"),
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
