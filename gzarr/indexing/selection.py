"""Turns what users put between brackets into one of two normal forms: a `Box` of per-axis sets, or a list of `Points`.

Theory of operation. A basic, orthogonal or block selection is *separable*: each array axis has its own set of indices
and the result is their product. `Box` keeps one entry per array axis, always increasing for slices, and ``view``: the
index that makes a result array look like the box (an axis for every integer, none for a newaxis, reversed where the
step was negative). The engine only ever sees boxes. A coordinate or mask selection is *joint*: `Points` keeps one flat
coordinate array per axis, in result order.

Source: NumPy's indexing rules; zarr-python's user guide on advanced indexing for what brackets fall back to.
"""

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import SelectionError
from gzarr.tensors import is_tensor, numpy_dtype, to_host

Indices: TypeAlias = NDArray[np.int64]

_MAX_INDEX = 2**63 - 1

#: NumPy takes no more beside each other, though its arrays may have 64 dimensions.
MAX_INDEX_ARRAYS = 63


class Range(NamedTuple):
    """An arithmetic progression of indices: ``size`` of them from ``start``, ``step`` >= 1 apart."""

    start: int
    step: int
    size: int


class Box(NamedTuple):
    """A separable selection.

    Attributes
    ----------
    axes : tuple[Range | Indices, ...]
        For every array axis a `Range` or a flat int64 array of indices, all within bounds.
    shape : tuple[int, ...]
        Shape of the result that the user sees.
    view : tuple[Any, ...] or None
        Index that turns an array of ``shape`` into one with an axis per array axis; None if it already is one.
    """

    axes: tuple[Range | Indices, ...]
    shape: tuple[int, ...]
    view: tuple[Any, ...] | None


class Points(NamedTuple):
    """A joint selection.

    Attributes
    ----------
    coords : tuple[Indices, ...]
        For every array axis a flat int64 array, all of one length and within bounds.
    shape : tuple[int, ...]
        Shape of the result; its size is that length.
    of_mask : bool
        Whether a mask selects them: NumPy then takes values of one axis at most.
    """

    coords: tuple[Indices, ...]
    shape: tuple[int, ...]
    of_mask: bool = False


Selection: TypeAlias = Box | Points


def split_fields(key: Any) -> tuple[Any, str | list[str] | None]:
    """Take field names out of a bracket key: ``z["a"]``, ``z[["a", "b"]]``, ``z["a", 0:2]``.

    Returns: (the key without them, the field name or list of names, or None).
    """
    if isinstance(key, str):
        return (), key
    if isinstance(key, list) and key and all(isinstance(k, str) for k in key):
        return (), key
    if isinstance(key, tuple):
        for item in key:
            if isinstance(item, str):
                names = [k for k in key if isinstance(k, str)]
                return tuple(k for k in key if not isinstance(k, str)), names[0] if len(names) == 1 else names
    return key, None


def normalize(key: Any, shape: tuple[int, ...]) -> Selection:
    """Normalize what stands between plain brackets.

    Integers, slices, ``...`` and ``None`` are basic; a boolean array of the array's shape is a mask; index lists for
    every axis are coordinates; one list beside slices and integers is orthogonal, and so are lists for every axis of
    which one is boolean, as in zarr-python.
    Raises: SelectionError.
    """
    items = key if isinstance(key, tuple) else (key,)
    n_lists = 0
    for item in items:
        # The common items are tested first: this runs for every element access.
        if not isinstance(item, (int, slice, EllipsisType, np.integer)) and item is not None and _is_listlike(item):
            n_lists += 1
    if n_lists == 0:
        return _box(items, shape, lists=False)
    if len(items) == 1 and _is_mask(items[0], len(shape)):
        return normalize_mask(items[0], shape)
    alike = len(items) == len(shape) and not any(isinstance(i, (slice, EllipsisType)) or i is None for i in items)
    if alike and not any(_is_boolean(i) for i in items):
        return normalize_coordinates(items, shape)
    if n_lists == 1 or alike:
        return normalize_orthogonal(items, shape)
    raise SelectionError(
        f"{n_lists} index lists beside slices are ambiguous in array[...]: "
        "use array.oindex[...] for rows and columns, or array.vindex[...] for points"
    )


def normalize_basic(key: Any, shape: tuple[int, ...]) -> Box:
    """Normalize integers, slices of any step, ``...`` and ``None``."""
    return _box(key if isinstance(key, tuple) else (key,), shape, lists=False)


def basic_key(selection: Selection) -> tuple[slice, ...] | None:
    """What stands between the brackets for a box of ranges; None for other selections."""
    if not isinstance(selection, Box) or {*map(type, selection.axes)} != {Range}:
        return None
    ranges: Any = selection.axes
    return tuple([slice(start, start + (size - 1) * step + 1, step) for start, step, size in ranges])


