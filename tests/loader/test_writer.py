"""`gzarr.Writer` against NumPy: every row once, whatever the order, memory and layout, and nothing lost in silence."""

import json
import threading

import numpy as np
import pytest

import gzarr
from gzarr.errors import ReadOnlyError, StoreError
from gzarr.storage import MemoryStore
from tests.support.values import host

N = 101
VALUES = np.random.default_rng(0).integers(0, 1000, (N, 3)).astype("i4")


class CountingStore(MemoryStore):
    """Counts writes of chunks, and fails while it is told to."""

    failing = False

    def __init__(self):
        super().__init__()
        self.writes = []

    def set_many(self, items):
        items = list(items)
        if self.failing:
            raise StoreError("the disk is full")
        self.writes += [key for key, _ in items if not key.endswith("zarr.json")]
        super().set_many(items)


def batches(order, size=8):
    return np.split(order, range(size, len(order), size))


def shuffled(n=N):
    return np.random.default_rng(1).permutation(n)


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("memory", [10 * 3 * 4, 400, "1 GiB"], ids=["a block", "three blocks", "all"])
@pytest.mark.parametrize(
    "layout", [{"chunks": (10, 2)}, {"chunks": (2, 3), "shards": (10, 3)}, {"chunks": ([9, 2, 90], 3)}]
)
def test_rows_of_batches_in_any_order(device, memory, layout):
    if "90" in str(layout) and memory != "1 GiB":
        memory = 90 * 3 * 4
    out = gzarr.zeros(VALUES.shape, dtype="i4", device=device, **layout)
    with gzarr.Writer(out, memory=memory) as writer:
        for ids in batches(shuffled()):
            batch = VALUES[ids]
            writer.write(ids, batch)
            batch[:] = -1  # its memory is the caller's again
    assert np.array_equal(host(out[...]), VALUES)


def test_whole_objects_are_written_once():
    store = CountingStore()
    out = gzarr.create_array(store, shape=VALUES.shape, dtype="i4", chunks=(2, 3), shards=(10, 3))
    with gzarr.Writer(out) as writer:
        for ids in batches(shuffled()):
            writer.write(ids, VALUES[ids])
    assert sorted(store.writes) == sorted(f"c/{i}/0" for i in range(11))
    assert writer.n_parts == 0


def test_memory_is_bounded(monkeypatch):
    out = gzarr.zeros(VALUES.shape, dtype="i4", chunks=(10, 3))
    writer = gzarr.Writer(out, memory=3 * 120)
    for ids in batches(shuffled()):
        writer.write(ids, VALUES[ids])
        assert writer._nbytes <= 3 * 120
    writer.close()
    assert 0 < writer.n_parts < 25
    assert np.array_equal(out[...], VALUES)


def test_the_caller_does_not_wait_for_the_store():
    entered, leave = threading.Event(), threading.Event()

    class SlowStore(CountingStore):
        def set_many(self, items):
            if gate[0]:
                entered.set()
                assert leave.wait(60)
            super().set_many(items)

    gate = [False]
    out = gzarr.create_array(SlowStore(), shape=VALUES.shape, dtype="i4", chunks=(10, 3))
    gate[0] = True
    with gzarr.Writer(out) as writer:
        for ids in batches(np.arange(N)):
            writer.write(ids, VALUES[ids])  # while the first block is stored
        assert entered.wait(60)
        assert len(writer.missing()) == N
        leave.set()
    assert np.array_equal(out[...], VALUES)


def test_several_arrays_of_equally_many_rows():
    group = gzarr.create_group()
    group.create_array("mean", shape=VALUES.shape, dtype="f4", chunks=(10, 3))
    group.create_array("class", shape=(N,), dtype=str, chunks=(7,))
    names = VALUES[:, 0].astype(str).astype(object)
    with gzarr.Writer(group) as writer:
        for ids in batches(shuffled()):
            writer.write(ids, {"mean": VALUES[ids].astype("f4"), "class": names[ids]})
    assert np.array_equal(group["mean"][...], VALUES)
    assert group["class"][...].tolist() == names.tolist()


def test_rows_written_twice_are_refused_and_nothing_of_the_batch_is_taken():
    out = gzarr.zeros(6, dtype="i8", chunks=2)
    writer = gzarr.Writer(out)
    writer.write([0, 1], np.array([10, 11]))
    with pytest.raises(ValueError, match="row 1 is written twice"):
        writer.write([2, 1], np.array([12, -1]))
    with pytest.raises(ValueError, match="row 3 is written twice"):
        writer.write([3, 3], np.array([1, 2]))
    writer.write([2, 3, 4, 5], np.arange(12, 16))
    writer.close()
    assert out[...].tolist() == [10, 11, 12, 13, 14, 15]


def test_rows_that_were_never_written_are_told():
    out = gzarr.zeros(6, dtype="i8", chunks=2)
    with (
        pytest.raises(ValueError, match=r"2 of 6 rows were never written, the first is 1"),
        gzarr.Writer(out) as writer,
    ):
        writer.write([0, 2, 3, 4], np.array([1, 3, 4, 5]))
    assert out[...].tolist() == [1, 0, 3, 4, 5, 0]
    assert writer.missing().tolist() == [1, 5]
    with gzarr.Writer(out, complete=False) as writer:
        writer.write([1], np.array([2]))
    assert out[...].tolist() == [1, 2, 3, 4, 5, 0]


