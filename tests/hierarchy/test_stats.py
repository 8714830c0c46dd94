"""Statistics of arrays are those of NumPy for the whole array; what is not stored is not read."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gzarr
from gzarr.storage import CountingStore, MemoryStore

DTYPES = ["?", "u1", "i1", "u2", ">i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]


def check(stats: Any, data: np.ndarray, bins: int | None = None) -> None:
    real = data[~np.isnan(data)] if data.dtype.kind == "f" else data
    assert (stats.count, stats.n_nan) == (real.size, data.size - real.size)
    if not real.size:
        assert np.isnan([stats.min, stats.max, stats.mean, stats.std]).all()
        return
    assert (stats.min, stats.max) == (real.min(), real.max())
    if data.dtype.kind in "iub":
        assert stats.mean == sum(map(int, real.flat)) / real.size
    else:
        assert stats.mean == pytest.approx(real.mean(dtype="f8"), rel=1e-12, abs=1e-300)
    assert stats.std == pytest.approx(real.std(dtype="f8"), rel=1e-9, abs=1e-3 * abs(float(real.max())) * 1e-9)
    if bins:
        counts, edges = np.histogram(real, bins)
        np.testing.assert_array_equal(stats.histogram[0], counts)
        np.testing.assert_array_equal(stats.histogram[1], edges)


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_are_those_of_numpy(dtype: str, device: str) -> None:
    rng = np.random.default_rng(1)
    data = rng.normal(0, 50, (40, 50)).astype(dtype)
    if data.dtype.kind == "f":
        data[3, 5:9] = np.nan
    z = gzarr.array(data, chunks=(16, 16), device=device)
    check(z.stats(bins=None if dtype == "?" else 7), data, None if dtype == "?" else 7)


@settings(max_examples=30)
@given(st.data())
def test_extreme_elements(data: Any) -> None:
    dtype = data.draw(st.sampled_from(["u8", "i8", "i4", "u2", "i1"]))
    limits = np.iinfo(dtype)
    elements = st.sampled_from([limits.min, limits.max, limits.max - 1, limits.min + 1, 0, 1])
    values = data.draw(arrays(dtype, st.integers(1, 9), elements=elements))
    stats = gzarr.array(values, chunks=2).stats()
    assert (stats.min, stats.max) == (values.min(), values.max())
    assert stats.mean == sum(map(int, values)) / len(values)


@pytest.mark.parametrize(("dtype", "fill"), [("u2", 7), ("i4", -3), ("f4", np.nan), ("f8", 1.5)])
@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_what_is_not_stored_is_not_read(dtype: str, fill: Any, shards: Any) -> None:
    store = CountingStore(MemoryStore())
    z = gzarr.create_array(store, shape=(40, 40), chunks=(4, 4), shards=shards, dtype=dtype, fill_value=fill)
    z[8:16, 8:16] = np.arange(64).reshape(8, 8)
    expected = z[...]
    store.reset()
    stats = z.stats(bins=5, range=(0, 60))
    check(stats, expected)
    np.testing.assert_array_equal(stats.histogram[0], np.histogram(expected, 5, (0, 60))[0])
    assert {request.key for request in store.requests} <= {"c/2/2", "c/2/3", "c/3/2", "c/3/3", "c/1/1"}


def test_arrays_without_elements_and_of_nan() -> None:
    check(gzarr.zeros((0, 3), dtype="f4").stats(bins=2), np.zeros((0, 3), "f4"))
    check(gzarr.zeros((0, 3), dtype="u1").stats(), np.zeros((0, 3), "u1"))
    check(gzarr.zeros((0, 3), dtype="i4").stats(bins=2), np.zeros((0, 3), "i4"))
    check(gzarr.full((5,), np.nan, dtype="f4").stats(), np.full(5, np.nan, "f4"))
    assert gzarr.full((), 3, dtype="i8").stats().mean == 3


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "i4", "f8"])
def test_a_histogram_of_nothing_has_the_edges_of_numpy(dtype: str) -> None:
    counts, edges = gzarr.zeros((0, 3), chunks=(1, 1), dtype=dtype).stats(bins=4).histogram
    np.testing.assert_array_equal(counts, 0)
    np.testing.assert_array_equal(edges, np.histogram([], 4)[1])


def test_a_histogram_of_booleans_that_are_all_the_same() -> None:
    counts, edges = gzarr.ones(6, chunks=4, dtype="?").stats(bins=3).histogram
    np.testing.assert_array_equal(counts, [0, 6, 0])
    np.testing.assert_array_equal(edges, np.histogram(np.ones(6, "u1"), 3)[1])


def test_bins_of_small_floats_are_those_of_numpy() -> None:
    data = np.random.default_rng(0).normal(0, 10, 20_000).astype("f2")
    counts = gzarr.array(data, chunks=999).stats(bins=256, range=(-5.5, 3.25)).histogram[0]
    np.testing.assert_array_equal(counts, np.histogram(data, 256, (-5.5, 3.25))[0])


def test_other_elements_are_refused() -> None:
    with pytest.raises(
        gzarr.MetadataError, match=r"statistics need real numbers, or times .*, but the elements are complex64"
    ):
        gzarr.zeros(3, dtype="c8").stats()
    with pytest.raises(ValueError, match=r"elements reach from 0\.0 to inf; give range= for"):
        gzarr.array([0.0, np.inf]).stats(bins=3)


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[ns]", ">M8[s]", "M8[5D]", "m8[h]", ">m8[us]"])
def test_times_are_counted_as_times_and_nat_as_no_number(dtype: str) -> None:
    data = np.array([8_000, "NaT", 16_000, 9_000, "NaT"], dtype)
    stats = gzarr.array(data, chunks=2).stats(bins=2)
    kind = data.dtype.newbyteorder("=")
    assert (stats.count, stats.n_nan, stats.n_missing) == (3, 2, 0)
    assert (stats.min, stats.max, stats.mean) == tuple(np.array([8_000, 16_000, 11_000], "i8").view(kind))
    assert stats.std.astype("i8") == 3_559
    assert stats.mean.dtype == kind
    assert stats.std.dtype == kind.str.replace("M", "m")
    assert stats.histogram[0].tolist() == [2, 1]
    assert stats.histogram[1].tolist() == np.array([8_000, 12_000, 16_000], "i8").view(kind).tolist()
    assert np.isnat(gzarr.array(data[1:2]).stats().mean)
    with pytest.raises(gzarr.MetadataError, match="times without skip="):
        gzarr.array(data).stats(skip=3)


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("kind", ["M8[ns]", ">m8[ns]"])
def test_nanoseconds_count_where_floats_have_none(kind: str, device: str) -> None:
    numbers = 1_704_067_200_123_456_789 + np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 20], "i8")
    array = gzarr.create_array({}, shape=(14,), chunks=(3,), dtype=kind, fill_value="NaT", device=device)
    array[:10] = data = numbers.astype(kind)
    stats = array.stats(bins=5)
    assert (stats.count, stats.n_nan) == (10, 4)
    assert (stats.mean, stats.std.astype("i8")) == (data[0] + np.array(6, "m8[ns]"), 5)
    assert stats.histogram[0].tolist() == [4, 4, 1, 0, 1]
    assert stats.histogram[1].tolist() == (numbers[0] + np.arange(0, 21, 4)).tolist()
    limits = data[2], data[4]
    assert array.stats(2, limits).histogram[0].tolist() == [1, 2]
    assert gzarr.array(numbers, chunks=3).stats().std == pytest.approx((numbers - numbers[0]).std())
    same = gzarr.array(data[[3, 3]], device=device).stats(bins=2)
    assert (same.mean, same.std.astype("i8"), same.histogram[0].tolist()) == (data[3], 0, [2, 0])


def test_a_time_is_not_skipped_in_silence() -> None:
    data = np.array([0, 1], "M8[s]")
    for skip in (0, data == data[0]):
        with pytest.raises(gzarr.MetadataError, match="times without skip="):
            gzarr.array(data).stats(skip=skip)


def test_a_view_of_another_dtype_is_what_is_counted() -> None:
    data = np.arange(20, dtype="u1")
    check(gzarr.array(data, chunks=4).astype("f4").stats(bins=3), data.astype("f4"), 3)


def test_progress_and_little_memory() -> None:
    data = np.arange(1000, dtype="i4")
    calls: list[tuple[int, int, str]] = []
    stats = gzarr.array(data, chunks=100).stats(max_nbytes=1, progress=lambda *call: calls.append(call))
    check(stats, data)
    assert calls[-1][:2] == (4000, 4000)
    assert len(calls) == 10
