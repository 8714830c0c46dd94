"""Coordinates of lazy views: the arrays that are named as the axes, in the same group."""

from typing import Any

import numpy as np

from gzarr.errors import SelectionError
from gzarr.hierarchy.view_parts import GzarrView, Sequel
from gzarr.indexing.keys import join_path
from gzarr.indexing.transform import Listed
from gzarr.metadata.documents import expect_array, read_node


def read_coordinate(view: GzarrView, name: str) -> np.ndarray[Any, Any]:
    """Read the coordinates along an axis of a view: see `LazyView.coordinate`."""
    dim = view._dim_of(name)
    number = view.transform.source_of(dim)
    if number is None or (isinstance(view.source, Sequel) and name not in (view.source.parts[0].dimension_names or ())):
        raise SelectionError(f"{view}: axis {name!r} has no coordinates")
    if isinstance(view.source, Sequel):
        parts = view.source.parts if number == view.source.axis else view.source.parts[:1]
        whole = np.concatenate([part.coordinate(name) for part in parts])
    else:
        array = view.source
        if not array.path:
            raise SelectionError(
                f"{view}: the coordinates {name!r} lie beside the array, which was opened as the root of its store;"
                " open the group that holds both, and take the array from it"
            )
        path = join_path(array.path.rpartition("/")[0], name)
        meta = expect_array(array.store, path, read_node(array.store, path))
        whole = np.asarray(type(array)(array.store, path, meta, array.opened_with, read_only=True))
    axis = view.transform.axes[number]
    listed = isinstance(axis, Listed)
    return whole[axis.indices if listed else axis.start + axis.step * np.arange(view.shape[dim])]


def find_labels(view: GzarrView, name: str, label: Any, method: str | None) -> Any:
    """Return the indices of labels among the coordinates of an axis of a view. Raises: SelectionError."""
    coordinates = view.coordinate(name)
    kind = coordinates.dtype.kind
    dtype = f"{kind}8" if kind in "mM" else coordinates.dtype if kind == "f" else None  # a text is a time then
    try:
        if isinstance(label, slice):
            return _between(coordinates, label, dtype)
        wanted = np.asarray(label, dtype)
        found = [_index_of(coordinates, one, method) for one in wanted.reshape(-1)]
    except (TypeError, ValueError) as error:  # NumPy's, of what cannot be compared
        raise SelectionError(f"cannot look up {label!r} among coordinates {name!r} of {coordinates.dtype}") from error
    if wanted.ndim > 1:
        raise SelectionError(f"labels of {name!r} must be one, a slice or a list, got an array of {wanted.ndim} axes")
    for one, at in zip(wanted.reshape(-1), found, strict=True):
        if at is None:
            raise SelectionError(
                f"no coordinate of {name!r} is {one}; method='nearest' takes the nearest of {coordinates.size}"
            )
    return found if wanted.shape else found[0]


def _between(coordinates: np.ndarray[Any, Any], label: slice, dtype: Any) -> Any:
    ends: list[Any] = [None if end is None else np.asarray(end, dtype) for end in (label.start, label.stop)]
    falls = len(coordinates) > 1 and coordinates[0] > coordinates[-1]
    low, high = ends[::-1] if (falls if None in ends else ends[0] > ends[1]) else ends
    inside = np.ones(coordinates.shape, np.bool_)
    if low is not None:
        inside &= coordinates >= low
    if high is not None:
        inside &= coordinates <= high
    found = np.flatnonzero(inside)
    is_run = len(found) > 0 and found[-1] - found[0] + 1 == len(found)
    if is_run and (label.step or 1) > 0:
        return slice(int(found[0]), int(found[-1]) + 1, label.step)
    return found[:: label.step]


def _index_of(coordinates: np.ndarray[Any, Any], label: Any, method: str | None) -> int | None:
    """The index of the first coordinate that is equal, or of the nearest one; None if there is none.

    Of two that are equally near, it is the greater one, as in Xarray.
    """
    equal = np.flatnonzero(coordinates == label)
    if equal.size or method is None:
        return int(equal[0]) if equal.size else None
    distance = np.maximum(coordinates, label) - np.minimum(coordinates, label)  # which has no sign to lose
    valid = np.flatnonzero(~np.isnan(distance))  # NaN and NaT are near nothing
    if not valid.size:
        return None
    nearest = valid[distance[valid] == distance[valid].min()]
    return int(nearest[coordinates[nearest].argmax()])
