"""Keywords that say how a node is reached: caches, the kind of array that reads give."""

from __future__ import annotations

import pickle

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.errors import DeviceError, GzarrError
from gzarr.storage import MemoryStore

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
