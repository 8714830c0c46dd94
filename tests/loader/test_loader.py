"""`gzarr.Loader` against NumPy: every batch holds what `batch_ids` says, whatever the device, layout and memory."""

import json
import pickle
import re
import time

import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkError
from tests.support.values import host

N = 203


def images(n=N, chunks=8, **keywords):
    rng = np.random.default_rng(1)
    data = rng.integers(0, 1000, (n, 6, 5)).astype("i4")
    return data, gzarr.array(data, chunks=(chunks, 6, 5), **keywords)


def check_epoch(loader, data, n=None):
    """Every batch holds its samples, and they are all there once. Returns: their numbers."""
    seen = []
    for step, batch in enumerate(loader):
        ids = loader.batch_ids(step)
        assert np.array_equal(host(batch), data[ids])
        seen.append(ids)
    seen = np.concatenate(seen)
    assert sorted(seen.tolist()) == list(range(len(data) if n is None else n))
    return seen


@pytest.mark.parametrize("shuffle", [False, "exact", "blocks"])
@pytest.mark.parametrize("chunks", [1, 8, 300])
@pytest.mark.parametrize("memory", [9_000, 1 << 20], ids=["little memory", "all in memory"])
def test_rows(device, shuffle, chunks, memory):
    data, z = images(chunks=chunks)
    loader = gzarr.Loader(z, 16, shuffle=shuffle, memory=memory, device=device, block_chunks=2)
    seen = check_epoch(loader, data)
    assert (seen.tolist() == list(range(N))) == (not shuffle)
    if shuffle:
        assert check_epoch(loader, data).tolist() != seen.tolist()


@pytest.mark.parametrize("keywords", [{"shards": (16, 6, 5)}, {"chunks": (3, 4, 2)}, {"chunks": ([100, 103], 6, 5)}])
def test_layouts(device, keywords):
    data, _ = images()
    z = gzarr.array(data, **{"chunks": (8, 6, 5), **keywords})
    check_epoch(gzarr.Loader(z, 16, shuffle=True, memory=9_000, device=device), data)


def test_several_arrays_of_other_chunks_and_labels_of_numpy(device):
    data, z = images()
    depth = gzarr.array(data[:, 0] * 2.0, chunks=(20, 6))
    label = np.arange(N) % 7
    loader = gzarr.Loader({"image": z, "depth": depth, "label": label}, 16, shuffle=True, memory=20_000, device=device)
    for step, batch in enumerate(loader):
        ids = loader.batch_ids(step)
        assert list(batch) == ["image", "depth", "label"]
        for name, expected in (("image", data), ("depth", data[:, 0] * 2.0), ("label", label)):
            assert np.array_equal(host(batch[name]), expected[ids])


@pytest.mark.parametrize("keywords", [{}, {"shards": (32, 6, 5)}], ids=["files", "shards"])
def test_a_store_behind_a_server(http_server, keywords):
    url, folder = http_server
    name = f"loader-{'shards' if keywords else 'files'}.zarr"
    data, _ = images()
    gzarr.create_array(folder / name, data=data, chunks=(8, 6, 5), **keywords)
    check_epoch(gzarr.Loader(gzarr.open_array(f"{url}/{name}", "r"), 16, shuffle=True, memory=30_000), data)


def test_small_arrays_are_read_once():
    _, z = images()
    store = gzarr.storage.CountingStore(gzarr.MemoryStore())
    label = gzarr.array(np.arange(N), chunks=50, store=store)
    loader = gzarr.Loader({"image": z, "label": label}, 16, shuffle=True, memory=60_000)
    reads = []
    for _ in range(2):
        for step, batch in enumerate(loader):
            assert np.array_equal(batch["label"], loader.batch_ids(step))
        reads.append(sum(request.key != "zarr.json" for request in store.requests))
    assert reads[0] == reads[1]


@pytest.mark.parametrize("memory", [9_000, 1 << 20])
def test_dtype_is_folded_in(device, memory):
    data, z = images()
    loader = gzarr.Loader(
        {"x": z, "y": np.arange(N)}, 16, shuffle=True, memory=memory, dtype={"x": "f4"}, device=device
    )
    for step, batch in enumerate(loader):
        assert (batch["x"].dtype, batch["y"].dtype) == (np.float32, np.int64)
        assert np.array_equal(host(batch["x"]), data[loader.batch_ids(step)].astype("f4"))


