"""Casts floats to integers as NumPy does where it assigns them to a selection of an array in C order.

Theory of operation. What NumPy makes of floats out of range depends on which elements are neighbours in memory, in the
value and in the array: its loops take several at once, and the last ones singly. So they are cast into memory that has
gaps where the array has elements between those that are selected. It is hardly larger than the value: NumPy's loops
only ask whether elements, or rows, adjoin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gzarr.indexing.selection import Box, Range, Selection
from gzarr.metadata.model import ArrayMeta


class _Span(NamedTuple):
    """What a selection takes along an axis of memory: which axis of the value, of what extent, by which step."""

    axis: int
    extent: int
    step: int


def cast_as_assigned(
    given: np.ndarray[Any, Any], dtype: np.dtype[Any], selection: Selection, meta: ArrayMeta
) -> np.ndarray[Any, Any]:
    """Cast floats to integers.

    given: with an axis for each axis of the array, or of the points. dtype: of the array, or of one of its fields.
    """
    if not given.size:
        return given.astype(dtype.base)
    spans = _spans(given.shape, dtype, selection, meta)
    order = [span.axis for span in spans]
    source = given[(..., *(None,) * (len(spans) - given.ndim))].transpose(order)
    innermost = max((place for place, span in enumerate(spans) if span.extent > 1), default=0)
    extents, taken, kept, before = [], [], [], 1
    for place, ((_, extent, step), n, stride) in enumerate(zip(spans, source.shape, source.strides, strict=True)):
        single = n == 1 or stride == 0  # what is broadcast is cast once
        apart = min(step, 2) if place == innermost else 1
        extents.append(min(extent, 2) if single else n * apart + (before > 1 or n * step != extent))
        taken.append(slice(1) if single else slice(None, n * apart, apart))
        kept.append(slice(1) if single else slice(None))
        before = before if extent == 1 else 1 if single else step
    cast = np.empty(extents, dtype.base)[tuple(taken)]
    cast[...] = source[tuple(kept)]
    return np.broadcast_to(cast, source.shape).transpose(np.argsort(order)).reshape(given.shape)


def _spans(shape: tuple[int, ...], dtype: np.dtype[Any], selection: Selection, meta: ArrayMeta) -> list[_Span]:
    """Return the axes of the memory that NumPy casts a value of a shape into, in C order; new axes follow the value's.

    For each element of a list of indices, NumPy casts what the slices beside it take. Points have memory of their own.
    """
    axes = selection.axes if isinstance(selection, Box) else ()
    lists = [axis for axis, taken in enumerate(axes) if not isinstance(taken, Range)]
    if len(lists) == len(axes):
        return [_Span(axis, n, 1) for axis, n in enumerate(shape)]
    spans = [_Span(axis, shape[axis], 2) for axis in lists]
    added = iter(range(len(shape), len(shape) + len(lists) + 1))
    for axis, (taken, extent) in enumerate(zip(axes, meta.shape, strict=True)):
        if isinstance(taken, Range):  # it ends beyond the extent of an array that grows
            spans.append(_Span(axis, max(extent, taken.start + taken.size), taken.step))
        else:
            spans.append(_Span(next(added), extent, 1))
    spans += [_Span(len(axes) + n, extent, 1) for n, extent in enumerate(dtype.shape)]
    if meta.data_type.dtype.names is not None and not lists:
        spans.append(_Span(next(added), 2, 1))  # the other fields are between the elements of one
    return spans
