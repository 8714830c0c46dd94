"""Consolidated metadata: one read opens a hierarchy, and whatever gzarr changes afterwards, they stay true."""

import json
import pickle
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import CopyError, GroupNotFoundError, MetadataError, NodeNotFoundError, ReadOnlyError, StoreError
from gzarr.metadata.consolidated import collect, find_documents, parse_zmetadata
from gzarr.storage import CountingStore, LocalStore, MemoryStore, ObjectStore

FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])
#: Stores that can tell that an object was replaced, and one that cannot.
STORES = pytest.mark.parametrize("make", [MemoryStore, lambda: MemoryStore(UserDict())], ids=["tokens", "no tokens"])


def hierarchy(store: Any, zarr_format: int, **kwargs: Any) -> gzarr.Group:
    root = gzarr.create_group(store, zarr_format=zarr_format, attributes={"title": "root"}, **kwargs)
    deep = root.create_group("a/b", attributes={"n": float("nan")})
    deep.create_array("x", data=np.arange(6), chunks=2, attributes={"unit": "m"})
    deep.create_array("y", data=np.arange(4.0))
    root.create_group("empty")
    root.create_array("z", shape=(), dtype="i4")
    return root


def consolidated(store: Any, zarr_format: int, *paths: str) -> gzarr.Group:
    """A hierarchy, consolidated at its root and at paths."""
    root = hierarchy(store, zarr_format)
    for path in ("", *paths):
        gzarr.consolidate_metadata(store, path=path)
    return root


def documents(store: Any, path: str, zarr_format: int) -> Any:
    """What is consolidated at a path, or None."""
    prefix = f"{path}/" if path else ""
    if zarr_format == 2:
        return parse_zmetadata(store[f"{prefix}.zmetadata"], "") if f"{prefix}.zmetadata" in store else None
    return find_documents(json.loads(store[f"{prefix}zarr.json"]), "")


def assert_true(store: Any, zarr_format: int, *paths: str) -> None:
    """What is consolidated at each path is exactly what is stored now."""
    for path in paths:
        found = documents(store, path, zarr_format)
        assert found is not None
        assert as_text(found) == as_text(collect(store, path)), path


def as_text(found: dict[str, Any]) -> str:
    return json.dumps(found, sort_keys=True)


def everything(group: gzarr.Group) -> dict[str, Any]:
    return {
        path: (repr(dict(node.attrs)), node[...].tolist() if isinstance(node, gzarr.Array) else list(node))
        for path, node in group.members(None)
    }


# -- reading -------------------------------------------------------------------------------------------------------


@FORMATS
@STORES
def test_a_consolidated_hierarchy_is_opened_and_walked_with_one_read(zarr_format: int, make: Any) -> None:
    store = make()
    root = hierarchy(store, zarr_format)
    expected, tree = everything(root), repr(root.tree())
    gzarr.consolidate_metadata(store)
    counting = CountingStore(store)
    for opened in (
        lambda: gzarr.open_consolidated(counting),
        lambda: gzarr.open_group(counting, "r"),
        lambda: gzarr.open_group(counting, "r+", use_consolidated=True),
    ):
        counting.reset()
        group = opened()
        assert repr(group.tree()) == tree
        assert [path for path, _ in group.members(None)] == list(expected)
        assert sorted(group) == ["a", "empty", "z"]
        assert "a/b/x" in group
        assert "a/c" not in group
        assert group["a/b/x"].shape == (6,)
        assert group["a/b"]["y"].attrs.asdict() == {}
        assert group["a"]["b"].attrs["n"] != 0
        assert list(group["empty"]) == []
        read = ["zarr.json", ".zmetadata"] if zarr_format == 2 else ["zarr.json"]  # which comes first
        assert [request.key for request in counting.requests] == read
        assert counting.nbatches == len(read)
        assert counting.listed == []
        assert everything(group) == expected
        assert all("zarr" not in key.rpartition("/")[2] for key, *_ in counting.requests[2:])


@FORMATS
def test_open_uses_consolidated_metadata_for_reading_only(zarr_format: int) -> None:
    store = {}
    consolidated(store, zarr_format)
    counting = CountingStore(MemoryStore(store))
    group = gzarr.open(counting, "r")
    counting.reset()
    assert len(list(group["a/b"].arrays())) == 2
    assert counting.requests == []
    for other in (gzarr.open_group(counting, "r", use_consolidated=False), gzarr.open_group(counting, "a")):
        counting.reset()
        assert len(list(other["a/b"].arrays())) == 2
        assert counting.requests


