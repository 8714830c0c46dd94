"""Stores copied object by object, within a budget, several objects at once."""

import io

import numpy as np
import pytest

import gzarr
from gzarr.errors import CopyError
from gzarr.storage import MemoryStore
from gzarr.storage.remote import run_together
from tests.copying.scenarios import Filling, hierarchy
from tests.support.meeting import Meeting


def test_copy_store_takes_paths_and_finishes_archives(tmp_path):
    root = gzarr.group(tmp_path / "a.zarr")
    root.array("x", data=np.arange(5))
    counts = gzarr.copy_store(tmp_path / "a.zarr", str(tmp_path / "b.zip"), log=io.StringIO())
    assert counts[0] == len(root.store)
    assert np.array_equal(gzarr.open(tmp_path / "b.zip", mode="r")["x"][:], np.arange(5))


def test_stores_are_closed_if_the_copy_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.zip"
    gzarr.save_array(path, np.arange(3))
    closed, close = [], gzarr.ZipStore.close
    monkeypatch.setattr(gzarr.ZipStore, "close", lambda self: (closed.append(self), close(self)))
    with pytest.raises(CopyError, match="into itself"):
        gzarr.copy_store(path, path)
    assert len({id(store) for store in closed}) == 2


def test_keys_that_are_not_allowed_become_no_others(tmp_path):
    """/x once became x, which replaced the object of that name, or was replaced by it."""
    source = {"/zarr.json": b"odd", "zarr.json": b"even", "a//b": b"", "../b": b""}
    for dest in ({}, tmp_path / "store" / "dest"):
        with pytest.raises(CopyError, match=r"key '../b' is not allowed.*excludes="):
            gzarr.copy_store(source, dest)
        gzarr.copy_store(source, dest, excludes=["^/", "//", r"\.\./"])
        assert dict(gzarr.storage.open_store(dest)[0]) == {"zarr.json": b"even"}
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["dest", "store", "zarr.json"]


def test_a_full_destination_of_copy_store_says_how_to_go_on():
    source, store = hierarchy(gzarr), Filling(3)
    with pytest.raises(CopyError, match=r"stopped at key .*3 objects were copied.*if_exists='skip'"):
        gzarr.copy_store(source.store, store)
    store.room = 1000
    gzarr.copy_store(source.store, store, if_exists="skip")
    assert dict(store) == dict(source.store)


class Distant(MemoryStore):
    """Looks whether keys exist while it does so for others, and remembers how many bytes it was asked for at once."""

    concurrency = 16
    most_nbytes = 0
    meeting = Meeting(1)

    def together(self, function, items):
        return run_together(function, items, self.concurrency)

    def get_many(self, requests):
        found = super().get_many(requests)
        self.most_nbytes = max(self.most_nbytes, sum(len(data) for data in found if data is not None))
        return found

    def get_one(self, request):
        return self.get_many((request,))[0]

    def __contains__(self, key):
        self.meeting.attend()
        return super().__contains__(key)


def test_copy_store_does_not_wait_for_one_object_after_the_other():
    source, dest = Distant({f"k{n:03}": bytes([n]) for n in range(160)}), Distant()
    dest.meeting = Meeting(16)
    lines = []
    assert gzarr.copy_store(source, dest, log=lines.append) == (160, 0, 160)
    assert dest.meeting.met
    assert source.most_nbytes == 16
    assert lines[:160] == [f"copy k{n:03}" for n in range(160)]
    assert dict(dest) == dict(source)
    assert gzarr.copy_store(source, dest, if_exists="skip")[:2] == (0, 160)


def test_copy_store_holds_no_more_than_the_budget(monkeypatch):
    monkeypatch.setattr("gzarr.copying.stores.BUDGET_NBYTES", 100)
    source, dest = Distant({f"k{n}": bytes(40) for n in range(9)} | {"large": bytes(300)}), {}
    assert gzarr.copy_store(source, dest) == (10, 0, 660)
    assert source.most_nbytes == 300  # which is one object; of the others two at a time
    assert dest == dict(source)


# -- lines that copies print -------------------------------------------------------------------------------------------


def test_log_takes_functions_and_file_names(tmp_path):
    source = hierarchy(gzarr)
    lines = []
    gzarr.copy(source["eggs"], gzarr.group(), log=lines.append)
    gzarr.copy(source["eggs"], gzarr.group(), log=str(tmp_path / "log.txt"))
    assert lines == ["copy /eggs (20, 30) uint8", "all done: 1 copied, 0 skipped, 600 bytes copied"]
    assert (tmp_path / "log.txt").read_text().splitlines() == lines
    with pytest.raises(TypeError, match="log must be"):
        gzarr.copy(source["eggs"], gzarr.group(), log=3)
