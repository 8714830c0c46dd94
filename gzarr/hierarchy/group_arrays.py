"""Creates arrays in a group: what the methods of `gzarr.Group` that create do."""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.errors import ArrayNotFoundError, ContainsNodeError, MetadataError
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.array_config import given_usage
from gzarr.hierarchy.create import check_vacant
from gzarr.hierarchy.node import Node
from gzarr.hierarchy.reaching import take_format
from gzarr.indexing.chunking import parse_shape
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import GroupMeta


def new_member(group: Node[GroupMeta], name: str, data: Any, keywords: dict[str, Any]) -> Array:
    """Create an array in a group, which has its format and device."""
    group.check_metadata_writable()
    given = {**keywords}
    given.pop("device", None)
    asked, zarr_format = take_format(given.pop("zarr_format", None), given), group.metadata.zarr_format
    if asked not in (None, zarr_format):
        raise MetadataError(
            f"{group.store_path} has format {zarr_format} and cannot contain zarr_format={asked!r}; leave it out"
        )
    path = member_path(group, name)
    return new_nodes.make(group.store, path, group.opened_with, data=data, zarr_format=zarr_format, **given)


def require_member(
    group: Node[GroupMeta], name: str, shape: Any, dtype: Any, keywords: dict[str, Any], *, exact: bool
) -> Array:
    """Open the array with a name, creating it if it is missing. Raises TypeError if it has another shape or type."""
    path = member_path(group, name)
    meta = read_node(group.store, path, group.metadata.zarr_format)
    if meta is None:
        check_vacant(group.store, path, ArrayNotFoundError)
        try:
            return new_member(group, name, None, {"shape": shape, "dtype": dtype, **keywords})
        except ContainsNodeError:  # another process was faster, or something else is in the way
            meta = read_node(group.store, path, group.metadata.zarr_format)
            if meta is None:
                raise
    if isinstance(meta, GroupMeta):
        raise ContainsNodeError(f"a group, not an array, is stored at {join_path(str(group.store), path)!r}")
    usage = given_usage(keywords)
    array = Array(group.store, path, meta, group.opened_with, read_only=group._read_only, **usage)
    wanted = parse_shape(shape)
    if array.shape != wanted:
        raise TypeError(f"the existing array has shape {array.shape}, not {wanted}")
    asked = np.dtype(dtype or "f8")
    if asked != array.dtype and (exact or not np.can_cast(asked, array.dtype)):
        cast = "differ exactly" if exact else "cannot be safely cast"
        raise TypeError(f"dtypes ({asked}, {array.dtype}) {cast}: existing array {array.store_path}")
    return array


def like_member(group: Node[GroupMeta], template: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords that make a member like another array, in the format of the group."""
    return new_nodes.like(template, {"zarr_format": group.metadata.zarr_format, **keywords})


def path_from(group: Node[GroupMeta], name: str) -> str:
    """Return the path of what has a name, or a path from a group."""
    if not isinstance(name, str):
        raise TypeError(f"names of members are strings, got {name!r}")
    path = normalize_path(name)
    if name.startswith("/") and group.metadata.zarr_format == 2:  # as zarr 2 and h5py have it; zarr-python 3 has not
        return path
    return join_path(group.path, path)


def member_path(group: Node[GroupMeta], name: str) -> str:
    """Return the path of a member of a group. Raises KeyError for what names the group itself."""
    path = path_from(group, name)
    if not path or path == group.path:
        raise KeyError(f"{name!r} is not a name for a member of {group.store_path}")
    return path
