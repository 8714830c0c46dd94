"""Checks and shapes what goes into and comes out of a selection: values to write and arrays to read into."""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend, Fields
from gzarr.errors import SelectionError
from gzarr.hierarchy.accessors import Indexed
from gzarr.indexing.selection import Box, Points, Range, Selection


def broadcast_value(value: Any, dtype: np.dtype[Any], selection: Selection, backend: Backend) -> Any:
    """Return a value as something of the selection's shape that can be indexed."""
    shape = selection.shape + dtype.shape
    in_memory = isinstance(value, np.ndarray) or hasattr(value, "__cuda_array_interface__")
    sliceable = getattr(value, "shape", None) == shape and hasattr(value, "__getitem__") and len(shape) > 0
    if sliceable and not in_memory and _is_of_slices(selection):
        return value
    if dtype.hasobject and not shape:
        single = np.empty(1, object)
        single[0] = value[()] if isinstance(value, np.ndarray) and not value.shape else value
        return single.reshape(())
    # A gzarr array is in its store, whatever device its reads go to.
    array = backend.asarray(np.asarray(value) if isinstance(value, Indexed) else value, dtype.base)
    if array.dtype.kind in "OSU" and dtype.base.kind not in (array.dtype.kind, "O"):
        # Only a cast shows whether such elements can be cast, so cast all of them before any is written.
        array = array.astype(dtype.base)
    elif array.dtype != dtype.base and not np.can_cast(array.dtype, dtype.base, "unsafe"):
        raise TypeError(f"cannot write a value of dtype {array.dtype} to an array of dtype {dtype.base}")
    if array.shape == shape:
        return array
    while array.ndim > len(shape) and array.shape[0] == 1:
        array = array[0]
    try:
        return np.broadcast_to(array, shape)
    except ValueError as error:
        raise ValueError(f"cannot write a value of shape {array.shape} to a selection of shape {shape}") from error


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


def fields_dtype(dtype: np.dtype[Any], fields: Fields) -> np.dtype[Any]:
    """Return the dtype of some fields of a structured dtype. Raises SelectionError naming the fields there are."""
    names = [fields] if isinstance(fields, str) else fields or []
    missing = [name for name in names if dtype.names is None or name not in dtype.names]
    if missing:
        known = ", ".join(map(repr, dtype.names)) if dtype.names else "none: its dtype is not structured"
        raise SelectionError(f"no field {missing[0]!r}; the array's fields are {known}")
    if isinstance(fields, str):
        return dtype[fields]
    return np.dtype([(name, dtype[name]) for name in names])


def to_array_axes(value: Any, selection: Selection) -> Any:
    """Return a value with one axis per array axis, or one for all points; axes of a subarray field stay last."""
    if isinstance(selection, Points):
        return value.reshape(-1, *value.shape[len(selection.shape) :])
    return value if selection.view is None else value[selection.view]
