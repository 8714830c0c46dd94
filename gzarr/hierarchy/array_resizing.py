"""Changes the extents of an array, and takes over changes that others have made to its metadata."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Self

from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import prepare_array
from gzarr.errors import ArrayNotFoundError, ReadOnlyError, SelectionError
from gzarr.hierarchy.accessors import Indexed
from gzarr.hierarchy.resizing import clear_ahead, clear_box, clear_outside, write_box
from gzarr.hierarchy.values import broadcast_value
from gzarr.indexing.chunking import parse_shape
from gzarr.indexing.plan import box_between
from gzarr.indexing.selection import Box
from gzarr.metadata.documents import ShapeChangedError, check_shape, document_key, read_node, write_shape
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.changing import attempts, given_up
from gzarr.storage.locks import while_locked
from gzarr.tensors import from_tensor


class ResizableArray(Indexed):
    """The methods of an array that change its extents."""

    __slots__ = ("is_view", "read_missing_chunks", "write_empty_chunks")
    is_view: bool
    read_missing_chunks: bool
    write_empty_chunks: bool

    def resize(self, *args: Any, new_shape: Any = None) -> None:
        """Change the shape.

        Elements outside the new shape are cleared for good, so that growing the array again shows the fill value:
        objects that lie wholly outside are deleted, and the outside part of others is overwritten. Elements that are
        added have the fill value: what a killed `append` or another library has left there is cleared.

        Parameters
        ----------
        *args : int or sequence of int
            The new extents: ``resize((20, 10))`` or ``resize(20, 10)``.
        new_shape : int or sequence of int, optional
            The same, by zarr-python's name.

        Raises
        ------
        MetadataError
            If the new shape has another number of extents, or negative ones.
        ReadOnlyError
            If the array was opened for reading, or is a view.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.array([1, 2, 3, 4])
        >>> z.resize(2)
        >>> z.resize(4)
        >>> z[...]
        array([1, 2, 0, 0])
        """
        if new_shape is not None:
            args = (*args, new_shape)
        new = parse_shape(args[0] if len(args) == 1 else args, self.ndim)
        self._check_resizable()
        while_locked(self._lock(), lambda: self._resize(new))

    def append(self, data: Any, axis: int = 0) -> tuple[int, ...]:
        """Add data at the end of an axis.

        Parameters
        ----------
        data : array-like
            Data with the array's extents on all other axes, on the host or on a GPU.
        axis : int
            The axis.

        Returns
        -------
        tuple of int
            The new shape.

        Raises
        ------
        ValueError
            If the data have other extents on another axis.
        SelectionError
            If the array has no such axis.
        ReadOnlyError
            If the array was opened for reading, or is a view.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.array([[1, 2], [3, 4]])
        >>> z.append([[5, 6]])
        (3, 2)
        >>> z[-1]
        array([5, 6])
        """
        self._check_resizable()
        data = from_tensor(data)
        if not hasattr(data, "shape"):
            data = self.backend.asarray(data, self.dtype)
        if not 0 <= axis < self.ndim:
            raise SelectionError(
                f"{self.store_path}: cannot append along axis {axis} of a {self.ndim}-dimensional array"
            )
        # Stores without conditions have locks, so nobody else changes the shape meanwhile: it says what is complete.
        # With conditions, nobody waits: the shape tells others which elements are taken.
        reserves = self.store.live().conditional is not None
        return while_locked(self._lock(), lambda: self._append(data, axis, reserves=reserves))

    def _lock(self) -> AbstractContextManager[Any]:
        return self.store.node_locked(document_key(self.metadata, self.path))

    def _resize(self, shape: tuple[int, ...]) -> None:
        for _ in attempts():
            self.refresh()  # another array object may have changed shape or attributes
            before, new = self.metadata, self._resized(shape)
            clear_outside(self._io, before, shape)
            try:
                self._clear_ahead(new, before)
                done = self._take(new, before)
            except ShapeChangedError:
                continue
            if done:
                return
        raise given_up(self.store, document_key(self.metadata, self.path))

    def _clear_ahead(self, new: _Resized, before: ArrayMeta) -> None:
        """Clear what others have left where the array grows. Raises: ShapeChangedError."""
        store, path = self.store, self.path
        io = prepare_array(new.meta, store, path, self.backend, None, self.opened_with.allow_pickle)
        kept = tuple(map(min, before.shape, new.meta.shape))
        clear_ahead(io, new.meta, kept, lambda: check_shape(store, path, before))

    def _append(self, data: Any, axis: int, *, reserves: bool) -> tuple[int, ...]:
        for _ in attempts():
            self.refresh()
            before = self.metadata
            data, box = self._appended(data, axis)
            grown = self._resized(
                (*before.shape[:axis], before.shape[axis] + data.shape[axis], *before.shape[axis + 1 :])
            )
            if reserves and not self._take(grown, before):
                continue
            try:
                write_box(grown.io, box, data, write_empty=self.write_empty_chunks)
                taken = reserves or self._take(grown, before)
            except BaseException:
                self._undo(grown, before, box, reserved=reserves)
                raise
            if taken:  # else a finalizer on this thread has appended meanwhile
                return self.shape
        raise given_up(self.store, document_key(self.metadata, self.path))

    def _appended(self, data: Any, axis: int) -> tuple[Any, Box]:
        """Return data to append as an array of the backend, and their place."""
        old, added = self.shape, tuple(data.shape)
        if len(added) != len(old) or added[:axis] + added[axis + 1 :] != old[:axis] + old[axis + 1 :]:
            raise ValueError(
                f"{self.store_path}: cannot append data of shape {added} to an array of shape {old} along axis "
                f"{axis}: all other axes must agree"
            )
        low = [old[axis] if n == axis else 0 for n in range(self.ndim)]
        box = box_between(low, [n + extent for n, extent in zip(low, added, strict=True)])
        return broadcast_value(data, self.dtype, box, self), box

    def refresh(self) -> Self:
        """Read the metadata from the store again.

        Returns
        -------
        Array
            The array itself.

        Raises
        ------
        ArrayNotFoundError
            If the array was deleted.
        """
        meta = read_node(self.store.live(), self.path, self.metadata.zarr_format)
        if not isinstance(meta, ArrayMeta):
            where = str(self.store_path)
            raise ArrayNotFoundError(f"no array at {where!r} any more: it was deleted or replaced by a group")
        self._rebind(self._prepared(meta))
        if self._out_dtype == self.metadata.data_type.dtype:
            self._out_dtype = meta.data_type.dtype
        self.metadata = meta
        return self

    def _check_resizable(self) -> None:
        self.check_metadata_writable()
        if self.is_view:
            raise ReadOnlyError(f"{self.store_path}: a view cannot be resized; resize the array that it shows")

    def _resized(self, shape: tuple[int, ...]) -> _Resized:
        meta = self.metadata.resized(shape)
        return _Resized(meta, self._prepared(meta))

    def _prepared(self, meta: ArrayMeta) -> ArrayIO:
        """The array with some metadata, as the engine reads and writes it."""
        io = prepare_array(meta, self.store, self.path, *self.opened_with.reading)
        return io if self.read_missing_chunks else io.without_missing()

    def _take(self, new: _Resized, before: ArrayMeta) -> bool:
        """Store another shape and take it, unless the stored shape is no longer that of `before`."""
        done = write_shape(self.store, self.path, new.meta, before)
        if done:
            self._rebind(new.io)
            self.metadata = new.meta
        return done

    def _undo(self, grown: _Resized, before: ArrayMeta, box: Box, *, reserved: bool) -> None:
        """Clear what an append that failed has stored; give back the shape, unless others have appended since."""
        # What made the append fail may make this fail, too. The error of the append is the one to raise.
        with contextlib.suppress(Exception):
            if not reserved and self.refresh().shape != before.shape:
                return  # the shape is stored: what failed came after it
            clear_box(grown.io, box)
        with contextlib.suppress(Exception):
            if reserved and write_shape(self.store, self.path, before, grown.meta):
                self.refresh()


class _Resized(NamedTuple):
    """An array with another shape: its metadata, and how it is read and written."""

    meta: ArrayMeta
    io: ArrayIO
