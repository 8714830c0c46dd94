"""Creates arrays in a group, with the calls of h5py, zarr 2 and zarr-python 3."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from gzarr.errors import ArrayNotFoundError, ContainsNodeError, MetadataError
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.array_config import given_usage
from gzarr.hierarchy.create import check_vacant
from gzarr.hierarchy.keywords import FilledMemberKeywords, LikeMemberKeywords, MemberKeywords, NewMemberKeywords
from gzarr.hierarchy.node import Node
from gzarr.hierarchy.options import UNSET, check_keywords
from gzarr.hierarchy.reaching import take_format
from gzarr.indexing.chunking import parse_shape
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import GroupMeta


class GroupArrays(Node[GroupMeta]):
    """The methods of a group that create arrays in it."""

    __slots__ = ()

    def create_array(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        data: Any = None,
        *,
        fill_value: Any = UNSET,
        **kwargs: Unpack[MemberKeywords],
    ) -> Array:
        """Create an array, and missing groups above it.

        Parameters
        ----------
        name : str
            Name of the array, or its path from here.
        shape : int or sequence of int
            Extents. By default those of ``data``.
        dtype : dtype-like, optional
            Data type of the elements. By default that of ``data``, or float64.
        data : array-like, optional
            Values to fill the array with, on the host or on a GPU.
        fill_value : scalar, optional
            Value of elements that were never written.
        **kwargs
            See `gzarr.create_array`. The format and the device are those of the group.

        Returns
        -------
        Array
            The new array.

        Raises
        ------
        MetadataError
            If keywords contradict each other, or the group's format has no such array.
        ContainsArrayError, ContainsGroupError
            If something is stored there and ``overwrite`` is false.
        ReadOnlyError
            If the group was opened for reading.

        Examples
        --------
        >>> import gzarr
        >>> root = gzarr.group()
        >>> z = root.create_array("run/speed", shape=(100, 3), chunks=(10, 3), dtype="f4")
        >>> root["run/speed"].chunks
        (10, 3)
        """
        check_keywords(kwargs, MemberKeywords, self.create_array)
        self.check_metadata_writable()
        given: dict[str, Any] = {"shape": shape, "dtype": dtype, "fill_value": fill_value, **kwargs}
        given.pop("device", None)
        given["zarr_format"] = take_format(given.get("zarr_format"), given)
        if given["zarr_format"] not in (None, self.metadata.zarr_format):
            raise MetadataError(
                f"{self.store_path} has format {self.metadata.zarr_format} and cannot contain "
                f"zarr_format={given['zarr_format']!r}; leave it out"
            )
        given["zarr_format"] = self.metadata.zarr_format
        return new_nodes.make(self.store, self._member_path(name), self.opened_with, data=data, **given)

    create_dataset = create_array  # h5py's name
    create = create_array  # zarr 2's name

    def require_array(
        self,
        name: str,
        shape: Any,
        dtype: Any = None,
        exact: bool = False,
        *,
        fill_value: Any = UNSET,
        **kwargs: Unpack[MemberKeywords],
    ) -> Array:
        """Open the array with a name, creating it if it is missing.

        Parameters
        ----------
        name : str
            Name of the array, or its path from here.
        shape : int or sequence of int
            Extents.
        dtype : dtype-like, optional
            Data type of the elements. By default float64.
        exact : bool
            Whether an existing array must have just this data type, instead of one to which it can be cast safely.
        fill_value, **kwargs
            See `create_array`; used if the array is created.

        Returns
        -------
        Array
            The array.

        Raises
        ------
        TypeError
            If the array that is there has another shape or data type.
        ContainsNodeError
            If a group is there.

        Examples
        --------
        >>> import gzarr
        >>> root = gzarr.group()
        >>> z = root.require_array("a", shape=(10,), dtype="i4")
        >>> root.require_array("a", shape=(10,), dtype="i4") == z
        True
        """
        path = self._member_path(name)
        meta = read_node(self.store, path, self.metadata.zarr_format)
        if meta is None:
            check_vacant(self.store, path, ArrayNotFoundError)
            try:
                return self.create_array(name, shape, dtype, fill_value=fill_value, **kwargs)
            except ContainsNodeError:  # another process was faster, or something else is in the way
                meta = read_node(self.store, path, self.metadata.zarr_format)
                if meta is None:
                    raise
        if isinstance(meta, GroupMeta):
            raise ContainsNodeError(f"a group, not an array, is stored at {join_path(str(self.store), path)!r}")
        check_keywords(kwargs, MemberKeywords, self.require_array)
        array = Array(self.store, path, meta, self.opened_with, read_only=self._read_only, **given_usage(kwargs))
        wanted = parse_shape(shape)
        if array.shape != wanted:
            raise TypeError(f"the existing array has shape {array.shape}, not {wanted}")
        asked = np.dtype(dtype or "f8")
        if asked != array.dtype and (exact or not np.can_cast(asked, array.dtype)):
            cast = "differ exactly" if exact else "cannot be safely cast"
            raise TypeError(f"dtypes ({asked}, {array.dtype}) {cast}: existing array {array.store_path}")
        return array

    require_dataset = require_array  # h5py's name

    def array(self, name: str, data: Any, **kwargs: Unpack[NewMemberKeywords]) -> Array:
        """Create an array from data: `create_array` with ``data`` in second place."""
        given: dict[str, Any] = {**kwargs}
        return self.create_array(name, data=data, **given)

    def empty(self, name: str, shape: Any = None, **kwargs: Unpack[FilledMemberKeywords]) -> Array:
        """Create an array without giving it a fill value: see `gzarr.empty` and `create_array`."""
        given: dict[str, Any] = {"fill_value": None, **kwargs}
        return self.create_array(name, shape, **given)

    def zeros(self, name: str, shape: Any = None, **kwargs: Unpack[FilledMemberKeywords]) -> Array:
        """Create an array of zeros, for which nothing is stored: see `create_array`."""
        given: dict[str, Any] = {"fill_value": 0, **kwargs}
        return self.create_array(name, shape, **given)

    def ones(self, name: str, shape: Any = None, **kwargs: Unpack[FilledMemberKeywords]) -> Array:
        """Create an array of ones, for which nothing is stored: see `create_array`."""
        given: dict[str, Any] = {"fill_value": 1, **kwargs}
        return self.create_array(name, shape, **given)

    def full(
        self, name: str, shape: Any = None, fill_value: Any = None, **kwargs: Unpack[FilledMemberKeywords]
    ) -> Array:
        """Create an array filled with a value, for which nothing is stored: see `create_array`."""
        given: dict[str, Any] = {**kwargs}
        return self.create_array(name, shape, fill_value=fill_value, **given)

    def empty_like(self, name: str, data: Any, **kwargs: Unpack[LikeMemberKeywords]) -> Array:
        """Create an array like another, as `empty` does: see `gzarr.empty_like`."""
        return self.create_array(name, **self._like(data, {"fill_value": getattr(data, "fill_value", None), **kwargs}))

    def zeros_like(self, name: str, data: Any, **kwargs: Unpack[LikeMemberKeywords]) -> Array:
        """Create an array of zeros like another: see `gzarr.zeros_like`."""
        return self.create_array(name, **self._like(data, {"fill_value": 0, **kwargs}))

    def ones_like(self, name: str, data: Any, **kwargs: Unpack[LikeMemberKeywords]) -> Array:
        """Create an array of ones like another: see `gzarr.ones_like`."""
        return self.create_array(name, **self._like(data, {"fill_value": 1, **kwargs}))

    def full_like(self, name: str, data: Any, fill_value: Any = None, **kwargs: Unpack[LikeMemberKeywords]) -> Array:
        """Create an array like another, filled with a value or the other's fill value: see `gzarr.full_like`."""
        chosen = {} if fill_value is None else {"fill_value": fill_value}
        return self.create_array(name, **self._like(data, {**chosen, **kwargs}))

    def _path(self, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"names of members are strings, got {name!r}")
        path = normalize_path(name)
        if name.startswith("/") and self.metadata.zarr_format == 2:  # as zarr 2 and h5py have it; zarr-python 3 has not
            return path
        return join_path(self.path, path)

    def _member_path(self, name: str) -> str:
        path = self._path(name)
        if not path or path == self.path:
            raise KeyError(f"{name!r} is not a name for a member of {self.store_path}")
        return path

    def _like(self, template: Any, keywords: dict[str, Any]) -> dict[str, Any]:
        """Return keywords that make a member like another array, in the format of the group."""
        return new_nodes.like(template, {"zarr_format": self.metadata.zarr_format, **keywords})
