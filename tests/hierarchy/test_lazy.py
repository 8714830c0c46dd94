"""Lazy values: those that may read the array they are written to are computed first, the others are read in parts."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import gzarr
from gzarr.errors import StoreError
from gzarr.hierarchy import values
from gzarr.storage import CountingStore, LocalStore, MemoryStore, Store

DATA = np.arange(20 * 24).reshape(20, 24)


class Parts:
    """Gives parts when it is asked, and notes how large they were."""

    def __init__(self, data: Any) -> None:
        self.data, self.shape, self.dtype = data, data.shape, data.dtype
        self.asked: list[int] = []

    def __getitem__(self, key: Any) -> Any:
        assert all(isinstance(item, slice) for item in key)
        found = self.data[key]
        self.asked.append(found.size)
        return found


class WithArray(Parts):
    """Another that NumPy takes as a whole."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.asked.append(self.data.size)
        return np.asarray(self.data, dtype)


class Backwards(Parts):
    """What many libraries make of an array that is reversed: only its parts are read."""

    def __getitem__(self, key: Any) -> Any:
        assert len(key) == 2
        rows = [n - 1 - np.arange(n)[item] for n, item in zip(self.shape, key, strict=True)]
        return self.data.oindex[tuple(rows)]


@pytest.fixture(params=["in memory", "in a file"])
def _limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute values in memory, or in pieces of 300 bytes into a file."""
    if request.param == "in a file":
        monkeypatch.setattr(values, "IN_MEMORY_NBYTES", 300)


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "data.zarr")


@pytest.fixture
def array(store: Store) -> gzarr.Array:
    return gzarr.array(DATA, store=store, chunks=(3, 4))


def check(array: gzarr.Array, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(gzarr.open_array(array.store, path=array.path, mode="r")[...], wanted)


# -- values that read the array ------------------------------------------------------------------------------------

REVERSED = {
    "dask": lambda z: da.from_array(z, chunks=(7, 5))[::-1, ::-1],
    "dask, a function": lambda z: da.map_blocks(lambda _: z[::-1, ::-1], da.zeros(z.shape, chunks=-1), dtype=z.dtype),
    "xarray over dask": lambda z: xr.DataArray(da.from_array(z, chunks=(7, 5)))[::-1, ::-1],
    "parts": Backwards,
}


@pytest.mark.usefixtures("_limit")
@pytest.mark.parametrize("kind", REVERSED)
def test_a_value_that_reads_the_array_is_computed_first(kind: str, array: gzarr.Array) -> None:
    array[:] = REVERSED[kind](array)
    check(array, DATA[::-1, ::-1])


@pytest.mark.usefixtures("_limit")
def test_through_zarr_python(tmp_path: Path) -> None:
    array = gzarr.array(DATA, store=tmp_path / "a.zarr", chunks=(3, 4))
    array[:] = da.from_zarr(str(tmp_path / "a.zarr"))[::-1]
    check(array, DATA[::-1])
    array[1:] = zarr.open_array(tmp_path / "a.zarr", mode="r")[:-1]
    check(array, np.concatenate([DATA[-1:], DATA[::-1][:-1]]))


@pytest.mark.usefixtures("_limit")
def test_other_arrays_at_the_same_place(tmp_path: Path) -> None:
    """Views, array objects of their own, and stores with another root or name for the place."""
    root = gzarr.open_group(tmp_path / "r", mode="w")
    array = root.create_array("a/b", data=np.arange(100), chunks=7)
    (tmp_path / "link").symlink_to(tmp_path / "r")
    others = [
        array,
        gzarr.open_array(tmp_path / "r/a/b", mode="r"),
        gzarr.open_group(tmp_path / "link", mode="r")["a/b"],
        gzarr.open_array(CountingStore(LocalStore(tmp_path / "r/a")), path="b", mode="r"),
    ]
    for other in others:
        array[:] = np.arange(100)
        array[10:60] = other.view(shape=(50,))
        check(array, np.r_[0:10, 0:50, 60:100])
        array[:] = other
        check(array, np.r_[0:10, 0:50, 60:100])
        assert not values.is_separate(other, array.store, array.path)
    assert values.is_separate(root.create_array("a/c", data=[1]), array.store, array.path)
    assert values.is_separate(gzarr.array([1]), array.store, array.path)


@pytest.mark.usefixtures("_limit")
def test_appending_what_reads_the_array(store: Store) -> None:
    array = gzarr.array(np.arange(100), store=store, chunks=7)
    array.append(da.from_array(array, chunks=9)[::-1])
    array.append(array)
    check(array, np.tile(np.r_[0:100, 99:-1:-1], 2))


@pytest.mark.usefixtures("_limit")
def test_replacing_an_array_by_what_reads_it(array: gzarr.Array) -> None:
    new = gzarr.create_array(array.store, data=da.from_array(array)[::-1], chunks=(5, 5), overwrite=True)
    assert new.chunks == (5, 5)
    check(new, DATA[::-1])


# -- values that do not --------------------------------------------------------------------------------------------


def test_other_arrays_are_read_part_by_part(array: gzarr.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []
    monkeypatch.setattr("gzarr.hierarchy.values.computed", lambda *args: computed.append(args))
    array[:] = gzarr.array(DATA + 1, chunks=(4, 4))
    check(array, DATA + 1)
    assert computed == []


def test_new_arrays_take_any_value_part_by_part(store: Store) -> None:
    """Nothing is there that the value could read."""
    source = Parts(DATA)
    check(gzarr.array(source, store=store, chunks=(10, 12)), DATA)
    assert source.asked == [120] * 4
    source = Parts(DATA)
    check(gzarr.create_array(MemoryStore(), data=source, chunks=(10, 12), overwrite=True), DATA)
    assert source.asked == [120] * 4


def test_unknown_values_are_asked_once(array: gzarr.Array) -> None:
    for kind in (Parts, WithArray):
        source = kind(DATA[::-1])
        array[:] = source
        assert source.asked == [480]
        check(array, DATA[::-1])


def test_large_values_are_computed_in_contiguous_pieces(array: gzarr.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, asked in (
        (480 * 4, [240] * 2),
        (24 * 8 * 3, [72] * 6 + [48]),
        (24 * 8 - 1, [23, 1] * 20),
        (1, [1] * 480),
    ):
        monkeypatch.setattr(values, "IN_MEMORY_NBYTES", limit)
        source = Parts(DATA + 1)
        array[:] = source
        assert source.asked == asked
        check(array, DATA + 1)


@pytest.mark.usefixtures("_limit")
def test_values_with_data_types_of_other_libraries(array: gzarr.Array) -> None:
    source = WithArray(DATA + 1)
    source.dtype = "tensorstore.int64"
    array[:] = source
    check(array, DATA + 1)
    check(gzarr.array(source, chunks=(5, 5)), DATA + 1)


def test_texts_of_variable_length_are_computed_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "IN_MEMORY_NBYTES", 1)
    array = gzarr.array(np.array(["a", "b", "cd", "e"], object), dtype=str, chunks=1)
    array[:] = da.from_array(array, chunks=3)[::-1]
    assert array[:].tolist() == ["e", "cd", "b", "a"]


def test_values_that_do_not_fit_are_refused(array: gzarr.Array) -> None:
    for value in (Parts(np.zeros((3, 5))), da.zeros(7), gzarr.zeros((20, 25))):
        with pytest.raises(ValueError, match="cannot write a value of shape"):
            array[:] = value
    check(array, DATA)
    array[:] = da.arange(24, chunks=5)
    check(array, np.broadcast_to(np.arange(24), DATA.shape))


def test_values_that_cannot_be_cast_are_found_before_anything_is_written(tmp_path: Path) -> None:
    array = gzarr.array(np.arange(3), chunks=1)
    texts = gzarr.array(np.array(["7", "8", "x"], object), dtype=str, chunks=1)
    with pytest.raises(ValueError, match="invalid literal"):
        array[:] = texts
    with pytest.raises(TypeError, match="cannot write a value of dtype"):
        array[:] = gzarr.zeros(3, dtype=[("a", "i4"), ("b", "i4")])
    assert array[:].tolist() == [0, 1, 2]
    array[:2] = gzarr.array(np.array(["7", "8"]), chunks=1)
    assert array[:].tolist() == [7, 8, 2]


def test_a_full_disk_is_an_error_before_any_write(array: gzarr.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(values, "IN_MEMORY_NBYTES", 100)
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(StoreError, match=r"cannot hold its 3840 bytes.*No space left.*Set TMPDIR"):
        array[:] = da.zeros(DATA.shape)
    check(array, DATA)


def test_files_are_allocated_without_the_call_for_it(array: gzarr.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "IN_MEMORY_NBYTES", 100)
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    array[:] = da.from_array(array)[::-1]
    check(array, DATA[::-1])
