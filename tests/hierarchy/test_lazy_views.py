"""Lazy views beside other things: names, coordinates, costs, errors, and the libraries that take them."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import gzarr
from gzarr.errors import MetadataError, ReadOnlyError, SelectionError
from gzarr.interop.dask import from_zarr
from gzarr.interop.xarray import as_dataarray
from gzarr.storage import CountingStore

VALUES = np.arange(6 * 8 * 10, dtype="i4").reshape(6, 8, 10)


@pytest.fixture
def group():
    group = gzarr.create_group(gzarr.MemoryStore())
    for name, values in (("t", np.arange(6) * 10.0), ("y", np.arange(8)[::-1] / 2), ("x", np.arange(10) ** 2)):
        group.create_array(name, data=values, dimension_names=[name])
    group.create_array("z", data=VALUES, chunks=(2, 3, 4), dimension_names=["t", "y", "x"])
    return group


def test_axes_are_selected_by_name_and_by_coordinates(group):
    view = group["z"].lazy.transpose("x", "t", "y")
    assert view.dimension_names == gzarr.array(view).dimension_names == ("x", "t", "y")
    np.testing.assert_array_equal(view.isel(t=-1, x=[5, 2])[...], VALUES.transpose(2, 0, 1)[[5, 2], -1])
    found = view.flip("t").sel(t=slice(20, 40), y=1.5)
    assert found.dimension_names == ("x", "t")
    np.testing.assert_array_equal(found.coordinate("t"), [40, 30, 20])
    np.testing.assert_array_equal(found[...], VALUES[4:1:-1, 4].T)
    np.testing.assert_array_equal(view.sel("nearest", x=[26, 3]).coordinate("x"), [25, 4])
    np.testing.assert_array_equal(gzarr.concat([view[:2], view[5:]], "x").sel(x=25)[...], VALUES[:, :, 5])


def test_an_array_that_was_opened_by_its_path_knows_no_coordinates(tmp_path):
    gzarr.create_group(tmp_path).create_array("z", data=[1], dimension_names=["t"])
    with pytest.raises(gzarr.errors.SelectionError, match="open the group that holds both"):
        gzarr.open_array(tmp_path / "z", mode="r").lazy.sel(t=1)


def test_a_coordinate_of_time_is_selected_by_text():
    group = gzarr.create_group(gzarr.MemoryStore())
    group.create_array("t", data=np.arange("2020-01", "2020-06", dtype="M8[M]"), dimension_names=["t"])
    z = group.create_array("z", data=np.arange(5), dimension_names=["t"])
    assert z.lazy.sel(t=slice("2020-02", "2020-03"))[...].tolist() == [1, 2]
    assert z.lazy.sel(t="2020-05").result() == 4


TIMES = np.array(["2020-01-01", "NaT", "2020-01-05"], "M8[D]")


@pytest.mark.parametrize(
    ("coordinates", "method", "label", "found"),
    [
        ([1, np.nan, 3], None, 3.0, 2),
        ([1, np.nan, 3], "nearest", 2.9, 2),
        ([5, 3, 1], "nearest", 2, 1),
        (TIMES, "nearest", "2020-01-04T23", 2),
        (TIMES, None, slice("2020-01-01T23", None), [2]),
        (np.array([10, 200, 250], "u1"), "nearest", np.uint8(12), 0),
        (np.array([0.1, 0.2, 0.3], "f4"), None, slice(0.1, 0.3), [0, 1, 2]),
        (np.array([0.1, 0.2, 0.3], "f4"), None, [0.3, 0.1], [2, 0]),
        (["a", "b"], None, "b", 1),
        ([False, True], None, True, 1),
        ([50, 40, 30, 20], None, slice(40, 20), [1, 2, 3]),
        ([50, 40, 30, 20], None, slice(20, 40), [1, 2, 3]),
        ([50, 40, 30, 20], None, slice(None, 40), [0, 1]),
        ([50, 40, 30, 20], None, slice(20, 40, -2), [3, 1]),
    ],
)
def test_labels_of_any_kind_and_order_are_found(coordinates, method, label, found):
    group = gzarr.create_group(gzarr.MemoryStore())
    group.create_array("x", data=np.array(coordinates), dimension_names=["x"])
    z = group.create_array("z", data=np.arange(len(coordinates)), dimension_names=["x"])
    assert z.lazy.sel(method, x=label).result().tolist() == found


@pytest.mark.parametrize("select", [lambda v: v, lambda v: v[::-1], lambda v: v[:, [0, 7]], lambda v: v.vindex[[5], 7]])
def test_a_view_of_what_an_array_has_no_more_is_neither_read_nor_written(select):
    z = gzarr.array(np.arange(48).reshape(6, 8), chunks=(2, 3))
    view, kept = select(z.lazy), z.lazy[4::-2, 6]
    z.resize((5, 7))
    np.testing.assert_array_equal(kept[...], [38, 22, 6])
    for use in (view.result, lambda: view.write(7), lambda: gzarr.concat([view, view]).result()):
        with pytest.raises(SelectionError, match=r"resized to \(5, 7\); make the view anew"):
            use()
    z.resize((6, 8))
    assert not z[5].any()
    assert not z[:, 7].any()


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda v: v.sel(y=9.9), SelectionError, "no coordinate of 'y' is 9.9; method='nearest'"),
        (lambda v: v.sel(y=np.nan), SelectionError, "no coordinate of 'y' is nan"),
        (lambda v: v.sel("nearest", y="a"), SelectionError, "cannot look up 'a' among coordinates 'y' of float64"),
        (lambda v: v.sel(y=[[1.5, 2.0]]), SelectionError, "must be one, a slice or a list"),
        (lambda v: v.sel("linear", y=9.9), SelectionError, "method must be 'nearest'"),
        (lambda v: v.isel(z=1), SelectionError, "no axis 'z'; its axes are 't', 'y', 'x'"),
        (lambda v: v.transpose(0, 1), SelectionError, "expected each of the 3 axes once"),
        (lambda v: v.flip(3), SelectionError, "no axis 3"),
        (lambda v: v[7], SelectionError, "out of bounds"),
        (lambda v: v["name"], SelectionError, "no field 'name'"),
        (lambda v: v.vindex[[1], [2], [3]].sel(y=1), SelectionError, "no axis 'y'"),
        (lambda v: v.astype("f4").write(1), MetadataError, "read-only; write to the array"),
        (lambda v: gzarr.concat([v, v[0]]), SelectionError, "equal in shape"),
        (lambda v: gzarr.stack([v], 5), SelectionError, "no axis 5"),
        (lambda v: len(v[0, 0, 0]), TypeError, "of a 0-dimensional"),
        (lambda v: np.array(v, copy=False), ValueError, "without a copy"),
        (lambda v: v.write(xr.DataArray(VALUES[:, :8, :8], dims=["t", "x", "y"])), ValueError, "transpose it"),
    ],
)
def test_errors_name_the_remedy(group, use, error, message):
    with pytest.raises(error, match=message):
        use(group["z"].lazy)


def test_a_view_of_a_read_only_array_is_not_written(group):
    z = gzarr.open_array(group.store, path="z", mode="r")
    with pytest.raises(ReadOnlyError):
        z.lazy[0] = 1


def test_a_value_that_reads_what_is_written_is_read_first(group):
    z = group["z"]
    z.lazy[:] = z.lazy[::-1]
    np.testing.assert_array_equal(z[...], VALUES[::-1])
    copy = gzarr.create_array(gzarr.MemoryStore(), data=z.lazy[1::2].T, chunks=(3, 3, 3))
    np.testing.assert_array_equal(copy[...], VALUES[::-1][1::2].T)


def test_a_view_is_made_without_reads_and_reads_each_chunk_once(group):
    store = CountingStore(group.store)
    view = gzarr.open_array(store, path="z", mode="r").lazy
    store.reset()
    parts = gzarr.concat([view[::2, ::-1], view[1::2, ::-1]]).transpose(1, 0, 2)[:, :, 3:5]
    assert not store.requests
    np.testing.assert_array_equal(
        parts[...], np.concatenate([VALUES[::2, ::-1], VALUES[1::2, ::-1]]).transpose(1, 0, 2)[:, :, 3:5]
    )
    keys = [f"z/c/{i}/{j}/{k}" for i in range(3) for j in range(3) for k in (0, 1)]
    assert sorted(key for key, _, _ in store.requests) == sorted(2 * keys)  # once for each of the joined views


def test_dask_and_xarray_take_views(group):
    view, wanted = group["z"].lazy[1:, ::-1].transpose(2, 0, 1), VALUES[1:, ::-1].transpose(2, 0, 1)
    for made in (from_zarr(view), da.from_array(view)):
        np.testing.assert_array_equal(made[2:, 1].compute(scheduler="synchronous"), wanted[2:, 1])
    assert from_zarr(view).chunks == ((4, 4, 2), (1, 2, 2), (2, 3, 3)) == view.chunk_sizes
    assert from_zarr(view).name == from_zarr(group["z"].lazy[1:, ::-1].transpose(2, 0, 1)).name
    assert from_zarr(view).name != from_zarr(view.flip()).name
    made = as_dataarray(view)
    assert made.dims == ("x", "t", "y")
    np.testing.assert_array_equal(made.isel(x=[3, 1], t=slice(1, None)).values, wanted[[3, 1], 1:])
    points = xr.DataArray([0, 1, 2], dims="p")
    np.testing.assert_array_equal(made.isel(x=points, t=points, y=points).values, wanted[range(3), range(3), range(3)])


@pytest.mark.parametrize("shuffle", [False, "blocks"])
def test_the_loader_takes_views(group, shuffle):
    view, wanted = group["z"].lazy[:, 5:0:-2].transpose(2, 0, 1), VALUES[:, 5:0:-2].transpose(2, 0, 1)
    for arrays, expected in ((view, wanted), ([view[6:], view[:6]], np.concatenate([wanted[6:], wanted[:6]]))):
        rows = np.concatenate([b["z"] for b in gzarr.Loader({"z": arrays}, batch_size=4, shuffle=shuffle)])
        assert sorted(map(bytes, rows)) == sorted(row.tobytes() for row in expected)
    crops = next(iter(gzarr.Loader(view, batch_size=3, crops=gzarr.Crops((2, 2), n=9), shuffle=False)))
    assert crops.shape == (3, 2, 2, 3)


def test_a_view_by_a_mask_of_an_empty_array_has_an_empty_chunk():
    view = gzarr.zeros((0, 2), chunks=1).lazy[np.zeros((0, 2), bool)]
    assert (view.chunk_sizes, view[...].shape) == (((0,),), (0,))
