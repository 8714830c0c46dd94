"""Pickling: nodes travel to other processes; what is on disk is opened there again, what is in memory travels along."""

import copy
import multiprocessing
import pickle

import numpy as np
import pytest

import gzarr


def again(node):
    return pickle.loads(pickle.dumps(node))


@pytest.mark.usefixtures("zarr_format")
def test_in_memory():
    z1 = gzarr.array(np.arange(100000), compressor=None)
    data = pickle.dumps(z1)
    assert len(data) > 5000
    z2 = pickle.loads(data)
    assert z1 == z2
    assert np.array_equal(z1[:], z2[:])
    z2[0] = 5
    assert z1[0] == 0
    assert z1 != z2


@pytest.mark.usefixtures("zarr_format")
def test_on_disk(tmp_path):
    z3 = gzarr.open(tmp_path / "walnuts.zarr", mode="w", shape=(1000, 1000), chunks=(100, 100), dtype="i4")
    z3[:] = 7
    data = pickle.dumps(z3)
    assert len(data) < 500 + len(str(tmp_path))
    z4 = pickle.loads(data)
    assert z3 == z4
    assert np.array_equal(z3[:], z4[:])
    z4[0, 0] = 1
    assert z3[0, 0] == 1


@pytest.mark.usefixtures("zarr_format")
def test_groups(tmp_path):
    for store in ({}, tmp_path / "x.zarr"):
        root = gzarr.open_group(store, mode="w")
        root["a/b"] = np.arange(3)
        found = again(root["a"])
        assert found == root["a"]
        assert found["b"][:].tolist() == [0, 1, 2]
        assert again(gzarr.open_group(store, mode="r")).read_only


@pytest.mark.usefixtures("zarr_format")
def test_options_and_views_survive():
    z = gzarr.array(np.arange(10, dtype="i4"), chunks=3, write_empty_chunks=True)
    assert again(z).write_empty_chunks
    reader = gzarr.open(z.store, mode="r")
    assert again(reader).read_only
    assert again(reader) == reader
    view = again(z.astype("f4"))
    assert (view.dtype, view.is_view, view.read_only) == (np.float32, True, True)
    assert view[:].tolist() == list(map(float, range(10)))
    assert (again(z.view(dtype="u4")).dtype, again(z.view(shape=(5,))).shape) == (np.uint32, (5,))


def test_copies():
    z = gzarr.array(np.arange(10))
    assert copy.copy(z)[3] == 3
    deep = copy.deepcopy(z)
    deep[0] = 9
    assert z[0] == 0


@pytest.mark.usefixtures("zarr_format")
def test_what_is_gone_is_an_error(tmp_path):
    z = gzarr.open(tmp_path / "x.zarr", mode="w", shape=(3,))
    data = pickle.dumps(z)
    del gzarr.open(tmp_path, mode="a")["x.zarr"]
    with pytest.raises(gzarr.ArrayNotFoundError, match=r"x\.zarr"):
        pickle.loads(data)


def _sum(z):
    return int(z[:].sum())


def test_in_other_processes(tmp_path):
    z = gzarr.array(np.arange(100), chunks=10, store=tmp_path / "x.zarr")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_sum, [z, gzarr.open(tmp_path / "x.zarr", mode="r")]) == [4950, 4950]


@pytest.mark.parametrize(
    "thing",
    [
        gzarr.codecs.ZstdCodec(3),
        gzarr.codecs.NumcodecsCodec("delta", {"dtype": "<i4"}),
        gzarr.zeros((4, 4), chunks=(2, 2), shards=(4, 4)).metadata,
        gzarr.zeros(3, dtype="S3").metadata,
    ],
    ids=lambda t: type(t).__name__,
)
def test_metadata(thing):
    assert again(thing) == thing


@pytest.mark.parametrize(
    "error",
    [
        gzarr.errors.CodecError("bad", index=3, codec="zstd"),
        gzarr.errors.ChunkError("bad", path="p", key="c/0", chunk_coords=(0,), codec="zstd"),
        gzarr.MetadataError("bad"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors(error):
    """Pools of processes pickle the errors of their workers; one that cannot be unpickled hangs the pool."""
    found = again(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)