def test_windows(device):
    data, z = images()
    ends = [50, 51, 140, N]
    loader = gzarr.Loader(z, 8, window=gzarr.Window(5, ends=ends), shuffle=True, memory=40_000, device=device)
    starts = []
    for batch in loader:
        assert batch.shape[1:] == (5, 6, 5)
        for window in host(batch):
            start = int(np.flatnonzero((data == window[0]).all((1, 2)))[0])
            assert np.array_equal(window, data[start : start + 5])
            starts.append(start)
    inside = [s for s in range(N - 4) if not any(s < end < s + 5 for end in ends)]
    assert sorted(starts) == inside


@pytest.mark.parametrize("memory", [60_000, 10 << 20])
def test_random_crops(device, memory):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 1 << 30, (40, 30, 20)).astype("u4")
    z = gzarr.array(data, chunks=(8, 8, 8))
    loader = gzarr.Loader(z, 8, crops=gzarr.Crops((9, 8, 7), n=50), memory=memory, device=device)
    epochs = []
    for _ in range(2):
        starts = []
        for batch in loader:
            for crop in host(batch):
                (start,) = np.argwhere(data == crop[0, 0, 0])
                assert np.array_equal(crop, data[tuple(slice(s, s + n) for s, n in zip(start, (9, 8, 7), strict=True))])
                starts.append(tuple(start))
        assert len(starts) == 50
        epochs.append(starts)
    assert epochs[0] != epochs[1]


def test_strings_and_missing_chunks():
    z = gzarr.create_array(gzarr.MemoryStore(), shape=(20, 2), chunks=(4, 2), dtype="f4", fill_value=7)
    z[:10] = 1
    words = gzarr.array(np.array([f"word {i}" for i in range(20)], object), chunks=3, dtype=str)
    loader = gzarr.Loader({"x": z, "word": words}, 4, shuffle=True, on_error="skip")
    for step, batch in enumerate(loader):
        ids = loader.batch_ids(step)
        assert batch["word"].tolist() == [f"word {i}" for i in ids]
        assert (batch["x"][:, 0] == np.where(ids < 10, 1, 7)).all()


