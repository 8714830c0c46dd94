"""Arrays that released versions of zarr 2 and zarr-python 3 stored are read here as they read them.

The files in ``data`` are made by the ``make_*.py`` beside this file and never by gzarr. Arrays of TensorStore are made
by `test_exchange`.
"""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import GzarrError
from tests.conformance import golden

FILES = tuple(path.stem for path in sorted(golden.DATA.glob("*.zip")))


@cache
def content(name: str) -> dict[str, Any]:
    return golden.read(name)


def as_read_here(array: gzarr.Array, value: Any) -> Any:
    """What gzarr reads differently on purpose: zarr 2 gives the number 0 where text or bytes were never written."""
    empty = {"string": "", "bytes": {"bytes": ""}}.get(array.metadata.data_type.variable, 0)
    if isinstance(value, dict) and "objects" in value:
        return value | {"objects": [as_read_here(array, item) for item in value["objects"]]}
    return empty if type(value) is int and value == 0 else value


def differences(array: gzarr.Array, expected: dict[str, Any]) -> list[str]:
    """What gzarr reads in another way than the writer."""
    dtype = array.dtype
    shown = golden.native(dtype) if array.zarr_format == 3 else dtype
    found = {
        "dtype": shown.str if shown.names is None else json.loads(json.dumps(np.lib.format.dtype_to_descr(shown))),
        "chunks": list(array.chunks),
        "shards": None if array.shards is None else list(array.shards),
        "order": array.order,
        "fill_value": golden.fill_to_json(array.fill_value, dtype),
        "attributes": array.attrs.asdict(),
        "dimension_names": None if array.dimension_names is None else list(array.dimension_names),
        "chunk_sizes": [list(sizes) for sizes in array.chunk_sizes],
    }
    facts = expected["facts"] | {"fill_value": as_read_here(array, expected["facts"]["fill_value"])}
    problems = [f"{k} {found[k]!r}, expected {v!r}" for k, v in facts.items() if k in found and found[k] != v]
    values, there = golden.values_to_json(np.asarray(array[...], dtype)), as_read_here(array, expected["values"])
    if there is not None and values != there:
        problems.append(f"values {str(values)[:200]}, expected {str(there)[:200]}")
    return problems


@pytest.mark.parametrize("name", FILES)
def test_arrays_are_read_as_their_writer_reads_them(name: str) -> None:
    problems = []
    arrays = content(name)["arrays"]
    for label, expected in arrays.items():
        if expected["facts"].get("pickled"):
            continue
        try:
            found = differences(gzarr.open_array(golden.stored_objects(expected), "r"), expected)
        except Exception as error:  # noqa: BLE001  any error is the finding
            found = [f"{type(error).__name__}: {error}"]
        problems += [f"{label}: {problem}" for problem in found]
    assert len(arrays) > 50
    assert not problems, "\n".join([f"{len(problems)} of {len(arrays)}", *problems[:30]])


@pytest.mark.parametrize("name", FILES)
def test_arrays_written_again_here_are_read_the_same(name: str) -> None:
    """Every chunk decoded and encoded by gzarr, in place: what is read stays, and so do the documents."""
    problems = []
    for label, expected in content(name)["arrays"].items():
        if expected["facts"].get("pickled"):
            continue
        stored = golden.stored_objects(expected)
        before = {k: v for k, v in stored.items() if k.rpartition("/")[2] in (".zarray", ".zattrs", "zarr.json")}
        array = gzarr.open_array(stored, "r+", write_empty_chunks=True)
        # a missing chunk of VLenArray is zeros, which become arrays when they are written
        lossy = any(word in label for word in ("zfpy", "bitround", "quantize", "VLenArray"))
        array[...] = array[...]
        problems += [f"{label}: {p}" for p in differences(gzarr.open_array(stored, "r"), expected) if not lossy]
        problems += [f"{label}: {k} changed" for k, v in before.items() if stored[k] != v]
    assert not problems, "\n".join([str(len(problems)), *problems[:30]])


@pytest.mark.parametrize("name", FILES)
def test_hierarchies_are_read_as_their_writer_reads_them(name: str) -> None:
    for label, expected in content(name)["groups"].items():
        root = gzarr.open_group(golden.stored_objects(expected), "r")
        found = {"": root, **dict(root.members(None))}
        assert sorted(found) == sorted(expected["members"]), label
        for path, member in expected["members"].items():
            assert found[path].attrs.asdict() == member["attributes"], path
            if "values" in member:
                assert golden.values_to_json(found[path][...]) == member["values"], path


def test_pickled_objects_are_refused_by_name() -> None:
    pickled = [e for e in content("zarr2")["arrays"].values() if e["facts"].get("pickled")]
    assert pickled
    for expected in pickled:
        stored = golden.stored_objects(expected)
        with pytest.raises(GzarrError, match=r"pickle.*code"):
            gzarr.open_array(stored, "r")[...]


def test_every_writer_has_its_file() -> None:
    assert {content(name)["writer"].split()[0] for name in FILES} == {"zarr", "zarr-python"}
