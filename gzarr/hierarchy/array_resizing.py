"""Changes the extents of an array, and takes over changes that others have made to its metadata."""

from __future__ import annotations

from typing import Any, Self

from gzarr.chunk_io.prepare import prepare_array
from gzarr.errors import ArrayNotFoundError, ReadOnlyError, SelectionError
from gzarr.hierarchy.accessors import Indexed
from gzarr.hierarchy.resizing import clear_outside
from gzarr.hierarchy.values import broadcast_value
from gzarr.indexing.chunking import parse_shape
from gzarr.indexing.plan import box_between
from gzarr.metadata.documents import document_key, read_node, write_shape
from gzarr.metadata.model import ArrayMeta


class ResizableArray(Indexed):
    """The methods of an array that change its extents."""

    __slots__ = ("is_view",)
    is_view: bool

    def resize(self, *args: Any) -> None:
        """Change the shape.

        Elements outside the new shape are cleared for good, so that growing the array again shows the fill value:
        objects that lie wholly outside are deleted, and the outside part of others is overwritten.

        Parameters
        ----------
        *args : int or sequence of int
            The new extents: ``resize((20, 10))`` or ``resize(20, 10)``.

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
        new = parse_shape(args[0] if len(args) == 1 else args, self.ndim)
        self._check_resizable()
        with self.store.node_locked(document_key(self.metadata, self.path)):
            self.refresh()  # another array object may have changed shape or attributes
            self._resize(new)

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
        if data is self:
            data = self[...]  # before it grows
        if not hasattr(data, "shape"):
            data = self.backend.asarray(data, self.dtype)
        if not 0 <= axis < self.ndim:
            raise SelectionError(
                f"{self.store_path}: cannot append along axis {axis} of a {self.ndim}-dimensional array"
            )
        with self.store.node_locked(document_key(self.metadata, self.path)):
            self.refresh()
            old = self.shape
            added = tuple(data.shape)
            if len(added) != len(old) or added[:axis] + added[axis + 1 :] != old[:axis] + old[axis + 1 :]:
                raise ValueError(
                    f"{self.store_path}: cannot append data of shape {added} to an array of shape {old} along axis "
                    f"{axis}: all other axes must agree"
                )
            data = broadcast_value(data, self.dtype, box_between((0,) * self.ndim, added), self.backend)
            self._resize((*old[:axis], old[axis] + added[axis], *old[axis + 1 :]))
            # Write under the lock: the next writer that appends must see the last chunk as it will be.
            self[(*[slice(None)] * axis, slice(old[axis], None))] = data
            return self.shape

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
            raise ArrayNotFoundError(f"no array at {self.store_path!r} any more: it was deleted or replaced by a group")
        self._bound = prepare_array(meta, self.store, self.path, *self.opened_with)
        if self._out_dtype == self.metadata.data_type.dtype:
            self._out_dtype = meta.data_type.dtype
        self.metadata = meta
        return self

    def _check_resizable(self) -> None:
        self.check_metadata_writable()
        if self.is_view:
            raise ReadOnlyError(f"{self.store_path}: a view cannot be resized; resize the array that it shows")

    def _resize(self, shape: tuple[int, ...]) -> None:
        new = self.metadata.resized(shape)
        io = prepare_array(new, self.store, self.path, *self.opened_with)  # if this fails, nothing has been changed
        clear_outside(self._io, self.metadata, self.store, self.path, shape)
        write_shape(self.store, self.path, new)
        self._bound, self.metadata = io, new
