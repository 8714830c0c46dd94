"""Dask over gzarr arrays: both directions, in threads and on a cluster of processes, blocks on stored objects."""

import itertools
import threading

import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import tokenize
from distributed import Client, LocalCluster

import gzarr
import gzarr.images
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.emulated_arrays import EmulatedArray
from gzarr.interop.dask import from_zarr, to_zarr

DATA = np.arange(60 * 50, dtype="i4").reshape(60, 50)
LAYOUTS = {
    "v2": {"zarr_format": 2, "chunks": (16, 20)},
    "v3": {"chunks": (16, 20)},
    "shards": {"chunks": (8, 10), "shards": (16, 20)},
    "chunks of several lengths": {"chunks": [[10, 30, 20], [25, 25]]},
    "order F, big endian": {"chunks": (16, 20), "order": "F", "dtype": ">i4"},
}


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, which only the tests that ask for them use."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def on_a_cluster(cluster):
    with cluster.as_current(), dask.config.set(scheduler=cluster):
        yield


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


def stored(path, **layout):
    return gzarr.create_array(path, data=DATA, **layout)


def object_edges(array):
    return [set(axis.edges()) for axis in array.metadata.grid]


# -- reading -----------------------------------------------------------------------------------------------------


def test_from_array(tmp_path, layout):
    z = stored(tmp_path / "x.zarr", **layout)
    x = da.from_array(z)
    assert (x.shape, x.dtype, type(x._meta)) == (z.shape, z.dtype, np.ndarray)
    np.testing.assert_array_equal(x.compute(), DATA)
    np.testing.assert_array_equal(x[::-3, [4, 1, 1]].compute(), DATA[::-3, [4, 1, 1]])


def test_from_zarr_takes_one_block_an_object(tmp_path, layout):
    z = stored(tmp_path / "x.zarr", **layout)
    for x in (from_zarr(z), from_zarr(tmp_path / "x.zarr"), from_zarr(str(tmp_path), "x.zarr")):
        assert [set(np.cumsum((0, *c)).tolist()) for c in x.chunks] == object_edges(z)
        assert (x.dtype, type(x._meta)) == (z.dtype, np.ndarray)
        assert x.npartitions == len(x.chunks[0]) * len(x.chunks[1])
        np.testing.assert_array_equal(x.mean(axis=0).compute(), DATA.mean(axis=0))


def test_from_zarr_takes_other_blocks(tmp_path):
    z = stored(tmp_path / "x.zarr", chunks=(16, 20))
    assert from_zarr(z, chunks=(30, 25)).chunks == ((30, 30), (25, 25))
    assert from_zarr(z, chunks="auto").numblocks == (1, 1)


def test_other_element_types():
    for data in (np.array(["a", "bcd", ""], object), np.array(["2001-01-01"], "M8[D]"), np.array(3.5)):
        z = gzarr.array(data)
        x = from_zarr(z)
        assert x.dtype == z.dtype
        np.testing.assert_array_equal(x.compute(scheduler="threads"), data)


def test_what_is_missing_is_an_error(tmp_path):
    with pytest.raises(gzarr.ArrayNotFoundError, match="nothing"):
        from_zarr(tmp_path / "nothing")


def test_names_follow_the_array(tmp_path):
    """The same array has the same name; another array at its place, or the array on another device, has another."""
    z = stored(tmp_path / "x.zarr", chunks=(16, 20))
    assert from_zarr(z).name == from_zarr(z).name
    assert from_zarr(tmp_path / "x.zarr").name == from_zarr(tmp_path / "x.zarr").name
    assert from_zarr(z, name=False).name != from_zarr(z, name=False).name
    before = tokenize(z)
    assert tokenize(z.astype("f8")) != before
    z2 = gzarr.create_array(tmp_path / "x.zarr", shape=DATA.shape, chunks=(16, 20), dtype="u4", overwrite=True)
    assert tokenize(z2) != before
    memory = gzarr.array(DATA)
    before = tokenize(memory)
    memory[0, 0] = 9
    assert tokenize(memory) != before


# -- writing -----------------------------------------------------------------------------------------------------


def test_store_takes_arrays_as_they_are(tmp_path, layout):
    z = gzarr.zeros(DATA.shape, store=tmp_path / "x.zarr", **{"dtype": "i4", **layout})
    da.store(da.from_array(DATA, chunks=(16, 20)), z, lock=False, scheduler="sync")
    np.testing.assert_array_equal(z[:], DATA)


