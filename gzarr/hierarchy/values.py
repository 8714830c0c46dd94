"""Checks and shapes what goes into and comes out of a selection: values to write and arrays to read into."""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Fields
from gzarr.dtypes.scalars import as_times, lacks_unit
from gzarr.errors import SelectionError
from gzarr.hierarchy.lazy import computed, is_lazy, is_separate
from gzarr.hierarchy.named_axes import check_names
from gzarr.hierarchy.node import Node
from gzarr.indexing.selection import Box, Points, Range, Selection
from gzarr.metadata.model import ArrayMeta


def broadcast_value(value: Any, dtype: np.dtype[Any], selection: Selection, array: Node[ArrayMeta]) -> Any:
    """Return a value for an array, or for fields of a dtype, as something to index with an axis for each array axis.

    For points there is one axis for all. A lazy value is returned as it is only if it cannot read the array.
    """
    if not isinstance(value, np.ndarray):
        check_names(value, selection, array)
    is_plain = type(value) is np.ndarray and value.dtype == dtype and value.shape == selection.shape
    given = (
        value
        if is_plain and dtype.kind not in "mM" and array.backend.xp is np
        else broadcast_to_shape(value, dtype, selection, array)
    )
    if isinstance(selection, Box) and selection.view is not None:
        given = given[selection.view]
    return given if isinstance(selection, Box) else to_array_axes(given, selection)


def broadcast_to_shape(value: Any, dtype: np.dtype[Any], selection: Selection, array: Node[ArrayMeta]) -> Any:
    """Return a value as something of the selection's shape."""
    shape = selection.shape + dtype.shape
    if not isinstance(value, np.ndarray) and is_lazy(value):
        fits = len(shape) > 0 and tuple(value.shape) == shape and _is_of_slices(selection)
        if fits and is_separate(value, array.store, array.path) and _casts_surely(value.dtype, dtype.base):
            return value
        value = computed(value, dtype.base, array.backend)
    if dtype.hasobject and not shape:
        single = np.empty(1, object)
        single[0] = value[()] if isinstance(value, np.ndarray) and not value.shape else value
        return single.reshape(())
    if not shape and isinstance(value, np.ndarray) and not value.shape and isinstance(value, np.ma.MaskedArray):
        single = np.empty((), dtype.base)
        single[()] = value  # NumPy writes NaN for a masked element, or refuses it
        return single
    if isinstance(value, (bytearray, memoryview)) and array.metadata.data_type.variable == "bytes":
        value = bytes(value)  # one element, where NumPy sees a list of numbers
    given = array.backend.asarray(value, dtype.base)
    if given.dtype != dtype.base or (not given.dtype.isnative and lacks_unit(given.dtype)):
        given = _castable(given, dtype.base)
    if given.shape == shape:
        return given
    of_mask = isinstance(selection, Points) and selection.of_mask
    while given.ndim > len(shape) and given.shape[0] == 1 and not of_mask:
        given = given[0]
    try:
        return np.broadcast_to(given, shape)
    except ValueError as error:
        raise ValueError(f"cannot write a value of shape {given.shape} to a selection of shape {shape}") from error


def _castable(given: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Return values that can be cast to a dtype chunk by chunk, or have been. Raises what the cast raises."""
    if not np.can_cast(given.dtype, dtype, "unsafe"):
        raise TypeError(f"cannot write a value of dtype {given.dtype} to an array of dtype {dtype}")
    if lacks_unit(dtype) and isinstance(given, np.ndarray):
        return as_times(given, dtype)
    on_host = type(given) in (np.ndarray, np.memmap)
    depends = given.dtype.kind in "fc" and dtype.kind in "iu"  # floats out of range, on the elements beside them
    if not _casts_surely(given.dtype, dtype) or (on_host and (depends or not given.shape)):
        return given.astype(dtype)
    return given


def _casts_surely(given: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether all elements can be cast. Of texts and objects only a cast shows it.

    Times in the other byte order are cast at once, as chunks of times without a unit are in native order.
    """
    if lacks_unit(dtype) and not given.isnative:
        return False
    return np.can_cast(given, dtype, "unsafe") and (given.kind not in "OSUT" or dtype.kind in (given.kind, "O"))


def _is_of_slices(selection: Selection) -> bool:
    """Return whether each part of a selection can be cut out of a value by slices alone.

    Everything that has a shape knows slices.
    """
    if not isinstance(selection, Box) or selection.view is not None:
        return False
    return all(isinstance(axis, Range) for axis in selection.axes)


def check_out(out: AnyArray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """Return an array to read into. Raises ValueError for its shape, TypeError for its dtype."""
    if tuple(out.shape) != shape + dtype.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}, but the selection has shape {shape + dtype.shape}")
    if not np.can_cast(dtype.base, out.dtype, "same_kind"):
        raise TypeError(f"out has dtype {out.dtype}, which cannot hold values of {dtype}")
    if hasattr(out, "flags") and getattr(out.flags, "writeable", True) is False:
        raise ValueError("out is read-only")
    return out


def native_times(out: AnyArray) -> AnyArray:
    """Return the memory of an array to read into; in native byte order if it is of times without a unit."""
    return out if out.dtype.isnative or not lacks_unit(out.dtype) else out.view(out.dtype.newbyteorder("="))


def fields_dtype(dtype: np.dtype[Any], fields: Fields) -> np.dtype[Any]:
    """Return the dtype of some fields of a structured dtype. Raises SelectionError naming the fields there are."""
    if not isinstance(fields, (str, list, tuple)):
        raise SelectionError(f"fields are a name or a list of names, got {fields!r}")
    names = [fields] if isinstance(fields, str) else fields
    missing = [name for name in names if dtype.names is None or name not in dtype.names]
    if missing:
        known = ", ".join(map(repr, dtype.names or ()))
        remedy = f"the array's fields are {known}" if known else f"the array's dtype, {dtype}, has no fields"
        raise SelectionError(f"no field {missing[0]!r}; {remedy}")
    if isinstance(fields, str):
        return dtype[fields]
    return np.dtype([(name, dtype[name]) for name in names])


def to_array_axes(value: Any, selection: Selection) -> Any:
    """Return a value with one axis per array axis, or one for all points; axes of a subarray field stay last."""
    if isinstance(selection, Points):
        return value.reshape(-1, *value.shape[len(selection.shape) :])
    return value if selection.view is None else value[selection.view]
