"""The values of a variable in the encoding of the array that holds it already, and their place there."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray import conventions
from xarray.backends.zarr import encode_zarr_variable

from gzarr.hierarchy.array import Array
from gzarr.interop.xarray.variables import variable_of


def into(
    array: Array, name: str, variable: xr.Variable, region: Mapping[Any, slice], append_dim: Hashable | None
) -> dict[str, Any]:
    """Return the encoded values as ``data``, the ``shape`` that the array needs, and their ``part`` of it.

    Parameters
    ----------
    array : Array
        The stored array.
    name : str
        Name of the variable.
    variable : xarray.Variable
        The variable, decoded. Its axes may be in another order.
    region : mapping of str to slice
        Part of the array to write into, by dimension; all of the others.
    append_dim : hashable, optional
        Dimension along which the array grows.

    Raises
    ------
    ValueError
        If the variable has other dimensions or lengths, or longer text.
    """
    is_time = may_be_time(variable)
    stored = conventions.decode_cf_variable(
        name, variable_of(array), concat_characters=False, decode_times=is_time, decode_timedelta=is_time
    )
    _check_units(name, variable, stored)
    _check_text(name, variable, array)
    changed = variable.copy(deep=False)
    changed.encoding = stored.encoding
    encoded = encode_zarr_variable(changed, name=name)
    if set(encoded.dims) != set(stored.dims):
        raise ValueError(f"variable {name!r} has dimensions {encoded.dims}, in {array.store_path} {stored.dims}")
    encoded = encoded.transpose(*stored.dims)
    shape, part = list(array.shape), []
    for axis, (dim, length) in enumerate(zip(stored.dims, encoded.shape, strict=True)):
        where = slice(*region.get(dim, slice(None)).indices(array.shape[axis]))
        there = where.stop - where.start
        if dim == append_dim:
            where = slice(array.shape[axis], array.shape[axis] + length, 1)
            shape[axis] = where.stop
        elif there != length:
            raise ValueError(
                f"variable {name!r} has {length} elements along {dim!r}, {array.store_path} has {there} there; "
                "use append_dim= to append, region= to write a part"
            )
        part.append(where)
    return {"data": encoded.data, "shape": tuple(shape), "part": tuple(part)}


def may_be_time(variable: xr.Variable) -> bool:
    """Return whether a variable holds times, which numbers that were opened without decoding are not."""
    return variable.dtype.kind in "mMO"


def _check_units(name: str, variable: xr.Variable, stored: xr.Variable) -> None:
    """Refuse times that are counted, as numbers, in other units than the stored ones."""
    units, expected = (str(one.attrs.get("units", "")) for one in (variable, stored))
    if " since " in expected and units != expected:
        raise ValueError(
            f"variable {name!r} has the units {units!r}, stored are times in {expected!r}; convert it first"
        )


def _check_text(name: str, variable: xr.Variable, array: Array) -> None:
    """Refuse text that is longer than the elements of the array that it goes into."""
    if array.dtype.kind not in "SU" or variable.dtype.kind not in "OSTU":
        return
    text = np.asarray(variable.data)
    if array.dtype.kind == "S" and text.dtype.kind != "S":
        text = np.strings.encode(text.astype("U"), "utf-8")
    needed = text.astype(array.dtype.kind).dtype
    if needed.itemsize > array.dtype.itemsize:
        raise ValueError(f"variable {name!r}: text of type {needed} does not fit into {array.dtype}; write it anew")
