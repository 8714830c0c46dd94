"""The function that creates many arrays and groups at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group, opened_node
from gzarr.hierarchy.new_hierarchy import create_nodes
from gzarr.hierarchy.reaching import reach_node
from gzarr.indexing.keys import join_path


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
