"""Index transforms: which elements of an array a view has, composed of selections without reading any.

Theory of operation. For each axis of the array, a transform knows how the index along it follows from the indices of
the view: ``start + step * index`` along one of the view's axes (`Affine`; a constant if there is none), or a table of
indices over some of them (`Listed`). Selections, transpositions and new axes are transforms, too, and two transforms
that follow each other are one, so that a view is always a single selection.

Source: the index transforms of TensorStore.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from gzarr.indexing.selection import Box, Indices, Points, Range, Selection


class Affine(NamedTuple):
    """The index ``start + step * index`` along axis ``dim`` of a view; always ``start`` if it is None."""

    dim: int | None
    start: int
    step: int = 0


class Listed(NamedTuple):
    """Indices in a table, which has an axis for each of the axes ``dims`` of a view."""

    dims: tuple[int, ...]
    indices: Indices


AxisMap: TypeAlias = Affine | Listed


def dims_of(axis: AxisMap) -> tuple[int, ...]:
    """Axes of a view that an index depends on."""
    return axis.dims if isinstance(axis, Listed) else () if axis.dim is None else (axis.dim,)


class Transform(NamedTuple):
    """What a view is of an array.

    Attributes
    ----------
    shape : tuple[int, ...]
        Shape of the view.
    axes : tuple[AxisMap, ...]
        For every axis of the array the index along it.
    """

    shape: tuple[int, ...]
    axes: tuple[AxisMap, ...]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Self:
        """The view of everything."""
        return cls(shape, tuple([Affine(dim, 0, 1) for dim in range(len(shape))]))

    @classmethod
    def of(cls, selection: Selection) -> Self:
        """The view that is a selection of an array."""
        if isinstance(selection, Points):
            dims = tuple(range(len(selection.shape)))
            return cls(selection.shape, tuple([_listed(dims, c.reshape(selection.shape)) for c in selection.coords]))
        axes: list[AxisMap] = []
        items = selection.view or (slice(None),) * len(selection.axes)
        rest, dim = iter(selection.axes), 0
        for item in items:
            if item is ...:
                continue
            if not isinstance(item, int):  # which a new axis is
                axis = next(rest)
                if not isinstance(axis, Range):
                    axes.append(Listed((dim,), axis))
                elif item is None:
                    axes.append(Affine(None, axis.start))
                    continue
                elif item.step is None:
                    axes.append(Affine(dim, axis.start, axis.step))
                else:
                    axes.append(Affine(dim, axis.start + (axis.size - 1) * axis.step, -axis.step))
            dim += 1
        return cls(selection.shape, tuple(axes))

    def then(self, inner: "Transform") -> "Transform":
        """The view that ``inner`` is of this view."""
        return Transform(inner.shape, tuple([_then(axis, inner) for axis in self.axes]))

    def transposed(self, order: tuple[int, ...]) -> "Transform":
        """The view with its axes in another order."""
        place = [order.index(dim) for dim in range(len(order))]
        axes = tuple([Affine(place[dim], 0, 1) for dim in range(len(order))])
        return self.then(Transform(tuple([self.shape[dim] for dim in order]), axes))

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of a shape, which may have been resized, still has all elements of the view."""
        if 0 in self.shape:
            return True

        def last(axis: AxisMap) -> int:
            if isinstance(axis, Listed):
                return int(axis.indices.max())
            return axis.start if axis.dim is None else axis.start + max(axis.step * (self.shape[axis.dim] - 1), 0)

        return all(last(axis) < n for axis, n in zip(self.axes, shape, strict=True))

    @property
    def is_box(self) -> bool:
        """Whether each axis of the array has indices of its own, and the view is their product."""
        used = [dim for axis in self.axes for dim in dims_of(axis)]
        return len(used) == len({*used}) and all(n == 1 for dim, n in enumerate(self.shape) if dim not in used)

    @property
    def order(self) -> tuple[int, ...]:
        """The view's axes in the order of those of the array that they belong to; those of none are last."""
        used = [dim for axis in self.axes for dim in dims_of(axis)] if self.is_box else []
        return (*used, *[dim for dim in range(len(self.shape)) if dim not in used])

    @property
    def key(self) -> tuple[int | slice, ...] | None:
        """What stands between the array's brackets for the same view but for new axes; None if it is not as simple."""
        key: list[int | slice] = []
        before = -1 if self.is_box else len(self.shape)
        for axis in self.axes:
            if isinstance(axis, Listed) or axis.step < 0:
                return None
            if axis.dim is None:
                key.append(axis.start)
                continue
            if axis.dim <= before:
                return None
            before, size = axis.dim, self.shape[axis.dim]
            key.append(slice(axis.start, axis.start + size * axis.step, axis.step) if size else slice(0, 0))
        return tuple(key)

    @property
    def selection(self) -> Selection:
        """The elements of the array, as the engine reads and writes them into what `place` gives."""
        if not self.is_box:
            whole = [np.broadcast_to(self.spread(axis, range(len(self.shape))), self.shape) for axis in self.axes]
            return Points(tuple([np.ascontiguousarray(indices).reshape(-1) for indices in whole]), self.shape)
        axes: list[Range | Indices] = []
        for axis in self.axes:
            if isinstance(axis, Listed):
                axes.append(axis.indices.reshape(-1))
            elif axis.dim is None:
                axes.append(Range(axis.start, 1, 1))
            else:
                size = self.shape[axis.dim]
                start = axis.start + (size - 1) * axis.step if axis.step < 0 else axis.start
                axes.append(Range(start, abs(axis.step) if size > 1 else 1, size))
        return Box(tuple(axes), tuple([axis.size for axis in axes]), None)

    def place(self, values: Any) -> Any:
        """Values of the view's shape with an axis for each of the array's, or with one for all points.

        They share memory if the values are C-contiguous with their axes in `order`, or if nothing is listed.
        """
        inner = values.shape[len(self.shape) :]  # of fields that are arrays
        if not self.is_box:
            return values.reshape((-1, *inner))
        values = values.transpose(*self.order, *range(len(self.shape), values.ndim))
        key: list[Any] = []
        sizes: list[int] = []
        for axis in self.axes:
            dims = dims_of(axis)
            key += [slice(None, None, -1 if isinstance(axis, Affine) and axis.step < 0 else None)] * len(dims)
            sizes.append(int(np.prod([self.shape[dim] for dim in dims], dtype=object)))
        return values[(*key, ...)].reshape((*sizes, *inner))

    def split(self, number: int, low: int, high: int) -> "tuple[Any, Transform] | None":
        """The part of the view with indices from ``low`` to ``high`` on an axis of the array, which then begin at 0.

        Returns: (where it is in the view, the part); None if there is none.
        """
        axis, ndim = self.axes[number], len(self.shape)
        if isinstance(axis, Listed):
            found: Any = (axis.indices >= low) & (axis.indices < high)
            if len(axis.dims) > 1:
                mask = np.broadcast_to(self.spread(Listed(axis.dims, found), range(ndim)), self.shape)
                where: Any = np.nonzero(mask)
                inner = Transform.of(Points(where, where[0].shape))
            else:
                dim = axis.dims[0]
                where = (*[slice(None)] * dim, np.flatnonzero(found))
                inner = _along(self.shape, dim, where[-1])
        elif axis.dim is None:
            if not low <= axis.start < high:
                return None
            where, inner = (...,), Transform.whole(self.shape)
        else:
            size = self.shape[axis.dim]
            step = abs(axis.step)
            before = [-(-(low - axis.start) // step), -(-(high - axis.start) // step)]
            if axis.step < 0:
                before = [(axis.start - high) // step + 1, (axis.start - low) // step + 1]
            first, last = [min(max(n, 0), size) for n in before]
            where = (*[slice(None)] * axis.dim, slice(first, last))
            inner = _along(self.shape, axis.dim, Range(first, 1, last - first))
        part = self.then(inner)
        if 0 in part.shape:
            return None
        axes = list(part.axes)
        moved = axes[number]
        if isinstance(moved, Listed):
            axes[number] = moved._replace(indices=moved.indices - low)
        else:
            axes[number] = moved._replace(start=moved.start - low)
        return where, part._replace(axes=tuple(axes))

    def cut(self, lengths: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """How each axis of the view is cut by chunks with these lengths along the axes of the array."""
        found: list[tuple[int, ...]] = [(n,) for n in self.shape]
        for axis, each in zip(self.axes, lengths, strict=True):
            for dim in dims_of(axis):
                indices = np.arange(self.shape[dim])
                if isinstance(axis, Affine):
                    chunk_of = np.searchsorted(np.cumsum(each), axis.start + axis.step * indices, side="right")
                else:
                    chunk_of = indices // max((*each, 1))
                edges = np.flatnonzero(np.diff(chunk_of, prepend=-1, append=-1))
                found[dim] = tuple(np.diff(edges).tolist()) or (0,)
        return tuple(found)

    def source_of(self, dim: int) -> int | None:
        """Number of the only axis of the array that follows axis ``dim``, and no other axis, of the view."""
        found = [number for number, axis in enumerate(self.axes) if dim in dims_of(axis)]
        return found[0] if len(found) == 1 and dims_of(self.axes[found[0]]) == (dim,) else None

    def spread(self, axis: AxisMap, dims: Sequence[int]) -> Indices:
        """Indices along an axis of the array over some axes of the view, of extent 1 where they are the same."""
        if isinstance(axis, Listed):
            mine, indices = axis.dims, axis.indices
        elif axis.dim is None:
            mine, indices = (), np.array(axis.start)
        else:
            mine, indices = (axis.dim,), axis.start + axis.step * np.arange(self.shape[axis.dim])
        order = sorted(range(len(mine)), key=mine.__getitem__)
        return indices.transpose(order)[tuple([slice(None) if dim in mine else None for dim in dims])]


def _along(shape: tuple[int, ...], dim: int, indices: Range | Indices) -> Transform:
    axes: list[Range | Indices] = [Range(0, 1, n) for n in shape]
    axes[dim] = indices
    return Transform.of(Box(tuple(axes), tuple([axis.size for axis in axes]), None))


def _listed(dims: tuple[int, ...], indices: Indices) -> AxisMap:
    return Listed(dims, indices) if dims else Affine(None, int(indices))


def _then(axis: AxisMap, inner: Transform) -> AxisMap:
    if isinstance(axis, Affine):
        if axis.dim is None:
            return axis
        given = inner.axes[axis.dim]
        if isinstance(given, Affine):
            return Affine(given.dim, axis.start + axis.step * given.start, axis.step * given.step)
        is_same = (axis.start, axis.step) == (0, 1)
        return given if is_same else given._replace(indices=axis.start + axis.step * given.indices)
    given_axes = [inner.axes[dim] for dim in axis.dims]
    dims = tuple(sorted({dim for given in given_axes for dim in dims_of(given)}))
    indices = axis.indices[tuple([inner.spread(given, dims) for given in given_axes])]
    return _listed(dims, np.broadcast_to(indices, [inner.shape[dim] for dim in dims]))
