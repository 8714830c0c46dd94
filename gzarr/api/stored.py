"""The functions of zarr 2 on stores: they create nodes, look for them, and delete, rename and list what is stored."""

from typing import Any, Unpack

from gzarr.api.create import create
from gzarr.api.groups import create_group
from gzarr.errors import NodeNotFoundError
from gzarr.hierarchy.keywords import CreateKeywords
from gzarr.hierarchy.reaching import open_place
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import delete_node, move_node, read_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta


def init_array(
    store: Any,
    shape: Any,
    chunks: Any = True,
    dtype: Any = None,
    compressor: Any = "default",
    fill_value: Any = None,
    order: str | None = None,
    **kwargs: Unpack[CreateKeywords],
) -> None:
    """Create an array in a store, as `gzarr.create` does, and return nothing.

    Parameters
    ----------
    store, shape, chunks, dtype, compressor, fill_value, order, **kwargs
        See `gzarr.create_array`.

    Examples
    --------
    >>> import gzarr
    >>> store = {}
    >>> gzarr.storage.init_array(store, shape=100, chunks=10, dtype="i4", path="foo")
    >>> gzarr.Array(store, path="foo").chunks
    (10,)
    """
    given: dict[str, Any] = {**kwargs}
    if not given.pop("storage_transformers", ()):  # nothing but an empty sequence was ever stored
        create(shape, chunks, dtype, compressor, fill_value, order, store, **given)
    else:
        raise TypeError("storage_transformers: Zarr v2 and v3 have none; leave them out")


def init_group(store: Any, overwrite: bool = False, path: str | None = None) -> None:
    """Create a group in a store, as `gzarr.create_group` does, and return nothing.

    Parameters
    ----------
    store, overwrite, path
        See `gzarr.create_group`.
    """
    create_group(store, path=path, overwrite=overwrite)


def contains_array(store: Any, path: str | None = None) -> bool:
    """Return whether an array is stored at a path."""
    return isinstance(_node(store, path), ArrayMeta)


def contains_group(store: Any, path: str | None = None) -> bool:
    """Return whether a group is stored at a path."""
    return isinstance(_node(store, path), GroupMeta)


def listdir(store: Any, path: str | None = None) -> list[str]:
    """Return the names directly under a path, sorted."""
    opened, where = open_place(store, path, "r")
    objects, below = opened.list_dir(where)
    return sorted({*objects, *below})


def getsize(store: Any, path: str | None = None) -> int:
    """Return the bytes that the object at a path occupies, or the objects directly under it."""
    opened, where = open_place(store, path, "r")
    size = opened.getsize(where) if where else None
    if size is not None:
        return size
    return sum(opened.getsize(join_path(where, name)) or 0 for name in opened.list_dir(where)[0])


def rmdir(store: Any, path: str | None = None) -> None:
    """Delete everything under a path."""
    delete_node(*open_place(store, path, "r+"))


def rename(store: Any, src_path: str, dst_path: str) -> None:
    """Rename everything under a path."""
    opened, source = open_place(store, src_path, "r+")
    move_node(opened, source, join_path(source.removesuffix(normalize_path(src_path)), normalize_path(dst_path)))


def _node(store: Any, path: str | None) -> NodeMeta | None:
    try:
        return read_node(*open_place(store, path, "r"))
    except NodeNotFoundError:  # no archive
        return None
