"""Creates arrays in a group, with the calls of h5py, zarr 2 and zarr-python 3."""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.errors import ContainsNodeError, MetadataError
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.node import Node
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import GroupMeta


class GroupArrays(Node[GroupMeta]):
    """The methods of a group that create arrays in it."""

    __slots__ = ()

    def create_array(self, name: str, shape: Any = None, dtype: Any = None, data: Any = None, **kwargs: Any) -> Array:
        """Create an array, and missing groups above it, with the keywords of `gzarr.create_array`.

        Raises: MetadataError, ContainsArrayError, ContainsGroupError, ReadOnlyError.
        """
        self.check_metadata_writable()
        if kwargs.setdefault("zarr_format", self.metadata.zarr_format) not in (None, self.metadata.zarr_format):
            raise MetadataError(
                f"zarr_format={kwargs['zarr_format']!r} cannot lie in {self.store_path}, which has format "
                f"{self.metadata.zarr_format}; leave it out"
            )
        kwargs["zarr_format"] = self.metadata.zarr_format
        kwargs = {"shape": shape, "dtype": dtype, **{k: v for k, v in kwargs.items() if k != "device"}}
        return new_nodes.make(self.store, self._member_path(name), self.backend, data=data, **kwargs)

    def create_dataset(self, name: str, shape: Any = None, dtype: Any = None, data: Any = None, **kwargs: Any) -> Array:
        """h5py's name for `create_array`."""
        return self.create_array(name, shape, dtype, data, **kwargs)

    def require_array(self, name: str, shape: Any, dtype: Any = None, exact: bool = False, **kwargs: Any) -> Array:
        """The array with a name, created if it is missing.

        Raises: TypeError if the array that is there has another shape, or a dtype that ``dtype`` cannot be cast to
            safely (with ``exact``, another dtype); ContainsNodeError if a group is there.
        """
        path = self._member_path(name)
        meta = read_node(self.store, path, self.metadata.zarr_format)
        if meta is None:
            return self.create_array(name, shape, dtype, **kwargs)
        if isinstance(meta, GroupMeta):
            raise ContainsNodeError(f"a group, not an array, is stored at {join_path(str(self.store), path)!r}")
        array = Array(self.store, path, meta, self.backend, read_only=self._read_only)
        wanted = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
        if array.shape != wanted:
            raise TypeError(f"shape do not match existing array; expected {wanted}, got {array.shape}")
        found = np.dtype(dtype or "f8")
        if found != array.dtype and (exact or not np.can_cast(found, array.dtype)):
            cast = "differ exactly" if exact else "cannot be safely cast"
            raise TypeError(f"dtypes ({found}, {array.dtype}) {cast}: existing array {array.store_path}")
        return array

    def require_dataset(self, name: str, shape: Any, dtype: Any = None, exact: bool = False, **kwargs: Any) -> Array:
        """h5py's name for `require_array`."""
        return self.require_array(name, shape, dtype, exact, **kwargs)

    def create(self, name: str, **kwargs: Any) -> Array:
        """Zarr 2's name for `create_array`."""
        return self.create_array(name, **kwargs)

    def array(self, name: str, data: Any, **kwargs: Any) -> Array:
        """Create an array from data."""
        return self.create_array(name, data=data, **kwargs)

    def empty(self, name: str, shape: Any = None, **kwargs: Any) -> Array:
        """Create an array with nothing stored; what unwritten elements are is undefined in v2, the default in v3."""
        return self.create_array(name, shape, **{"fill_value": None, **kwargs})

    def zeros(self, name: str, shape: Any = None, **kwargs: Any) -> Array:
        """Create an array of zeros; nothing is stored for them."""
        return self.create_array(name, shape, **{"fill_value": 0, **kwargs})

    def ones(self, name: str, shape: Any = None, **kwargs: Any) -> Array:
        """Create an array of ones; nothing is stored for them."""
        return self.create_array(name, shape, **{"fill_value": 1, **kwargs})

    def full(self, name: str, shape: Any = None, fill_value: Any = None, **kwargs: Any) -> Array:
        """Create an array filled with a value; nothing is stored for it."""
        return self.create_array(name, shape, fill_value=fill_value, **kwargs)

    def empty_like(self, name: str, data: Any, **kwargs: Any) -> Array:
        """`empty` with the shape, dtype, chunks and codecs of another array."""
        return self.create_array(name, **self._like(data, {"fill_value": None, **kwargs}))

    def zeros_like(self, name: str, data: Any, **kwargs: Any) -> Array:
        """`zeros` with the shape, dtype, chunks and codecs of another array."""
        return self.create_array(name, **self._like(data, {"fill_value": 0, **kwargs}))

    def ones_like(self, name: str, data: Any, **kwargs: Any) -> Array:
        """`ones` with the shape, dtype, chunks and codecs of another array."""
        return self.create_array(name, **self._like(data, {"fill_value": 1, **kwargs}))

    def full_like(self, name: str, data: Any, fill_value: Any = None, **kwargs: Any) -> Array:
        """`full` with the shape, dtype, chunks and codecs of another array, by default its fill value too."""
        chosen = {} if fill_value is None else {"fill_value": fill_value}
        return self.create_array(name, **self._like(data, {**chosen, **kwargs}))

    def _path(self, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"names of members are strings, got {name!r}")
        path = normalize_path(name)
        if name.startswith("/") or not path:
            return path if name.startswith("/") else self.path
        return join_path(self.path, path)

    def _member_path(self, name: str) -> str:
        path = self._path(name)
        if not path or path == self.path:
            raise KeyError(f"{name!r} is not a name for a member of {self.store_path}")
        return path

    def _like(self, template: Any, keywords: dict[str, Any]) -> dict[str, Any]:
        """Keywords that make a member like another array, in the format of the group."""
        return new_nodes.like(template, {"zarr_format": self.metadata.zarr_format, **keywords})
