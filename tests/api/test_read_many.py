"""Several selections at once give what they give one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.errors import ChunkError, SelectionError
from gzarr.storage import LocalStore, MemoryStore, Request
from tests.properties.cases import Case, basic_keys, filled, same

DATA = np.arange(60, dtype="i4").reshape(10, 6)


@given(st.lists(filled(), max_size=3), st.data())
@settings(max_examples=30)
def test_reads_of_many_arrays(drawn: list[tuple[Case, gzarr.Array, np.ndarray]], data: st.DataObject) -> None:
    wanted, models = [], []
    for case, array, model in drawn:
        for _ in range(2):
            key = data.draw(basic_keys(case.shape))
            wanted.append((array, key))
            models.append(model[key])
    found = gzarr.read_many(wanted)
    assert len(found) == len(models)
    for one, model in zip(found, models, strict=True):
        same(one, model)


@pytest.fixture(params=["memory", "files"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> gzarr.Group:
    made = gzarr.create_group(MemoryStore() if request.param == "memory" else LocalStore(tmp_path))
    made.create_array("a", data=DATA, chunks=(2, 3))
    made.create_array("b", data=DATA * 2, chunks=(4, 2), shards=(8, 6))
    return made


def test_points_lists_and_given_memory(group: gzarr.Group) -> None:
    a, b = group["a"], group["b"]
    outs = [np.empty((3, 6), "i8"), np.empty((4, 2), "i4").T, np.empty((2, 2), "i4")]
    wanted = [(a, [9, 0, 3], outs[0]), (b, (slice(1, 3), slice(0, 4)), outs[1]), (a, ([[1, 2], [3, 4]], 5), outs[2])]
    found = gzarr.read_many(iter([*wanted, (b, ..., None), (b, 3)]))
    assert all(one is out for one, out in zip(found, outs, strict=False))
    models = DATA[[9, 0, 3]], DATA[1:3, :4] * 2, DATA[[[1, 2], [3, 4]], 5], DATA * 2, DATA[3] * 2
    for one, model in zip(found, models, strict=True):
        np.testing.assert_array_equal(one, model)


def test_points_into_memory_that_is_not_contiguous(group: gzarr.Group) -> None:
    out = np.empty((2, 4), "i4")[:, ::2]
    assert gzarr.read_many([(group["a"], ([[1, 2], [3, 4]], 5), out)])[0] is out
    np.testing.assert_array_equal(out, DATA[[[1, 2], [3, 4]], 5])


def test_fields(group: gzarr.Group) -> None:
    records = np.array([(1, 2.0), (3, 4.0)], [("x", "i4"), ("y", "f8")])
    z = group.create_array("c", data=records, chunks=1)
    x, y = gzarr.read_many([(z, "x"), (z, ("y", 1))])
    assert x.tolist() == [1, 3]
    assert y == 4.0


def test_nothing_wanted() -> None:
    assert gzarr.read_many([]) == []


@pytest.mark.parametrize(
    ("item", "message"),
    [(DATA, "item 1 must be"), ((DATA, 0), "gzarr.Array, got ndarray"), ((1, 2, 3, 4), "item 1 must be")],
)
def test_items_of_another_kind_are_refused(group: gzarr.Group, item: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        gzarr.read_many([(group["a"], 0), item])


def test_a_selection_that_does_not_fit_is_refused_before_anything_is_read(group: gzarr.Group) -> None:
    out = np.zeros((10, 6), "i4")
    with pytest.raises(SelectionError, match="out of bounds") as caught:
        gzarr.read_many([(group["a"], ..., out), (group["b"], 10)])
    assert not out.any()
    assert caught.value.__notes__ == [f"read_many: item 1, of {group['b']}"]


def test_a_damaged_chunk_is_named(group: gzarr.Group) -> None:
    group.store["a/c/4/1"] = b"damaged"
    with pytest.raises(ChunkError, match="a/c/4/1"):
        gzarr.read_many([(group["b"], ...), (group["a"], ...)])


class Waiting(MemoryStore):
    """A store that takes 5 ms for an answer, and counts how many it gives at once."""

    concurrency = 8
    now = most = 0

    def get_many(self, requests: Sequence[Request]) -> list[Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(0.005)
        self.now -= 1
        return super().get_many(requests)


def test_small_reads_wait_for_a_server_together() -> None:
    """As many as it takes at once, where threads for the processors would be fewer."""
    store = Waiting()
    gzarr.create_array(store, data=DATA, chunks=(1, 1))
    z = gzarr.open_array(store, mode="r")
    store.most = 0
    found = gzarr.read_many([(z, (i, j)) for i in range(10) for j in range(6)])
    assert found == DATA.reshape(-1).tolist()
    assert 6 <= store.most <= 8