@FORMATS
def test_a_group_inside_a_store_can_be_consolidated_by_itself(zarr_format: int) -> None:
    store = MemoryStore()
    root = hierarchy(store, zarr_format)
    made = gzarr.consolidate_metadata(store, path="a")
    assert made.path == "a"
    counting = CountingStore(store)
    group = gzarr.open_consolidated(counting, path="a", zarr_format=zarr_format)
    assert group.tree().label == "a"
    assert sorted(group["b"]) == ["x", "y"]
    assert counting.nbatches == 1
    with pytest.raises(MetadataError, match=r"no consolidated metadata.*consolidate_metadata"):
        gzarr.open_consolidated(store)
    root["a/b"].create_array("new", shape=3)
    assert_true(store, zarr_format, "a")


def test_a_key_of_ones_own(tmp_path: Path) -> None:
    store = MemoryStore()
    root = hierarchy(store, 2)
    gzarr.consolidate_metadata(store, metadata_key="meta/.all")
    assert "meta/.all" in store
    assert ".zmetadata" not in store
    for group in (gzarr.open_consolidated(store, "meta/.all"), gzarr.open_group(store, use_consolidated="meta/.all")):
        assert everything(group) == everything(root)
    with pytest.raises(MetadataError, match="consolidate"):
        gzarr.open_consolidated(store)
    with pytest.raises(MetadataError, match=r"zarr\.json"):
        gzarr.consolidate_metadata(tmp_path, "meta/.all", zarr_format=3)


@FORMATS
def test_an_array_at_the_root(zarr_format: int) -> None:
    store = {}
    gzarr.array([1, 2, 3], store=store, zarr_format=zarr_format)
    for array in (gzarr.consolidate_metadata(store), gzarr.open_consolidated(store)):
        assert isinstance(array, gzarr.Array)
        assert array[...].tolist() == [1, 2, 3]
        with pytest.raises(ReadOnlyError):
            array.resize(5)


def test_a_pickled_consolidated_group_is_one() -> None:
    store = MemoryStore()
    consolidated(store, 3)
    again = pickle.loads(pickle.dumps(gzarr.open_consolidated(store)))
    assert sorted(again) == ["a", "empty", "z"]
    with pytest.raises(ReadOnlyError, match="open_consolidated"):
        again.create_group("new")


# -- read-only metadata --------------------------------------------------------------------------------------------


@FORMATS
def test_metadata_opened_by_open_consolidated_are_read_only_and_data_are_not(zarr_format: int) -> None:
    store = MemoryStore()
    hierarchy(store, zarr_format)
    group = gzarr.consolidate_metadata(store)
    before = dict(store)
    x = group["a/b/x"]
    for change in (
        lambda: group.create_group("new"),
        lambda: group.create_array("new", shape=3),
        lambda: group.create_array("a/b/x", shape=3, overwrite=True),
        lambda: group.require_group("new"),
        lambda: group.__setitem__("new", np.arange(3)),
        lambda: group.__setitem__("copy", group["a"]),
        lambda: group.__delitem__("a"),
        lambda: group.pop("z"),
        lambda: group.move("a", "c"),
        lambda: group.attrs.update(x=1),
        lambda: x.attrs.put({}),
        lambda: x.resize(2),
        lambda: x.append([1]),
        lambda: gzarr.create_array(group, name="new", shape=3),
        lambda: gzarr.create_group(group, overwrite=True),
    ):
        with pytest.raises(ReadOnlyError, match=r"open_consolidated.*open_group"):
            change()
    assert dict(store) == before
    x[1:3] = [-1, -2]
    assert gzarr.open_group(store)["a/b/x"][...].tolist() == [0, -1, -2, 3, 4, 5]
    with pytest.raises(ReadOnlyError):
        gzarr.open_consolidated(store, mode="r")["a/b/x"][0] = 1


# -- never stale ---------------------------------------------------------------------------------------------------


