"""Opens arrays and groups, and creates them where the mode allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gzarr.api.consolidated import read_with_consolidated
from gzarr.api.keywords import checked_format, take_group_options, take_mode, take_node_options
from gzarr.api.locating import join_storage_options, locate_node, open_store_at
from gzarr.display.info import Tree
from gzarr.errors import (
    ArrayNotFoundError,
    ContainsArrayError,
    GroupNotFoundError,
    NodeNotFoundError,
)
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import new_group_meta
from gzarr.hierarchy.group import Group
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.catalog import may_be_consolidated
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import ArrayMeta, GroupMeta


def open_array(
    store: Any = None,
    mode: str | None = None,
    *,
    path: str | None = None,
    device: str | None = None,
    write_empty_chunks: bool | None = None,
    zarr_format: int | None = None,
    **kwargs: Any,
) -> Array:
    """Open an array, creating it where the mode allows and ``shape`` is given.

    store: a store, path, URL or mapping. path: path of the array in the store.
    mode: "r" read; "r+" read and write; "a" (default) also create if missing; "w" create, deleting what is there;
        "w-" or "x" create, failing if something is there.
    device: where reads give their results: "auto", "cpu", "cuda", "cuda:N".
    kwargs: of `create_array`, used if the array is created, but the options of the device and those of
        `gzarr.hierarchy.open_options.OpenOptions` always; ``read_only=True``
        means mode "r".
    Raises: ArrayNotFoundError, ContainsArrayError, ContainsGroupError, MetadataError, TypeError for unknown keywords.
    """
    store, path = join_storage_options(path if store is None else store, kwargs), None if store is None else path
    mode = take_mode(mode, kwargs)
    opening, backend = take_node_options(device, kwargs)
    opened, where, mode = locate_node(store, path, mode)
    opened = opening.store(opened)
    options = {"zarr_format": zarr_format, "write_empty_chunks": write_empty_chunks, **kwargs}
    if mode in ("w", "w-", "x"):
        if mode == "w":
            kwargs.pop("overwrite", None)
        return new_nodes.make(opened, where, backend, overwrite=mode == "w", **_without(options, "overwrite"))
    meta = read_node(opened, where, checked_format(zarr_format))
    if meta is None and mode == "a" and (kwargs.get("shape") is not None or kwargs.get("data") is not None):
        return new_nodes.make(opened, where, backend, **_without(options, "overwrite"))
    if not isinstance(meta, ArrayMeta):
        found = "nothing is there" if meta is None else "a group is there"
        raise ArrayNotFoundError(f"no array at {join_path(str(opened), where)!r}: {found}")
    return Array(opened, where, meta, backend, read_only=mode == "r", write_empty_chunks=write_empty_chunks)


def open_like(a: Any, path: Any, **kwargs: Any) -> Array:
    """Open an array at a path; if there is none, create it like another."""
    return open_array(path, **new_nodes.like(a, {"fill_value": getattr(a, "fill_value", 0), **kwargs}))


def open_group(
    store: Any = None,
    mode: str | None = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    use_consolidated: bool | str | None = None,
    **kwargs: Any,
) -> Group:
    """Open a group, creating it where the mode allows. For modes see `open_array`, for ``kwargs`` see `group`.

    use_consolidated: whether members are looked up in the group's consolidated metadata: True, or (v2) the key that
        they are stored under; False for no; None for yes if there are any and the mode is "r".
    Raises: GroupNotFoundError, ContainsArrayError, ContainsGroupError, MetadataError, also if there are no consolidated
        metadata and ``use_consolidated`` asks for them.
    """
    store, path = join_storage_options(path if store is None else store, kwargs), None if store is None else path
    opening, backend = take_group_options(device, kwargs)
    opened, where, mode = locate_node(store, path, mode)
    opened = opening.store(opened)
    if mode in ("w", "w-", "x"):
        made = new_group_meta(opened, where, attributes or {}, zarr_format, overwrite=mode == "w")
        return Group(opened, where, made, backend)
    opened, meta = read_with_consolidated(opened, where, checked_format(zarr_format), mode, use_consolidated)
    if isinstance(meta, ArrayMeta):
        raise ContainsArrayError(f"an array, not a group, is stored at {join_path(str(opened), where)!r}")
    if meta is None and mode == "a":
        meta = new_group_meta(opened, where, attributes or {}, zarr_format)
    if meta is None:
        raise GroupNotFoundError(f"no group at {join_path(str(opened), where)!r}: nothing is there")
    return Group(opened, where, meta, backend, read_only=mode == "r")


def open(store: Any = None, mode: str | None = None, *, path: str | None = None, **kwargs: Any) -> Array | Group:
    """Open an array or group, whichever is there; create an array if ``shape`` is given, else a group.

    For modes see `open_array`; the default is "a". ``open(path="x.zarr")`` alone means ``open("x.zarr")``.
    Raises: NodeNotFoundError, ContainsArrayError, ContainsGroupError, MetadataError.
    """
    if store is None and path is not None:
        store, path = path, None
    store = join_storage_options(store, kwargs)
    use_consolidated = kwargs.pop("use_consolidated", None)
    mode = take_mode(mode, kwargs)
    wants_array = kwargs.get("shape") is not None or kwargs.get("data") is not None
    if mode in ("w", "w-", "x"):
        return (
            open_array(store, mode, path=path, **kwargs)
            if wants_array
            else open_group(store, mode, path=path, **kwargs)
        )
    opening, backend = take_node_options(kwargs.get("device"), kwargs)
    opened, where, mode = locate_node(store, path, mode)
    opened = opening.store(opened)
    zarr_format = checked_format(kwargs.get("zarr_format"))
    meta = read_node(opened, where, zarr_format)
    if meta is None and mode == "a":
        make = open_array if wants_array else open_group
        return make(opened, mode, path=where, **kwargs | {"device": backend})
    if meta is None:
        raise NodeNotFoundError(f"neither an array nor a group at {join_path(str(opened), where)!r}")
    if isinstance(meta, GroupMeta):
        if use_consolidated is not None or (mode == "r" and may_be_consolidated(meta)):
            opened, found = read_with_consolidated(opened, where, zarr_format, mode, use_consolidated)
            meta = found if isinstance(found, GroupMeta) else meta
        return Group(opened, where, meta, backend, read_only=mode == "r")
    empty_too = kwargs.get("write_empty_chunks")
    return Array(opened, where, meta, backend, read_only=mode == "r", write_empty_chunks=empty_too)


def group(
    store: Any = None,
    overwrite: bool = False,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    **kwargs: Any,
) -> Group:
    """Open the group in a store, creating it if it is missing; a read-only store is only opened.

    kwargs: of `gzarr.hierarchy.open_options.OpenOptions`, for the group and all arrays in it.

    >>> root = group()
    >>> foo = root.create_group("foo")
    >>> baz = foo.zeros("bar/baz", shape=(100, 100), dtype="i4")
    >>> root.tree()
    /
    └── foo
        └── bar
            └── baz (100, 100) int32
    """
    store = join_storage_options(store, kwargs)
    opening, backend = take_group_options(device, kwargs)
    opened, base = open_store_at(store, "w" if overwrite else "a")
    opened, where = opening.store(opened), join_path(base, normalize_path(path or ""))
    if not overwrite:
        meta = read_node(opened, where, checked_format(zarr_format))
        if isinstance(meta, ArrayMeta):
            raise ContainsArrayError(f"an array, not a group, is stored at {join_path(str(opened), where)!r}")
        if meta is not None:
            return Group(opened, where, meta, backend)
        if opened.read_only:
            raise GroupNotFoundError(f"no group at {join_path(str(opened), where)!r}, and the store is read-only")
    made = new_group_meta(opened, where, attributes or {}, zarr_format, overwrite=overwrite)
    return Group(opened, where, made, backend)


def create_group(
    store: Any = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    **kwargs: Any,
) -> Group:
    """Create a group. For ``kwargs`` see `group`. Raises: ContainsArrayError, ContainsGroupError."""
    store = join_storage_options(store, kwargs)
    opening, backend = take_group_options(device, kwargs)
    opened, base = open_store_at(store, "w" if overwrite else "a")
    opened, where = opening.store(opened), join_path(base, normalize_path(path or ""))
    made = new_group_meta(opened, where, attributes or {}, zarr_format, overwrite=overwrite)
    return Group(opened, where, made, backend)


def tree(group_like: Any, level: int | None = None, *, expand: bool = False) -> Tree:
    """The hierarchy of a group, drawn with lines; of an h5py group too. ``expand`` is zarr 2's and changes nothing."""
    if isinstance(group_like, Group):
        return group_like.tree(level=level)
    label = getattr(group_like, "name", "/") or "/"
    return _tree_of(group_like, label if label == "/" else label.rpartition("/")[2], level)


def _without(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k != name}


def _tree_of(node: Any, label: str, level: int | None) -> Tree:
    if not hasattr(node, "keys"):
        return Tree(f"{label} {node.shape} {node.dtype}")
    below = None if level is None else level - 1
    children = [] if level == 0 else [_tree_of(node[name], name, below) for name in sorted(node.keys())]
    return Tree(label, children)