def test_to_zarr_creates(tmp_path):
    x = da.from_array(DATA, chunks=(16, 20))
    assert to_zarr(x, tmp_path / "x.zarr", attributes={"unit": "K"}) is None
    z = gzarr.open_array(tmp_path / "x.zarr")
    assert (z.chunks, z.dtype, dict(z.attrs)) == ((16, 20), DATA.dtype, {"unit": "K"})
    np.testing.assert_array_equal(z[:], DATA)
    with pytest.raises(gzarr.ContainsArrayError):
        to_zarr(x, tmp_path / "x.zarr")
    to_zarr(x + 1, tmp_path / "x.zarr", overwrite=True, zarr_format=2)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "x.zarr", "r")[:], DATA + 1)


def test_to_zarr_with_a_component_and_shards(tmp_path):
    source, chunks = da.from_array(DATA, chunks=(7, 9)), {"chunks": (8, 10), "shards": (16, 20)}
    back = to_zarr(source, tmp_path / "g.zarr", "a/b", **chunks, return_stored=True)
    np.testing.assert_array_equal(back.compute(), DATA)
    assert gzarr.open_group(tmp_path / "g.zarr", "r")["a/b"].shards == (16, 20)


def test_to_zarr_takes_a_layout(tmp_path):
    blocks = da.arange(300 * 400, chunks=7000).reshape(300, 400)
    to_zarr(blocks, tmp_path / "a.zarr", layout="gpu")
    z = gzarr.open_array(tmp_path / "a.zarr")
    assert (z.chunks, z.shards) == ((150, 200), (300, 400))
    assert np.array_equal(z[...], blocks.compute())


def test_to_zarr_later(tmp_path):
    later = to_zarr(da.from_array(DATA, chunks=(16, 20)), tmp_path / "x.zarr", compute=False)
    z = gzarr.open_array(tmp_path / "x.zarr")
    assert not z[:].any()
    dask.compute(later)
    np.testing.assert_array_equal(z[:], DATA)


@pytest.mark.parametrize("region", [np.s_[5:47, 3:31], np.s_[2:60:3, 1:50:4], np.s_[7:8]])
def test_to_zarr_moves_blocks_onto_objects(tmp_path, layout, region):
    """Each task writes whole objects, except at the border of the region, whatever the blocks were."""
    z = gzarr.zeros(DATA.shape, store=tmp_path / "x.zarr", **{"dtype": "i4", **layout})
    expected = np.zeros_like(DATA)
    expected[region] = DATA[region]
    for chunks in ((4, 4), (9, 17), (60, 50)):
        z[:] = 0
        stored_blocks = to_zarr(
            da.from_array(DATA[region], chunks=chunks), z, region=region, compute=False, return_stored=True
        ).chunks
        dask.compute(to_zarr(da.from_array(DATA[region], chunks=chunks), z, region=region, compute=False))
        np.testing.assert_array_equal(z[:], expected)
        slices = [
            slice(*s.indices(n)) for s, n in itertools.zip_longest(to_tuple(region), z.shape, fillvalue=slice(None))
        ]
        for lengths, within, edges in zip(stored_blocks, slices, object_edges(z), strict=True):
            starts = np.cumsum((0, *lengths))
            for start in starts[1:-1].tolist():
                last, first = within.start + (start - 1) * within.step, within.start + start * within.step
                assert any(last < edge <= first for edge in edges)


def to_tuple(region):
    return region if isinstance(region, tuple) else (region,)


@pytest.mark.parametrize("shape", [(0, 3), (), (1,)])
def test_to_zarr_of_unusual_shapes(tmp_path, shape):
    data = np.ones(shape)
    to_zarr(da.from_array(data), tmp_path / "x.zarr")
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "x.zarr", "r")[...], data)


def test_irregular_blocks_become_regular_chunks(tmp_path):
    to_zarr(da.from_array(DATA, chunks=((10, 40, 10), (50,))), tmp_path / "x.zarr")
    z = gzarr.open_array(tmp_path / "x.zarr", "r")
    assert z.chunks == (40, 50)
    np.testing.assert_array_equal(z[:], DATA)


def test_a_part_of_an_array_at_a_path_is_written(tmp_path):
    x = da.from_array(DATA, chunks=(16, 20))
    there = stored(tmp_path / "part.zarr", chunks=(16, 20))
    to_zarr(x[:3] + 1000, tmp_path / "part.zarr", region=np.s_[5:8])
    np.testing.assert_array_equal(there[5:8], DATA[:3] + 1000)
    with pytest.raises(ValueError, match="share chunks or shards, which tasks would overwrite: rechunk to"):
        to_zarr(x.rechunk((5, -1)), tmp_path / "part.zarr", region=(), align=False)


