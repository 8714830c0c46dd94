"""Arrays whose axes have names, as those of xarray: the names are stored, and no axis is written to another one."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr

xr = pytest.importorskip("xarray")


def cube(*dims: str) -> Any:
    """An array of three axes of one length."""
    return xr.DataArray(np.arange(64).reshape(4, 4, 4), dims=dims or ("y", "x", "c"))


def names_of(array: gzarr.Array) -> Any:
    return array.attrs.get("_ARRAY_DIMENSIONS") if array.metadata.zarr_format == 2 else array.dimension_names


MAKERS: dict[str, Callable[[Any, Any], gzarr.Array]] = {
    "create_array": lambda data, how: gzarr.create_array(data=data, **how),
    "array": lambda data, how: gzarr.array(data, **how),
    "from_array": lambda data, how: gzarr.from_array(data=data, **how),
    "empty_like": lambda data, how: gzarr.empty_like(data, **how),
    "full_like": lambda data, how: gzarr.full_like(data, fill_value=1, **how),
    "create_dataset": lambda data, how: gzarr.group(**how).create_dataset("a", data=data),
    "zeros_like": lambda data, how: gzarr.group(**how).zeros_like("a", data),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_new_arrays_take_the_names(maker: str, zarr_format: int) -> None:
    array = MAKERS[maker](cube(), {"zarr_format": zarr_format})
    assert list(names_of(array)) == ["y", "x", "c"]


def test_saved_arrays_take_the_names(tmp_path: Path, zarr_format: int) -> None:
    gzarr.save(tmp_path / "one", cube(), zarr_format=zarr_format)
    gzarr.save(tmp_path / "two", cube(), other=cube("z", "y", "x").chunk(2), zarr_format=zarr_format)
    assert list(names_of(gzarr.open_array(tmp_path / "one"))) == ["y", "x", "c"]
    group = gzarr.open_group(tmp_path / "two")
    assert [list(names_of(group[name])) for name in ("arr_0", "other")] == [["y", "x", "c"], ["z", "y", "x"]]
    np.testing.assert_array_equal(group["other"][...], cube())


def test_zeros_are_no_missing_data_to_xarray(tmp_path: Path, zarr_format: int) -> None:
    gzarr.group(tmp_path / "a.zarr", zarr_format=zarr_format).create_array("t", data=cube())
    with xr.open_dataset(tmp_path / "a.zarr", engine="gzarr", consolidated=False) as opened:
        xr.testing.assert_identical(opened["t"].load(), cube().rename("t"))


def test_names_of_a_call_rename_axes_and_do_not_exchange_them() -> None:
    array = gzarr.create_array(data=cube(), dimension_names=("a", None, "c"))
    assert array.dimension_names == ("a", None, "c")
    store: dict[str, bytes] = {}
    with pytest.raises(ValueError, match=r"the axes \('y', 'x', 'c'\) would be written to the axes \('x', 'y', 'c'\)"):
        gzarr.create_array(store, data=cube(), dimension_names=("x", "y", "c"))
    assert not store
    with pytest.raises(gzarr.MetadataError, match="names that are no text, \\(0, 'x', 'c'\\); rename them"):
        gzarr.create_array(data=cube().rename(y=0))
    view = gzarr.create_array(data=array.lazy[:, None])
    assert view.dimension_names == gzarr.empty_like(view).dimension_names == ("a", None, None, "c")
    assert "_ARRAY_DIMENSIONS" not in gzarr.create_array(data=view.lazy, zarr_format=2).attrs


WRITES: dict[str, Callable[[gzarr.Array, Any], Any]] = {
    "brackets": lambda array, value: array.__setitem__(..., value),
    "a new axis": lambda array, value: array.__setitem__((None, ...), value),
    "backwards": lambda array, value: array.__setitem__(slice(None, None, -1), value),
    "oindex": lambda array, value: array.oindex.__setitem__(([0, 1, 2, 3],), value),
    "blocks": lambda array, value: array.blocks.__setitem__((slice(None),) * 3, value),
    "write_many": lambda array, value: gzarr.write_many([(array, ..., value)]),
    "awrite": lambda array, value: asyncio.run(array.awrite(..., value)),
    "append": lambda array, value: array.append(value),
    "broadcast": lambda array, value: array.__setitem__(..., value[0]),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("lazy", [False, True])
def test_values_whose_axes_have_other_places_are_refused(write: str, lazy: bool, zarr_format: int) -> None:
    array = gzarr.zeros_like(cube(), zarr_format=zarr_format, chunks=2)
    value = cube().chunk(2) if lazy else cube()
    with pytest.raises(ValueError, match=r"'y' to 'x'|'x' to 'c'"):
        WRITES[write](array, value.transpose("x", "y", "c") if write != "broadcast" else value.transpose("c", "y", "x"))
    assert not np.any(array[...])
    WRITES[write](array, value)
    WRITES[write](array, value.rename(x="other"))
    WRITES[write](array, value.transpose("x", "y", "c").data)


def test_axes_that_a_selection_drops_have_no_place() -> None:
    array = gzarr.create_array(data=cube())
    value = cube()
    array[0] = value[1]
    array[:, 2] = value[:, 3]
    np.testing.assert_array_equal(array[0, 1], value[1, 1])
    np.testing.assert_array_equal(array[1, 2], value[1, 3])
    with pytest.raises(ValueError, match="'y' to 'x'"):
        array[0] = value[:, 0]
    array.vindex[[0, 1], [0, 1], [0, 1]] = value[0, 0, :2]  # points have no axes of the array
