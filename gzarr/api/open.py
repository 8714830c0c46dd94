"""Functions that open an array, or whatever is stored, and create it where the mode allows it."""

from functools import partial
from typing import Any, Unpack

from gzarr.api.consolidated import read_with_consolidated
from gzarr.api.groups import open_group as open_group  # noqa: PLC0414 - also found here
from gzarr.errors import ArrayNotFoundError, NodeNotFoundError
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import check_free, check_vacant, found_or_created
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import OpenArrayKeywords, OpenKeywords, OpenLikeKeywords, OpenMode
from gzarr.hierarchy.options import check_keywords, given_usage
from gzarr.hierarchy.reaching import reach_node, take_format, take_mode
from gzarr.metadata.catalog import may_be_consolidated
from gzarr.metadata.documents import expect_array, expect_node, read_node
from gzarr.metadata.model import GroupMeta, NodeMeta


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
        See `create_array`. Those of the array are used only if it is created. ``read_only=True`` is mode "r". For what
        is read in place: ``virtual_containers``, places that references may lead to, besides what lies beside them;
        ``branch``, ``tag`` or ``snapshot``, the version of a repository of Icechunk.

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
        if mode != "w":
            check_free(opened, where, "mode='w'")
        return new_nodes.make(opened, where, opened_with, overwrite=mode == "w", **given)
    found: Array | NodeMeta | None
    if mode == "a" and (given.get("shape") is not None or given.get("data") is not None):
        create = partial(new_nodes.make, opened, where, opened_with, **given)
        found = found_or_created(opened, where, wanted, ArrayNotFoundError, create)
    else:
        found = read_node(opened, where, wanted)
    if isinstance(found, Array):
        return found
    meta = expect_array(opened, where, found)
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
    meta = expect_node(opened, where, meta)
    if isinstance(meta, GroupMeta):
        if use_consolidated is not None or (mode == "r" and may_be_consolidated(meta)):
            opened, consolidated = read_with_consolidated(opened, where, meta.zarr_format, mode, use_consolidated)
            meta = consolidated if isinstance(consolidated, GroupMeta) else meta
        return Group(opened, where, meta, opened_with, read_only=mode == "r")
    return Array(opened, where, meta, opened_with, read_only=mode == "r", **given_usage(given))