def normalize_orthogonal(key: Any, shape: tuple[int, ...]) -> Box:
    """Normalize a selection made of one integer, slice, index list or boolean list for each axis."""
    return _box(key if isinstance(key, tuple) else (key,), shape, lists=True)


def normalize_coordinates(key: Any, shape: tuple[int, ...]) -> Points:
    """Normalize one integer array (or integer) per axis, broadcast together: the points of the result."""
    items = key if isinstance(key, tuple) else (key,)
    if len(items) != len(shape):
        raise SelectionError(f"a coordinate selection needs one index array per axis: {len(shape)}, got {len(items)}")
    if len(items) > MAX_INDEX_ARRAYS:
        raise SelectionError(f"a coordinate selection takes at most {MAX_INDEX_ARRAYS} index arrays; use a mask")
    arrays = [_index_array(item, axis) for axis, item in enumerate(items)]
    try:
        arrays = list(np.broadcast_arrays(*arrays))
    except ValueError as error:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise SelectionError(
            f"the index arrays of a coordinate selection do not broadcast together: {shapes}"
        ) from error
    flat = tuple(_wrap(a.reshape(-1), n, axis) for axis, (a, n) in enumerate(zip(arrays, shape, strict=True)))
    return Points(flat, arrays[0].shape if arrays else ())


def normalize_mask(key: Any, shape: tuple[int, ...]) -> Points:
    """Normalize a boolean array of the array's own shape."""
    items = key if isinstance(key, tuple) else (key,)
    mask = _as_array(items[0]) if len(items) == 1 else None
    if mask is None or mask.dtype != np.bool_ or mask.shape != shape:
        found = "several items" if mask is None else f"{mask.dtype} of shape {mask.shape}"
        raise SelectionError(f"a mask selection needs one boolean array of shape {shape}, got {found}")
    # NumPy refuses to look for the True of an array without axes.
    where = np.nonzero(mask) if shape else ()
    coords = tuple(c.astype(np.int64, copy=False) for c in where)
    return Points(coords, (int(coords[0].size),) if coords else (int(mask),), of_mask=True)


def normalize_vindex(key: Any, shape: tuple[int, ...]) -> Points:
    """Normalize what stands in ``array.vindex[...]``: coordinates for every axis, or a mask."""
    items = key if isinstance(key, tuple) else (key,)
    if len(items) == 1 and _is_mask(items[0], len(shape)):
        return normalize_mask(items, shape)
    if any(isinstance(i, (slice, EllipsisType)) or i is None for i in items):
        raise SelectionError("vindex takes one index array per axis or a boolean mask; use oindex for slices")
    return normalize_coordinates(items, shape)


def normalize_blocks(key: Any, shape: tuple[int, ...], bounds: Sequence[Sequence[int]]) -> Box:
    """Normalize a selection of whole chunks by their coordinates in the chunk grid.

    key: integers and slices of step 1; every axis keeps its place in the result.
    bounds: for every axis the chunk boundaries in elements, from 0 to the array's extent or past it.
    """
    items = _expand(key if isinstance(key, tuple) else (key,), len(shape))
    axes: list[Range | Indices] = []
    for axis, (item, edges) in enumerate(zip(items, bounds, strict=True)):
        n_blocks = len(edges) - 1
        if isinstance(item, slice):
            try:
                first, last, step = item.indices(n_blocks)
            except (TypeError, ValueError) as error:
                raise _bad_slice(item, axis, error) from error
            if step != 1:
                raise SelectionError(f"a block selection takes slices of step 1 only, got step {step} on axis {axis}")
            last = max(first, last)
        else:
            first = _integer(item, n_blocks, axis, what="block")
            last = first + 1
        low, high = min(edges[first], shape[axis]), min(edges[last], shape[axis])
        axes.append(Range(low, 1, high - low))
    return Box(tuple(axes), tuple(a.size for a in axes), None)


