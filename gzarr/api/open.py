"""Functions that open arrays and groups, and create them where the mode allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from gzarr.api.consolidated import read_with_consolidated
from gzarr.api.keywords import take_mode
from gzarr.display.info import Tree
from gzarr.errors import (
    ArrayNotFoundError,
    ContainsArrayError,
    ContainsNodeError,
    GroupNotFoundError,
    NodeNotFoundError,
)
from gzarr.errors.escaping import escaped
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.array_config import given_usage
from gzarr.hierarchy.create import check_free, check_vacant, new_group_meta, require_group_meta
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import GroupKeywords, OpenArrayKeywords, OpenKeywords, OpenLikeKeywords, OpenMode
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.reaching import reach_group, reach_node, take_format
from gzarr.indexing.keys import join_path
from gzarr.metadata.catalog import may_be_consolidated
from gzarr.metadata.documents import found_instead, read_node
from gzarr.metadata.model import ArrayMeta, GroupMeta


def open_array(
    store: Any = None,
    mode: OpenMode | None = None,
    *,
    path: str | None = None,
    device: str | None = None,
    write_empty_chunks: bool | None = None,
    zarr_format: int | None = None,
    **kwargs: Unpack[OpenArrayKeywords],
) -> Array:
    """Open an array, creating it where the mode allows it and a shape or data are given.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping, optional
        Where the array is stored. By default in memory.
    mode : {"r", "r+", "a", "w", "w-", "x"}, optional
        "r" reads; "r+" reads and writes; "a" also creates the array if it is missing; "w" creates it anew, deleting
        what is stored there; "w-" and "x" create it and fail if something is stored there. By default "a", or "r" for a
        store that was opened for reading.
    path : str, optional
        Path of the array in the store.
    device : str, optional
        Where reads put their results: "auto", "cpu", "cuda" or "cuda:N". By default the setting ``device``.
    write_empty_chunks : bool, optional
        Whether chunks equal to the fill value are stored. By default the setting ``array.write_empty_chunks``.
    zarr_format : {2, 3}, optional
        Format to look for. By default both.
    **kwargs
        See `create_array`. Those of the array are used only if it is created. ``read_only=True`` is mode "r".

    Returns
    -------
    Array
        The array.

    Raises
    ------
    ArrayNotFoundError
        If no array is stored there and none may be created, or something that is not Zarr, or an unfinished copy.
    ContainsArrayError, ContainsGroupError
        If something is stored there and the mode is "w-" or "x".
    MetadataError
        If the stored metadata, or those of the array to create, are malformed.
    TypeError
        If a keyword is unknown, even if the array exists.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.open_array("squares.zarr", "w", shape=5, dtype="i4")
    >>> z[...] = [0, 1, 4, 9, 16]
    >>> gzarr.open_array("squares.zarr", "r")[1:4]
    array([1, 4, 9], dtype=int32)
    """
    check_keywords(kwargs, OpenArrayKeywords, open_array)
    given: dict[str, Any] = {**kwargs}
    store, path = (path, None) if store is None else (store, path)
    mode, wanted = take_mode(mode, given), take_format(zarr_format, given)
    opened, where, mode, opened_with = reach_node(store, path, mode, device, given)
    given.pop("overwrite", None)  # the mode decides
    given = {"zarr_format": wanted, "write_empty_chunks": write_empty_chunks, **given}
    if mode in ("w", "w-", "x"):
        if mode != "w" and given.get("shape") is None and given.get("data") is None:
            check_free(opened, where)
        return new_nodes.make(opened, where, opened_with, overwrite=mode == "w", **given)
    meta = read_node(opened, where, wanted)
    if meta is None and mode == "a" and (given.get("shape") is not None or given.get("data") is not None):
        check_vacant(opened, where, ArrayNotFoundError)
        try:
            return new_nodes.make(opened, where, opened_with, **given)
        except ContainsNodeError:  # another process was faster, or something else is in the way
            meta = read_node(opened, where, wanted)
            if meta is None:
                raise
    if not isinstance(meta, ArrayMeta):
        found = found_instead(opened, where, meta)
        raise ArrayNotFoundError(f"no array at {join_path(str(opened), where)!r}: {found}")
    return Array(opened, where, meta, opened_with, read_only=mode == "r", **given_usage(given))


def open_like(a: Any, path: Any = None, *, store: Any = None, **kwargs: Unpack[OpenLikeKeywords]) -> Array:
    """Open an array; if there is none, create it like another.

    Parameters
    ----------
    a : array-like
        Lends shape and dtype, a gzarr array also chunks, codecs and fill value.
    path : Store, path, URL or mapping
        Where the array is stored; its path in the store if there is one.
    store : Store, Group, path, URL or mapping, optional
        The store, as in zarr-python.
    **kwargs
        See `open_array`; what is given here takes precedence.

    Returns
    -------
    Array
        The array.
    """
    check_keywords(kwargs, OpenLikeKeywords, open_like)
    given = new_nodes.like(a, {"fill_value": getattr(a, "fill_value", 0), **kwargs})
    return open_array(path, **given) if store is None else open_array(store, path=path, **given)


def open_group(
    store: Any = None,
    mode: OpenMode | None = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    use_consolidated: bool | str | None = None,
    **kwargs: Unpack[GroupKeywords],
) -> Group:
    """Open a group, creating it where the mode allows it.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping, optional
        Where the group is stored. By default in memory.
    mode : {"r", "r+", "a", "w", "w-", "x"}, optional
        See `open_array`.
    path : str, optional
        Path of the group in the store.
    zarr_format : {2, 3}, optional
        Format to look for, by default both; or of a new group, by default the setting ``default_zarr_format``.
    attributes : mapping, optional
        User attributes of a new group.
    device : str, optional
        Where reads of the arrays in the group put their results: see `open_array`.
    use_consolidated : bool or str, optional
        Whether members are looked up in the group's consolidated metadata. A str is the key under which v2 metadata are
        stored. By default they are used if they exist and the mode is "r".
    **kwargs
        ``synchronizer``, ``chunk_store``, ``meta_array``, ``chunk_cache``, ``allow_pickle``, ``storage_options``,
        ``stream``, ``max_device_nbytes``, ``strict``, ``reader``: see `create_array`. They also hold for all members.

    Returns
    -------
    Group
        The group.

    Raises
    ------
    GroupNotFoundError
        If no group is stored there and none may be created, or something that is not Zarr, or an unfinished copy.
    ContainsArrayError, ContainsGroupError
        If an array is stored there, or something is and the mode is "w-" or "x".
    MetadataError
        If the stored metadata are malformed, or ``use_consolidated`` asks for consolidated metadata that do not exist.

    Examples
    --------
    >>> import gzarr
    >>> with gzarr.open_group("run.zarr", "w", attributes={"title": "test run"}) as root:
    ...     z = root.create_array("speed", data=[1.0, 2.5])
    >>> root = gzarr.open_group("run.zarr", "r")
    >>> root.attrs["title"], list(root)
    ('test run', ['speed'])
    """
    store, path = (path, None) if store is None else (store, path)
    given: dict[str, Any] = {**kwargs}
    wanted = take_format(zarr_format, given)
    opened, where, mode, opened_with = reach_group(open_group, store, path, mode, device, given)
    if mode in ("w", "w-", "x"):
        made = new_group_meta(opened, where, attributes or {}, wanted, overwrite=mode == "w")
        return Group(opened, where, made, opened_with)
    opened, meta = read_with_consolidated(opened, where, wanted, mode, use_consolidated)
    if isinstance(meta, ArrayMeta):
        raise ContainsArrayError(f"an array, not a group, is stored at {join_path(str(opened), where)!r}")
    if meta is None and mode == "a":
        meta = require_group_meta(opened, where, attributes or {}, wanted)
    if meta is None:
        raise GroupNotFoundError(f"no group at {join_path(str(opened), where)!r}: {found_instead(opened, where, meta)}")
    return Group(opened, where, meta, opened_with, read_only=mode == "r")


def open(
    store: Any = None, mode: OpenMode | None = None, *, path: str | None = None, **kwargs: Unpack[OpenKeywords]
) -> Array | Group:
    """Open an array or a group, whichever is stored; create one where the mode allows it.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping, optional
        Where it is stored. By default in memory.
    mode : {"r", "r+", "a", "w", "w-", "x"}, optional
        See `open_array`.
    path : str, optional
        Path in the store. Alone it is taken for the store: ``open(path="x.zarr")`` is ``open("x.zarr")``.
    **kwargs
        See `open_array` and `open_group`. With ``shape`` or ``data`` an array is created, otherwise a group.

    Returns
    -------
    Array or Group
        What is stored there.

    Raises
    ------
    NodeNotFoundError
        If nothing is stored there and nothing may be created, or something that is not Zarr, or an unfinished copy.
        Only a place where nothing is becomes a group by being opened; with ``mode="a"``, also a folder of nodes.
    ContainsArrayError, ContainsGroupError
        If something is stored there and the mode is "w-" or "x".
    MetadataError
        If the stored metadata are malformed.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.save("numbers.zarr", [1, 2, 3])
    >>> gzarr.open("numbers.zarr", "r")
    <Array file://numbers.zarr shape=(3,) dtype=int64>
    """
    check_keywords(kwargs, OpenKeywords, open)
    given: dict[str, Any] = {**kwargs}
    store, path = (path, None) if store is None else (store, path)
    use_consolidated = given.pop("use_consolidated", None)
    mode = take_mode(mode, given)
    given["zarr_format"] = take_format(given.get("zarr_format"), given)
    wants_array = given.get("shape") is not None or given.get("data") is not None
    if mode in ("w", "w-", "x"):
        create = open_array if wants_array else open_group
        return create(store, mode, path=path, **given)
    asked = mode is not None
    opened, where, mode, opened_with = reach_node(store, path, mode, given.get("device"), given)
    zarr_format = given["zarr_format"]
    meta = read_node(opened, where, zarr_format)
    if meta is None and mode == "a":
        check_vacant(opened, where, NodeNotFoundError, nodes_below=not asked)
        create = open_array if wants_array else open_group
        return create(opened, mode, path=where, **given | opened_with.keywords())
    if meta is None:
        found = found_instead(opened, where, meta)
        raise NodeNotFoundError(f"neither an array nor a group at {join_path(str(opened), where)!r}: {found}")
    if isinstance(meta, GroupMeta):
        if use_consolidated is not None or (mode == "r" and may_be_consolidated(meta)):
            opened, consolidated = read_with_consolidated(opened, where, meta.zarr_format, mode, use_consolidated)
            meta = consolidated if isinstance(consolidated, GroupMeta) else meta
        return Group(opened, where, meta, opened_with, read_only=mode == "r")
    return Array(opened, where, meta, opened_with, read_only=mode == "r", **given_usage(given))


def group(
    store: Any = None,
    overwrite: bool = False,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    **kwargs: Unpack[GroupKeywords],
) -> Group:
    """Open the group in a store, creating it if it is missing.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping, optional
        Where the group is stored. By default in memory. A store that was opened for reading must have the group.
    overwrite : bool
        Whether to delete what is stored there.
    path : str, optional
        Path of the group in the store.
    zarr_format : {2, 3}, optional
        See `open_group`.
    attributes : mapping, optional
        User attributes of a new group.
    device : str, optional
        Where reads of the arrays in the group put their results: see `open_array`.
    **kwargs
        See `open_group`.

    Returns
    -------
    Group
        The group.

    Raises
    ------
    GroupNotFoundError
        If there is no group in a store that was opened for reading, or something that is not Zarr is there, or an
        unfinished copy.
    ContainsArrayError
        If an array is stored there.

    Examples
    --------
    >>> import gzarr
    >>> root = gzarr.group()
    >>> foo = root.create_group("foo")
    >>> baz = foo.zeros("bar/baz", shape=(100, 100), dtype="i4")
    >>> root.tree()
    /
    └── foo
        └── bar
            └── baz (100, 100) int32
    """
    given: dict[str, Any] = {**kwargs}
    wanted = take_format(zarr_format, given)
    opened, where, _, opened_with = reach_group(group, store, path, "w" if overwrite else "a", device, given)
    if overwrite:
        meta = new_group_meta(opened, where, attributes or {}, wanted, overwrite=True)
    elif opened.read_only and read_node(opened, where, wanted) is None:
        raise GroupNotFoundError(f"no group at {join_path(str(opened), where)!r}, and the store is read-only")
    else:
        meta = require_group_meta(opened, where, attributes or {}, wanted)
    return Group(opened, where, meta, opened_with)


def create_group(
    store: Any = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    **kwargs: Unpack[GroupKeywords],
) -> Group:
    """Create a group.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping, optional
        Where to create the group. By default in memory.
    path : str, optional
        Path of the group in the store.
    zarr_format : {2, 3}, optional
        By default the setting ``default_zarr_format``, which is 3.
    overwrite : bool
        Whether to replace an array or group that is stored there.
    attributes : mapping, optional
        User attributes: JSON values by name.
    device : str, optional
        Where reads of the arrays in the group put their results: see `open_array`.
    **kwargs
        See `open_group`.

    Returns
    -------
    Group
        The new group.

    Raises
    ------
    ContainsArrayError, ContainsGroupError
        If something is stored there and ``overwrite`` is false.

    Examples
    --------
    >>> import gzarr
    >>> root = gzarr.create_group(attributes={"title": "test run"})
    >>> root.attrs["title"]
    'test run'
    """
    given: dict[str, Any] = {**kwargs}
    wanted = take_format(zarr_format, given)
    opened, where, _, opened_with = reach_group(create_group, store, path, "w" if overwrite else "a", device, given)
    made = new_group_meta(opened, where, attributes or {}, wanted, overwrite=overwrite)
    return Group(opened, where, made, opened_with)


def tree(group_like: Any, level: int | None = None, *, expand: bool = False) -> Tree:
    """Draw the hierarchy of a group with lines.

    Parameters
    ----------
    group_like : Group or h5py.Group
        The group.
    level : int, optional
        How many levels to show. By default all.
    expand : bool
        Accepted for zarr 2; changes nothing.

    Returns
    -------
    Tree
        Its ``repr`` is the drawing; notebooks show it as well.

    Examples
    --------
    >>> import gzarr
    >>> root = gzarr.group()
    >>> z = root.zeros("a/b", shape=10)
    >>> gzarr.tree(root, level=1)
    /
    └── a
    """
    if isinstance(group_like, Group):
        return group_like.tree(level=level)
    label = getattr(group_like, "name", "/") or "/"
    return _tree_of(group_like, label if label == "/" else label.rpartition("/")[2], level)


def _tree_of(node: Any, label: str, level: int | None) -> Tree:
    if not hasattr(node, "keys"):
        return Tree(f"{escaped(label)} {node.shape} {node.dtype}")
    below = None if level is None else level - 1
    children = [] if level == 0 else [_tree_of(node[name], name, below) for name in sorted(node.keys())]
    return Tree(escaped(label), children)