def test_wrong_calls_of_to_zarr(tmp_path):
    z = gzarr.zeros(DATA.shape, store=tmp_path / "x.zarr", dtype="i4", chunks=10)
    x = da.from_array(DATA, chunks=20)
    with pytest.raises(ValueError, match=r"\(60, 50\) into \(5, 50\)"):
        to_zarr(x, z, region=(slice(0, 5),))
    with pytest.raises(gzarr.SelectionError, match="positive"):
        to_zarr(x, z, region=(slice(None, None, -1),))
    with pytest.raises(gzarr.SelectionError, match="slices"):
        to_zarr(x, z, region=(3, slice(None)))
    with pytest.raises(TypeError, match="component, overwrite, fill_value: for new arrays only"):
        to_zarr(x, z, "a", overwrite=True, fill_value=3)
    with pytest.raises(gzarr.ArrayNotFoundError):
        to_zarr(x, tmp_path / "y.zarr", region=(slice(0, 5),))
    with pytest.raises(ValueError, match="leave out fill_value"):
        to_zarr(x, tmp_path / "y.zarr", region=(slice(0, 5),), fill_value=3)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        to_zarr(x[x > 3], tmp_path / "y.zarr")
    with pytest.raises(gzarr.ReadOnlyError):
        to_zarr(x, gzarr.open_array(tmp_path / "x.zarr", "r"))
    assert not (tmp_path / "y.zarr").exists()
    assert not z[:].any()


# -- devices -------------------------------------------------------------------------------------------------------


@pytest.fixture
def device():
    """A backend whose arrays refuse to become NumPy arrays, as CuPy's do."""
    return GpuBackend(EmulatedDevice(arrays="device"))


@pytest.mark.parametrize("dtype", ["i4", ">i4"])
def test_blocks_stay_on_the_device(tmp_path, dtype, device):
    z = gzarr.create_array(tmp_path / "x.zarr", data=DATA, chunks=(16, 20), dtype=dtype)
    x = from_zarr(z, device=device)
    assert (type(x._meta), x.dtype) == (EmulatedArray, np.int32)
    found = (x[::7, 3:] * 2).compute(scheduler="sync")
    assert type(found) is EmulatedArray
    np.testing.assert_array_equal(found.get(), DATA[::7, 3:] * 2)
    to_zarr(x + 1, tmp_path / "y.zarr")
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "y.zarr", "r")[:], DATA + 1)


def test_from_array_keeps_the_device_too(device):
    x = da.from_array(gzarr.array(DATA, chunks=(16, 20)).to(device))
    assert type(x._meta) is EmulatedArray
    assert type(x.sum(axis=0).compute(scheduler="sync")) is EmulatedArray


def test_blocks_are_decoded_by_the_gpu_pipeline(tmp_path, layout):
    device = EmulatedDevice()
    x = from_zarr(stored(tmp_path / "x.zarr", **layout), device=GpuBackend(device))
    np.testing.assert_array_equal(x.compute(scheduler="threads"), DATA)
    assert {"copy_plain", "copy_bytes", "zstd"} & set(device.launches)


# -- exchange with zarr-python's files ------------------------------------------------------------------------------


def test_files_go_both_ways_through_dasks_own_functions(tmp_path, zarr_format):
    pytest.importorskip("zarr", minversion="3")
    x = da.from_array(DATA, chunks=(16, 20))
    da.to_zarr(x, str(tmp_path / "theirs.zarr"), zarr_format=zarr_format)
    np.testing.assert_array_equal(from_zarr(tmp_path / "theirs.zarr").compute(), DATA)
    np.testing.assert_array_equal(gzarr.open(str(tmp_path / "theirs.zarr"), "r")[:], DATA)
    to_zarr(x, tmp_path / "ours.zarr", zarr_format=zarr_format)
    theirs = da.from_zarr(str(tmp_path / "ours.zarr"))
    assert theirs.npartitions == 12
    np.testing.assert_array_equal(theirs.compute(), DATA)


# -- arrays that read what they are stored into -----------------------------------------------------------------------


def by_a_function(z):
    return da.map_blocks(lambda _: z[::-1], da.zeros(z.shape, chunks=-1), dtype=z.dtype)


READS = {
    "from_zarr": lambda z: from_zarr(z)[::-1],
    "from_array": lambda z: da.from_array(z, chunks=(7, 9))[::-1],
    "a function": by_a_function,
}