def _box(items: tuple[Any, ...], shape: tuple[int, ...], *, lists: bool) -> Box:
    axes: list[Range | Indices] = []
    out_shape: list[int] = []
    view: list[Any] = []
    plain = True
    axis = 0
    for item in _expand(items, len(shape)):
        if item is None:
            out_shape.append(1)
            view.append(0)
            plain = False
            continue
        extent = shape[axis]
        if isinstance(item, slice):
            try:
                start, stop, step = item.indices(extent)
            except (TypeError, ValueError) as error:
                raise _bad_slice(item, axis, error) from error
            count = max(-((start - stop) // step), 0)
            if step < 0:
                start, step = start + (count - 1) * step, -step
                view.append(slice(None, None, -1))
                plain = False
            else:
                view.append(slice(None))
            # The step of a single element may be any number, which no table of numbers has room for.
            axes.append(Range(start, step if count > 1 else 1, count))
            out_shape.append(count)
        elif lists and _is_listlike(item):
            indices = _axis_indices(item, extent, axis)
            axes.append(indices)
            out_shape.append(indices.size)
            view.append(slice(None))
        else:
            axes.append(Range(_integer(item, extent, axis), 1, 1))
            view.append(None)
            plain = False
        axis += 1
    # With an ellipsis the index never turns a result without axes into a scalar.
    return Box(tuple(axes), tuple(out_shape), None if plain else (*view, ...))


def _expand(items: tuple[Any, ...], ndim: int) -> list[Any]:
    """Replace ``...`` (or a missing tail) by full slices, so that every axis has its item; newaxes stay."""
    n_ellipses = n_newaxes = 0
    for item in items:
        if item is None:
            n_newaxes += 1
        elif item is ...:
            n_ellipses += 1
    n_axes = len(items) - n_newaxes - n_ellipses
    if n_ellipses > 1:
        raise SelectionError("an index can only have a single ellipsis ('...')")
    if n_axes > ndim:
        raise SelectionError(f"too many indices: the array has {ndim} dimensions, got {n_axes} indices")
    if n_ellipses == 0 and n_axes == ndim:
        return list(items)
    fill = [slice(None)] * (ndim - n_axes)
    if n_ellipses == 0:
        return [*items, *fill]
    at = next(i for i, item in enumerate(items) if item is ...)
    return [*items[:at], *fill, *items[at + 1 :]]


def _bad_slice(item: slice, axis: int, error: Exception) -> SelectionError:
    return SelectionError(f"bad slice {item} on axis {axis}: {error}")


def _integer(item: Any, extent: int, axis: int, what: str = "index") -> int:
    if isinstance(item, (bool, np.bool_)) or (type(item) is not int and is_tensor(item) and _is_boolean(item)):
        raise SelectionError(f"a boolean is not an index (axis {axis}); use a boolean array for a mask")
    try:
        index = operator.index(item)
    except TypeError as error:
        kinds = "integers, slices, '...' and None"
        kinds += "; oindex and vindex take index lists" if _is_listlike(item) else ", index lists and boolean masks"
        raise SelectionError(f"cannot index axis {axis} with {type(item).__name__} {item!r}; use {kinds}") from error
    if not -extent <= index < extent:
        raise SelectionError(f"{what} {index} is out of bounds for axis {axis} with size {extent}")
    return index + extent if index < 0 else index


def _as_array(item: Any) -> Any:
    try:
        return np.asarray(to_host(item))
    except ValueError as error:  # rows of different lengths
        raise SelectionError(f"an index list is no array: {error}") from error


def _axis_indices(item: Any, extent: int, axis: int) -> Indices:
    array = _as_array(item)
    if array.ndim != 1:
        if array.dtype == np.bool_:
            raise SelectionError(
                f"a mask must have the shape of the array, or length {extent} on axis {axis}; got {array.shape}"
            )
        raise SelectionError(f"an orthogonal selection takes one-dimensional lists, got {array.ndim} on axis {axis}")
    if array.dtype == np.bool_:
        if array.size != extent:
            raise SelectionError(f"a boolean list for axis {axis} must have length {extent}, got {array.size}")
        return np.flatnonzero(array).astype(np.int64, copy=False)
    return _wrap(_index_array(array, axis), extent, axis)


def _index_array(item: Any, axis: int) -> Any:
    array = _as_array(item)
    if array.size == 0 and array.dtype == np.float64:  # an empty list
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise SelectionError(f"the index array of axis {axis} must hold integers of 64 bits, got {array.dtype}")
    return array


def _wrap(array: Any, extent: int, axis: int) -> Indices:
    """Indices from 0 on. Their bounds are checked before the cast, in which a large unsigned index would wrap."""
    # Negative numbers are large ones here, so one pass finds that all are within bounds.
    if array.dtype == np.int64 and array.size and extent <= _MAX_INDEX and int(array.view(np.uint64).max()) < extent:
        return array.astype(np.int64, copy=False)
    low, high = (int(array.min()), int(array.max())) if array.size else (0, -1)
    if low < -extent or high >= extent:
        bad = low if low < -extent else high
        raise SelectionError(f"index {bad} is out of bounds for axis {axis} with size {extent}")
    if high > _MAX_INDEX or (low < 0 and extent > _MAX_INDEX):
        raise SelectionError(f"index lists have numbers of 64 bits, axis {axis} has {extent} elements; use integers")
    indices: Indices = array.astype(np.int64, copy=False)
    return np.where(indices < 0, indices + extent, indices) if low < 0 else indices


def _is_listlike(item: Any) -> bool:
    if isinstance(item, (list, range)):
        return True
    return getattr(item, "ndim", 0) > 0 and hasattr(item, "dtype")


def _is_boolean(item: Any) -> bool:
    if isinstance(item, list):
        return bool(item) and all(isinstance(i, (bool, np.bool_)) for i in item)
    return bool(numpy_dtype(getattr(item, "dtype", None)) == np.bool_)


def _is_mask(item: Any, ndim: int) -> bool:
    if isinstance(item, list):
        item = _as_array(item)
    return getattr(item, "ndim", -1) == ndim and _is_boolean(item)