def test_an_error_of_an_earlier_write_is_raised_by_every_later_call():
    store = CountingStore()
    writer = gzarr.Writer(gzarr.create_array(store, shape=6, dtype="i8", chunks=2))
    store.failing = True
    for call in (lambda: (writer.write([0, 1], np.array([1, 2])), writer.flush()),) + 2 * (
        lambda: writer.write([2], [3]),
    ):
        with pytest.raises(StoreError, match="the disk is full"):
            call()
    assert writer.missing().tolist() == list(range(6))


def test_an_error_of_the_caller_is_his_and_his_rows_are_stored():
    out = gzarr.zeros(6, dtype="i8", chunks=2)
    writer = gzarr.Writer(out)

    def job():
        with writer:
            writer.write([0, 1, 2], np.array([1, 2, 3]))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        job()
    assert out[...].tolist() == [1, 2, 3, 0, 0, 0]
    with pytest.raises(ValueError, match="closed"):
        writer.write([3], np.array([1]))


def test_a_job_goes_on_where_it_was_killed():
    source = gzarr.array(VALUES, chunks=(4, 3))
    out = gzarr.zeros(VALUES.shape, dtype="i4", chunks=(10, 3))
    loader = gzarr.Loader(source, 8, shuffle=True)
    writer = gzarr.Writer(out, memory=3 * 120)
    for step, batch in zip(range(7), loader, strict=False):
        writer.write(loader.batch_ids(step), batch)
    saved = json.dumps(writer.state_dict())
    del writer, loader  # what waited in memory is lost

    writer = gzarr.Writer(out)
    writer.load_state_dict(json.loads(saved))
    assert 0 < len(writer.missing()) < N
    loader = gzarr.Loader(source, 8, sampler=writer.missing())
    with writer:
        for step, batch in enumerate(loader):
            writer.write(loader.batch_ids(step), batch)
    assert np.array_equal(out[...], VALUES)


@pytest.mark.parametrize("shape", [(40,), (40, 3), (40, 5, 7)])
def test_the_state_of_an_array_made_anew_is_refused(shape):
    values = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    out = gzarr.zeros(shape, dtype="i8", chunks=(4, *shape[1:]))
    with gzarr.Writer({"a": out}, complete=False) as writer:
        writer.write(np.arange(30), {"a": values[:30]})
    state = json.loads(json.dumps(writer.state_dict()))
    gzarr.Writer({"a": out}).load_state_dict(state)
    for other in (gzarr.zeros(shape, dtype="i8"), gzarr.array(values[::-1].copy())):
        again = gzarr.Writer({"a": other})
        with pytest.raises(ValueError, match="does not have the rows that the state tells of: it was made anew"):
            again.load_state_dict(state)
        assert len(again.missing()) == 40


@pytest.mark.parametrize(
    ("ids", "values", "error", "message"),
    [
        ([0, 6], [1, 2], IndexError, "no row 6"),
        ([-1], [1], IndexError, "no row -1"),
        ([0.0], [1], TypeError, "ids must be integers"),
        ([[0]], [1], TypeError, "ids must be integers"),
        ([0, 1], np.zeros(3, "i8"), ValueError, r"shape \(3,\); expected \(2,\)"),
        ([0, 1], np.zeros(2), TypeError, "float64"),
    ],
)
def test_what_does_not_fit(ids, values, error, message):
    writer = gzarr.Writer(gzarr.zeros(6, dtype="i8", chunks=2))
    with pytest.raises(error, match=message):
        writer.write(ids, values)
    assert not writer._given.any()


def test_what_cannot_be_written_to():
    store = {}
    gzarr.create_array(store, shape=6, dtype="i8", chunks=2)
    with pytest.raises(ReadOnlyError):
        gzarr.Writer(gzarr.open_array(store, "r"))
    with pytest.raises(TypeError, match="must be a gzarr array"):
        gzarr.Writer(np.zeros(3))
    with pytest.raises(ValueError, match="memory=8 bytes are less than a row of chunks"):
        gzarr.Writer(gzarr.open_array(store), memory=8)
    with pytest.raises(ValueError, match="equally many rows"):
        gzarr.Writer({"a": gzarr.zeros(3), "b": gzarr.zeros(4)})
    writer = gzarr.Writer({"a": gzarr.zeros(3)})
    with pytest.raises(ValueError, match="expected values of 'a'"):
        writer.write([0], {"b": [1.0]})
    with pytest.raises(ValueError, match="state of arrays of 3 rows"):
        writer.load_state_dict({"version": 1, "rows": 4, "stored": []})


@pytest.mark.parametrize("stored", [[[-2, 2]], [[2, 1]], [[0, 2], [1, 3]], [[0, 9]], [[1]]])
def test_states_of_impossible_rows_are_refused(stored):
    writer = gzarr.Writer(gzarr.zeros(4))
    with pytest.raises(ValueError, match="impossible rows"):
        writer.load_state_dict({"version": 1, "rows": 4, "stored": stored})
    assert writer.missing().tolist() == [0, 1, 2, 3]