KINDS = {
    **{kind: {"dtype": kind} for kind in (">i4", "?", "c16", "M8[s]", "f2", "S5", "U3")},
    "records": {"dtype": [("a", "i4"), ("b", "f8")]},
    "Fortran": {"dtype": "i4", "order": "F", "zarr_format": 2},
    "strings": {"dtype": str},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", ["60 %", "1 GiB"])
def test_data_types(kind, memory):
    numbers = np.random.default_rng(0).integers(0, 90, (150, 4, 3))
    dtype = KINDS[kind]["dtype"]
    data = numbers.astype(str).astype(object) if dtype is str else numbers.astype("i8").astype(dtype)
    z = gzarr.array(data, chunks=(6, 4, 3), **KINDS[kind])
    check_epoch(gzarr.Loader(z, 7, shuffle=True, memory=memory), data)
    check_epoch(gzarr.Loader(data, 7, shuffle=True), data)


def test_views_and_samples_without_elements():
    data, z = images()
    check_epoch(gzarr.Loader(z.astype("f8"), 7, shuffle=True, memory=20_000), data.astype("f8"))
    check_epoch(gzarr.Loader(z.astype("f8"), 7, shuffle=True), data.astype("f8"))
    assert next(iter(gzarr.Loader(gzarr.zeros((20, 0), chunks=(6, 1)), 7))).shape == (7, 0)


def test_len_and_the_last_batch():
    _, z = images()
    for drop_last, n in ((False, 13), (True, 12)):
        loader = gzarr.Loader(z, 16, drop_last=drop_last)
        sizes = [len(batch) for batch in loader]
        assert len(loader) == len(sizes) == n
        assert sizes[-1] == (16 if drop_last else N % 16)


def test_transform_and_errors_in_it():
    data, z = images()
    loader = gzarr.Loader(z, 16, transform=lambda batch: (batch * 2, len(batch)))
    batch, n = next(iter(loader))
    assert n == 16
    assert np.array_equal(batch, data[:16] * 2)

    def fail(batch):
        raise ZeroDivisionError("of the transform")

    with pytest.raises(ZeroDivisionError, match="of the transform"):
        list(gzarr.Loader(z, 16, transform=fail))


def test_memory_of_batches_is_used_again_but_never_while_somebody_sees_it():
    data, z = images()
    loader = gzarr.Loader(z, 16, shuffle=True)
    kept = [(loader.batch_ids(step), batch[::2]) for step, batch in enumerate(loader)]
    for ids, batch in kept:
        assert np.array_equal(batch, data[ids[::2]])
    addresses = [batch.ctypes.data for batch in loader]
    assert len({*addresses}) < len(addresses)


# -- epochs and state ----------------------------------------------------------------------------------------------


def ids_of(loader):
    return [loader.batch_ids(step).tolist() for step in range(len(loader))]


def test_epochs_go_on_and_are_chosen():
    _, z = images()
    loader = gzarr.Loader(z, 16, shuffle=True)
    first = ids_of(loader)
    list(loader)
    second = ids_of(loader)
    assert first != second
    iter(loader)
    assert (loader.epoch, ids_of(loader)) == (1, second)
    for epoch in (1, 2, 3):  # each is broken off: the next one has other batches
        for _batch in loader:
            assert loader.epoch == epoch
            break
    assert len({str(ids) for ids in (first, second, ids_of(loader))}) == 3
    loader.close()
    assert loader.epoch == 4
    loader.set_epoch(0)
    assert ids_of(loader) == first


@pytest.mark.parametrize("shuffle", ["exact", "blocks", False])
def test_a_state_goes_through_json_and_continues(shuffle):
    data, z = images()

    def new():
        return gzarr.Loader(z, 16, shuffle=shuffle, memory=9_000, block_chunks=2)

    loader = new()
    list(loader)
    batches, expected = iter(loader), []
    for _ in range(5):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = [batch.copy() for batch in batches]
    for again in (new(), pickle.loads(pickle.dumps(_at(new(), state)))):
        again.load_state_dict(state)
        again.set_epoch(1)  # as training loops do: it keeps the place
        assert [batch.tolist() for batch in again] == [batch.tolist() for batch in expected]
        assert again.state_dict()["epoch"] == 2
        check_epoch(again, data)


def _at(loader, state):
    loader.load_state_dict(state)
    return loader


def test_a_state_after_the_last_batch_begins_the_next_epoch():
    _, z = images()
    loader, again = (gzarr.Loader(z, 16, shuffle=True) for _ in range(2))
    for _batch in loader:
        state = loader.state_dict()
    again.load_state_dict(state)
    assert list(again) == []
    assert again.state_dict()["epoch"] == 1


@pytest.mark.parametrize("shuffle", ["exact", "blocks"])
def test_other_ranks_go_on(shuffle):
    _, z = images()

    def loaders(world_size):
        return [
            gzarr.Loader(z, 4, shuffle=shuffle, rank=r, world_size=world_size, block_chunks=2, memory=9_000)
            for r in range(world_size)
        ]

    seen = []
    for loader in (two := loaders(2)):
        batches = iter(loader)
        for step in range(7):
            next(batches)
            seen += loader.batch_ids(step).tolist()
    state = two[0].state_dict()
    assert state == two[1].state_dict()
    assert len({*seen}) == len(seen) == 2 * 7 * 4
    for loader in loaders(3):
        loader.load_state_dict(state)
        for step, _ in enumerate(loader):
            seen += loader.batch_ids(step).tolist()
    assert {*seen} == {*range(N)}
    assert len(seen) < N + 3  # the samples of the last step that come twice


def test_samplers():
    data, z = images()
    table = np.random.default_rng(0).integers(0, N, 50)
    for sampler in (table, table.tolist(), lambda positions, epoch: table[positions % 50]):
        loader = gzarr.Loader(z, 16, sampler=sampler, memory=9_000)
        batch = next(iter(loader))
        assert np.array_equal(batch, data[table[:16]])
        loader.load_state_dict(loader.state_dict())

    class Iterable:
        def __iter__(self):
            return iter(table.tolist())

    loader = gzarr.Loader(z, 16, sampler=Iterable())
    batches = iter(loader)
    assert np.array_equal(next(batches), data[table[:16]])
    with pytest.raises(ValueError, match="iterated over"):
        loader.state_dict()


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"window": gzarr.Window(4, ends=[50, 203])},
        {"crops": gzarr.Crops((4, 3))},
        {"crops": gzarr.Crops((4, 3), n=20)},
    ],
    ids=str,
)
def test_batch_starts_say_where_samples_lie_also_in_a_part(keywords):
    data, z = images()
    for loader in gzarr.Loader(z, 16, shuffle="exact", **keywords).split(0.5, 0.5):
        for step, batch in enumerate(loader):
            starts = loader.batch_starts(step)
            assert keywords or np.array_equal(loader.batch_ids(step), starts[:, 0])  # rows of the whole, for a Writer
            assert starts.shape == (len(batch), 2 if "crops" in keywords else 1)
            for sample, start in zip(batch, starts, strict=True):
                box = tuple(slice(i, i + n) for i, n in zip(start, sample.shape, strict=False))
                assert np.array_equal(sample, data[box] if keywords else data[start[0]])


