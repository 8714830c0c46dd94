"""The ways to select: brackets, the ``get_`` and ``set_`` methods, ``vindex``, ``oindex`` and ``blocks``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from gzarr.backend import Array as AnyArray
from gzarr.backend import BasicSelections, Fields
from gzarr.hierarchy.array_info import ArrayInfo
from gzarr.hierarchy.threads import run_in_thread
from gzarr.indexing.selection import (
    Box,
    Selection,
    normalize,
    normalize_basic,
    normalize_blocks,
    normalize_mask,
    normalize_orthogonal,
    normalize_vindex,
    split_fields,
)


class Indexed(ArrayInfo):
    """Reads and writes every kind of selection.

    Subclasses read and write selections that have been normalized.
    """

    __slots__ = ()

    @abstractmethod
    def _read(self, selection: Selection, fields: Fields, out: AnyArray) -> AnyArray:
        """Read a normalized selection."""

    @abstractmethod
    def _write(self, selection: Selection, value: Any, fields: Fields) -> None:
        """Write a normalized selection."""

    @abstractmethod
    def _basic(self) -> BasicSelections | None:
        """What reads and writes basic selections without a plan; None if nothing does."""

    @abstractmethod
    def _write_basic(self, basic: BasicSelections, key: Any, value: Any) -> bool:
        """Write a basic selection without a plan. Returns: whether that was done."""

    def __getitem__(self, key: Any) -> AnyArray:
        """Read a selection.

        Parameters
        ----------
        key : int, slice, Ellipsis, None, list of int, boolean array, field name or tuple of them
            What to read, as in NumPy. A list for every axis selects points; several lists beside slices are refused, as
            `vindex` and `oindex` say which of two things is meant.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device; a scalar if every axis has an integer. ``...`` gives an array even where
            there are no axes.

        Raises
        ------
        SelectionError
            If the selection does not fit the array.
        ChunkError
            If a stored chunk is damaged.
        StoreError
            If the store cannot be read.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z[1, 2:]
        array([6, 7])
        >>> z[:, -1]
        array([ 3,  7, 11])
        """
        basic = self._basic()
        read = None if basic is None else basic.read(key, self._out_dtype)
        if read is not None:
            return read
        key, fields = split_fields(key)
        out = self._without_axes() if key is ... else None
        return self._read(normalize(key, self.metadata.shape), fields, out)

    async def aread(self, selection: Any = ...) -> AnyArray:
        """Read a selection on a thread, so that many reads wait for a store at once.

        If it is cancelled before its turn, nothing is read; if later, the result is dropped. A result on a GPU is
        ordered on the device's default stream.

        Parameters
        ----------
        selection : optional
            What ``array[selection]`` takes. By default everything.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            What ``array[selection]`` returns.

        Examples
        --------
        >>> import asyncio, gzarr
        >>> z = gzarr.array([1, 2, 3])
        >>> asyncio.run(z.aread(slice(1, 3)))
        array([2, 3])
        """
        return await run_in_thread(self.__getitem__, selection)

    def get_basic_selection(
        self, selection: Any = ..., *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read integers and slices.

        Parameters
        ----------
        selection : int, slice, Ellipsis or tuple of them, optional
            One item for every axis; axes that are left out are taken whole.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_basic_selection((1, slice(0, 2)))
        array([4, 5])
        """
        if selection is ... and out is None and fields is None:
            out = self._without_axes()
        return self._read(normalize_basic(selection, self.shape), fields, out)

    def get_orthogonal_selection(
        self, selection: Any, *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read the rows and columns that a selection for each axis picks.

        Parameters
        ----------
        selection : int, slice, list of int, boolean array or tuple of them
            One item for every axis. Each selects on its own axis, whatever the others select.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_orthogonal_selection(([0, 2], [1, 3]))
        array([[ 1,  3],
               [ 9, 11]])
        """
        return self._read(normalize_orthogonal(selection, self.shape), fields, out)

    def get_coordinate_selection(
        self, selection: Any, *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read points by their coordinates.

        Parameters
        ----------
        selection : tuple of array-like of int
            One index array for every axis; they are broadcast together.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_coordinate_selection(([0, 2], [1, 3]))
        array([ 1, 11])
        """
        return self._read(normalize_vindex(selection, self.shape), fields, out)

    def get_mask_selection(
        self, mask: Any, *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read the points where a mask is true.

        Parameters
        ----------
        mask : array-like of bool
            A mask of the array's shape.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_mask_selection(z[...] > 9)
        array([10, 11])
        """
        return self._read(normalize_mask(mask, self.shape), fields, out)

    def get_block_selection(
        self, selection: Any, *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read whole chunks by their coordinates in the chunk grid.

        Parameters
        ----------
        selection : int, slice or tuple of them
            Coordinates of chunks in the chunk grid, one item for every axis.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_block_selection((0, 1))
        array([[2, 3],
               [6, 7]])
        """
        return self._read(self._blocks(selection), fields, out)

    @property
    def vindex(self) -> Accessor:
        """Points by their coordinates or by a mask, to read and to write.

        One index array for every axis, broadcast together, or a boolean mask.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4))
        >>> z.vindex[[0, 2], [1, 3]]
        array([ 1, 11])
        >>> z.vindex[[0, 2], [1, 3]] = 0
        """
        return Accessor(self.get_coordinate_selection, self.set_coordinate_selection)

    @property
    def oindex(self) -> Accessor:
        """Rows and columns, to read and to write.

        An integer, slice, index list or boolean list for each axis, independently.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4))
        >>> z.oindex[[0, 2], 1:3]
        array([[ 1,  2],
               [ 9, 10]])
        >>> z.oindex[:, [0, 3]] = 0
        """
        return Accessor(self.get_orthogonal_selection, self.set_orthogonal_selection)

    @property
    def blocks(self) -> Accessor:
        """Whole chunks by their coordinates in the chunk grid, to read and to write.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.blocks[1, 0]
        array([[8, 9]])
        >>> z.blocks[:, 0] = 0
        """
        return Accessor(self.get_block_selection, self.set_block_selection)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a selection.

        Parameters
        ----------
        key : int, slice, Ellipsis, None, list of int, boolean array, field name or tuple of them
            Where to write; see `__getitem__`.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape and cast as NumPy does. A value of
            xarray must have its axes where the array has those of the same names. An h5py dataset, or a gzarr array at
            another place, of the selection's shape is read in pieces. Any other lazy value (of Dask or xarray, say)
            might read this array, so it is computed before anything is written: in memory or, above 256 MiB, in a
            temporary file. `gzarr.interop.dask.to_zarr` stores large Dask arrays in pieces.

        Raises
        ------
        SelectionError
            If the selection does not fit the array.
        ValueError
            If the value cannot be broadcast to the selection's shape, or its axes have the names of others.
        StoreError
            If the store cannot be written, or there is no room for the temporary file.
        ReadOnlyError
            If the array was opened for reading.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((2, 3), dtype="i4")
        >>> z[0] = [1, 2, 3]
        >>> z[:, 1] = 7
        >>> z[...]
        array([[1, 7, 3],
               [0, 7, 0]], dtype=int32)
        """
        basic = self._basic()
        if basic is not None and self._write_basic(basic, key, value):
            return
        key, fields = split_fields(key)
        self._write(normalize(key, self.metadata.shape), value, fields)

    async def awrite(self, selection: Any, value: Any) -> None:
        """Write a selection on a thread, so that many writes wait for a store at once.

        If it is cancelled before its turn, nothing is written; if later, the write goes on to its end.

        Parameters
        ----------
        selection
            What ``array[selection] = value`` takes.
        value : array-like
            Values, which must not change before the write is done. A GPU reads them in the order of its default stream:
            synchronize first if they were made on another stream.

        Examples
        --------
        >>> import asyncio, gzarr
        >>> z = gzarr.zeros(3, dtype="i4")
        >>> asyncio.run(z.awrite(slice(0, 2), [1, 2]))
        >>> z[...]
        array([1, 2, 0], dtype=int32)
        """
        await run_in_thread(self.__setitem__, selection, value)

    def set_basic_selection(self, selection: Any, value: Any, *, fields: Fields = None, prototype: Any = None) -> None:
        """Write integers and slices.

        Parameters
        ----------
        selection : int, slice, Ellipsis or tuple of them
            One item for every axis; axes that are left out are taken whole.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_basic_selection((1, slice(0, 2)), [4, 5])
        >>> z[1]
        array([4, 5, 0, 0], dtype=int32)
        """
        self._write(normalize_basic(selection, self.shape), value, fields)

    def set_orthogonal_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, prototype: Any = None
    ) -> None:
        """Write the rows and columns that a selection for each axis picks.

        Parameters
        ----------
        selection : int, slice, list of int, boolean array or tuple of them
            One item for every axis. Each selects on its own axis, whatever the others select.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_orthogonal_selection(([0, 2], [1, 3]), [[1, 2], [3, 4]])
        >>> z[2]
        array([0, 3, 0, 4], dtype=int32)
        """
        self._write(normalize_orthogonal(selection, self.shape), value, fields)

    def set_coordinate_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, prototype: Any = None
    ) -> None:
        """Write points by their coordinates.

        Parameters
        ----------
        selection : tuple of array-like of int
            One index array for every axis; they are broadcast together.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_coordinate_selection(([0, 2], [1, 3]), [7, 8])
        >>> z[2]
        array([0, 0, 0, 8], dtype=int32)
        """
        self._write(normalize_vindex(selection, self.shape), value, fields)

    def set_mask_selection(self, mask: Any, value: Any, *, fields: Fields = None, prototype: Any = None) -> None:
        """Write the points where a mask is true.

        Parameters
        ----------
        mask : array-like of bool
            A mask of the array's shape.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_mask_selection(z[...] == 0, 5)
        >>> z[0]
        array([5, 5, 5, 5], dtype=int32)
        """
        self._write(normalize_mask(mask, self.shape), value, fields)

    def set_block_selection(self, selection: Any, value: Any, *, fields: Fields = None, prototype: Any = None) -> None:
        """Write whole chunks by their coordinates in the chunk grid.

        Parameters
        ----------
        selection : int, slice or tuple of them
            Coordinates of chunks in the chunk grid, one item for every axis.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_block_selection((0, 1), 5)
        >>> z[0]
        array([0, 0, 5, 5], dtype=int32)
        """
        self._write(self._blocks(selection), value, fields)

    def _without_axes(self) -> AnyArray:
        """Return what ``array[...]`` reads into if there are no axes: as in NumPy, no scalar. Otherwise None."""
        return None if self.metadata.shape else self.backend.empty((), self.dtype)

    def _blocks(self, selection: Any) -> Box:
        return normalize_blocks(selection, self.shape, self._edges())


class Accessor:
    """One way to select, with brackets. Made by `Array.vindex`, `Array.oindex` and `Array.blocks`."""

    __slots__ = ("_read", "_write")

    def __init__(self, read: Callable[..., AnyArray], write: Callable[..., None]) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, key: Any) -> AnyArray:
        key, fields = split_fields(key)
        return self._read(key, fields=fields)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, fields = split_fields(key)
        self._write(key, value, fields=fields)

    def __repr__(self) -> str:
        return f"<Accessor: {self._read.__name__} of {self._read.__self__!r}>"  # type: ignore[attr-defined]
