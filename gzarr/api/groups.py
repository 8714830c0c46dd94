"""Functions that open, create and draw groups."""

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from gzarr.api.consolidated import read_with_consolidated
from gzarr.display.info import Tree
from gzarr.errors import GroupNotFoundError
from gzarr.errors.escaping import escaped
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import check_free, create_nodes, new_group_meta, require_group_meta
from gzarr.hierarchy.group import Group, opened_node
from gzarr.hierarchy.keywords import GroupKeywords, OpenMode
from gzarr.hierarchy.reaching import reach_group, reach_node
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import expect_group, read_node


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
        ``synchronizer``, ``meta_array``, ``chunk_cache``, ``allow_pickle``, ``storage_options``,
        ``stream``, ``max_device_nbytes``, ``strict``, ``reader``: see `create_array`. They also hold for all members.
        ``virtual_containers``, ``branch``, ``tag``, ``snapshot``: see `open_array`.

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
    given: dict[str, Any] = {**kwargs, "zarr_format": zarr_format}
    opened, where, mode, opened_with, wanted = reach_group(open_group, store, path, mode, device, given)
    if mode in ("w", "w-", "x"):
        if mode != "w":
            check_free(opened, where, "mode='w'")
        made = new_group_meta(opened, where, attributes or {}, wanted, overwrite=mode == "w")
        return Group(opened, where, made, opened_with)
    opened, meta = read_with_consolidated(opened, where, wanted, mode, use_consolidated)
    if meta is None and mode == "a":
        meta = require_group_meta(opened, where, attributes or {}, wanted)
    return Group(opened, where, expect_group(opened, where, meta), opened_with, read_only=mode == "r")


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
    given: dict[str, Any] = {**kwargs, "zarr_format": zarr_format}
    opened, where, _, opened_with, wanted = reach_group(group, store, path, "w" if overwrite else "a", device, given)
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
    mode: OpenMode = "w" if overwrite else "a"
    given: dict[str, Any] = {**kwargs, "zarr_format": zarr_format}
    opened, where, _, opened_with, wanted = reach_group(create_group, store, path, mode, device, given)
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


def create_hierarchy(
    *, store: Any, nodes: Mapping[str, Any], overwrite: bool = False
) -> Iterator[tuple[str, Array | Group]]:
    """Create many arrays and groups, and the groups above them that are missing.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping
        Where to create them.
    nodes : mapping
        Metadata by path; "" is the root. Metadata are those of an array or group (``array.metadata``), also one of
        zarr-python, or a mapping as ``array.metadata.to_dict()`` gives it. All have the same format.
    overwrite : bool
        Whether to replace arrays and groups that are stored there. Groups that are not named in ``nodes`` are kept.

    Returns
    -------
    iterator of (str, Array or Group)
        Paths, and the nodes that were created, which exist when the function returns.

    Raises
    ------
    MetadataError
        If metadata are malformed or of different formats, an array would contain a node, or two paths are the same.
    ContainsArrayError, ContainsGroupError
        If something is stored at one of the paths and ``overwrite`` is false. Nothing is created then.

    Examples
    --------
    >>> import gzarr
    >>> like = gzarr.zeros((100, 100), chunks=(10, 10), dtype="i4").metadata
    >>> store = gzarr.MemoryStore()
    >>> sorted(name for name, node in gzarr.create_hierarchy(store=store, nodes={"a/x": like, "a/y": like}))
    ['', 'a', 'a/x', 'a/y']
    """
    opened, path, _, opened_with = reach_node(store, None, "a", None, {})
    created = create_nodes(opened, path, nodes, overwrite=overwrite)
    return iter(
        [(name, opened_node(opened, join_path(path, name), meta, opened_with)) for name, meta in created.items()]
    )