CHANGES = {
    "create": lambda root: root.create_array("a/b/new", data=np.arange(3)),
    "create deep": lambda root: root.create_array("a/p/q/r", shape=2, attributes={"k": 1}),
    "create group": lambda root: root.create_group("new"),
    "overwrite array": lambda root: root.create_array("a/b/x", shape=(2, 2), overwrite=True),
    "overwrite group": lambda root: root.create_group("a", overwrite=True),
    "array for a group": lambda root: root.create_array("a", shape=2, overwrite=True),
    "set": lambda root: root.__setitem__("a/b/x", np.zeros(9)),
    "copy": lambda root: root.__setitem__("c", root["a"]),
    "delete array": lambda root: root["a/b"].__delitem__("x"),
    "delete group": lambda root: root.__delitem__("a"),
    "pop": lambda root: root.pop("z"),
    "clear": lambda root: root.clear(),
    "move array": lambda root: root.move("a/b/x", "new/x"),
    "move group": lambda root: root["a"].move("b", "c"),
    "resize": lambda root: root["a/b/x"].resize(9),
    "shrink": lambda root: setattr(root["a/b/x"], "shape", (1,)),
    "append": lambda root: root["a/b/x"].append([7, 8]),
    "array attributes": lambda root: root["a/b/x"].attrs.update(unit="km", more=[1, {"x": None}]),
    "no attributes": lambda root: root["a/b/x"].attrs.clear(),
    "group attributes": lambda root: root["a/b"].attrs.put({"q": 1}),
    "root attributes": lambda root: root.attrs.update(title="new"),
    "require": lambda root: root.require_array("a/b/w", shape=3),
    "through the top level": lambda root: gzarr.open_array(root.store, path="a/b/x", mode="a").append([1]),
    "save": lambda root: gzarr.save(root.store, np.arange(3), path="a/saved", zarr_format=root.zarr_format),
    "write data": lambda root: root["a/b/x"].__setitem__(slice(None), 5),
}


@FORMATS
@STORES
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_in_every_consolidated_group_above(zarr_format: int, change: str, make: Any) -> None:
    store = make()
    root = consolidated(store, zarr_format, "a")
    readers = [
        gzarr.open_consolidated(store),
        gzarr.open_group(store, "r"),
        gzarr.open_group(store, "r+", use_consolidated=True),
    ]
    [everything(reader) for reader in readers]
    CHANGES[change](root)
    still = [
        path
        for path in ("", "a")
        if change not in ("overwrite group", "array for a group", "clear", "delete group") or not path
    ]
    assert_true(store, zarr_format, *still)
    live = gzarr.open_group(store, "r", use_consolidated=False)
    for reader in (*readers, gzarr.open_consolidated(store)):
        assert everything(reader) == everything(live)
        assert dict(reader.attrs) == dict(live.attrs) or reader in readers


@FORMATS
@pytest.mark.parametrize("change", sorted(CHANGES))
def test_changes_through_a_group_opened_with_its_consolidated_metadata(zarr_format: int, change: str) -> None:
    store = MemoryStore()
    consolidated(store, zarr_format)
    root = gzarr.open_group(store, "r+", use_consolidated=True)
    CHANGES[change](root)
    assert_true(store, zarr_format, "")
    assert everything(root) == everything(gzarr.open_group(store, "r", use_consolidated=False))


@FORMATS
def test_a_change_in_a_store_below_reaches_the_groups_around_it(zarr_format: int, tmp_path: Path) -> None:
    hierarchy(tmp_path / "x.zarr", zarr_format)
    gzarr.consolidate_metadata(tmp_path / "x.zarr")
    gzarr.open_array(tmp_path / "x.zarr/a/b/x", mode="r+").resize(20)
    gzarr.open_group(tmp_path / "x.zarr/a", mode="r+").create_group("new")
    gzarr.open(tmp_path / "x.zarr/a/b").attrs["q"] = 1
    store = LocalStore(tmp_path / "x.zarr")
    assert_true(store, zarr_format, "")
    assert gzarr.open_consolidated(store)["a/b/x"].shape == (20,)


@FORMATS
def test_changes_of_other_processes_are_seen_where_the_store_has_generations(zarr_format: int, tmp_path: Path) -> None:
    root = consolidated(tmp_path, zarr_format)
    reader = gzarr.open_group(tmp_path, "r")
    assert "new" not in reader
    root.create_group("new")
    key = "zarr.json" if zarr_format == 3 else ".zmetadata"
    written = (tmp_path / key).read_bytes()
    (tmp_path / key).write_bytes(written.replace(b'"new', b'"NEW'))
    assert "NEW" in list(reader)


