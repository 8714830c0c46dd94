"""Partial writes on stores with conditions: what another replaced meanwhile is merged again, and nothing else."""

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import gzarr
from benchmarks.s3.objects import Objects
from benchmarks.s3.server import S3Server
from gzarr.config import config
from gzarr.errors import StoreError
from gzarr.storage import CountingStore, ObjectStore, Request, SQLiteStore, Store, WrapperStore, changing, open_store
from gzarr.storage.capabilities import ANY, Change, Conditional
from gzarr.storage.wrappers import ForwardedConditional
from tests.support.servers import options_of


class Interrupted(ForwardedConditional):
    """Lets another writer change the store before each of the first changes."""

    def __init__(self, conditional: Conditional, others: list[Callable[[], None]]) -> None:
        super().__init__(conditional)
        self.others, self.seen = others, []

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        if self.others:
            self.others.pop(0)()
        self.seen.append(list(changes))
        return super().set_if(changes)


class Elsewhere(WrapperStore):
    """A store as another process has it: with locks of its own."""

    locked, node_locked, document_locked = Store.locked, Store.node_locked, Store.document_locked

    def lock_name(self, key: str) -> Hashable:
        return "elsewhere", self._store.lock_name(key)


class Between(WrapperStore):
    """Shows another store, with other writers in between."""

    others: list[Callable[[], None]]

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        below = store.conditional
        assert below is not None
        self.others = []
        self.interrupted = Interrupted(below, self.others)

    @property
    def conditional(self) -> Conditional | None:
        return self.interrupted


@pytest.fixture(params=["sqlite", "obstore"])
def store(request: pytest.FixtureRequest) -> Iterator[Between]:
    if request.param == "sqlite":
        yield Between(SQLiteStore(":memory:"))
    else:
        yield Between(ObjectStore(pytest.importorskip("obstore.store").MemoryStore()))


def made(store: Store, **options: Any) -> Any:
    given: dict[str, Any] = {"shape": (8, 6), "chunks": (4, 6), "dtype": "i4", "fill_value": 0} | options
    gzarr.create_array(store, overwrite=True, **given)
    return gzarr.open_array(store, mode="r+")


@pytest.mark.parametrize("options", [{}, {"chunks": (1, 6), "shards": (4, 6)}, {"zarr_format": 2}], ids=str)
def test_what_others_wrote_meanwhile_is_kept(store: Between, options: dict[str, Any]) -> None:
    array, model = made(store, **options), np.zeros((8, 6), "i4")
    other = gzarr.open_array(Elsewhere(store._store), mode="r+")
    for row, selection in ((1, np.s_[0]), (7, np.s_[0:6]), (5, np.s_[0:8, 2]), (3, np.s_[3:5])):
        store.others += [lambda row=row: other.__setitem__(row, 9), lambda row=row: other.__setitem__((row, 0), 8)]
        model[row], model[row, 0] = 9, 8
        array[selection] = model[selection] = row
        assert store.others == []
        np.testing.assert_array_equal(array[...], model)


def test_only_the_refused_objects_are_merged_again(store: Between) -> None:
    array = made(store, shape=(16, 6))
    array[...] = 1
    other = gzarr.open_array(Elsewhere(store._store), mode="r+")
    store.others += [lambda: other.__setitem__((1, 0), 7)]
    store.interrupted.seen.clear()
    array[2:14] = 5
    first, second = store.interrupted.seen
    assert [change.key for change in first] == ["c/0/0", "c/1/0", "c/2/0", "c/3/0"]
    assert [change.tag is ANY for change in first] == [False, True, True, False]
    assert [change.key for change in second] == ["c/0/0"]
    assert (array[1, 0], array[2, 0], array[13, 0], array[14, 0]) == (7, 5, 5, 1)


def test_a_write_that_covers_objects_whole_has_no_condition_and_no_reads(store: Between) -> None:
    array = made(CountingStore(store))
    array.store.reset()
    array[...] = 3
    assert (store.interrupted.seen, array.store.requests, sorted(array.store.written)) == ([], [], ["c/0/0", "c/1/0"])


def test_a_partial_write_costs_one_read_and_one_write(store: Between) -> None:
    array = made(CountingStore(store))
    array[...] = 1
    array.store.reset()
    array[2:6] = 3
    assert array.store.requests == [Request("c/0/0"), Request("c/1/0")]
    assert (array.store.written, array.store.nbatches) == (["c/0/0", "c/1/0"], 1)


@pytest.mark.parametrize("options", [{}, {"chunks": (1, 6), "shards": (4, 6)}], ids=str)
def test_an_object_that_becomes_empty_is_deleted_or_keeps_its_fill(store: Between, options: dict[str, Any]) -> None:
    array = made(store, **options)
    array[1] = 5
    array[1] = 0
    assert ("c/0/0" in store) is not store.interrupted.deletes
    np.testing.assert_array_equal(array[...], 0)
    array[0:4] = 0
    assert "c/0/0" not in store
    store.interrupted.seen.clear()
    array[1] = 0
    assert "c/0/0" not in store
    assert store.interrupted.seen in ([], [[]])
    other = gzarr.open_array(Elsewhere(store._store), mode="r+")
    array[1] = 5
    store.others.append(lambda: other.__setitem__(2, 4))
    array[1] = 0
    np.testing.assert_array_equal(array[:, 0], [0, 0, 4, 0, 0, 0, 0, 0])


def test_a_change_is_given_up_after_many_attempts(store: Between, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "MAX_ATTEMPTS", 3)
    array, other = made(store), gzarr.open_array(Elsewhere(store._store), mode="r+")
    for i in range(4):
        store.others.append(lambda i=i: other.__setitem__((1, 0), i + 1))
    with pytest.raises(
        StoreError, match=r"'c/0/0' was replaced by other writers each of the 3 times .* fewer processes"
    ):
        array[0] = 5
    assert len(store.others) == 1
    np.testing.assert_array_equal(array[:2, 0], [0, 3])


def test_the_compiled_loop_leaves_such_writes_to_the_reference_path(store: Between) -> None:
    for native in (True, False):
        with config.set({"cpu.native": native}):
            array = made(store, shape=(64, 64), chunks=(4, 4), shards=(32, 32))
            other = gzarr.open_array(Elsewhere(store._store), mode="r+")
            store.others.append(lambda other=other: other.__setitem__((5, slice(None)), 7))
            array[8:40] = 3
            np.testing.assert_array_equal(array[:, 0], [0] * 5 + [7] + [0] * 2 + [3] * 32 + [0] * 24)


def test_a_server_without_conditions_is_told_of_once() -> None:
    pytest.importorskip("obstore")
    with S3Server(Objects({"bucket": {}}, refusal="<Error><Code>NotImplemented</Code></Error>")) as server:
        store = open_store("s3://bucket/x", storage_options=options_of(server.endpoint))[0]
        with pytest.warns(RuntimeWarning, match="cannot store objects on a condition .* no two processes"):
            gzarr.create_array(store, shape=8, chunks=4, dtype="u1", fill_value=0)
        array = gzarr.open_array(store)
        array[:6] = 3
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            array[1:7] = 4
            array[:] = 0
        assert store.conditional is None
        assert sorted(store) == ["zarr.json"]
