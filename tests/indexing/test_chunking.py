"""The values of chunks= and shards=, and the defaults."""

import math
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.errors import MetadataError
from gzarr.indexing.chunking import guess_chunks, parse_chunks, parse_grid, parse_shape
from gzarr.indexing.grid import RegularAxis, VaryingAxis

SHAPE = (10000, 10000)


@pytest.mark.parametrize(
    ("chunks", "wanted"),
    [
        (100, (100, 100)),
        (np.int64(100), (100, 100)),
        ((100, 200), (100, 200)),
        ([100, np.int32(200)], (100, 200)),
        (np.array([100, 200]), (100, 200)),
        (np.array(100, "u8"), (100, 100)),
        ((100, None), (100, 10000)),
        ((None, 100), (10000, 100)),
        ((-1, 100), (10000, 100)),
        (-1, (10000, 10000)),
        (False, (10000, 10000)),
        (True, (625, 625)),
        (None, (625, 625)),
        ("auto", (625, 625)),
        (20000, (20000, 20000)),
    ],
)
def test_every_way_to_say_chunks(chunks: Any, wanted: tuple[int, ...]) -> None:
    assert parse_chunks(chunks, SHAPE, 4) == wanted
    assert gzarr.zeros(SHAPE, chunks=chunks, dtype="i4").chunks == wanted


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        (0, "ints >= 1"),
        (-2, "ints >= 1"),
        ((10, 0), "got 0"),
        ((10, 2.5), "got 2.5"),
        ((10, True), "got True"),
        ((10, "a"), "got 'a'"),
        ((100,), r"\(100,\) have 1 dimensions, .* has 2; use \(100, -1\)"),
        ((), r"use \(-1, -1\)"),
        ((1, 2, 3), r"\(1, 2, 3\) have 3 dimensions, the shape \(10000, 10000\) has 2"),
        (1.5, "got 1.5"),
        (np.array(2.7), "got array"),
        ((np.array(2.0), 3), "got array"),
        (np.array([2.5, 3]), "got np.float64"),
        (b"3", "got b'3'"),
        ("big", "got 'big'"),
        (object(), "must be an int, a tuple"),
        ([[1, 2], 3], "cover its 10000 elements"),
        ([[10000, 0], 3], "ints >= 1"),
        ([[10000]], "list 1 axes"),
        ([[], 3], "got \\[\\]"),
    ],
)
def test_what_are_no_chunks(chunks: Any, message: str) -> None:
    store: dict[str, bytes] = {}
    with pytest.raises(MetadataError, match=message):
        gzarr.zeros(SHAPE, chunks=chunks, store=store)
    assert store == {}


@pytest.mark.parametrize(
    "shape", [5, np.array(5), np.uint64(5), (5,), [np.array(5)], np.array([5]), np.array([5], "u8")]
)
def test_every_way_to_say_a_shape(shape: Any) -> None:
    assert parse_shape(shape) == parse_shape(shape, 1) == np.zeros(shape).shape == gzarr.zeros(shape).shape


@pytest.mark.parametrize(
    "shape", [5.0, (5.0,), np.float64(5), np.array(5.5), (np.array(5.5),), True, np.True_, (True,), "5", b"5", -1, None]
)
def test_what_is_no_shape(shape: Any) -> None:
    """NumPy refuses these too; whole floats are no integers."""
    with pytest.raises(MetadataError, match="shape"):
        parse_shape(shape)
    array = gzarr.zeros(6, chunks=2)
    with pytest.raises(MetadataError, match="shape"):
        array.resize(shape)
    assert array.shape == (6,)


def test_axes_of_no_elements_get_chunks_of_one() -> None:
    assert parse_chunks(-1, (0, 3), 4) == (1, 3)
    assert guess_chunks((0, 3), 4)[0] == 1
    assert (parse_chunks(None, (), 8), parse_chunks(5, (), 8)) == ((), ())


@given(st.lists(st.integers(1, 10**5), min_size=1, max_size=4), st.sampled_from([1, 2, 4, 8, 16]))
def test_guesses_are_those_of_zarr_python(shape: list[int], itemsize: int) -> None:
    dtype = {1: "i1", 2: "i2", 4: "i4", 8: "f8", 16: "c16"}[itemsize]
    theirs = zarr.create_array({}, shape=tuple(shape), dtype=dtype).chunks
    assert guess_chunks(shape, itemsize) == theirs