def test_random_crops_of_a_part_follow_the_seed_of_a_state():
    _, z = images()
    of_seed = [gzarr.Loader(z, 4, crops=gzarr.Crops((5,), n=20), seed=seed) for seed in (1, 2)]
    one, other = [loader.split(0.5, 0.5, shuffle=False)[0] for loader in of_seed]
    batches = iter(one)
    next(batches)
    other.load_state_dict(one.state_dict())
    assert np.array_equal(next(iter(other)), next(batches))


# -- damage and bad input ------------------------------------------------------------------------------------------


def damaged():
    data, _ = images()
    store = gzarr.MemoryStore()
    z = gzarr.array(data, chunks=(8, 6, 5), store=store, compressors=gzarr.codecs.ZstdCodec())
    store["c/3/0/0"] = b"damaged"
    return data, z


@pytest.mark.parametrize("memory", [9_000, 180_000])
def test_a_damaged_chunk_raises_with_its_name(device, memory):
    data, z = damaged()
    loader = gzarr.Loader(z, 16, device=device, memory=memory)
    batches = iter(loader)
    assert np.array_equal(host(next(batches)), data[:16])
    with pytest.raises(ChunkError, match="c/3/0/0"):
        list(batches)
    assert loader.state_dict()["epoch"] == 0


