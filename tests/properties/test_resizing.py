"""Resizing and appending agree with a NumPy model; shrinking really clears what it drops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.codecs import NumcodecsCodec, ShardingCodec, ZstdCodec
from gzarr.storage import MemoryStore
from tests.properties.cases import LAYOUTS, Case, filled, same

DTYPES = ("<i4", "<f4", "|S3", "string", "<M8[D]")
Filled = tuple[Case, gzarr.Array, np.ndarray]


def resized(model: np.ndarray, shape: tuple[int, ...], empty: np.ndarray) -> np.ndarray:
    """What is left of a model in another shape; ``empty`` is one element of fill value."""
    out = np.empty(shape, model.dtype)
    out[...] = empty
    common = tuple(slice(min(a, b)) for a, b in zip(model.shape, shape, strict=True))
    out[common] = model[common]
    return out


def fill_of(case: Case) -> np.ndarray:
    return Case(case.layout, (1,), (1,), ((1,), (1,)), case.dtype, case.fill).model()


@given(filled(dtypes=DTYPES), st.data())
def test_what_shrinking_drops_is_gone_from_the_store(drawn: Filled, data: st.DataObject) -> None:
    """The store of a shrunk array holds what it would hold if the array had been written at that size."""
    case, array, model = drawn
    shape = tuple(data.draw(st.integers(0, n)) for n in model.shape)
    array.resize(shape)
    fresh = gzarr.open_array(MemoryStore({k: v for k, v in array.store.items() if "zarr.json" in k or ".z" in k}))
    box = (slice(None),) * len(shape)
    fresh.write_empty_chunks = array.write_empty_chunks
    fresh[box] = np.asarray(array)
    written = {key for key, _ in fresh.store.items()}
    assert {key for key, _ in array.store.items()} <= written | set(array.store) & written
    array.resize(tuple(n + 9 for n in shape))
    same(np.asarray(array), resized(resized(model, shape, fill_of(case)), array.shape, fill_of(case)))


# -- by example ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_growing_again_shows_the_fill_value(layout: str) -> None:
    case = Case(layout, (10, 7), (3, 2), ((2, 2), (2, 1)), "<i4", 7, cuts=((2, 1), (3,)))
    array = case.make()
    array[...] = 1
    array.resize(4, 3)
    array.resize((10, 7))
    wanted = np.full((10, 7), 7, "i4")
    wanted[:4, :3] = 1
    assert array[...].tolist() == wanted.tolist()


def test_growing_a_rectilinear_array_adds_a_chunk() -> None:
    array = gzarr.create_array(shape=(6,), chunks=[[4, 2]], dtype="i4")
    array.resize(9)
    array[:] = np.arange(9)
    assert array.chunk_sizes == ((4, 2, 3),)
    array.resize(5)
    assert array.chunk_sizes == ((4, 1),)
    array.resize(7)
    assert gzarr.open_array(array.store, mode="r")[:].tolist() == [0, 1, 2, 3, 4, 0, 0]


def test_growing_rectilinear_shards_adds_a_shard_of_whole_chunks() -> None:
    array = gzarr.create_array(shape=(6,), chunks=(2,), shards=[[4, 2]], dtype="i4")
    array[:] = np.arange(6)
    array.resize(9)
    array[6:] = 7
    assert gzarr.open_array(array.store, mode="r")[:].tolist() == [0, 1, 2, 3, 4, 5, 7, 7, 7]


def test_an_array_opened_before_another_grew_appends_behind_it() -> None:
    first = gzarr.array(np.arange(3), chunks=2)
    second = gzarr.open_array(first.store)
    first.append([3, 4])
    assert second.append([5]) == (6,)
    assert second[:].tolist() == first.refresh()[:].tolist() == [0, 1, 2, 3, 4, 5]


def test_an_array_opened_before_another_grew_clears_what_it_drops() -> None:
    first = gzarr.array(np.arange(3), chunks=2)
    second = gzarr.open_array(first.store)
    first.append([3, 4, 5])
    second.resize(3)
    second.resize(6)
    assert second[:].tolist() == [0, 1, 2, 0, 0, 0]


@pytest.mark.parametrize("fill", [0, 5])
def test_shrinking_clears_shards_that_cannot_be_addressed(fill: int) -> None:
    codecs = [NumcodecsCodec("delta", {"dtype": "<i4"}), ShardingCodec((2,)), ZstdCodec(1)]
    array = gzarr.create_array(shape=8, chunks=8, dtype="i4", codecs=codecs, fill_value=fill)
    array[:] = np.arange(8)
    array.resize(3)
    array.resize(8)
    assert array[:].tolist() == [0, 1, 2, *[fill] * 5]