@FORMATS
def test_metadata_that_are_no_longer_consolidated_are_read_one_by_one(zarr_format: int) -> None:
    store = {}
    consolidated(store, zarr_format)
    reader = gzarr.open_group(store, "r")
    gzarr.create_group(store, overwrite=True, zarr_format=zarr_format).create_group("only")
    assert list(reader) == ["only"]


@FORMATS
def test_threads_that_change_one_hierarchy_leave_its_consolidated_metadata_true(zarr_format: int) -> None:
    store = MemoryStore()
    root = consolidated(store, zarr_format)

    def work(thread: int) -> None:
        rng = np.random.default_rng(thread)
        group = root.require_group(f"g{thread % 2}")
        for step in range(12):
            array = group.create_array(f"t{thread}-{step}", shape=2)
            array.attrs["step"] = step
            array.append([1.0])
            root["a/b"].attrs[f"t{thread}"] = step
            root.attrs[f"t{thread}"] = step
            if rng.random() < 0.5:
                del group[f"t{thread}-{step}"]
            if step == 6:
                gzarr.consolidate_metadata(store, path=["", "a"][thread % 2])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert_true(store, zarr_format, "", "a")
    attributes = gzarr.open_consolidated(store).attrs.asdict()
    assert attributes == {"title": "root", **{f"t{thread}": 11 for thread in range(4)}}


@FORMATS
def test_a_deletion_that_fails_midway_leaves_consolidated_metadata_true(zarr_format: int) -> None:
    class Failing(MemoryStore):
        def delete_prefix(self, path: str = "") -> None:
            self.delete_many([key for key in self.list_prefix(path) if "x" in key])
            raise StoreError("the network is gone")

    store = Failing({})
    root = consolidated(store, zarr_format)
    with pytest.raises(StoreError, match="network"):
        del root["a"]
    assert_true(store, zarr_format, "")
    assert sorted(gzarr.open_consolidated(store)["a/b"]) == ["y"]


@FORMATS
def test_changes_where_nothing_is_consolidated_cost_one_fetch(zarr_format: int) -> None:
    store = CountingStore(MemoryStore())
    root = hierarchy(store, zarr_format)
    array = root["a/b/x"]
    store.reset()
    array.attrs["x"] = 1
    with_check = store.nbatches
    assert with_check <= 5
    store.reset()
    array[...] = 1
    assert not [key for key, *_ in store.requests if "zarr" in key.rpartition("/")[2] or ".z" in key]


@FORMATS
def test_across_a_network_a_hierarchy_is_opened_and_walked_with_one_round_trip(zarr_format: int) -> None:
    obstore = pytest.importorskip("obstore.store")
    store = CountingStore(ObjectStore(obstore.MemoryStore()))
    expected = repr(hierarchy(store, zarr_format).tree())
    gzarr.consolidate_metadata(store)
    store.reset()
    root = gzarr.open_group(store, "r", zarr_format=zarr_format)
    assert repr(root.tree()) == expected
    assert root["a/b/x"].attrs["unit"] == "m"
    assert (store.nbatches, store.listed, store.sized) == (1, [], [])
    gzarr.open_group(store, "r+").create_group("new")
    assert "new" in root


# -- copies --------------------------------------------------------------------------------------------------------


#: What writes nodes as documents: each a function of a source, the store that it writes into, and a folder.
COPIES: dict[str, Any] = {
    "transfer": lambda source, store, _: gzarr.transfer(source, store, path="a/copy", chunks=3),
    "transfer over": lambda source, store, _: gzarr.transfer(source["a/b/x"], store, path="a/b/x", if_exists="replace"),
    "transfer beside": lambda source, store, _: gzarr.transfer(source, store, if_exists="skip"),
    "transfer attributes": lambda source, store, _: gzarr.transfer(source["empty"], store, path="a", if_exists="skip"),
    "copy": lambda source, store, _: gzarr.copy(source["a"], gzarr.open_group(store)["a"], name="copy"),
    "copy over": lambda source, store, _: gzarr.copy(
        source["a/b/x"], gzarr.open_group(store)["a/b"], if_exists="replace"
    ),
    "copy_all": lambda source, store, _: gzarr.copy_all(source, gzarr.open_group(store)["a"]),
    "copy_store": lambda source, store, _: gzarr.copy_store(source.store, store, dest_path="a/copy"),
    "copy_store over": lambda source, store, _: gzarr.copy_store(
        source.store, store, excludes=[r"^(a/)?(zarr.json|.z(group|attrs))$"], if_exists="replace"
    ),
    "from_file": lambda source, store, folder: gzarr.convert.from_file(npy(folder), store, path="a/npy"),
}