@pytest.mark.parametrize("place", ["memory", "local"])
@pytest.mark.parametrize("kind", READS)
def test_an_array_that_reads_itself_is_computed_first(tmp_path, place, kind):
    z = gzarr.array(DATA, store=None if place == "memory" else tmp_path / "x.zarr", chunks=(5, 5))
    assert to_zarr(READS[kind](z), z) is None
    np.testing.assert_array_equal(z[:], DATA[::-1])
    back = to_zarr(READS[kind](z)[:20], z, region=(slice(10, 50, 2),), return_stored=True)
    wanted = DATA[::-1].copy()
    wanted[10:50:2] = DATA[:20]
    np.testing.assert_array_equal(z[:], wanted)
    np.testing.assert_array_equal(back.compute(), DATA[:20])
    with pytest.raises(ValueError, match=r"reads what it is stored into.*call its persist\(\) first"):
        to_zarr(READS[kind](z), z, compute=False)
    to_zarr(READS[kind](z).persist(), z, compute=False).compute()
    np.testing.assert_array_equal(z[:], wanted[::-1])


def test_arrays_that_read_others_are_streamed(tmp_path, monkeypatch):
    """Also if something in the graph cannot be pickled, which is how the graph is searched."""
    z = gzarr.array(DATA, store=tmp_path / "x.zarr", chunks=(16, 20))
    other = from_zarr(gzarr.array(DATA, chunks=(16, 20)))
    lock = threading.Lock()
    monkeypatch.setattr(gzarr.Array, "__setitem__", lambda *args: stored_blocks.append(args[2].shape))
    stored_blocks = []
    to_zarr(da.map_blocks(lambda b: b if lock.locked() else b + 1, other), z)
    assert sorted(stored_blocks) == sorted(itertools.product((16, 16, 16, 12), (20, 20, 10)))


# -- several processes -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_a_cluster")
class TestCluster:
    @pytest.mark.parametrize("layout", ["v2", "shards"])
    def test_workers_read(self, tmp_path, layout):
        z = stored(tmp_path / "x.zarr", **LAYOUTS[layout])
        for x in (from_zarr(z), da.from_array(z)):
            np.testing.assert_array_equal((x.astype("i8") * 2).compute(), 2 * DATA.astype("i8"))

    def test_workers_read_memory_that_travels(self):
        np.testing.assert_array_equal(from_zarr(gzarr.array(DATA, chunks=(30, 25))).compute(), DATA)

    def test_workers_read_a_zip(self, tmp_path):
        gzarr.save(tmp_path / "x.zip", DATA)
        z = gzarr.open(tmp_path / "x.zip", mode="r")
        np.testing.assert_array_equal(from_zarr(z).compute(), DATA)
        z.store.close()

    @pytest.mark.parametrize("layout", ["v2", "shards", "chunks of several lengths"])
    def test_workers_write_beside_each_other(self, tmp_path, layout):
        """Blocks that do not fit the objects: without alignment the processes would overwrite each other's parts."""
        z = gzarr.zeros(DATA.shape, store=tmp_path / "x.zarr", **{"dtype": "i4", **LAYOUTS[layout]})
        for chunks in ((3, 50), (11, 7)):
            to_zarr(da.from_array(DATA, chunks=chunks) + 1, z)
            np.testing.assert_array_equal(z[:], DATA + 1)
            z[:] = 0

    def test_workers_store_without_a_lock(self, tmp_path):
        z = gzarr.zeros(DATA.shape, store=tmp_path / "x.zarr", dtype="i4", chunks=(16, 20))
        da.store(da.from_array(DATA, chunks=(16, 20)), z, lock=False)
        np.testing.assert_array_equal(z[:], DATA)

    def test_workers_cannot_write_into_memory(self):
        x = da.from_array(DATA, chunks=(16, 20))
        z = gzarr.zeros(DATA.shape, dtype="i4")
        with pytest.raises(gzarr.StoreError, match="memory of this process"):
            to_zarr(x, z)
        with dask.config.set(scheduler="threads"):
            to_zarr(x, z)
        np.testing.assert_array_equal(z[:], DATA)

    def test_errors_of_workers_name_the_chunk(self, tmp_path):
        z = stored(tmp_path / "x.zarr", chunks=(16, 20))
        z.store["c/1/1"] = b"damaged"
        with pytest.raises(gzarr.ChunkError, match="c/1/1"):
            from_zarr(z).compute()


def test_processes_build_the_levels_of_an_image(tmp_path, cluster):
    data = np.random.default_rng(0).integers(0, 60000, (600, 530), "u2")
    image = gzarr.images.create_image(tmp_path / "image.zarr", data, chunks=(32, 32), levels=0)
    image = gzarr.images.build_pyramid(image, 4, max_nbytes=300_000, on=cluster)
    assert [level.shape for level in image.levels[1:]] == [(300, 265), (150, 133), (75, 67), (38, 34)]
    level = from_zarr(image[1], chunks=(128, 128))
    blocks = data.reshape(300, 2, 265, 2).astype("f8").sum((1, 3)) / 4
    np.testing.assert_array_equal(level.compute(scheduler=cluster), np.rint(blocks).astype("u2"))
    assert not image.group.verify().problems
