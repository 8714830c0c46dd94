"""Coordinates of lazy views: the arrays that are named as the axes, in the same group."""

from __future__ import annotations

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
    if number is None:
        raise SelectionError(f"{view}: axis {name!r} has no coordinates")
    if isinstance(view.source, Sequel):
        parts = view.source.parts if number == view.source.axis else view.source.parts[:1]
        whole = np.concatenate([part.coordinate(name) for part in parts])
    else:
        array = view.source
        path = join_path(array.path.rpartition("/")[0], name)
        meta = expect_array(array.store, path, read_node(array.store, path))
        whole = np.asarray(type(array)(array.store, path, meta, array.opened_with, read_only=True))
    axis = view.transform.axes[number]
    listed = isinstance(axis, Listed)
    found: np.ndarray[Any, Any] = whole[axis.indices if listed else axis.start + axis.step * np.arange(view.shape[dim])]
    return found


def find_labels(view: GzarrView, name: str, label: Any, method: str | None) -> Any:
    """Return the indices of labels among the coordinates of an axis of a view. Raises: SelectionError."""
    coordinates = view.coordinate(name)
    dtype = coordinates.dtype if coordinates.dtype.kind in "mM" else None  # a text is a time then
    if isinstance(label, slice):
        inside = np.ones(coordinates.shape, np.bool_)
        if label.start is not None:
            inside &= coordinates >= np.asarray(label.start, dtype)
        if label.stop is not None:
            inside &= coordinates <= np.asarray(label.stop, dtype)
        found = np.flatnonzero(inside)
        is_run = len(found) > 0 and found[-1] - found[0] + 1 == len(found)
        return slice(int(found[0]), int(found[-1]) + 1, label.step) if is_run else found[:: label.step]
    wanted = np.asarray(label, dtype)
    flat = [int(np.abs(coordinates - one).argmin()) for one in wanted.reshape(-1)] if coordinates.size else []
    missing = [one for one, at in zip(wanted.reshape(-1), flat, strict=False) if coordinates[at] != one]
    if not coordinates.size or (missing and method is None):
        raise SelectionError(
            f"no coordinate of {name!r} is {missing[0] if missing else label}; "
            f"method='nearest' takes the nearest of {coordinates.size}"
        )
    return flat if wanted.shape else flat[0]
