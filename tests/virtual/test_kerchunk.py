"""References in kerchunk's form."""

import base64
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.errors import CopyError, MetadataError, StoreError

RNG = np.random.default_rng(0)


def references(folder: Path, array: gzarr.Array, name: str = "a", **more):
    """References to all objects of an array in a folder beside them, and the array's documents."""
    root = folder / "data.zarr"
    refs = (
        {".zgroup": '{"zarr_format": 2}'}
        if array.zarr_format == 2
        else {"zarr.json": '{"zarr_format": 3, "node_type": "group"}'}
    )
    for file in filter(Path.is_file, root.rglob("*")):
        key = file.relative_to(root).as_posix()
        is_document = file.name.startswith(".z") or file.name == "zarr.json"
        place = [f"data.zarr/{key}", 0, file.stat().st_size]
        refs[f"{name}/{key}"] = file.read_text() if is_document else place
    return refs | more


def written(folder, refs, **more):
    (folder / "refs.json").write_text(json.dumps({"version": 1, "refs": refs, **more}))
    return gzarr.open(folder / "refs.json", mode="r")


OPTIONS = [
    {"zarr_format": 2},
    {"zarr_format": 2, "dimension_separator": "/"},
    {"zarr_format": 3},
    {"zarr_format": 3, "chunk_key_encoding": {"name": "v2", "separator": "."}},
    {"zarr_format": 3, "chunks": (5, 5), "shards": (10, 20)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_references_to_arrays(tmp_path, options):
    data = RNG.integers(0, 99, (30, 41))
    data[10:20, 10:20] = 0
    stored = gzarr.create_array(tmp_path / "data.zarr", data=data, **{"chunks": (10, 10), **options})
    group = written(tmp_path, references(tmp_path, stored))
    np.testing.assert_array_equal(group["a"][...], data)
    np.testing.assert_array_equal(group["a"][3:25:4, [0, 40]], data[3:25:4, [0, 40]])
    assert group["a"].nchunks_initialized == stored.nchunks_initialized
    assert sorted(group["a"].store.list_prefix("")) == sorted(references(tmp_path, stored))


def test_inline_chunks_templates_whole_objects_and_version_0(tmp_path):
    stored = gzarr.create_array(tmp_path / "data.zarr", data=np.arange(6), chunks=2, compressor=None, zarr_format=2)
    refs = references(tmp_path, stored)
    refs["a/0"] = "base64:" + base64.b64encode(np.array([7, 8]).tobytes()).decode()
    refs["a/1"] = ["{{ there }}/1"]
    group = written(tmp_path, refs, templates={"there": "data.zarr"})
    assert group["a"][:].tolist() == [7, 8, 2, 3, 4, 5]
    refs["a/1"] = ["data.zarr/1"]
    (tmp_path / "old.json").write_text(json.dumps(refs))
    assert gzarr.open(tmp_path / "old.json", mode="r")["a"][:].tolist() == [7, 8, 2, 3, 4, 5]


def test_an_array_of_one_chunk_that_is_a_whole_object(tmp_path):
    stored = gzarr.create_array(tmp_path / "data.zarr", data=np.arange(6), zarr_format=2)
    group = written(tmp_path, references(tmp_path, stored) | {"a/0": ["data.zarr/0"]})
    assert group["a"][:].tolist() == group["a"].oindex[[0, 1, 2, 3, 4, 5]].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("place", ["/etc/hostname", "../secret", "file:///etc/hostname", "s3://bucket/x"])
def test_references_elsewhere_are_refused_unless_they_are_allowed(tmp_path, place):
    stored = gzarr.create_array(tmp_path / "data.zarr", data=np.arange(6), chunks=2, zarr_format=2)
    refs = references(tmp_path, stored) | {"a/1": [place, 0, 4]}
    with pytest.raises(StoreError, match="which is not beside it; if you trust it, allow the place"):
        written(tmp_path, refs)


def test_allowed_places_are_read_and_not_what_is_above_them(tmp_path):
    stored = gzarr.create_array(tmp_path / "data.zarr", data=np.arange(6), chunks=2, zarr_format=2)
    refs = references(tmp_path, stored) | {"a/1": [f"{tmp_path}/data.zarr/1"]}
    (tmp_path / "x").mkdir()
    for key in ("a/0", "a/2"):
        refs[key] = [f"file://{tmp_path}/data.zarr/{key[2:]}"]
    with pytest.raises(StoreError, match="not beside"):
        written(tmp_path / "x", refs)
    (tmp_path / "x/data.zarr").symlink_to(tmp_path / "data.zarr")
    with pytest.raises(StoreError, match="not beside"):  # a link is where it leads
        written(tmp_path / "x", refs | {f"a/{n}": [f"data.zarr/{n}"] for n in range(3)})
    with gzarr.config.set({"virtual.containers": [f"{tmp_path}/data.zarr"]}):
        assert written(tmp_path / "x", refs)["a"][:].tolist() == [0, 1, 2, 3, 4, 5]
        assert written(tmp_path / "x", refs | {"a/1": ["data.zarr/1"]})["a"][:].tolist() == [0, 1, 2, 3, 4, 5]
        for up in ("../other", f"file://{tmp_path}/data.zarr/../other"):
            with pytest.raises(StoreError, match="not beside"):
                written(tmp_path / "x", refs | {"a/1": [up]})
        written(tmp_path / "x", refs)
    for place in (tmp_path, str(tmp_path), [f"file://{tmp_path}"]):
        opened = gzarr.open(tmp_path / "x/refs.json", mode="r", virtual_containers=place)
        assert opened["a"][:].tolist() == [0, 1, 2, 3, 4, 5], place
        assert pickle.loads(pickle.dumps(opened))["a"][1] == 1


def test_paths_of_what_lies_beside_are_allowed_in_every_form(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    stored = gzarr.create_array(tmp_path / "real/data.zarr", data=np.arange(6), chunks=2, zarr_format=2)
    refs = references(tmp_path / "real", stored) | {
        "a/0": [f"{tmp_path}/real/data.zarr/0"],
        "a/1": [f"file://{tmp_path}/link/data.zarr/1"],
        "a/2": ["data.zarr/2"],
    }
    written(tmp_path / "real", refs)
    for place in ("real", "link"):
        assert gzarr.open(tmp_path / place / "refs.json", mode="r")["a"][:].tolist() == [0, 1, 2, 3, 4, 5]


def test_all_objects_of_a_server_or_of_this_machine_are_in_one_store(tmp_path, http_server):
    url, folder = http_server
    stored = gzarr.create_array(folder / "data.zarr", data=np.arange(12).reshape(4, 3), chunks=(1, 3))
    for place in (url, str(folder)):
        refs = {f"a/c/{row}/0": [f"{place}/data.zarr/c/{row}/0"] for row in range(4)}
        refs["a/zarr.json"] = (folder / "data.zarr/zarr.json").read_text()
        (tmp_path / "refs.json").write_text(
            json.dumps(refs | {"zarr.json": '{"zarr_format": 3, "node_type": "group"}'})
        )
        array = gzarr.open_array(tmp_path / "refs.json/a", mode="r", virtual_containers=place)
        np.testing.assert_array_equal(array[...], stored[...])
        assert len({id(store) for store, _ in array.store.contents.objects}) == 1


def test_faulty_references_are_refused(tmp_path):
    stored = gzarr.create_array(tmp_path / "data.zarr", data=np.arange(6), chunks=2, zarr_format=2)
    refs = references(tmp_path, stored)
    with pytest.raises(MetadataError, match="no chunk of a grid"):
        written(tmp_path, refs | {"a/9": ["data.zarr/1"]})
    with pytest.raises(StoreError, match="'there', which is missing"):
        written(tmp_path, refs | {"a/1": ["{{there}}/1"]})
    with pytest.raises(CopyError, match="still to be generated"):
        written(tmp_path, refs, gen=[{}])
    (tmp_path / "data.zarr/1").unlink()
    with pytest.raises(StoreError, match=r"'data\.zarr/1' is missing, which has 'a/1'"):
        written(tmp_path, refs)["a"][:]


@pytest.mark.parametrize(
    "more", [{"a/01": ["x", 0, 4]}, {"a/1": ["x", -4, 4]}, {"a/1": None}, {"a/1": ["x", 0]}], ids=str
)
def test_references_that_mean_nothing_are_refused(tmp_path, more):
    stored = gzarr.create_array(tmp_path / "data.zarr", data=np.arange(6), chunks=2, zarr_format=2)
    with pytest.raises(MetadataError, match="the reference"):
        written(tmp_path, references(tmp_path, stored) | more)


@pytest.mark.parametrize("up", ["%2e%2e", "..\\x", ".\t."])
def test_encoded_dots_do_not_lead_out_of_an_allowed_place(tmp_path, up):
    stored = gzarr.create_array(tmp_path / "data.zarr", data=np.arange(6), chunks=2, zarr_format=2)
    refs = references(tmp_path, stored) | {"a/1": [f"http://127.0.0.1:9/d/{up}/secret"]}
    with (
        gzarr.config.set({"virtual.containers": ["http://127.0.0.1:9/d/"]}),
        pytest.raises(StoreError, match="not beside"),
    ):
        written(tmp_path, refs)


def test_references_to_no_place_of_a_file_are_refused(tmp_path):
    array = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "compressor": None, "fill_value": 0}
    described = {".zgroup": {"zarr_format": 2}, "x/.zarray": {**array, "order": "C", "filters": None}}
    (tmp_path / "refs.json").write_text(json.dumps({"refs": {**described, "x/0": ["data", 10**30, 4]}}))
    with pytest.raises(gzarr.errors.MetadataError, match="is neither a text nor"):
        gzarr.open(tmp_path / "refs.json", mode="r")["x"][...]


@pytest.mark.parametrize(
    ("refs", "more", "message"),
    [
        ([1, 2], {}, r"'refs' is \[1, 2\], not an object with keys"),
        ({}, {"templates": [1]}, "'templates' is .*not an object with keys"),
        ({"x/.zarray": "{"}, {}, "x/.zarray: not valid JSON"),
        ({"x/.zarray": "base64:AAA"}, {}, "Incorrect padding"),
        ({"x/0": 3}, {}, "the reference 'x/0' is neither"),
        ({"x/0": "base64:AAA"}, {}, "Incorrect padding"),
        ({"x/0": ["/etc/hostname", 0, 4]}, {}, "a reference leads to '/etc/hostname'"),
    ],
)
def test_errors_name_the_file_of_references(tmp_path, refs, more, message):
    if isinstance(refs, dict):
        array = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "compressor": None, "fill_value": 0}
        refs = {".zgroup": {"zarr_format": 2}, "x/.zarray": {**array, "order": "C", "filters": None}} | refs
    (tmp_path / "refs.json").write_text(json.dumps({"refs": refs, **more}))
    with pytest.raises(gzarr.errors.GzarrError, match=rf"{tmp_path}/refs\.json: {message}"):
        gzarr.open(tmp_path / "refs.json", mode="r")["x"][...]


@pytest.mark.parametrize("key", ["x/{}.{}", "x/{}/{}", "x/c/{}/{}"])
def test_many_references_read_some_at_a_time_are_those_of_the_whole_text(tmp_path, monkeypatch, key):
    monkeypatch.setattr("gzarr.virtual.kerchunk._BLOCK_NBYTES", 777)
    counts = 23, 31
    meta = {"zarr_format": 2, "shape": [*counts], "chunks": [1, 1], "dtype": "<u4", "compressor": None, "order": "C"}
    meta |= {"fill_value": 0, "filters": None, "dimension_separator": key[4]}
    v3 = {"zarr_format": 3, "node_type": "array", "shape": [*counts], "data_type": "uint32", "fill_value": 0}
    v3["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [1, 1]}}
    v3 |= {
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    data = RNG.integers(0, 99, counts).astype("<u4")
    places = {key.format(*divmod(at, 31)): ["é {}],.bin", at * 4, 4] for at in RNG.permutation(data.size).tolist()}
    places["x/c/0/0" if "c" in key else f"x/0{key[4]}0"] = "base64:" + base64.b64encode(data[0, 0].tobytes()).decode()
    places["x/c/3/4" if "c" in key else f"x/3{key[4]}4"] = ["one.bin"]
    odd = {"x/.zattrs": {"a": [["],"], ["b\\"]] * 100, "c": {"refs": {"d": 1}}}}
    document = {"zarr.json": {"zarr_format": 3, "node_type": "group"}, "x/zarr.json": v3}
    if "c" not in key:
        document = {".zgroup": {"zarr_format": 2}, "x/.zarray": meta, **odd}
    (tmp_path / "é {}],.bin").write_bytes(data.tobytes())
    (tmp_path / "one.bin").write_bytes(data[3, 4].tobytes())
    for how in ({}, {"indent": 2}, {"ensure_ascii": False}):
        text = {"version": 1, "templates": {"u": "v"}, "refs": places | document, "after": [1, [2]]}
        (tmp_path / "refs.json").write_text(json.dumps(text, **how))
        group = gzarr.open(tmp_path / "refs.json", mode="r")
        np.testing.assert_array_equal(group["x"][...], data)
        assert "c" in key or group["x"].attrs["a"] == odd["x/.zattrs"]["a"]
    with pytest.raises(MetadataError, match=r"the reference '.*' is of no chunk of a grid of \(23, 31\)"):
        written(tmp_path, places | document | {key.format("01", 1): ["one.bin", 0, 4]})
