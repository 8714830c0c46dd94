"""Several selections at once give, or write, what they do one by one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.errors import ChunkError, ReadOnlyError, SelectionError
from gzarr.storage import LocalStore, MemoryStore, Request
from tests.properties.cases import Case, basic_keys, filled, same
from tests.support.meeting import Meeting

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
    """A store whose first calls wait for each other."""

    concurrency = 8
    meeting = Meeting(1)

    def get_many(self, requests: Sequence[Request]) -> list[Any]:
        self.meeting.attend()
        return super().get_many(requests)

    def set_many(self, items: Sequence[tuple[str, Any]]) -> None:
        self.meeting.attend()
        super().set_many(items)


def test_small_reads_wait_for_a_server_together() -> None:
    """As many as it takes at once, where threads for the processors would be fewer."""
    store = Waiting()
    gzarr.create_array(store, data=DATA, chunks=(1, 1))
    z = gzarr.open_array(store, mode="r")
    store.meeting = Meeting(8)
    found = gzarr.read_many([(z, (i, j)) for i in range(10) for j in range(6)])
    assert found == DATA.reshape(-1).tolist()
    assert store.meeting.most == 8


# -- writing -----------------------------------------------------------------------------------------------------------


@given(st.lists(filled(), max_size=3), st.data())
@settings(max_examples=20)
def test_writes_of_many_arrays(drawn: list[tuple[Case, gzarr.Array, np.ndarray]], data: st.DataObject) -> None:
    values = []
    for case, array, model in drawn:
        key = data.draw(basic_keys(case.shape))
        value = model[..., ::-1][key] if model.ndim else model[key]
        value = np.array(value, model.dtype)
        model[key] = value
        values.append((array, key, value))
    gzarr.write_many(iter(values))
    for _, array, model in drawn:
        same(array[...], model)


def test_parts_of_the_same_chunks_are_all_written(group: gzarr.Group) -> None:
    a, b = group["a"], group["b"]
    writes = [(z, (i, j), -i * 6 - j) for z in (a, b) for i in range(10) for j in range(6)]
    gzarr.write_many(writes)
    np.testing.assert_array_equal(a[...], -DATA)
    np.testing.assert_array_equal(b[...], -DATA)


def test_points_fields_and_scalars_are_written(group: gzarr.Group) -> None:
    z = group.create_array("c", shape=4, dtype=[("x", "i4"), ("y", "f8")], chunks=2)
    gzarr.write_many([(z, "x", [1, 2, 3, 4]), (group["a"], [9, 0], 7), (group["b"], (slice(0, 2), 3), -1)])
    assert z["x"].tolist() == [1, 2, 3, 4]
    assert (group["a"][[9, 0]] == 7).all()
    assert group["b"][:3, 3].tolist() == [-1, -1, DATA[2, 3] * 2]


def test_arrays_that_are_written_give_their_old_values(group: gzarr.Group) -> None:
    a, b = group["a"], group["b"]
    gzarr.write_many([(a, ..., b), (b, ..., a)])
    np.testing.assert_array_equal(a[...], DATA * 2)
    np.testing.assert_array_equal(b[...], DATA)


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (lambda g: (g["b"], 10, 0), SelectionError),
        (lambda g: (g["b"], ..., [1, 2]), ValueError),
        (lambda g: (g["b"].astype("f8"), ..., 0), ReadOnlyError),
    ],
)
def test_nothing_is_written_if_an_item_cannot_be(group: gzarr.Group, item: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        gzarr.write_many([(group["a"], ..., 0), item(group)])
    assert "write_many: item 1" in caught.value.__notes__[0]
    np.testing.assert_array_equal(group["a"][...], DATA)


@pytest.mark.parametrize("item", [DATA, (DATA, 0, 1), (1, 2)])
def test_writes_of_another_kind_are_refused(group: gzarr.Group, item: Any) -> None:
    with pytest.raises(TypeError, match="item 1 must be"):
        gzarr.write_many([(group["a"], 0, 1), item])
    np.testing.assert_array_equal(group["a"][...], DATA)


def test_small_writes_wait_for_a_server_together() -> None:
    store = Waiting()
    arrays = [gzarr.create_array(store, name=name, shape=(10, 6), dtype="i4", chunks=(1, 1)) for name in "ab"]
    store.meeting = Meeting(8)
    gzarr.write_many([(z, (i, slice(j, j + 1)), DATA[i, j]) for z in arrays for i in range(10) for j in range(6)])
    assert store.meeting.most == 8
    for z in arrays:
        np.testing.assert_array_equal(z[...], DATA)
