"""Resizing and appending: growth shows the fill value, shrinking clears for good, and bad shapes change nothing."""

import numpy as np
import pytest

import gzarr
from gzarr.errors import MetadataError, SelectionError
from gzarr.storage import CountingStore, WrapperStore
from gzarr.storage.wrappers import ForwardedConditional
from gzarr.tensors import to_host
from tests.support.processes import run_python


@pytest.fixture(params=["v2", "v3", "sharded", "rectilinear"])
def make(request):
    """Makes an array of shape (n, m) with small chunks, in every layout."""
    extra = {
        "v2": {"zarr_format": 2, "chunks": (3, 4)},
        "v3": {"chunks": (3, 4)},
        "sharded": {"chunks": (3, 2), "shards": (6, 4)},
        "rectilinear": None,
    }[request.param]

    def make(data, **keywords):
        data = np.asarray(data)
        options = {"chunks": [[2, 1, data.shape[0]], [4, data.shape[1]]]} if extra is None else extra
        return gzarr.array(data, **{**options, "store": {}, **keywords})

    return make


DATA = np.arange(1, 71).reshape(7, 10)


@pytest.mark.parametrize(
    "call", [lambda z, *s: z.resize(s), lambda z, *s: z.resize(*s), lambda z, *s: z.resize(list(s))]
)
def test_forms(make, call):
    z = make(DATA)
    call(z, 4, 12)
    assert z.shape == gzarr.open(z.store).shape == (4, 12)
    z.shape = (5, 5)
    assert z.shape == (5, 5)
    assert gzarr.zeros(5, store={}).resize(7) is None


def test_shrinking_touches_only_what_is_stored():
    store = CountingStore(gzarr.MemoryStore())
    z = gzarr.zeros((10**9, 10**9), chunks=(10, 10), store=store)
    z[0, 0] = 1
    z[500, 500] = 2
    z.resize(501, 501)
    assert z[500, 500] == 2
    z.resize(3, 3)
    assert (z[0, 0], z.nchunks_initialized) == (1, 1)


@pytest.mark.parametrize(
    "bad", [((5,),), (5,), (1, 2, 3), ((-1, 10),), ((2.5, 10),), ("ab",), ((None, 10),), ((7, "10"),)], ids=repr
)
def test_bad_shapes_change_nothing(make, bad):
    z = make(DATA)
    before = dict(z.store)
    with pytest.raises((MetadataError, TypeError), match=r"2 extents >= 0"):
        z.resize(*bad)
    assert dict(z.store) == before
    assert z.shape == (7, 10)
    assert np.array_equal(z[:], DATA)


# -- what lies beyond the extents ---------------------------------------------------------------------------------


def leave_beyond(z, change):
    """Change an array, and take back the change of its document: as a process does that is killed before that."""
    document = ".zarray" if z.zarr_format == 2 else "zarr.json"
    before = z.store[document]
    change(z)
    z.store[document] = before
    return gzarr.open_array(z.store, device=z.device)


