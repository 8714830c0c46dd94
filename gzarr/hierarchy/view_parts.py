"""Reads and writes lazy views: of an array in one plan, of several that are joined as one queue."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import setitem
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.chunk_io import engine
from gzarr.chunk_io.reference import ReadJob, WriteJob
from gzarr.errors import MetadataError, SelectionError
from gzarr.hierarchy.values import axis_names, broadcast_to_shape, check_aligned, stored_names
from gzarr.indexing.plan import make_plan
from gzarr.indexing.selection import Points
from gzarr.indexing.transform import dims_of

#: A `gzarr.LazyView`, for functions that its methods call: their modules are below the module of the class.
GzarrView: TypeAlias = Any
Lengths: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Sequel:
    """Views one after the other along an axis, as what another view is of.

    Attributes
    ----------
    parts : tuple of LazyView
        The views, of one data type, and equal in extent along the other axes.
    axis : int
        The axis.
    names : tuple or None
        A name or None for every axis.
    """

    parts: tuple[GzarrView, ...]
    axis: int
    names: tuple[str | None, ...] | None

    @property
    def edges(self) -> list[int]:
        """Where each part begins, and the last one ends."""
        return [0, *np.cumsum([part.shape[self.axis] for part in self.parts]).tolist()]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all parts together."""
        first = self.parts[0].shape
        return (*first[: self.axis], self.edges[-1], *first[self.axis + 1 :])

    @property
    def write_chunk_sizes(self) -> Lengths:
        """Of the first part, and of all along the axis."""
        sizes = [part.chunk_sizes for part in self.parts]
        along = tuple([n for one in sizes for n in one[self.axis]])
        return (*sizes[0][: self.axis], along, *sizes[0][self.axis + 1 :])


def read_view(view: GzarrView) -> AnyArray:
    """Read all elements of a view; an array, even if there are no axes."""
    simple = None if view.fields or view.casts or isinstance(view.source, Sequel) else view.transform.key
    if simple is not None and any(isinstance(item, slice) for item in simple):
        _check_fits(view)
        found = view.source[simple]
        return found.reshape(view.shape + view.dtype.shape) if found.shape != view.shape else found
    out = _empty(view, view.dtype)
    jobs: list[ReadJob] = []
    finish: list[Callable[[], None]] = []
    _gather_reads(view, out, jobs, finish, is_new=True)
    engine.read(jobs)
    for call in finish:
        call()
    return out


def write_view(view: GzarrView, value: Any) -> None:
    """Write a value into the arrays of a view: see `LazyView.write`."""
    if view.casts:
        raise MetadataError(f"{view}: a view made by astype is read-only; write to the array")
    if not isinstance(value, np.ndarray) and (names := view.dimension_names):
        check_aligned(axis_names(value), names, stored_names(view.arrays[0].metadata), repr(view))
    jobs: list[WriteJob] = []
    _gather_writes(view, broadcast_to_shape(value, view.dtype, Points((), view.shape), view.arrays[0]), jobs)
    engine.write(jobs)


def _empty(view: GzarrView, dtype: np.dtype[Any]) -> AnyArray:
    """An array for a view, whose memory has the order of the array's axes."""
    order = view.transform.order
    made = view.backend.empty(tuple([view.shape[dim] for dim in order]), dtype)
    return made.transpose(*[order.index(dim) for dim in range(view.ndim)], *range(view.ndim, made.ndim))


def _gather_reads(
    view: GzarrView, out: AnyArray, jobs: list[ReadJob], finish: list[Callable[[], None]], *, is_new: bool = False
) -> None:
    """Collect what has to be read into an array, and what has to be done then. is_new: it was made for the view."""
    if not view.size:
        return
    if isinstance(view.source, Sequel):
        for where, part in _parts(view):
            is_view = all(item is ... or isinstance(item, slice) for item in where)
            into = out[where] if is_view else view.backend.empty(part.shape, out.dtype)
            _gather_reads(part, into, jobs, finish)
            if not is_view:
                finish.append(partial(setitem, out, where, into))
        return
    array, transform = view.source, view.transform
    stored = [] if view.casts and array.dtype == array.metadata.data_type.dtype else [view.stored_dtype]
    casts = [*stored, *view.casts]
    shares = is_new or (transform.is_box and all(len(dims_of(axis)) < 2 for axis in transform.axes))
    buffer = out if shares and {*casts} == {out.dtype} else _empty(view, casts[0])

    def cast() -> None:
        values = buffer
        for dtype in casts[1:]:
            values = values.astype(dtype)
        out[...] = values

    if buffer is not out:
        finish.append(cast)
    _check_fits(view)
    plan = make_plan(transform.selection, array._io.layout.grid)
    jobs.append(ReadJob(array._io, plan, transform.place(buffer), view.fields))


def _gather_writes(view: GzarrView, value: Any, jobs: list[WriteJob]) -> None:
    """Collect what has to be written."""
    if isinstance(view.source, Sequel):
        for where, part in _parts(view):
            _gather_writes(part, value[where], jobs)
        return
    array, transform = view.source, view.transform
    array.check_writable()
    if array.dtype != array.metadata.data_type.dtype:
        raise MetadataError(f"{view}: a view made by astype is read-only; write to the array")
    _check_fits(view)
    plan = make_plan(transform.selection, array._io.layout.grid)
    jobs.append(WriteJob(array._io, plan, transform.place(value), view.fields or None, array.write_empty_chunks))


def _check_fits(view: GzarrView) -> None:
    """Raises: SelectionError if the array has become smaller than the view."""
    if not view.transform.fits(view.source.shape):
        raise SelectionError(f"{view}: the array has been resized to {view.source.shape}; make the view anew")


def _parts(view: GzarrView) -> Iterator[tuple[Any, GzarrView]]:
    """What a view takes of each part of a sequel: where it is in the view, and the view of it."""
    for (low, high), part in zip(pairwise(view.source.edges), view.source.parts, strict=True):
        split = view.transform.split(view.source.axis, low, high)
        if split is not None:
            where, transform = split
            found = replace(part, transform=part.transform.then(transform))
            found = found._of_fields(view.fields) if view.fields else found
            yield where, replace(found, casts=found.casts + view.casts)