@given(st.lists(st.integers(0, 10**7), max_size=4), st.integers(0, 10**6))
def test_guesses_are_of_bounded_size(shape: list[int], itemsize: int) -> None:
    chunks = guess_chunks(shape, itemsize)
    assert all(1 <= c <= max(n, 1) for c, n in zip(chunks, shape, strict=True))
    assert math.prod(chunks) == 1 or math.prod(chunks) * itemsize <= 64 * 2**20


# -- shards and rectilinear grids ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "shards", "shape", "outer", "inner"),
    [
        ((10, 10), (100, 50), (1000, 1000), (100, 50), (10, 10)),
        (10, 100, (1000, 1000), (100, 100), (10, 10)),
        ((10, 10), {"shape": (20, 20)}, (1000, 1000), (20, 20), (10, 10)),
        (None, (100, 60), (1000, 1000), (100, 60), (100, 60)),
        ((10, -1), (20, -1), (100, 30), (20, 30), (10, 30)),
    ],
)
def test_shards_hold_whole_chunks(chunks: Any, shards: Any, shape: Any, outer: Any, inner: Any) -> None:
    grid, found = parse_grid(chunks, shards, shape, 4)
    assert grid == tuple(RegularAxis(n, c) for n, c in zip(shape, outer, strict=True))
    assert found == inner
    array = gzarr.zeros(shape, chunks=chunks, shards=shards, dtype="i4")
    assert (array.chunks, array.shards) == (inner, outer)


def test_shards_without_chunks_are_cut_evenly() -> None:
    array = gzarr.zeros((100000, 1000), shards=(7919, 1000), dtype="f8")  # 7919 is prime
    assert all(s % c == 0 for s, c in zip(array.shards or (), array.chunks, strict=True))


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=3), st.integers(1, 100), st.sampled_from([1, 4, 8]))
def test_automatic_shards_fit(shape: list[int], chunk: int, itemsize: int) -> None:
    grid, inner = parse_grid(chunk, "auto", tuple(shape), itemsize)
    shards = [axis.length for axis in grid if isinstance(axis, RegularAxis)]
    assert inner == (chunk,) * len(shape)
    assert all(s % chunk == 0 and s < max(2 * n, chunk + 1) for s, n in zip(shards, shape, strict=True))
    assert math.prod(shards) * itemsize <= max(64 * 2**20, chunk ** len(shape) * itemsize)


def test_shards_that_are_no_multiple_are_refused_with_a_proposal() -> None:
    with pytest.raises(MetadataError, match=r"shards \(100, 55\).*chunks \(10, 10\) on axis 1; use .* \(100, 60\)"):
        gzarr.zeros((200, 200), chunks=(10, 10), shards=(100, 55))


def test_rectilinear_chunks() -> None:
    array = gzarr.zeros((10, 7), chunks=[[3, 3, 4], [5, 2]])
    assert array.chunk_sizes == ((3, 3, 4), (5, 2))
    assert array.metadata.grid == (VaryingAxis(10, (3, 3, 4)), VaryingAxis(7, (5, 2)))
    mixed = gzarr.zeros((10, 7), chunks=[[3, 3, 4], 4])
    assert mixed.chunk_sizes == ((3, 3, 4), (4, 3))


def test_rectilinear_shards() -> None:
    array = gzarr.zeros((10,), chunks=(2,), shards=[[4, 6]])
    assert array.chunk_sizes == ((2, 2, 2, 2, 2),)
    with pytest.raises(MetadataError, match="5 elements on axis 0 is not a whole number of chunks of 2"):
        gzarr.zeros((10,), chunks=(2,), shards=[[5, 6]])


def test_v2_has_neither_shards_nor_rectilinear_chunks() -> None:
    for keywords in ({"chunks": 2, "shards": 4}, {"chunks": [[3, 5]]}):
        with pytest.raises(MetadataError, match="need zarr_format=3"):
            gzarr.zeros(8, zarr_format=2, **keywords)