@pytest.mark.parametrize("new", [(8, 10), (9, 11), (40, 40), (30, 5)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("n", [1, 16])
def test_growing_shows_the_fill_value_where_a_killed_append_has_written(make, axis, n, new):
    z = make(DATA, fill_value=5)
    z = leave_beyond(z, lambda z: z.append(np.full((n, 10) if axis == 0 else (7, n), 99), axis))
    z.resize(new)
    want = np.full((50, 50), 5)
    want[:7, : min(10, new[1])] = DATA[:, : new[1]]
    assert np.array_equal(z[:], want[: new[0], : new[1]])
    z.resize(50, 50)
    assert np.array_equal(gzarr.open_array(z.store)[:], want)


@pytest.mark.parametrize(
    ("dtype", "fill_value", "device"), [("f8", np.nan, "cpu"), ("string", "x", "emulated"), ("M8[s]", 7, "emulated")]
)
def test_what_an_append_covers_in_part_is_cleared_by_the_next_growth(make, dtype, fill_value, device):
    z = make(DATA.astype("U" if dtype == "string" else dtype), dtype=dtype, fill_value=fill_value, device=device)
    data = to_host(z[:])
    z = leave_beyond(z, lambda z: z.append(np.repeat(data[:1], 9, 0)))
    z.append(data[:1])
    z.resize(20, 10)
    want = np.full((20, 10), z.fill_value, z.dtype)
    want[:8] = data[[0, 1, 2, 3, 4, 5, 6, 0]]
    assert np.array_equal(to_host(z[:]).astype("U"), want.astype("U"))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("layout", [{"chunks": 4}, {"chunks": 2, "shards": 4}])
def test_growing_keeps_what_other_processes_append_meanwhile(tmp_path, layout, first, monkeypatch) -> None:
    """On a store without locks, rows are reserved and then written: none is taken for what a killed process left."""
    with gzarr.SQLiteStore(tmp_path / "x.sqlite") as store:
        z = gzarr.create_array(store, shape=6, dtype="i4", **layout)
        z = leave_beyond(z, lambda z: z.append([9, 9, 9, 9, 9, 9]))
        appended, kind = gzarr.MemoryStore(dict(store)), type(store.conditional)
        gzarr.open_array(appended).append([1])
        tagged = kind.get_tagged

        def get_tagged(self, keys):
            monkeypatch.undo()
            found = None if first else tagged(self, keys)
            store.update(appended)
            return tagged(self, keys) if first else found

        monkeypatch.setattr(kind, "get_tagged", get_tagged)
        z.resize(20)
        assert gzarr.open_array(store)[...].tolist() == [0] * 6 + [1] + [0] * 13


def test_growing_looks_at_the_chunks_of_the_old_edge_and_for_new_ones():
    store = CountingStore(gzarr.MemoryStore())
    z = gzarr.create_array(store, shape=(100, 100), chunks=(10, 10), dtype="i4")
    for shape, rows in [((105, 100), (10,)), ((108, 100), (10,)), ((120, 100), (10, 11))]:
        z[...] = 1
        store.reset()
        z.resize(shape)
        assert (store.listed, store.written, store.deleted) == ([], ["zarr.json"], [])
        asked = {request.key for request in store.requests if request.key.startswith("c/")}
        assert asked == {f"c/{row}/{n}" for row in rows for n in range(10)}


# -- appending ---------------------------------------------------------------------------------------------------


def test_append_nothing_and_to_nothing(make):
    z = make(DATA)
    assert z.append(DATA[:0]) == (7, 10)
    z = gzarr.zeros((0,), chunks=3, dtype="i8", store={})
    for i in range(7):
        assert z.append([i]) == (i + 1,)
    assert z[:].tolist() == list(range(7))


def test_append_an_array():
    z = gzarr.array(DATA, chunks=(3, 4))
    assert (z.append(gzarr.array(DATA)), z.append(z)) == ((14, 10), (28, 10))
    assert np.array_equal(z[:], np.concatenate([DATA] * 4))


@pytest.mark.parametrize(
    ("data", "axis", "error", "message"),
    [
        (np.zeros((2, 9)), 0, ValueError, r"shape \(2, 9\) to an array of shape \(7, 10\) along axis 0"),
        (np.zeros((2, 10)), 1, ValueError, "along axis 1"),
        (np.zeros(10), 0, ValueError, "along axis 0"),
        (np.zeros((1, 2, 10)), 0, ValueError, "along axis 0"),
        (5, 0, ValueError, "along axis 0"),
        (np.zeros((2, 10)), 2, SelectionError, "axis 2 of a 2-dimensional"),
        (np.array([["x"] * 10]), 0, ValueError, None),
        (np.array([[1] * 9 + [{}]], object), 0, TypeError, None),
        ([["x"] * 10], 0, ValueError, None),
        (np.zeros((1, 10), [("a", "i4"), ("b", "i4")]), 0, TypeError, None),
    ],
    ids=lambda v: f"{np.shape(v)}" if not isinstance(v, type) else v.__name__,
)
def test_bad_appends_change_nothing(make, data, axis, error, message):
    z = make(DATA)
    before = dict(z.store)
    with pytest.raises(error, match=message):
        z.append(data, axis=axis)
    assert dict(z.store) == before
    assert z.shape == (7, 10)
    assert gzarr.open(z.store).shape == (7, 10)


def test_resizing_keeps_everything_else():
    z = gzarr.create_array(
        {}, shape=(4, 4), chunks=(2, 2), shards=(4, 4), dimension_names=["y", "x"], attributes={"a": 1}, fill_value=3
    )
    before = gzarr.open(z.store).metadata
    z.resize(8, 8)
    z.resize(4, 4)
    assert gzarr.open(z.store).metadata == before


@pytest.mark.parametrize("loop", [True, False])
@pytest.mark.parametrize("shards", [None, (4,), (8,)])
def test_an_array_object_that_does_not_know_of_an_append_keeps_what_was_appended(tmp_path, shards, loop) -> None:
    stale = gzarr.create_array(
        tmp_path / "x.zarr", shape=(10,), chunks=(4,) if shards != (8,) else (2,), shards=shards, dtype="i4"
    )
    stale[...] = 1
    gzarr.open_array(tmp_path / "x.zarr").append(np.full(9, 2, "i4"))
    with gzarr.config.set({"cpu.native": loop}):
        stale[...] = 3
    assert gzarr.open_array(tmp_path / "x.zarr")[...].tolist() == [3] * 10 + [2] * 9


class Failing(WrapperStore):
    """Fails to store one object."""

    bad = ""

    def before_failing(self):
        """What happens just before."""

    def check(self, key):
        if key == self.bad:
            self.bad = ""
            self.before_failing()
            raise OSError("no room")

    def set_many(self, items):
        for key, value in items:
            self.check(key)
            super().set_many([(key, value)])

    @property
    def conditional(self):
        below = super().conditional
        return below and FailingConditional(below, self.check)


class FailingConditional(ForwardedConditional):
    def __init__(self, below, check):
        super().__init__(below)
        self.check = check

    def set_if(self, changes):
        for change in changes:
            self.check(change.key)
        return super().set_if(changes)


@pytest.mark.parametrize("kind", ["memory", "conditions"])
@pytest.mark.parametrize("layout", [{"chunks": 4}, {"chunks": 2, "shards": 4}])
def test_an_append_that_fails_leaves_the_array_as_it_was(tmp_path, kind, layout) -> None:
    with gzarr.MemoryStore() if kind == "memory" else gzarr.SQLiteStore(tmp_path / "x.sqlite") as below:
        store = Failing(below)
        z = gzarr.create_array(store, shape=10, dtype="i4", fill_value=-1, **layout)
        z[...] = 1
        before = sorted(store)
        store.bad = "c/3"
        with pytest.raises(OSError, match="no room"):
            z.append(np.full(9, 2, "i4"))
        assert z.shape == gzarr.open_array(store).shape == (10,)
        assert sorted(store) == before
        z.resize(12)
        assert z[...].tolist() == [1] * 10 + [-1] * 2
        assert z.append(np.full(9, 2, "i4")) == (21,)
        assert z[...].tolist() == [1] * 10 + [-1] * 2 + [2] * 9


def test_a_failed_append_keeps_what_others_have_appended_behind_it(tmp_path) -> None:
    place = tmp_path / "x.sqlite"
    append = f"gzarr.open_array(gzarr.SQLiteStore({str(place)!r})).append(np.full(4, 2, 'i4'))"
    with gzarr.SQLiteStore(place) as below:
        gzarr.create_array(below, shape=4, chunks=4, dtype="i4", fill_value=-1)
        store = Failing(below)
        store.bad = "c/1"
        store.before_failing = lambda: run_python(f"import gzarr, numpy as np; {append}")
        z = gzarr.open_array(store)
        with pytest.raises(OSError, match="no room"):
            z.append(np.full(4, 3, "i4"))
        assert gzarr.open_array(below)[...].tolist() == [-1] * 8 + [2] * 4


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_appended_data_stay_if_only_the_consolidated_metadata_cannot_be_updated(tmp_path, zarr_format) -> None:
    group = gzarr.open_group(tmp_path, "w", zarr_format=zarr_format)
    z = group.create_array("a", shape=4, chunks=4, dtype="i4")
    gzarr.consolidate_metadata(tmp_path)
    document = tmp_path / (".zmetadata" if zarr_format == 2 else "zarr.json")
    text = document.read_text()
    document.write_text(
        text.replace('"zarr_consolidated_format": 1', '"zarr_consolidated_format": 9').replace("inline", "odd")
    )
    with pytest.raises(MetadataError, match="consolidated"):
        z.append(np.full(3, 2, "i4"))
    assert z.shape == (7,)
    assert z[...].tolist() == gzarr.open_array(tmp_path / "a")[...].tolist() == [0] * 4 + [2] * 3
