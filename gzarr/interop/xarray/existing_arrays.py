"""What is written into arrays that exist: the part that a region means, and values in the encoding of the array."""

from collections.abc import Hashable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import xarray as xr
from xarray import conventions

from gzarr.hierarchy.array import Array
from gzarr.interop.xarray.variables import encoded_variable, variable_of

Region: TypeAlias = Mapping[Any, slice | Literal["auto"]] | Literal["auto"] | None


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
        If the variable has other dimensions or lengths, longer text, or times between the whole numbers of its units.
    """
    is_time = may_be_time(variable)
    stored = conventions.decode_cf_variable(
        name, variable_of(array), concat_characters=False, decode_times=is_time, decode_timedelta=is_time
    )
    _check_units(name, variable, stored)
    _check_text(name, variable, array)
    if variable.dtype.kind == array.dtype.kind and array.dtype.kind in "mM":
        _check_resolution(name, variable, array.dtype)
        encoded = variable
    else:
        changed = variable.copy(deep=False)
        changed.encoding = stored.encoding
        encoded = encoded_variable(changed, name)
        if is_time:
            _check_whole(name, encoded, stored.encoding.get("units"))
    if set(encoded.dims) != set(stored.dims):
        raise ValueError(
            f"variable {name!r} has different dimension names: {encoded.dims}, in {array.store_path} {stored.dims}"
        )
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
                f"variable {name!r} already exists with different dimension sizes: {length} along {dim!r}, "
                f"{there} in {array.store_path}; "
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


def _check_resolution(name: str, variable: xr.Variable, dtype: np.dtype[Any]) -> None:
    """Refuse times that the type of an array lacks, which has times, not numbers."""
    values = np.asarray(variable.data)
    if not ((values.astype(dtype) == values) | np.isnat(values)).all():
        raise ValueError(f"variable {name!r} has times that {dtype} lacks; round them, or write it anew")


def _check_whole(name: str, encoded: xr.Variable, expected: str | None) -> None:
    """Refuse times that Xarray has counted in other units than the stored numbers, as these have too coarse ones."""
    units = encoded.attrs.get("units")
    one, other = (str(said).partition(" since ")[0].strip().lower().removesuffix("s") for said in (units, expected))
    if one != other:
        stored = f"whole numbers of {expected!r}" if expected else "numbers without units of time"
        remedy = "round them, or write it anew" if expected else "write it anew"
        raise ValueError(f"variable {name!r} has times in {units!r}, which {stored} cannot hold; {remedy}")


def _check_text(name: str, variable: xr.Variable, array: Array) -> None:
    """Refuse text that is longer than the elements of the array that it goes into."""
    if array.dtype.kind not in "SU" or variable.dtype.kind not in "OSTU":
        return
    text = np.asarray(variable.data)
    if array.dtype.kind == "S" and text.dtype.kind != "S":
        text = np.strings.encode(text.astype("U"), "utf-8")
    needed = text.astype(array.dtype.kind).dtype
    if needed.itemsize > array.dtype.itemsize:
        raise ValueError(
            f"Mismatched dtypes for variable {name!r}: text of type {needed} does not fit into {array.dtype}; "
            "write it anew"
        )


# -- regions -----------------------------------------------------------------------------------------------------------


def region_slices(
    dataset: xr.Dataset, region: Region, append_dim: Hashable | None, arrays: Mapping[str, Array]
) -> tuple[dict[Hashable, slice], xr.Dataset]:
    """Return slices by dimension, and the dataset without indexes, which a region does not change.

    Parameters
    ----------
    dataset : xarray.Dataset
        What is written.
    region : mapping or "auto"
        See `to_zarr`.
    append_dim : hashable, optional
        A dimension that the region must leave out.
    arrays : mapping of str to Array
        The stored variables, which "auto" looks coordinates up in.

    Raises
    ------
    KeyError
        If "auto" does not find all values of a coordinate.
    TypeError
        If the region is no dict of slices.
    ValueError
        If the region does not fit the dataset.
    """
    given = dict.fromkeys(dataset.dims, "auto") if isinstance(region, str) and region == "auto" else region
    if not isinstance(given, Mapping):
        raise TypeError(f"region must be a dict, of dimensions to slices, or 'auto'; got {region!r}")
    unknown = sorted(map(str, set(given) - set(dataset.dims)))
    if unknown:
        raise ValueError(f"all keys in ``region`` are not in Dataset dimensions: {unknown} not in {list(dataset.dims)}")
    if append_dim in given and append_dim is not None:
        raise ValueError(f"cannot list the same dimension in both append_dim and region: {append_dim!r}")
    found = {dim: _slice(dataset, dim, part, arrays) for dim, part in given.items()}
    apart = [name for name, variable in dataset.variables.items() if not set(found) & set(variable.dims)]
    if found and apart:
        raise ValueError(
            "all variables in the dataset to write must have at least one dimension in common with the region "
            f"{list(found)}; leave the others out with .drop_vars({apart})"
        )
    return found, dataset.drop_vars(dataset.indexes)


def _slice(dataset: xr.Dataset, dim: Hashable, part: Any, arrays: Mapping[str, Array]) -> slice:
    if isinstance(part, str) and part == "auto":
        return _looked_up(dataset, dim, arrays)
    if not isinstance(part, slice):
        raise TypeError(f"all values in ``region`` must be slice objects, got {part!r} for {dim!r}")
    if part.step not in (1, None):
        raise ValueError(f"the step on all slices in ``region`` must be 1 or None, got {part!r} for {dim!r}")
    return part


def _looked_up(dataset: xr.Dataset, dim: Hashable, arrays: Mapping[str, Array]) -> slice:
    """Return where the values of a dataset's coordinate are in the stored one."""
    if dim not in dataset.variables:
        return slice(0, dataset.sizes[dim])
    if dim not in arrays:
        raise ValueError(f"region: 'auto' needs the coordinate {dim!r} in the store; give a slice")
    is_time = may_be_time(dataset[dim].variable)
    found = variable_of(arrays[str(dim)])
    stored = conventions.decode_cf_variable(dim, found, decode_times=is_time, decode_timedelta=is_time)
    places = stored.to_index().get_indexer(dataset[dim].to_index())
    if (places == -1).any():
        raise KeyError(
            f"region: values of {dim!r} are missing in the store; append them with append_dim, or give a slice"
        )
    if (np.diff(places) != 1).any():
        raise ValueError(f"region: the values of {dim!r} are not next to each other in the store; write them in parts")
    return slice(int(places[0]), int(places[-1]) + 1)
