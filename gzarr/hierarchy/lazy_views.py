"""Lazy views: selections of arrays, and of views, that are read when their elements are asked for.

A view is an array, or several that are joined, and an `gzarr.indexing.transform.Transform`. However many selections
made it, its read is one plan, and several arrays are read as one queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend, Fields
from gzarr.errors import SelectionError
from gzarr.hierarchy.array_info import casting_dtype
from gzarr.hierarchy.node import GzarrArray, Sized
from gzarr.hierarchy.selecting import Accessor
from gzarr.hierarchy.values import LazyValue, fields_dtype, stored_names
from gzarr.hierarchy.view_labels import find_labels, read_coordinate
from gzarr.hierarchy.view_parts import Lengths, Sequel, read_view, write_view
from gzarr.indexing.selection import Selection, normalize, normalize_orthogonal, normalize_vindex
from gzarr.indexing.transform import Transform


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LazyView(Sized, LazyValue):
    """A selection of an array that is read when its elements are asked for.

    ``view[selection]`` is another view, made without a read; ``view[...]``, `result` and ``numpy.asarray(view)`` read,
    and ``view[selection] = value`` writes into the array. `gzarr.Array.lazy` is the view of a whole array, and
    `gzarr.concat` and `gzarr.stack` join views.

    Attributes
    ----------
    source : Array or Sequel
        What it is a view of.
    transform : Transform
        Which elements it has.
    fields : str or list of str, optional
        Fields of a structured data type.
    casts : tuple of numpy.dtype
        Data types that elements are cast to, one after the other.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
    >>> view = z.lazy[::-1].T[1:3]
    >>> view.shape, view.nbytes
    ((2, 3), 48)
    >>> view[...]
    array([[ 9,  5,  1],
           [10,  6,  2]])
    >>> view[:, 0] = 0
    >>> z[2]
    array([ 8,  0,  0, 11])
    """

    source: Any
    transform: Transform
    fields: Fields = None
    casts: tuple[np.dtype[Any], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.transform.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy data type of what reads return."""
        return self.casts[-1] if self.casts else self.stored_dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the view in memory."""
        return self.size * self.dtype.itemsize

    @property
    def arrays(self) -> tuple[GzarrArray, ...]:
        """The arrays that it reads."""
        if not isinstance(self.source, Sequel):
            return (self.source,)
        return tuple([array for part in self.source.parts for array in part.arrays])

    @property
    def backend(self) -> Backend:
        """Where reads put their results."""
        return self.arrays[0].backend

    @property
    def chunk_sizes(self) -> Lengths:
        """Lengths along every axis of the parts that lie in one stored object each, a chunk or a shard.

        Along an axis of listed indices they are as long as those.
        """
        return self.transform.cut(self.source.write_chunk_sizes)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The largest of `chunk_sizes` along every axis."""
        return tuple([max(sizes, default=1) for sizes in self.chunk_sizes])

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """A name or None for every axis, or None if the array has no names."""
        source = self.source
        names = source.names if isinstance(source, Sequel) else stored_names(source.metadata)
        found = [self.transform.source_of(dim) for dim in range(self.ndim)]
        return tuple([None if number is None else names[number] for number in found]) if names else None

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Data type before casts."""
        dtype: np.dtype[Any] = self.source.parts[0].dtype if isinstance(self.source, Sequel) else self.source.dtype
        return fields_dtype(dtype, self.fields) if self.fields else dtype

    def __iter__(self) -> Iterator[LazyView]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        more = f" and {len(self.arrays) - 1} more" if len(self.arrays) > 1 else ""
        return f"<LazyView of {self.arrays[0].store_path}{more} shape={self.shape} dtype={self.dtype}>"

    def __dask_tokenize__(self) -> Any:
        from dask.base import normalize_token  # only Dask calls this

        source = (self.source.parts, self.source.axis) if isinstance(self.source, Sequel) else self.source
        return normalize_token((source, tuple(self.transform), self.fields, self.casts))

    def __getitem__(self, key: Any) -> Any:
        """Return the view of a selection, as `gzarr.Array` takes it; read everything for ``...``."""
        return read_view(self) if key is ... else self._accessor(normalize)[key]

    @property
    def oindex(self) -> Accessor:
        """Rows and columns: an integer, slice, index list or boolean list for each axis, independently."""
        return self._accessor(normalize_orthogonal)

    @property
    def vindex(self) -> Accessor:
        """Points: an index array for every axis, broadcast together, or a mask."""
        return self._accessor(normalize_vindex)

    def isel(self, **indices: Any) -> LazyView:
        """Select along axes by their names.

        Parameters
        ----------
        **indices : int, slice, list of int or list of bool
            What to take along each axis; the others are taken whole.

        Returns
        -------
        LazyView
            The view.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.array([[1, 2], [3, 4]], dimension_names=("y", "x"))
        >>> z.lazy.isel(x=0).result()
        array([1, 3])
        """
        key: list[Any] = [slice(None)] * self.ndim
        for name, index in indices.items():
            key[self._dim_of(name)] = index
        return self.oindex[tuple(key)]

    def sel(self, method: str | None = None, **labels: Any) -> LazyView:
        """Select along axes by their coordinates: the arrays that are named as the axes, in the same group.

        Parameters
        ----------
        method : {"nearest"}, optional
            Take the nearest coordinate, instead of one that is equal.
        **labels : number, slice of numbers or list of numbers
            What to take along each axis. Both ends of a slice are included.

        Returns
        -------
        LazyView
            The view.

        Raises
        ------
        SelectionError
            If an axis or a coordinate is not there.

        Examples
        --------
        >>> import gzarr
        >>> group = gzarr.create_group("map.zarr")
        >>> _ = group.create_array("x", data=[10.0, 20.0, 30.0], dimension_names=["x"])
        >>> z = group.create_array("height", data=[1, 5, 7], dimension_names=["x"])
        >>> z.lazy.sel(x=slice(15, 30)).result()
        array([5, 7])
        """
        if method not in (None, "nearest"):
            raise SelectionError(f"method must be 'nearest' or None, got {method!r}")
        return self.isel(**{name: find_labels(self, name, label, method) for name, label in labels.items()})

    def coordinate(self, name: str) -> np.ndarray[Any, Any]:
        """Read the coordinates along an axis.

        Parameters
        ----------
        name : str
            Name of the axis.

        Returns
        -------
        numpy.ndarray
            The elements of the array of that name in the same group, as far as they are along the view.
        """
        return read_coordinate(self, name)

    def transpose(self, *axes: int | str) -> LazyView:
        """Return the view with its axes in another order.

        Parameters
        ----------
        *axes : int or str
            The axes, by number or name, in their new order. By default the last one becomes the first.

        Returns
        -------
        LazyView
            The view.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.zeros((2, 3, 4)).lazy.transpose(2, 0, 1).shape
        (4, 2, 3)
        """
        order = tuple([self._dim_of(axis) for axis in axes]) or tuple(reversed(range(self.ndim)))
        if sorted(order) != list(range(self.ndim)):
            raise SelectionError(f"transpose{axes} of {self}: expected each of the {self.ndim} axes once")
        return replace(self, transform=self.transform.transposed(order))

    @property
    def T(self) -> LazyView:  # noqa: N802 - NumPy's name
        """The view with its axes in reverse order."""
        return self.transpose()

    def flip(self, *axes: int | str) -> LazyView:
        """Return the view in reverse order along some axes.

        Parameters
        ----------
        *axes : int or str
            The axes, by number or name. By default all.

        Returns
        -------
        LazyView
            The view.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.array([1, 2, 3]).lazy.flip().result()
        array([3, 2, 1])
        """
        turned = {self._dim_of(axis) for axis in axes or range(self.ndim)}
        key = [slice(None, None, -1 if dim in turned else None) for dim in range(self.ndim)]
        return self._of(normalize(tuple(key), self.shape))

    def astype(self, dtype: Any) -> LazyView:
        """Return the view with its elements cast to another data type when they are read. It is read-only.

        Parameters
        ----------
        dtype : dtype-like
            A data type of fixed size.

        Returns
        -------
        LazyView
            The view.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.array([1, 2]).lazy.astype("f4").result()
        array([1., 2.], dtype=float32)
        """
        wanted = casting_dtype(self.arrays[0], dtype)
        return self if wanted == self.dtype else replace(self, casts=(*self.casts, wanted))

    def _accessor(self, normal: Callable[[Any, tuple[int, ...]], Selection]) -> Accessor:
        def view(key: Any, fields: Fields = None) -> LazyView:
            return (self._of_fields(fields) if fields else self)._of(normal(key, self.shape))

        def write(key: Any, value: Any, fields: Fields = None) -> None:
            view(key, fields).write(value)

        return Accessor(view, write)

    def _of(self, selection: Selection) -> LazyView:
        return replace(self, transform=self.transform.then(Transform.of(selection)))

    def _of_fields(self, fields: Any) -> LazyView:
        fields_dtype(self.dtype, fields)
        if self.casts or isinstance(self.fields, str):
            raise SelectionError(f"{self}: select fields of the array once, and before astype")
        return replace(self, fields=fields)

    def _dim_of(self, axis: int | str) -> int:
        names = self.dimension_names or ()
        if isinstance(axis, str):
            if axis not in names:
                raise SelectionError(
                    f"{self} has no axis {axis!r}; its axes are {', '.join(map(repr, names)) or 'unnamed'}"
                )
            return names.index(axis)
        if not -self.ndim <= axis < self.ndim:
            raise SelectionError(f"{self} has no axis {axis}; it has {self.ndim}")
        return axis % self.ndim

    def result(self) -> AnyArray:
        """Read the view.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device; a scalar if the view has no axes.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.array([1, 2, 3]).lazy[1:][::-1].result()
        array([3, 2])
        """
        found = read_view(self)
        return found[()] if not self.shape and isinstance(found, np.ndarray) else found

    def write(self, value: Any) -> None:
        """Write a value, broadcast to the view's shape, into the array; ``view[selection] = value`` does, too.

        Parameters
        ----------
        value : array-like
            Values, on the host or on a GPU.

        Raises
        ------
        MetadataError
            If the view casts its elements.
        ReadOnlyError
            If an array was opened for reading.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((2, 2), dtype="i4")
        >>> z.lazy[:, 1].write([1, 2])
        >>> z[...].tolist()
        [[0, 1], [0, 2]]
        """
        write_view(self, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        (self if key is ... else self[key]).write(value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a lazy view cannot become a NumPy array without a copy")
        data = read_view(self)
        return np.asarray(data.get() if hasattr(data, "get") else data, self.dtype if dtype is None else dtype)
