"""Inputs are told by their place, metadata, and stamps of a sample of what is stored."""

import os
import shutil

import numpy as np
import pytest

import gzarr
from gzarr.identity.inputs import SAMPLED, describe_files, describe_input, sampled_contents, sampled_keys
from gzarr.storage import LocalStore, MemoryStore


@pytest.fixture(params=["chunks", "shards", "v2"])
def array(request, tmp_path):
    how = {"shards": (20, 20)} if request.param == "shards" else {}
    how |= {"zarr_format": 2} if request.param == "v2" else {}
    return gzarr.create_array(tmp_path / "a.zarr", data=np.arange(1600).reshape(40, 40), chunks=(10, 10), **how)


def test_an_array_is_itself_until_it_is_written(array, tmp_path):
    before = describe_input(array)
    assert describe_input(gzarr.open_array(tmp_path / "a.zarr", mode="r")) == before
    assert before.said["place"] == f"file://{tmp_path}/a.zarr"
    assert len(before.keys) == (4 if array.shards else 16)
    array.attrs["title"] = "x"  # nothing is computed of it
    assert describe_input(array) == before
    array[39, 39] = 0
    after = describe_input(array)
    assert after.changed(before.said["stored"]) == [before.keys[-1]]
    assert {key for key in before.said if before.said[key] != after.said[key]} == {"stored"}


def test_a_copy_that_keeps_times_differs_by_its_place_alone(array, tmp_path):
    shutil.copytree(tmp_path / "a.zarr", tmp_path / "b.zarr")
    before, after = describe_input(array).said, describe_input(gzarr.open_array(tmp_path / "b.zarr")).said
    assert {key for key in before if before[key] != after[key]} == {"place"}


def test_places_are_absolute_and_tell_no_credentials(tmp_path, monkeypatch):
    z = gzarr.create_array(tmp_path / "a.zarr" / "x", shape=4)
    monkeypatch.chdir(tmp_path)
    for store, path in (("a.zarr", "x"), ("./a.zarr/x", ""), (tmp_path / "a.zarr", "x")):
        assert describe_input(gzarr.open_array(store, path=path, mode="r")).said["place"] == f"file://{z.store.root}"
    inside = describe_input(z, beside=(z.store, "")).said["place"]
    assert inside == "./"

    class Named(MemoryStore):
        def __str__(self):
            return "s3://user:secret@host/bucket?X-Amz-Signature=abc"

    assert "secret" not in (place := describe_input(gzarr.zeros(3, store=Named())).said["place"])
    assert "abc" not in place


def test_stores_without_lasting_versions_are_told_by_what_they_hold():
    z = gzarr.array(np.arange(100), chunks=10, compressors=None)
    before = describe_input(z)
    assert describe_input(gzarr.open_array(MemoryStore(dict(z.store)))) == before
    z[3] = 0
    assert describe_input(z).changed(before.said["stored"]) == [before.keys[0]]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_entries_of_an_archive_are_told_by_their_checksums(tmp_path, zarr_format):
    said = []
    for value in (0, 0, 1):
        with gzarr.ZipStore(tmp_path / "a.zip", "w") as store:
            data = np.zeros(10_000, "u1")
            data[0] = value  # far from the end
            z = gzarr.create_array(store, data=data, chunks=10_000, compressors=None, zarr_format=zarr_format)
            said.append(describe_input(z).said)
    assert said[0] == said[1]
    assert {key for key in said[0] if said[0][key] != said[2][key]} == {"stored"}


def test_of_many_chunks_a_spread_sample_is_looked_at():
    meta = gzarr.zeros((300, 400, 10), chunks=1).metadata
    keys = sampled_keys(meta, "a", SAMPLED)
    assert SAMPLED <= len(keys) == len(set(keys)) <= SAMPLED + 2
    assert keys == sampled_keys(meta, "a", SAMPLED)
    coords = np.array([[int(n) for n in key.split("/")[2:]] for key in keys])
    assert [len(set(coords[:, axis])) for axis in range(3)] == [300, pytest.approx(400, rel=0.1), 10]
    assert (coords.max(0) == [299, 399, 9]).all()
    assert (coords.min(0) == 0).all()
    assert sampled_keys(gzarr.zeros(()).metadata, "", SAMPLED) == ["c"]
    assert sampled_keys(gzarr.zeros(0).metadata, "", SAMPLED) == []


def test_servers_are_asked_little(tmp_path):
    z = gzarr.create_array(tmp_path / "a.zarr", shape=1000, chunks=1, dtype="u1")

    class Remote(LocalStore):
        concurrency = 8

    assert len(describe_input(gzarr.open_array(Remote(z.store.root))).keys) <= 252


def test_arrays_in_memory_files_and_others(tmp_path):
    data = np.arange(12).reshape(3, 4)
    assert describe_input(data) == describe_input(data.copy()) != describe_input(data + 1)
    np.save(tmp_path / "a.npy", data)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    said = describe_input(mapped).said
    assert said["place"] == str(tmp_path / "a.npy")
    assert describe_input(mapped[1:]).said["part"] != describe_input(mapped[:2]).said["part"]
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    assert describe_input(mapped).said["stored"] != said["stored"]
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = data
        assert describe_input(file["x"]).said["part"] == "/x"
    assert describe_input(iter([])).said["unknown"] == "builtins.list_iterator"
    assert describe_files(["https://user:secret@host/x.nc"]).said["place"] == "https://host/x.nc"


def test_a_sample_of_contents_is_that_of_a_copy(array, tmp_path):
    before = sampled_contents(array)
    shutil.copytree(tmp_path / "a.zarr", tmp_path / "b.zarr", copy_function=shutil.copy)
    os.utime(tmp_path / "b.zarr" / "zarr.json" if array.zarr_format == 3 else tmp_path / "b.zarr")
    assert sampled_contents(gzarr.open_array(tmp_path / "b.zarr")) == before
    array[20:30, 20:30] += 1
    assert sampled_contents(array) != before
    data = np.zeros((1000, 3))
    assert sampled_contents(data) != sampled_contents(data + 1)
    assert sampled_contents(np.zeros((0, 3))) == sampled_contents(np.zeros((0, 3)))
    assert sampled_contents(np.array(["a", "b"], object)) != sampled_contents(np.array(["a", "c"], object))


def test_data_in_device_memory_are_not_copied_to_be_compared(array):
    with gzarr.config.set({"emulated.arrays": "device"}):
        data = array.to("emulated")[...]
    with gzarr.testing.transfers() as seen:
        said = describe_input(data).said
    assert said == {"unknown": f"{type(data).__module__}.{type(data).__qualname__} in device memory"}
    assert seen.to_host.count == 0