def npy(folder: Path) -> Path:
    np.save(folder / "x.npy", np.arange(4))
    return folder / "x.npy"


@FORMATS
@pytest.mark.parametrize("how", COPIES)
def test_consolidated_metadata_of_a_destination_has_its_copies(zarr_format: int, how: str, tmp_path: Path) -> None:
    store = MemoryStore()
    consolidated(store, zarr_format, "a")
    readers = [gzarr.open_consolidated(store), gzarr.open_group(store, "r")]
    [everything(reader) for reader in readers]
    source = hierarchy({}, zarr_format)
    source.create_array("only/here", data=np.arange(3))
    source["a/b/x"].attrs["changed"] = True
    source["empty"].attrs["changed"] = True
    COPIES[how](source, store, tmp_path)
    assert_true(store, zarr_format, "", "a")
    live = gzarr.open_group(store, "r", use_consolidated=False)
    for reader in readers:
        assert everything(reader) == everything(live)


@FORMATS
def test_a_part_of_a_consolidated_hierarchy_is_copied_without_what_was_left_out(zarr_format: int) -> None:
    source, dest = MemoryStore(), MemoryStore()
    consolidated(source, zarr_format, "a")
    gzarr.copy_store(source, dest, excludes=["/y/", "^z/"])
    assert_true(dest, zarr_format, "", "a")
    assert sorted(gzarr.open_consolidated(dest)["a/b"]) == ["x"]
    whole = MemoryStore()
    gzarr.copy_store(source, whole)
    assert dict(whole) == dict(source)


@FORMATS
def test_a_copy_that_stops_midway_leaves_consolidated_metadata_true(zarr_format: int) -> None:
    class Failing(MemoryStore):
        def set_many(self, items: Any) -> None:
            items = list(items)
            if any("a/z/" in key for key, _ in items):
                raise StoreError("the network is down")
            super().set_many(items)

    store = Failing()
    consolidated(store, zarr_format)
    with pytest.raises(CopyError, match="network"):
        gzarr.copy_store(hierarchy({}, zarr_format).store, store, dest_path="a", if_exists="skip")
    assert "a/a/b/x" in gzarr.open_group(store, use_consolidated=False)
    assert_true(store, zarr_format, "")


def test_what_opens_metadata_read_only_is_no_destination() -> None:
    store = MemoryStore()
    consolidated(store, 3)
    before = dict(store)
    frozen, source = gzarr.open_consolidated(store), gzarr.group({})
    source.create_array("q", data=[1])
    for copy in (
        lambda: gzarr.transfer(source, frozen, path="new"),
        lambda: gzarr.copy(source["q"], frozen),
        lambda: gzarr.copy_all(source, frozen),
        lambda: gzarr.copy_store(source.store, frozen.store, dest_path="new"),
    ):
        with pytest.raises(ReadOnlyError, match="open_consolidated"):
            copy()
    assert dict(store) == before


# -- bad input -----------------------------------------------------------------------------------------------------