@pytest.mark.parametrize("memory", [9_000, 1 << 20])
@pytest.mark.parametrize("shuffle", [False, "exact"])
def test_a_damaged_chunk_is_left_out(device, memory, shuffle):
    data, z = damaged()
    loader = gzarr.Loader(
        {"x": z, "y": np.arange(N)}, 4, shuffle=shuffle, device=device, memory=memory, on_error="skip"
    )
    for _ in range(2):
        seen = []
        for batch in loader:
            assert np.array_equal(host(batch["x"]), data[host(batch["y"])])
            seen += host(batch["y"]).tolist()
        assert sorted(seen) == [i for i in range(N) if i // 8 != 3]
        assert loader.stats().skipped == 8


class Chunked:
    """An array of another library."""

    chunks = (3,)

    def __array__(self):
        raise AssertionError


BAD = [
    ({"arrays": {}}, ValueError, "there are none"),
    ({"arrays": {"x": np.zeros(3), "y": np.zeros(4)}}, ValueError, "'x' .3,., 'y' .4,."),
    ({"arrays": np.float32(3)}, ValueError, "no axes"),
    (
        {"arrays": "x.zarr"},
        TypeError,
        r"must be a gzarr or NumPy array, got str; open it: gzarr.open_array\('x.zarr'\)",
    ),
    ({"batch_size": 500, "drop_last": True}, ValueError, "leaves no batch"),
    ({"arrays": Chunked()}, TypeError, "got tests.Chunked, all of which would be read into memory"),
    ({"arrays": {"y": [1, 2]}}, TypeError, "'y' must be .* got list; make an array of it with numpy.asarray"),
    ({"arrays": {3: np.zeros(3)}}, TypeError, "names must be strings"),
    ({"batch_size": 0}, ValueError, "batch_size"),
    ({"batch_size": 1.5}, TypeError, "batch_size"),
    ({"shuffle": "yes"}, ValueError, "shuffle"),
    ({"seed": "a"}, TypeError, "seed must be an integer"),
    ({"memory": 100}, ValueError, "memory=100 bytes are less than one batch takes: .* 128 an array for planning"),
    ({"memory": "some"}, ValueError, "memory must be"),
    ({"memory": 1e9}, TypeError, "memory must be a whole number of bytes"),
    ({"memory": 0}, ValueError, "memory must be positive"),
    ({"device": "gpu"}, gzarr.DeviceError, "no device 'gpu'"),
    ({"rank": 1}, ValueError, "world_size"),
    ({"rank": 3, "world_size": 3}, ValueError, "rank"),
    ({"window": gzarr.Window(500)}, ValueError, "500 rows"),
    ({"window": 8}, TypeError, "Window"),
    ({"crops": gzarr.Crops((8, 60, 5))}, ValueError, "larger than the arrays"),
    ({"crops": gzarr.Crops((1, 1, 1, 1))}, ValueError, "along 4 axes, array .* has 3"),
    ({"crops": gzarr.Crops((1, 1)), "arrays": [np.ones(3), np.ones(3)]}, ValueError, "Crops has 2 axes, .* has 1"),
    ({"arrays": []}, TypeError, "the list is empty"),
    ({"cache": 5}, TypeError, "cache must be the path of a folder, got 5"),
    ({"shuffle": "blocks", "crops": gzarr.Crops((2,), n=3)}, ValueError, "random crops do not"),
    ({"window": gzarr.Window(2), "crops": gzarr.Crops((2,))}, ValueError, "exclude each other"),
    ({"sampler": [1], "shuffle": True}, ValueError, "leave shuffle="),
    ({"sampler": "abc"}, TypeError, "sampler must be .* got 'abc'"),
    ({"sampler": 5}, TypeError, "sampler must be a function of positions and epoch, .* got 5"),
    ({"sampler": iter([1])}, TypeError, "iterator"),
    ({"sampler": {1, 2}, "rank": 0, "world_size": 2}, ValueError, "ranks may get different orders"),
    ({"block_chunks": 0}, ValueError, "block_chunks"),
    ({"dtype": "u1"}, TypeError, "cannot become uint8"),
    ({"dtype": {"y": "f4"}}, ValueError, "no array 'y'"),
    ({"transform": 3}, TypeError, "transform must be a function"),
    ({"on_epoch": 3}, TypeError, "on_epoch must be a function"),
    ({"prefetch": 0}, ValueError, "prefetch"),
    ({"on_error": "ignore"}, ValueError, "on_error must be"),
    ({"on_error": "skip", "rank": 0, "world_size": 2}, ValueError, "wait for it forever"),
]


@pytest.mark.parametrize(("keywords", "kind", "match"), BAD, ids=lambda v: str(v)[:40])
def test_bad_input_is_one_clear_error(keywords, kind, match):
    with pytest.raises(kind, match=match):
        gzarr.Loader(**{"arrays": images()[1], "batch_size": 16, **keywords})


@pytest.mark.parametrize("batch_size", [1, 8, 100])
def test_as_much_memory_as_the_error_asks_for_suffices(batch_size):
    arrays = {"x": images()[1]} | {str(n): gzarr.array(np.arange(N), chunks=N) for n in range(50)}
    with pytest.raises(ValueError, match="give memory=") as error:
        gzarr.Loader(arrays, batch_size, memory=100)
    needed = int(re.search(r"give memory=(\d+)", str(error.value))[1])
    for memory in (needed, 2 * needed, 20_000 + needed, 100_000 + needed):
        next(iter(gzarr.Loader(arrays, batch_size, memory=memory)))
    with pytest.raises(ValueError, match="give memory="):
        gzarr.Loader(arrays, batch_size, memory=needed - 1)


def test_arrays_on_several_devices_need_one_named():
    _, z = images()
    with pytest.raises(gzarr.DeviceError, match="several devices"):
        gzarr.Loader({"a": z, "b": z.to("emulated")}, 4)


def test_statistics_and_the_callback_of_an_epoch():
    data, z = images()
    told = []
    loader = gzarr.Loader(z, 16, shuffle=True, memory=9_000, on_epoch=told.append)
    list(loader)
    (stats,) = told
    assert (stats.epoch, stats.samples, stats.batches, stats.nbytes) == (0, N, 13, data.nbytes)
    assert 1 <= stats.decodes < 16
    assert loader.stats() == stats


@pytest.mark.parametrize(("shuffle", "factor"), [("exact", 1.0), ("blocks", 2.6), (False, 8.3)])
def test_the_summary_is_true_of_the_epoch(shuffle, factor):
    data, z = images(2000, 16)
    loader = gzarr.Loader({"x": z, "y": np.arange(2000)}, 64, shuffle=shuffle, memory="35 %")
    summary = loader.summary()
    assert (summary.samples, summary.batches) == (2000, 32)
    assert summary.nbytes == data.nbytes + 2000 * 8
    assert round(summary.variance_factor, 1) == factor
    for _ in loader:
        pass
    assert loader.stats().decodes == pytest.approx(summary.decodes["x"], rel=0.15)
    with pytest.raises(ValueError, match="correlation must be"):
        loader.summary(correlation=2)


def test_the_summary_of_random_crops_advises_no_shuffling():
    _, z = images(2000, 16)
    summary = gzarr.Loader(z, 64, crops=gzarr.Crops((4, 3, 3), n=256), memory="35 %").summary()
    assert (summary.variance_factor, summary.samples) == (1.0, 256)
    assert not any("shuffle" in line for line in summary.advice)


def test_the_summary_says_which_chunks_lie_across_blocks():
    (_, x), (_, y) = images(2000, 16), images(2000, 24)
    loader = gzarr.Loader({"x": x, "y": y.astype("i2")}, 16, shuffle="blocks", block_chunks=2, memory="4 %")
    assert "chunks of y lie across the blocks" in loader.summary().advice[0]


def test_close_ends_an_iteration_whose_iterator_was_dropped():
    _, z = images()
    ended = []

    def slow(batch):
        time.sleep(0.01)
        ended.append(len(batch))
        return batch

    loader = gzarr.Loader(z, 4, transform=slow)
    next(iter(loader))
    loader.close()
    n = len(ended)
    time.sleep(0.05)
    assert len(ended) == n < 10
    assert len(next(iter(loader))) == 4


def test_a_transform_cannot_end_its_own_iteration():
    _, z = images()
    loader = gzarr.Loader(z, 16, transform=lambda _: loader.close())
    with pytest.raises(RuntimeError, match="transform runs on the thread of its loader"):
        next(iter(loader))


def test_what_batch_ids_has_said_of_an_iterable_sampler_is_true():
    _, z = images()

    class Iterable:
        def __iter__(self):
            self.n = getattr(self, "n", 0) + 1
            return iter(range(self.n, self.n + 50))

    loader = gzarr.Loader(z, 16, sampler=Iterable())
    ids = loader.batch_ids(0)
    next(iter(loader))
    assert np.array_equal(loader.batch_ids(0), ids)


def test_arrays_that_were_resized():
    data, z = images()
    loader = gzarr.Loader({"x": z}, 16, shuffle=True, memory=9_000)
    z.resize((N + 50, 6, 5))
    for step, batch in enumerate(loader):
        assert np.array_equal(batch["x"], data[loader.batch_ids(step)])
    z.resize((100, 6, 5))
    with pytest.raises(ValueError, match=r"'x', at .*, was resized from \(203, 6, 5\) to \(100, 6, 5\)"):
        iter(loader)


def test_samples_lie_along_one_axis_where_axes_have_names() -> None:
    xarray = pytest.importorskip("xarray")
    pictures = xarray.DataArray(np.arange(16).reshape(4, 4), dims=("sample", "x"))
    labels = xarray.DataArray(np.arange(16).reshape(4, 4), dims=("class", "sample"))
    stored = gzarr.create_array(data=pictures)
    for given in (pictures, stored):
        with pytest.raises(ValueError, match=r"'labels' has the axes .*transpose it, so that 'sample' comes first"):
            gzarr.Loader({"pictures": given, "labels": labels}, batch_size=2)
        (batch, *_) = gzarr.Loader({"pictures": given, "labels": labels.transpose()}, batch_size=4, shuffle=False)
        np.testing.assert_array_equal(batch["labels"], labels.transpose())
