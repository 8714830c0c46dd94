"""Consolidated metadata exchanged with zarr 2.18 (golden files) and zarr-python 3, empty groups included."""

import json
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu
from zarr.storage import MemoryStore as TheirStore

import gzarr
from gzarr.metadata.consolidated import collect
from gzarr.storage import CountingStore, MemoryStore
from tests.conformance import golden
from tests.conformance.peers import as_bytes, quiet

FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])
PATHS = ["a", "a/b", "a/b/x", "empty", "empty/deep", "y"]


def theirs(objects: dict[str, bytes]) -> TheirStore:
    return TheirStore({key: cpu.Buffer.from_bytes(value) for key, value in objects.items()})


def fill(root: Any) -> None:
    """The same hierarchy by the calls that gzarr and zarr-python share."""
    root.attrs["title"] = "é"
    deep = root.create_group("a").create_group("b")
    deep.attrs["n"] = 1
    deep.create_array("x", shape=(6,), chunks=(2,), dtype="i4", attributes={"unit": "m"})[:] = np.arange(6)
    root.create_group("empty").create_group("deep")
    root.create_array("y", shape=(2, 2), dtype="f8")


@FORMATS
def test_gzarr_opens_what_zarr_python_has_consolidated(zarr_format: int) -> None:
    objects: dict[str, Any] = {}
    with quiet():
        root = zarr.create_group(TheirStore(objects), zarr_format=zarr_format)
        fill(root)
        zarr.consolidate_metadata(TheirStore(objects), zarr_format=zarr_format)
    store = CountingStore(MemoryStore(as_bytes(objects)))
    group = gzarr.open_consolidated(store)
    assert sorted(path for path, _ in group.members(None)) == PATHS
    # Groups of format 3 do not ask for `.zmetadata`, so those of format 2 are found by a second batch.
    assert store.nbatches == (1 if zarr_format == 3 else 2)
    assert store.listed == []
    assert group.attrs.asdict() == {"title": "é"}
    assert group["a/b"].attrs.asdict() == {"n": 1}
    assert group["a/b/x"].attrs.asdict() == {"unit": "m"}
    assert group["a/b/x"][...].tolist() == list(range(6))
    assert (list(group["empty"]), list(group["empty/deep"])) == (["deep"], [])
    told = CountingStore(MemoryStore(as_bytes(objects)))
    assert sorted(path for path, _ in gzarr.open_consolidated(told, zarr_format=zarr_format).members(None)) == PATHS
    assert told.nbatches == 1


@FORMATS
def test_zarr_python_opens_what_gzarr_has_consolidated(zarr_format: int) -> None:
    objects: dict[str, bytes] = {}
    root = gzarr.create_group(objects, zarr_format=zarr_format)
    fill(root)
    gzarr.consolidate_metadata(objects)
    # Changed afterwards: kept true.
    root["a/b/x"].append([6, 7])
    root["a/b/x"].attrs["new"] = True
    root.create_group("late")
    del root["y"]
    # The members must come from the consolidated metadata, so there are no others.
    kept = {key: value for key, value in objects.items() if "/" not in key or ("json" not in key and ".z" not in key)}
    with quiet():
        group = zarr.open_consolidated(theirs(kept), zarr_format=zarr_format)
        assert sorted(path for path, _ in group.members(None)) == sorted({*PATHS, "late"} - {"y"})
        assert dict(group.attrs) == {"title": "é"}
        assert dict(group["a"]["b"]["x"].attrs) == {"unit": "m", "new": True}
        assert group["a/b/x"][:].tolist() == list(range(8))
        assert (list(group["empty"].keys()), list(group["late"].keys())) == (["deep"], [])


@FORMATS
def test_both_consolidate_the_same_hierarchy_to_the_same_documents(zarr_format: int) -> None:
    objects: dict[str, bytes] = {}
    fill(gzarr.create_group(objects, zarr_format=zarr_format))
    shared = theirs(objects)
    gzarr.consolidate_metadata(objects)
    with quiet():
        zarr.consolidate_metadata(shared, zarr_format=zarr_format)
    key = "zarr.json" if zarr_format == 3 else ".zmetadata"
    ours, other = (json.loads(store[key]) for store in (objects, as_bytes(shared._store_dict)))
    if zarr_format == 3:
        ours, other = ours["consolidated_metadata"], other["consolidated_metadata"]
        assert {**ours, "metadata": 0} == {**other, "metadata": 0}
    for path, entry in other["metadata"].items():
        # zarr-python writes defaults that gzarr leaves out, and attributes of nodes that have none
        if entry:
            found = ours["metadata"][path]
            assert {name: found[name] for name in found if name in entry} == {k: entry[k] for k in entry if k in found}
    assert set(ours["metadata"]) == {path for path, entry in other["metadata"].items() if entry}


def test_gzarr_writes_the_consolidated_metadata_of_zarr_2_byte_for_byte() -> None:
    hierarchy = golden.read("zarr2")["groups"]["hierarchy"]
    objects = golden.stored_objects(hierarchy)
    expected = objects.pop(".zmetadata")
    gzarr.consolidate_metadata(objects)
    assert objects[".zmetadata"] == expected


def test_gzarr_opens_and_keeps_true_what_zarr_2_has_consolidated() -> None:
    hierarchy = golden.read("zarr2")["groups"]["hierarchy"]
    objects = golden.stored_objects(hierarchy)
    group = gzarr.open_consolidated(objects)
    for path, expected in hierarchy["members"].items():
        node = group[path] if path else group
        assert node.attrs.asdict() == expected["attributes"]
        if "values" in expected:
            assert golden.values_to_json(node[...]) == expected["values"]
    gzarr.open_group(objects)["a/b/x"].resize(5, 5)
    assert json.loads(objects[".zmetadata"])["metadata"] == collect(MemoryStore(objects), "")
    assert group["a/b/x"].shape == (5, 5)