def test_what_is_missing_is_named() -> None:
    store: dict[str, bytes] = {}
    for call in (gzarr.consolidate_metadata, gzarr.open_consolidated):
        with pytest.raises(NodeNotFoundError, match="neither an array nor a group"):
            call(store)
    with pytest.raises(GroupNotFoundError):
        gzarr.open_group(store, "r", use_consolidated=True)
    gzarr.group(store)
    for call in (lambda: gzarr.open_consolidated(store), lambda: gzarr.open_group(store, "r+", use_consolidated=True)):
        with pytest.raises(ValueError, match=r"no consolidated metadata; make them with consolidate_metadata"):
            call()
    with pytest.raises(ValueError, match="mode must be 'r', 'r\\+' or 'a', got 'w'"):
        gzarr.open_consolidated(store, mode="w")
    with pytest.raises(ReadOnlyError):
        gzarr.consolidate_metadata(gzarr.storage.read_only(MemoryStore(store)))


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (".zmetadata", "[1]", "expected a JSON object"),
        (".zmetadata", '{"metadata": {}}', "zarr_consolidated_format.*must be 1, got None"),
        (".zmetadata", '{"zarr_consolidated_format": 2, "metadata": {}}', "must be 1, got 2"),
        (".zmetadata", '{"zarr_consolidated_format": 1, "metadata": {"a/.zgroup": 5}}', "'metadata' must be an object"),
        ("zarr.json", '{"kind": "other", "metadata": {}}', "kind 'inline'.*use_consolidated=False"),
        ("zarr.json", '{"kind": "inline", "metadata": []}', "kind 'inline'"),
        ("zarr.json", '{"kind": "inline", "metadata": {"a": 1}}', "entry 'a' must be an object"),
    ],
)
def test_malformed_consolidated_metadata_are_named(key: str, text: str, message: str) -> None:
    store: dict[str, bytes] = {}
    gzarr.group(store, zarr_format=2 if key == ".zmetadata" else 3).create_group("a")
    if key == "zarr.json":
        store[key] = json.dumps({**json.loads(store[key]), "consolidated_metadata": json.loads(text)}).encode()
    else:
        store[key] = text.encode()
    for call in (gzarr.open_consolidated, lambda s: gzarr.open_group(s, "r")):
        with pytest.raises(MetadataError, match=message) as caught:
            call(store)
        assert key in str(caught.value)
    assert list(gzarr.open_group(store, "r", use_consolidated=False)) == ["a"]


@FORMATS
def test_consolidated_names_that_are_not_allowed_lead_nowhere(zarr_format: int) -> None:
    store = MemoryStore()
    gzarr.consolidate_metadata(hierarchy(store, zarr_format))
    key, name = (".zmetadata", ".zgroup") if zarr_format == 2 else ("zarr.json", "zarr.json")
    document = json.loads(store[key])
    found = document["metadata"] if zarr_format == 2 else document["consolidated_metadata"]["metadata"]
    group = {"zarr_format": zarr_format, **({"node_type": "group"} if zarr_format == 3 else {})}
    for path in ("/foo", "a//b", "../y", "./y", "a/.."):
        found[f"{path}/{name}" if zarr_format == 2 else path] = group
    store[key] = json.dumps(document).encode()
    root = gzarr.open_group(store, mode="r", use_consolidated=True)
    assert [path for path, _ in root.members(None)] == ["a", "a/b", "a/b/x", "a/b/y", "empty", "z"]
    assert {problem.kind for problem in root.verify().problems} == {"consolidated"}


def test_a_document_that_is_not_json_stops_consolidation() -> None:
    store: dict[str, bytes] = {}
    hierarchy(store, 3)
    store["a/b/x/zarr.json"] = b"{"
    before = dict(store)
    with pytest.raises(MetadataError, match=r"a/b/x/zarr\.json: not valid JSON"):
        gzarr.consolidate_metadata(store)
    assert store == before


@FORMATS
def test_documents_that_differ_only_in_type_or_bits_are_told_apart(zarr_format: int) -> None:
    values = [0, 0.0, -0.0, False, "0", None, [0], [0.0]]
    store = MemoryStore()
    root = gzarr.create_group(store, zarr_format=zarr_format)
    for number, value in enumerate(values):
        root.create_array(f"a{number}", shape=(2,), dtype="i4", attributes={"value": value})
    gzarr.consolidate_metadata(store)
    opened = gzarr.open_group(store, mode="r")
    assert [repr(opened[f"a{n}"].attrs["value"]) for n in range(len(values))] == list(map(repr, values))


@FORMATS
def test_what_is_made_during_consolidation_is_in_it(zarr_format: int) -> None:
    class Growing(MemoryStore):
        grows = False

        def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
            found = super().list_dir(path)
            if self.grows:  # after the first listing
                self.grows = False
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(hierarchy(self, zarr_format, path="other").create_group, "late").result()
            return found

    store = Growing()
    hierarchy(store, zarr_format)
    store.grows = True
    gzarr.consolidate_metadata(store)
    assert documents(store, "", zarr_format) == collect(store, "")
