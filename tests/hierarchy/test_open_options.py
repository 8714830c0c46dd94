"""Keywords that say how a node is reached: a second store for chunks, the kind of array that reads give."""

from __future__ import annotations

import pickle

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.errors import DeviceError, GzarrError, MetadataError, ReadOnlyError
from gzarr.storage import MemoryStore, SplitStore, read_only

# -- chunk_store ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_metadata_and_chunks_lie_in_two_stores(zarr_format, tmp_path):
    documents, chunks = {}, MemoryStore()
    root = gzarr.open_group(documents, "w", zarr_format=zarr_format, chunk_store=chunks)
    root.create_array("a/x", data=np.arange(6), chunks=2, attributes={"k": 1})
    root["a/x"].append([6, 7])
    assert {key.rpartition("/")[2] for key in documents} <= {"zarr.json", ".zarray", ".zgroup", ".zattrs"}
    assert len(chunks) == 4
    assert not any("." in key or "json" in key for key in chunks)
    for node in (gzarr.open(documents, "r", chunk_store=chunks), pickle.loads(pickle.dumps(root))):
        assert node["a/x"][...].tolist() == list(range(8))
        assert node["a/x"].nchunks_initialized == 4
    assert root.chunk_store is chunks
    assert gzarr.open_array(documents, path="a/x")[...].tolist() == [0] * 8
    assert gzarr.open_array(documents, path="a/x", chunk_store=chunks)[3] == 3
    gzarr.consolidate_metadata(documents)
    assert gzarr.open_consolidated(documents, chunk_store=chunks)["a/x"][5] == 5
    root.move("a", "b")
    assert root["b/x"][...].tolist() == list(range(8))
    root["b/x"].resize(3)
    assert len(chunks) == 2
    del root["b"]
    assert len(chunks) == 0
    assert [key for key in documents if "x" in key] == []


def test_a_chunk_store_may_be_a_path_and_must_be_writable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an archive is made before the path in it is refused
    documents = {}
    z = gzarr.zeros(4, store=documents, chunks=2, chunk_store=tmp_path / "chunks")
    z[...] = 1
    assert sorted(p.name for p in (tmp_path / "chunks/c").iterdir()) == ["0", "1"]
    assert z.chunk_store.root == str(tmp_path / "chunks")
    plain = gzarr.zeros(3)
    assert plain.chunk_store is plain.store
    refusing = gzarr.open_array(documents, chunk_store=read_only(MemoryStore()))
    with pytest.raises(ReadOnlyError, match="chunk_store"):
        refusing[0] = 1
    for bad in (5, "x.zip/inner"):
        with pytest.raises((TypeError, MetadataError, GzarrError)):
            gzarr.open_array(documents, chunk_store=bad)
    assert isinstance(z.store, SplitStore)


# -- meta_array ----------------------------------------------------------------------------------------------------


def test_a_numpy_array_asks_for_the_host():
    for z in (gzarr.zeros(3, meta_array=np.empty(())), gzarr.group(meta_array=np.empty(0)).zeros("x", shape=3)):
        assert z.device == "cpu"
        assert isinstance(z[...], np.ndarray)
        assert isinstance(z.meta_array, np.ndarray)


def test_an_array_of_a_device_asks_for_that_device():
    class OnDevice:
        __cuda_array_interface__ = {"shape": (), "typestr": "<f8", "data": (0, False), "version": 3}
        device = type("Device", (), {"id": 7})()

    try:
        expected = gzarr.zeros(3, device="cuda:7").device
    except GzarrError as error:
        with pytest.raises(DeviceError) as caught:
            gzarr.zeros(3, meta_array=OnDevice())
        assert str(caught.value) == str(error)  # noqa: PT017 - the same error as for device="cuda:7"
    else:
        assert gzarr.zeros(3, meta_array=OnDevice()).device == expected
    with pytest.raises(DeviceError, match="meta_array is on 'cuda:7' and device='cpu'"):
        gzarr.zeros(3, meta_array=OnDevice(), device="cpu")
    with pytest.raises(TypeError, match="NumPy or CuPy array, got list"):
        gzarr.zeros(3, meta_array=[1])


