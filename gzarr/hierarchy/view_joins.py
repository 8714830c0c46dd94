"""Joins of lazy views."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gzarr.errors import SelectionError
from gzarr.hierarchy.lazy_views import LazyView
from gzarr.hierarchy.view_parts import Sequel
from gzarr.indexing.transform import Transform


def join_views(arrays: Sequence[Any], axis: int | str, *, is_new: bool, name: str | None = None) -> LazyView:
    """Return views, and arrays, one after the other along an axis, which may be new. Raises: SelectionError."""
    views = [one if isinstance(one, LazyView) else one.lazy for one in arrays]
    if isinstance(axis, str):
        axis = views[0]._dim_of(axis)
    ndim = views[0].ndim + is_new
    if not -ndim <= axis < ndim:
        raise SelectionError(f"{views[0]} has no axis {axis}")
    axis %= ndim
    if is_new:
        views = [view[(*[slice(None)] * axis, None)] for view in views]
    shapes = {(*view.shape[:axis], 0, *view.shape[axis + 1 :]) for view in views}
    if len(shapes) > 1 or len({view.backend.device for view in views}) > 1:
        raise SelectionError(
            "views to join must be equal in shape beyond the axis and on one device, got "
            + ", ".join(f"{view} on {view.backend.device}" for view in views)
        )
    dtype = np.result_type(*[view.dtype for view in views])
    names = views[0].dimension_names
    if name is not None:
        names = tuple([name if at == axis else one for at, one in enumerate(names or (None,) * ndim)])
    sequel = Sequel(tuple([view.astype(dtype) if view.dtype != dtype else view for view in views]), axis, names)
    return LazyView(sequel, Transform.whole(sequel.shape))
