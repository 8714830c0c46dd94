"""Statistics without elements that are missing, and what says which these are."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.hierarchy.missing import missing_of
from gzarr.metadata.conventions import encode_mask

SHAPE = (203, 190)
HOLES = np.random.default_rng(1).random(SHAPE) < 0.4
VALUES = np.random.default_rng(0).normal(1000, 10, SHAPE)
RECORDED = {"nodata": -9999}


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "f4", "f8"])
@pytest.mark.parametrize("kind", ["number", "mask", "gzarr", "recorded"])
def test_statistics_of_what_is_there(device: str, dtype: str, kind: str) -> None:
    values = (VALUES % 100 + 1).astype(dtype)
    data = values if kind in ("mask", "gzarr") else np.where(HOLES, 0, values).astype(dtype)
    attributes = {"nodata": 0} if kind == "recorded" else {}
    array = gzarr.array(data, chunks=(50, 60), device=device, attributes=attributes)
    mask = gzarr.array(HOLES, chunks=(33, 190))
    skip = {"number": 0, "mask": HOLES, "gzarr": mask, "recorded": None}[kind]
    found = array.stats(10, skip=skip)
    there = values[~HOLES]
    assert (found.count, found.n_missing, found.min, found.max) == (there.size, HOLES.sum(), there.min(), there.max())
    assert found.mean == pytest.approx(there.mean(dtype="f8"))
    assert found.std == pytest.approx(there.std(dtype="f8"))
    np.testing.assert_array_equal(found.histogram[0], np.histogram(there, 10)[0])
    assert array.stats(skip=False).n_missing == 0


def test_statistics_of_chunks_that_are_not_stored() -> None:
    array = gzarr.full((100, 100), -9999.0, chunks=(10, 10), attributes=RECORDED)
    array[:10, :10] = 5
    found = array.stats(2)
    assert (found.count, found.n_missing, found.min, found.mean) == (100, 9900, 5, 5)
    nothing = gzarr.full((10,), 3, dtype="i4").stats(skip=3)
    assert (nothing.count, nothing.n_missing) == (0, 10)
    assert np.isnan(nothing.mean)
    for dtype in ("u1", "i4", "f4"):
        counts, edges = gzarr.full((10,), 3, dtype=dtype).stats(5, skip=3).histogram
        assert (counts.sum(), edges[0], edges[-1]) == (0, 0, 1)
    assert gzarr.zeros(2).stats(skip=np.False_).n_missing == 0
    flags = gzarr.array([np.nan, 1.0]).stats(skip=np.nan)
    assert (flags.count, flags.n_nan, flags.n_missing) == (1, 1, 0)


def test_what_is_recorded() -> None:
    for zarr_format, attributes, expected in (
        (3, RECORDED, -9999),
        (2, RECORDED, -9999),
        (3, {"_FillValue": 0, "missing_value": 0}, None),
        (3, {"nodata": "damaged"}, None),
        (2, {"nodata": [1, 2]}, None),
        (2, {"nodata": None}, None),
    ):
        array = gzarr.full((2,), np.nan, dtype="f8", zarr_format=zarr_format, attributes=attributes)
        found = missing_of(None, array)
        assert (None if found is None else found.value) == expected
    assert np.isnan(missing_of(None, gzarr.zeros(2, attributes={"nodata": "NaN"})).value)
    assert missing_of(None, gzarr.zeros(2, dtype="u1", attributes=RECORDED)) is None


#: Elements, attributes, and those that are left.
BY_CONVENTION = [
    ("i2", {"_FillValue": -99}, [1, 2, 3, 30]),
    ("i2", {"missing_value": [-99, 30]}, [1, 2, 3]),
    ("i2", {"valid_range": [0, 10], "missing_value": 3}, [1, 2]),
    ("i2", {"valid_min": [2]}, [2, 3, 30]),
    ("i2", {"valid_max": 2, "_FillValue": -99}, [1, 2]),
    ("i2", {"valid_range": [1.5, 29.5]}, [2, 3]),
    ("i2", {"valid_range": [0.1, 0.3], "scale_factor": [0.1]}, [1, 2, 3]),
    ("i2", {"valid_range": [-2.9, 9.8], "scale_factor": -0.1}, [1, 2, 3]),
    ("i2", {"valid_range": [0, 10], "scale_factor": 0.1}, [1, 2, 3]),
    ("i2", {"valid_range": [2, -3], "_Unsigned": "true"}, [-99, 2, 3, 30]),
    ("i2", {"valid_min": 3, "_Unsigned": "true"}, [-99, 3, 30]),
    ("i2", {"missing_value": "text", "_FillValue": 1e9}, [-99, 1, 2, 3, 30]),
    ("f4", {"_FillValue": encode_mask(-99, np.dtype("f4"))}, [1, 2, 3, 30]),
    ("f4", {"missing_value": -99.0, "valid_range": [-100.0, 10.0]}, [1, 2, 3]),
    ("f4", {"_FillValue": "NaN"}, [-99, 1, 2, 3, 30]),
]


@pytest.mark.parametrize(("dtype", "attributes", "left"), BY_CONVENTION, ids=str)
@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_what_netcdf_and_xarray_call_missing_is_left_out(dtype: str, attributes: Any, left: Any, device: str) -> None:
    data = np.array([-99, 1, 2, 3, 30], dtype)
    array = gzarr.create_array(data=data, chunks=2, attributes=attributes, device=device)
    found = array.stats()
    assert (found.count, found.min, found.max, found.n_missing) == (len(left), min(left), max(left), 5 - len(left))
    assert array.stats(skip=False).count == 5


def test_limits_leave_nan_to_itself() -> None:
    data = np.array([np.nan, 1, 2, 30], "f8")
    found = gzarr.create_array(data=data, attributes={"valid_max": 10.0}).stats()
    assert (found.count, found.n_nan, found.n_missing) == (2, 1, 1)


@pytest.mark.parametrize(("fill", "names", "n"), [(-99, ["x"], 4), (-99, None, 5), (0, ["x"], 5)])
def test_a_fill_value_of_v2_is_missing_where_xarray_reads_the_array(fill: int, names: Any, n: int) -> None:
    attributes = {} if names is None else {"_ARRAY_DIMENSIONS": names}
    data = np.array([-99, 0, 2, 3, 30], "i4")
    array = gzarr.create_array(data=data, fill_value=fill, zarr_format=2, attributes=attributes)
    assert array.stats().count == n