# -- all of them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [gzarr.group, gzarr.create_group, gzarr.open_group, gzarr.open_consolidated])
def test_unknown_keywords_of_groups_are_named(call):
    with pytest.raises(TypeError, match="'chunck_store'"):
        call({}, chunck_store={})


def test_members_add_to_what_their_group_was_opened_with():
    cache = gzarr.ChunkCache(2**20)
    group = gzarr.group(zarr_format=2, allow_pickle=True)
    member = group.create_array("x", data=[1, 2], dtype=object, object_codec=numcodecs.Pickle(), chunk_cache=cache)
    assert member[...].tolist() == [1, 2]
    assert member.opened_with.chunk_cache is cache
    assert group.opened_with.chunk_cache is None


def test_nodes_are_equal_however_they_are_reached(tmp_path):
    plain = gzarr.group(tmp_path / "x")
    plain.create_array("a", data=[1, 2])
    gzarr.consolidate_metadata(tmp_path / "x")
    locked = gzarr.open_group(tmp_path / "x", synchronizer=gzarr.ThreadSynchronizer())
    consolidated = gzarr.open_consolidated(tmp_path / "x")
    assert plain == locked == consolidated
    assert plain["a"] == locked["a"] == consolidated["a"]


def test_all_of_them_at_once(tmp_path):
    options = {
        "synchronizer": gzarr.ThreadSynchronizer(),
        "chunk_store": tmp_path / "chunks",
        "chunk_cache": 2**20,
        "meta_array": np.empty(()),
        "allow_pickle": True,
    }
    z = gzarr.open(tmp_path / "x.zarr", "w", shape=10, chunks=3, dtype="i4", **options)
    z[...] = np.arange(10)
    for opened in (gzarr.open(tmp_path / "x.zarr", "r+", **options), gzarr.open_array(tmp_path / "x.zarr", **options)):
        assert opened[...].tolist() == opened[...].tolist() == list(range(10))
        assert opened.opened_with.chunk_cache.hits == 4
        opened.append([10])
        assert opened[-1] == 10
        opened.resize(10)


def test_options_of_the_device_go_with_all_of_them():
    options = {"max_device_nbytes": 1 << 20, "strict": True}
    group = gzarr.group(zarr_format=2, device="emulated", allow_pickle=True, **options)
    group.create_array("x", data=[1, 2], dtype=object, object_codec=numcodecs.Pickle())
    again = pickle.loads(pickle.dumps(group))
    for node in (again, again["x"], pickle.loads(pickle.dumps(group["x"]))):
        assert node.device == "emulated"
        assert node.opened_with.allow_pickle
        assert node.backend.options == group.backend.options
        assert node.backend.options["max_device_nbytes"] == 1 << 20
    assert pickle.loads(pickle.dumps(group.opened_with)).allow_pickle


def test_moving_to_another_device_keeps_trust_and_takes_options():
    z = gzarr.zeros(6, chunks=2, chunk_cache=2**20, allow_pickle=True)
    there = z.to("emulated", max_device_nbytes=1 << 20)
    assert there.device == "emulated"
    assert there.opened_with.allow_pickle
    assert there.opened_with.chunk_cache is None
    assert there.backend.options["max_device_nbytes"] == 1 << 20
    assert z.to("cpu").opened_with.chunk_cache is z.opened_with.chunk_cache
    assert z.to(z.backend).backend is z.backend
    assert gzarr.group(allow_pickle=True).to("emulated").opened_with.allow_pickle
    with pytest.raises(ValueError, match="leave out"):
        z.to(z.backend, strict=True)


def test_a_trusted_source_is_copied_by_as_many_threads_as_another():
    z = gzarr.zeros((64, 64), chunks=8, chunk_cache=2**20)
    z[...] = np.arange(64 * 64).reshape(64, 64)
    copy = MemoryStore()
    gzarr.transfer(z, copy, chunks=16)
    assert (gzarr.open(copy)[...] == z[...]).all()
